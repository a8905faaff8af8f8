"""Name remedies of a pipeline's slowest stage: of its cause, and none that does harm there."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_tfperf.advice.changes import PARALLEL, PREFETCH
from pytest_tfperf.facts.stages import ASYNC, Stage, asynchronous_above, nearest_above, stage_type
from pytest_tfperf.quantities import BYTES, SHARE, format_quantity
from pytest_tfperf.recording import ENDLESS, UNSEEN, PipelineStage
from pytest_tfperf.values import Unknown

_BATCHES = frozenset({"Batch", "ParallelBatch", "PaddedBatch"})
_CACHES = frozenset({"Cache", "MemoryCache", "MemoryCacheImpl", "FileCache"})
_TAKES = frozenset({"Take", "FiniteTake"})
_FILTERS = frozenset({"Filter"})
_FEW = 0.5  # least share of elements that a filter must keep not to be named
_FUSED = {"MapAndBatch": ("Map", "Batch"), "ShuffleAndRepeat": ("Shuffle", "Repeat")}
_PREFIX = re.compile(r"\A(?:Parallel|Finite|Forever|Memory|File)(?=[A-Z])")
_MAPS = frozenset({"Map", "MapAndBatch", "ParallelMap"})
_OPENERS = frozenset({"Interleave", "FlatMap"})
_WORK = frozenset({"Map", "FlatMap", "Interleave", "Generator", "Filter"})
MOST_CALL_S = 50e-6  # that calling a function may cost besides (advice/thresholds.py)
_MEMORY_SHARE = 0.5  # of the machine's memory, that a cache may take
_NEVER = "the cache behind it is never full"
_LATER = f"{_NEVER}: steps of later epochs still ran this stage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline in a trace, and what is known of it besides."""

    stages: Sequence[Stage]
    """Its stages in the trace."""
    recorded: tuple[PipelineStage, ...] | Unknown = UNSEEN
    """Its stages as the data define them, from the source to the step."""
    n_taken: float = math.inf
    """Elements that steps had taken when the trace ended."""
    later_epoch: bool = False
    """True if an epoch had ended before."""


def remedies(stage: Stage, pipeline: Pipeline) -> list[str]:
    """Return what makes a pipeline faster that a stage slows down."""
    stages, found = pipeline.stages, []
    if kept := _kept_of(stage, stages):
        share = format_quantity(kept, SHARE)
        found.append(f"filter before it: the filter behind it keeps {share} of its elements")
    if stage.name == "Generator" and _rows(stage) > 1:
        found.append(
            f"yield whole batches: Python runs for each of the {_rows(stage):.0f} rows of an "
            "element; or from_tensor_slices, if the rows are in memory"
        )
    elif stage.python:
        found.append(
            "replace the Python function by TensorFlow ops (Python runs one call at a time)"
        )
    if cheap_call_s(stage):
        found.append("batch before map, so that one call of the function maps a whole batch")
    opener = sequential_opener(stage)
    if opener == "Interleave":
        found.append(f"interleave(..., {PARALLEL}), which runs several inputs at once")
    elif stage.name in _MAPS and stage.parallel_calls == 1:
        first = f"{found.pop()}, then " if stage.python and found else ""
        found.append(f"{first}map(..., {PARALLEL})")
    elif stage.name == "FlatMap" and stage.parallel_calls == 1:
        found.append(
            "each call makes a dataset of its own: make the elements by a map on tensors "
            "(tf.gather, tf.signal.frame for windows), or fewer and larger datasets in "
            f"interleave(..., {PARALLEL})"
        )
    elif opener:
        found.append(f"interleave(..., {PARALLEL}) in place of flat_map()")
    elif stage.reads_files and stage.parallel_calls == 1:
        found.append(f"read several files at once: interleave(..., {PARALLEL})")
    if stage.name.startswith("Shuffle"):
        found.append("a smaller shuffle buffer")
    elif not opener and (cache := cache_behind(stage, pipeline)):
        found.append(cache)
    if not _runs_ahead(stages):
        found.append(f"end the pipeline with {PREFETCH}")
    return found or ["do less work an element in this stage, or give it more cores"]


def _kept_of(stage: Stage, stages: Sequence[Stage]) -> float:
    """Return the share of a stage's elements that a filter behind it keeps, 0 if it is most."""
    path = nearest_above(stage.path, _FILTERS)
    kept = next((one.per_element for one in stages if one.path == path), math.inf)
    return kept / stage.per_element if kept < _FEW * stage.per_element else 0.0


def unbatched(stages: Sequence[Stage]) -> tuple[Stage, Stage] | None:
    """Return the stage that takes batches apart, and the one that makes batches of their rows."""
    for split in stages:
        path = nearest_above(split.path, _BATCHES) if split.name == "Unbatch" else ""
        joined = next((one for one in stages if one.path == path), None)
        if joined is not None:
            return split, joined
    return None


def cheap_call_s(stage: Stage) -> float:
    """
    Return the seconds of a function that runs for each element of a batch and costs less than its
    call may; 0 if it is another one.
    """
    is_of_rows = stage.name == "MapAndBatch" or _rows(stage) > 1
    is_cheap = stage.runs.n and stage.runs.mean_s < MOST_CALL_S and not stage.python
    is_map = stage.name in _MAPS and stage.per_element > 1
    return stage.runs.mean_s if is_map and is_of_rows and is_cheap else 0.0


def sequential_opener(stage: Stage) -> str:
    """
    Return `Interleave` or `FlatMap` if that runs a stage for one input at a time, else empty.

    A generator and a reader of files are in a flat_map of TensorFlow's own, which does not count.
    """
    path = nearest_above(stage.path, _OPENERS)
    opener, runs_ahead = stage_type(path), len(asynchronous_above(stage.path)) > len(path)
    is_tensorflows = opener == "FlatMap" and (stage.name == "Generator" or stage.reads_files)
    return "" if stage.parallel_calls > 1 or runs_ahead or is_tensorflows else opener


def starts(pipeline: Pipeline) -> list[tuple[str, str]]:
    """Return what a pipeline does before the first element of an epoch, each with a remedy."""
    names = [] if isinstance(pipeline.recorded, Unknown) else [s.stage for s in pipeline.recorded]
    below_first = sorted(pipeline.stages, key=lambda stage: -stage.depth)
    kinds = [kind for name in names or [s.name for s in below_first] for kind in _kinds(name)]
    found = []
    for place, kind in enumerate(kinds):
        works = not _WORK.isdisjoint(kinds[:place])
        if kind == "Shuffle":
            earlier = "shuffle before map, while elements are small; or " if works else ""
            found.append(("shuffle() fills its buffer", f"{earlier}a smaller shuffle buffer"))
        elif kind == "Skip" and works:
            found.append(
                (
                    "skip() drops elements that stages before it have made",
                    "skip() before these stages, or files of its own for each part of the data",
                )
            )
    return list(dict.fromkeys(found))


def _runs_ahead(stages: Sequence[Stage]) -> bool:
    """
    Return whether the last stage works while the step does.

    TensorFlow puts a prefetch behind a last stage that does not, unless options forbid it
    (tensorflow/core/grappler/optimizers/data/inject_prefetch.cc).
    """
    host = [stage for stage in stages if not stage.on_device]
    last = min(host, key=lambda stage: stage.depth, default=None)
    return last is not None and last.name in ASYNC


def cache_behind(stage: Stage, pipeline: Pipeline) -> str | None:
    """Return the advice to cache what a stage makes, None where that does harm or is done."""
    if nearest_above(stage.path, _CACHES) or is_drawn_anew(stage, pipeline):
        return None
    recorded = () if isinstance(pipeline.recorded, Unknown) else pipeline.recorded
    before = _up_to(stage, pipeline)
    made = before[-1] if before else None
    size = math.nan
    if _repeats(stage, pipeline):
        behind = "cache() right behind it, and repeat() not before but after that"
    elif made is not None and made.elements == ENDLESS:
        return None
    elif made is not None and made.random:
        return "split it: cache() behind the part that is not random, and the random ops after it"
    elif made is not None and made.elements and made.element_bytes:
        size = made.elements * made.element_bytes
        shown = format_quantity(size, BYTES)
        behind = f"cache() right behind it ({made.elements:,} elements of {shown} together)"
    else:
        behind = "cache() right behind it"
    if size > _MEMORY_SHARE * _memory():
        return None
    conditions = ["fit in memory"] if math.isnan(size) else []
    known = before or recorded
    if not known or any(one.python for one in known) or (not before and _any_random(recorded)):
        conditions.append("hold nothing random")
    return behind + (f", if the data {' and '.join(conditions)}" if conditions else "")


def is_drawn_anew(stage: Stage, pipeline: Pipeline) -> bool:
    """Return whether a stage gets other elements in each epoch, which nothing may keep."""
    below = (other for other in pipeline.stages if other.path.startswith(f"{stage.path}::"))
    is_random = any(other.name.startswith(("Shuffle", "Random")) for other in below)
    return is_random or _any_random(_up_to(stage, pipeline)[:-1])


def _repeats(stage: Stage, pipeline: Pipeline) -> bool:
    """Return whether the data repeat for ever before a stage."""
    return any(
        other.name == "ForeverRepeat" and other.path.startswith(f"{stage.path}::")
        for other in pipeline.stages
    )


def not_full(stage: Stage, pipeline: Pipeline) -> tuple[str, str] | None:
    """Return why a cache behind a stage does not keep its work, and a remedy; None without one."""
    path = nearest_above(stage.path, _CACHES)
    if not path:
        return None
    recorded = () if isinstance(pipeline.recorded, Unknown) else pipeline.recorded
    places = [place for place, one in enumerate(recorded) if one.stage == "Cache"]
    behind = recorded[places[-1] :] if places else ()
    kept = behind[0].elements if behind else None
    taken = next((one.elements for one in behind if one.stage == "Take"), None)
    if nearest_above(path, _TAKES) and (kept is None or taken is None or taken < kept):
        where = _LATER if pipeline.later_epoch else f"{_NEVER}: take() ends each epoch before"
        return where, "put take() before cache()"
    cache = next((other for other in pipeline.stages if other.path == path), None)
    passed = pipeline.n_taken * (cache.per_element if cache else 1.0)
    if pipeline.later_epoch and (kept is None or passed >= kept):
        return _LATER, "read the data to their end once: a cache keeps nothing of a part"
    return "the cache behind it was still filling", "let the warm-up (warmup=) cover an epoch"


def _rows(stage: Stage) -> float:
    """Return the calls of a stage for an element, if a later stage makes batches of them."""
    return stage.per_element if nearest_above(stage.path, _BATCHES) else 1.0


def _up_to(stage: Stage, pipeline: Pipeline) -> tuple[PipelineStage, ...]:
    """
    Return the recorded stages up to one of the trace; empty if it is not clear which one that is.

    TensorFlow puts stages in and fuses others, but keeps their order. So a stage is the n-th of its
    kind in both, if both have as many.
    """
    if isinstance(pipeline.recorded, Unknown):
        return ()
    kind = _kinds(stage.name)[0]
    alike = [other for other in pipeline.stages if kind in _kinds(other.name)]
    chain = [f"{other.path}::" for other in alike]
    mine = f"{stage.path}::"
    places = [place for place, one in enumerate(pipeline.recorded) if kind in _kinds(one.stage)]
    is_chain = all(path.startswith(mine) or mine.startswith(path) for path in chain)
    if not is_chain or len(places) != len(alike):
        return ()
    n_below = sum(path.startswith(mine) for path in chain)  # with the stage itself
    return pipeline.recorded[: places[n_below - 1] + 1]


def _kinds(name: str) -> tuple[str, ...]:
    return _FUSED.get(name, (_PREFIX.sub("", name),))


def _any_random(stages: Sequence[PipelineStage]) -> bool:
    return any(one.random for one in stages)


def _memory() -> float:
    """Return the bytes of the machine's memory."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))

"""
Advise on changes of an input pipeline that limits the steps, each on evidence in the trace.

They are those of the guides "Better performance with the tf.data API" and "Analyze tf.data
performance with the TF Profiler". None saves more than the steps wait, nor more than it leaves of
the step if the rest is perfect: the slowest thread's other work, or the work of its busy workers.
Names and stats of the events are those of TensorFlow 2.18 to 2.22 (tensorflow/core/data and
tensorflow/core/kernels/data).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.advice import guides
from pytest_tfperf.advice.changes import PARALLEL
from pytest_tfperf.advice.input_remedies import is_drawn_anew
from pytest_tfperf.advice.thresholds import THRESHOLDS
from pytest_tfperf.facts.stages import (
    Stage,
    nearest_above,
    slowest_thread,
    stage_above,
    stage_groups,
    stage_type,
)
from pytest_tfperf.metrics.copies import copies_for_input
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.metrics.pipeline import Waiting, waiting_of
from pytest_tfperf.metrics.shares import host_values
from pytest_tfperf.metrics.validity import faults
from pytest_tfperf.quantities import format_quantity
from pytest_tfperf.text import plural
from pytest_tfperf.trace.events import Events, parents
from pytest_tfperf.trace.intervals import Spans, intersect, merge
from pytest_tfperf.trace.xspace import HOST, Trace
from pytest_tfperf.values import Advice, Unknown

_BATCHES = frozenset({"Batch", "ParallelBatch", "MapAndBatch"})
_MAPS = frozenset({"Map", "ParallelMap", "MapAndBatch"})
_KEEPS = frozenset({"Cache", "MemoryCache", "MemoryCacheImpl", "FileCache", "Snapshot"})
"""Stages behind which work is done once (cache_dataset_ops.cc, snapshot_dataset_op.cc)."""
_STEADY = 2
"""Most elements that a call of a full shuffle buffer takes in; at an epoch's end it takes two."""
_SETUP = "SetupStreamsLocked"
"""End of the names of the events in which a reader opens a file (`TFRecordDatasetOp::Iterator`)."""
_INITIALIZE = "ParallelInterleaveInitializeInput"
"""Events in which a parallel interleave makes the iterator of its next file."""
_OPENERS = frozenset({"FlatMap", "Interleave"})
"""Stages that make an iterator for each file, on the thread of their caller."""


def analyse(evidence: Evidence) -> Findings:
    """
    Find the advice on a pipeline that the steps wait for.

    There is none if they wait for copies to a device, or if Keras made it: nobody can change its
    stages.
    """
    if evidence.trace is None or faults(evidence.trace) or evidence.steps.why_untimed:
        return Findings()
    recorded = evidence.recording.pipeline
    if not isinstance(recorded, Unknown) and any(stage.by_keras for stage in recorded):
        return Findings()
    share = host_values(evidence, evidence.trace)["input_bound"].number
    stages = [stage for stage in evidence.stages if not stage.on_device]
    if not share or not stages or copies_for_input(evidence):
        return Findings()
    trace, _ = evidence.pipeline
    fills, openings = find_fills(trace, evidence.pipeline_waits), find_openings(trace, stages)
    return Findings(advice=pipeline_advice(waiting_of(evidence, share), fills, openings))


def pipeline_advice(
    waiting: Waiting, fills: Sequence[Fill], openings: Openings
) -> tuple[Advice, ...]:
    """Return the advice that could save a share of the step that is worth it."""
    least_s = THRESHOLDS.input * waiting.step_s
    if waiting.wait_s < least_s:
        return ()
    found = (
        *_shuffle(waiting, fills),
        *_vectorize(waiting),
        *_prepare(waiting),
        *_files(waiting, openings),
        *_order(waiting),
        *_threads(waiting),
    )
    return tuple(advice for advice in found if (advice.win_s or 0.0) >= least_s)


def _shuffle(waiting: Waiting, fills: Sequence[Fill]) -> Iterable[Advice]:
    for fill in fills:
        inner = f"{fill.path}::"
        below = {one.name for one in waiting.pipeline.stages if one.path.startswith(inner)}
        if below & _BATCHES:
            what = "shuffle before batch: the buffer then holds elements and not batches"
        elif below & (_MAPS | {"Generator"}):
            what = "shuffle before map: the buffer then fills with elements that cost little"
        else:
            what = "a smaller shuffle buffer, with the order of the files shuffled before it"
        size = f" of {plural(fill.buffer_size, 'element')}" if fill.buffer_size else ""
        waited_s = fill.waited_s / waiting.n_steps
        yield _advice(
            waiting,
            what=what,
            because=(
                f"stage {stage_type(fill.path)} fills its buffer{size} for "
                f"{format_quantity(waited_s, 's')} a step"
            ),
            removes_s=waited_s,
            read=guides.SHUFFLING,
        )


def _vectorize(waiting: Waiting) -> Iterable[Advice]:
    """Advise to map batches; what a call costs beside its function is in no event of a stage."""
    stages = waiting.pipeline.stages
    sizes = {other.path: other.batch_size for other in stages if other.name in _BATCHES}
    for stage in waiting.slowest:
        if stage.name not in _MAPS or stage.python or not stage.runs.n:
            continue
        size = _batched_by(stage, sizes)
        if size > 1 and stage.runs.mean_s < THRESHOLDS.cheap_call_s:
            yield _advice(
                waiting,
                what="batch before map, so that one call of the function maps a whole batch",
                because=(
                    f"stage {stage.title} runs a function of "
                    f"{format_quantity(stage.runs.mean_s, 's')} for each of the "
                    f"{size} elements of a batch, and a call costs as much besides"
                ),
                removes_s=waiting.wait_s,
                read=guides.VECTORIZING,
            )


def _prepare(waiting: Waiting) -> Iterable[Advice]:
    total = sum(stage.cost_s for stage in waiting.slowest)
    stages = [
        stage
        for stage in waiting.slowest
        # nothing behind it keeps its results
        if not nearest_above(stage.path, _KEEPS) and not is_drawn_anew(stage, waiting.pipeline)
    ]
    repeated = [(stage, _prepared_share(stage)) for stage in stages if _prepared_share(stage)]
    cost = sum(stage.cost_s * share for stage, share in repeated)
    if not cost or cost < THRESHOLDS.prepared * total:
        return
    largest, _ = max(repeated, key=lambda one: one[0].cost_s * one[1])
    yield _advice(
        waiting,
        what=(
            "prepare the data once, but for random augmentation: Dataset.save behind this stage, "
            "then Dataset.load; or cache(FILE), or snapshot(PATH)"
        ),
        because=(
            f"stage {largest.title} {'runs Python' if largest.python else 'decodes'} in every "
            f"epoch, {format_quantity(cost / total, '0..1')} of the slowest thread's work"
        ),
        removes_s=_share_up_to(largest, waiting) * waiting.step_s,
        read=guides.SAVING,
    )


def _files(waiting: Waiting, openings: Openings) -> Iterable[Advice]:
    if not openings.n_files or not any(stage.path in openings.paths for stage in waiting.slowest):
        return
    opening_s = openings.opening_s / waiting.n_steps
    records = openings.n_records / openings.n_files
    yield _advice(
        waiting,
        what=(f"fewer and larger files, several open at once: interleave(..., {PARALLEL})"),
        because=(
            f"opening {plural(openings.n_files, 'file')} of {records:.0f} records takes "
            f"{format_quantity(opening_s, 's')} a step"
        ),
        removes_s=opening_s,
        read=guides.READING,
    )


def _order(waiting: Waiting) -> Iterable[Advice]:
    """Advise to give up the order, where results wait for a long run and workers for a place."""
    for stage in waiting.slowest:
        runs = stage.runs
        if not stage.ordered or stage.parallelism < 2 or not runs.n:
            continue
        if runs.longest_s >= THRESHOLDS.straggling * runs.mean_s:
            busy_s = runs.n * runs.mean_s / stage.parallelism / waiting.n_steps
            yield _advice(
                waiting,
                what="options.deterministic = False, if the order of elements may change",
                because=(
                    f"stage {stage.title} has runs of up to "
                    f"{format_quantity(runs.longest_s, 's')}, of "
                    f"{format_quantity(runs.mean_s, 's')} in the mean, and results wait for those "
                    "before them"
                ),
                removes_s=max(waiting.step_s - busy_s, 0.0),
                read=guides.SOURCES,
            )


def _threads(waiting: Waiting) -> Iterable[Advice]:
    pool = [stage for stage in waiting.pipeline.stages if stage.pool_s]
    slowest_s, _stages = slowest_thread(waiting.pipeline.stages)
    threads = max((stage.threads for stage in pool), default=0)
    cores = max((stage.cores for stage in pool), default=0)
    limits = pool and sum(stage.pool_s for stage in pool) >= slowest_s
    if not limits or not 0 < threads < cores:
        return
    if sum(stage.parallel_calls for stage in pool) > threads:
        yield _advice(
            waiting,
            what=f"options.threading.private_threadpool_size = {cores}",
            because=(
                f"the functions of the pipeline share {plural(threads, 'thread')}, and "
                f"{cores} cores are there"
            ),
            removes_s=waiting.step_s * (1 - threads / cores),
            read=guides.THREADS,
        )


def _advice(waiting: Waiting, *, what: str, because: str, removes_s: float, read: str) -> Advice:
    """Make a piece of advice."""
    return Advice(
        what=what,
        because=because,
        win_s=min(removes_s, waiting.wait_s),
        look="the input pipeline's stages",
        read=read,
    )


def _batched_by(stage: Stage, sizes: Mapping[str, int]) -> int:
    """Return the size of the batches that a stage's elements become, of `sizes` by path, or 0."""
    path = stage.path
    while path and path not in sizes:
        path = nearest_above(path, _BATCHES)
    return sizes.get(path, 0)


def _prepared_share(stage: Stage) -> float:
    """Return the share of a stage's work that could be done before the training."""
    if stage.python:
        return 1.0
    work_s = stage.runs.n * stage.runs.mean_s
    return stage.runs.decoding_s / work_s if work_s else 0.0


def _share_up_to(last: Stage, waiting: Waiting) -> float:
    """Return the share of the slowest thread's work that a stage and those before it have."""
    up_to = [stage for stage in waiting.slowest if f"{stage.path}::".startswith(f"{last.path}::")]
    return sum(stage.cost_s for stage in up_to) / sum(stage.cost_s for stage in waiting.slowest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """The filling of a shuffle buffer."""

    path: str
    buffer_size: int
    """Elements, 0 if unknown."""
    waited_s: float
    """Seconds in which a step waited meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Openings:
    """The opening of files."""

    paths: frozenset[str]
    """Paths of the stages that read the files and that open them."""
    n_files: int
    n_records: int
    opening_s: float
    """Seconds of all threads that made iterators of files and opened them."""


def find_fills(trace: Trace, waits: Spans) -> tuple[Fill, ...]:
    """Find shuffle buffers that filled while a step waited, by calls that took many elements."""
    iterators = Events.of(trace.plane(HOST)).named(lambda name: name.startswith("Iterator::"))
    if not len(iterators):
        return ()
    paths, group = stage_groups(iterators)
    above = parents(iterators)
    taken = np.bincount(above[above >= 0], minlength=len(iterators))
    found = []
    for place, path in enumerate(paths):
        if not stage_type(path).startswith("Shuffle"):
            continue
        filling = iterators.where((group == place) & (taken > _STEADY))
        waited = intersect(merge(filling.spans), waits)
        waited_s = int((waited[1] - waited[0]).sum()) * 1e-12
        if waited_s:
            size = int(filling.integers("buffer_size").max())
            found.append(Fill(path=path, buffer_size=size, waited_s=waited_s))
    return tuple(found)


def find_openings(trace: Trace, stages: Sequence[Stage]) -> Openings:
    """Find what opening files took, with the functions that make an iterator for each."""
    host = Events.of(trace.plane(HOST))
    setups = host.named(lambda name: name.endswith(_SETUP))
    initialised = host.called(_INITIALIZE)
    readers = [stage for stage in stages if stage.reads_files]
    above = {stage_above(stage.path) for stage in readers}
    openers = [stage for stage in stages if stage.path in above and stage.name in _OPENERS]
    spent_ps = sum(int((events.end - events.start).sum()) for events in (setups, initialised))
    return Openings(
        paths=frozenset(stage.path for stage in (*readers, *openers)),
        n_files=len(setups),
        n_records=sum(stage.calls for stage in readers),
        opening_s=spent_ps * 1e-12 + sum(stage.self_s for stage in openers),
    )

"""Name the cause of waits for input, in a sentence that its own numbers bear out, and a remedy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pytest_tfperf.advice.by_framework import LOAD_AHEAD, text_for
from pytest_tfperf.advice.input_remedies import (
    MOST_CALL_S,
    Pipeline,
    cheap_call_s,
    not_full,
    remedies,
    sequential_opener,
    starts,
    unbatched,
)
from pytest_tfperf.facts.host_activity import JAX, TENSORFLOW
from pytest_tfperf.facts.stages import Stage, slowest_thread
from pytest_tfperf.facts.waits import RareWaits, elements_taken, rare_waits
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.timing import block_seconds, mean_step, timed_step
from pytest_tfperf.quantities import format_quantity
from pytest_tfperf.recording import PipelineStage
from pytest_tfperf.stats.steady_state import slow_start
from pytest_tfperf.values import Unknown

_EXPLAINS = 0.5  # of the wait of a step, that the work of a stage must be
_SMALL_WORK = 0.1  # of the waits of all devices together; ten devices wait at once
_ALL = 0.98  # of a traced step
_EDGES = 0.1  # of an element a step
_SHOWN = 3
_OPENERS = {"Interleave": "interleave()", "FlatMap": "flat_map()"}
_FOR_PY_DATASET = (
    "workers= and max_queue_size= of the PyDataset (of fit in Keras 2), with "
    "use_multiprocessing=True if its code runs Python and not NumPy; or less work in __getitem__"
)
# Keras 3.15's pipeline takes 1.2 to 2.8 times as long as this one, and shuffled 0.4 to 1.4 times:
# six shapes and batches on two cores, 2026-11-25.
_FOR_ARRAYS = (
    "larger batches (batch_size=); without shuffling, a tf.data.Dataset of the arrays: "
    "from_tensor_slices(...).batch(...).prefetch(tf.data.AUTOTUNE)"
)
_FOR_ARRAYS_WITHOUT_TF_DATA = "larger batches (batch_size=)"
_NO_STAGE = "no tf.data stage ran"
_NO_WORK = "the trace shows no whole call of a tf.data stage, and so not which one is the slowest"
_TRACE_MORE = "trace more steps (trace_steps=), for the stage that takes it to show"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The wait of a step, what the trace shows of it, and the pipeline behind it."""

    wait_s: float
    """Seconds that a step waits."""
    step_s: float
    """Mean seconds of a step."""
    usual_step_s: float = math.inf
    """Median seconds of a step, which `step_time` shows."""
    traced_wait_s: float
    """Seconds that a traced step waited."""
    traced_step_s: float
    """Seconds of a traced step."""
    n_steps: int
    """Number of traced steps."""
    elements: float = 1.0
    """Elements that a step takes."""
    rare: RareWaits | None = None
    """Those timed calls that hold most of the wait, if a few do."""
    pipeline: Pipeline = field(default_factory=lambda: Pipeline(stages=()))
    """The pipeline."""

    def work_s(self, stage: Stage) -> float:
        """
        Return the seconds of a step in which a stage works.

        It works as long as its elements take, and at least as long as it was seen to while steps
        waited. What traced steps have no time for makes them wait only once buffers have drained.
        """
        needed = stage.cost_s * self.elements
        most = max(self.traced_step_s, self.wait_s)
        return min(max(needed, stage.blocking_s / max(self.n_steps, 1)), most)


def input_cause(evidence: Evidence, share: float) -> dict[str, str]:
    """Return `where` and `try` for steps of which a share waits for input."""
    if not evidence.stages:
        return no_stage_cause(evidence.framework)
    return waiting_cause(_waiting(evidence, share))


def no_stage_cause(framework: str = TENSORFLOW) -> dict[str, str]:
    """Return `where` and `try` for steps of a framework that wait, while no stage ran."""
    elements = "elsewhere" if framework == JAX else "Python code"
    where = f"{_NO_STAGE}: the elements come from {elements}"
    return {"where": where, "try": text_for(LOAD_AHEAD, framework)}


def _waiting(evidence: Evidence, share: float) -> Waiting:
    recording, (trace, steps) = evidence.recording, evidence.pipeline
    begun = float((steps.of(elements_taken(trace).start) >= 0).sum())
    traced_step_s = float(steps.period_ps.sum()) * 1e-12 / steps.n_steps
    waits = evidence.pipeline_waits
    step_s = mean_step(recording).number or traced_step_s
    per_step = begun / steps.n_steps or 1.0
    if abs(per_step - round(per_step)) <= _EDGES:  # some begin before the trace, or end after it
        per_step = round(per_step)
    n_dropped = slow_start(block_seconds(recording))
    fetches = recording.fetches if evidence.timed_waits else None
    return Waiting(
        wait_s=share * step_s,
        step_s=step_s,
        usual_step_s=timed_step(recording).number or step_s,
        traced_wait_s=float((waits[1] - waits[0]).sum()) * 1e-12 / steps.n_steps,
        traced_step_s=traced_step_s,
        n_steps=steps.n_steps,
        elements=per_step,
        rare=rare_waits(fetches, recording.epoch_starts, n_dropped) if fetches else None,
        pipeline=Pipeline(
            stages=evidence.stages,
            recorded=recording.pipeline,
            n_taken=evidence.late.n_steps * per_step or np.inf,
            later_epoch=evidence.late.n_epochs > 0,
        ),
    )


def waiting_cause(waiting: Waiting) -> dict[str, str]:
    """Return `where` and `try` for steps that wait for a pipeline with stages in the trace."""
    stages = waiting.pipeline.stages
    if waiting.rare is not None:
        return _rare_cause(waiting.rare, waiting)
    if not stages[0].self_s:
        return {"where": _NO_WORK, "try": "trace more steps, for whole calls of the stages to show"}
    if stages[0].on_device:
        return _device_waits(stages[0], waiting)
    stage = max(stages, key=waiting.work_s)
    needed = _EXPLAINS * waiting.wait_s
    rows = unbatched(stages)
    if rows and stage in rows and sum(map(waiting.work_s, rows)) >= needed:
        return _row_by_row(rows, waiting)
    if waiting.work_s(stage) >= needed:
        return _of_step(stage, waiting)
    thread = sorted(slowest_thread(stages)[1], key=waiting.work_s, reverse=True)
    together = min(sum(map(waiting.work_s, thread)), waiting.traced_step_s)
    if len(thread) > 1 and together >= needed:
        shown = [f"{_titled(one)} ({_s(waiting.work_s(one))})" for one in thread[:_SHOWN]]
        found = remedies(thread[0], waiting.pipeline)
        return {
            "where": f"stages that work one after the other take {_of(together, waiting)}: "
            f"{', '.join(shown)}",
            "try": "; ".join([*found, "prefetch() between them, so that they work side by side"]),
        }
    if call_s := cheap_call_s(stage):
        n_calls = stage.per_element * waiting.elements
        if n_calls * MOST_CALL_S >= needed:
            return {
                "where": f"stage {_titled(stage)} runs a function of {_s(call_s)} for each of the "
                f"{n_calls:.0f} elements of a step, and each call costs about as much besides",
                "try": "; ".join(remedies(stage, waiting.pipeline)),
            }
    if waiting.traced_wait_s < needed:
        return {
            "where": f"the traced steps waited for {_s(waiting.traced_wait_s)} each, and the timed "
            f"ones for {_s(waiting.wait_s)}: the trace does not show which stage takes it",
            "try": "let both do the same: more warm-up (warmup=), or windows of whole epochs "
            "(steps=, trace_steps=)",
        }
    largest = f"stage {_titled(stage)}, works for {_s(waiting.work_s(stage))}"
    return {
        "where": f"a step waits for {_s(waiting.wait_s)}, and the slowest, {largest} a step: the "
        "trace does not show which stage takes it",
        "try": _TRACE_MORE,
    }


def _row_by_row(stages: Sequence[Stage], waiting: Waiting) -> dict[str, str]:
    """Return the cause that is a pipeline which hands on the rows of batches one by one."""
    split, joined = stages
    work_s = min(sum(map(waiting.work_s, stages)), max(waiting.traced_step_s, waiting.wait_s))
    n_rows = split.per_element * waiting.elements
    apart = split.path.count("::") - joined.path.count("::") > 1
    return {
        "where": f"{_titled(split)} hands on the {n_rows:,.0f} rows of a step one by one, and "
        f"{_titled(joined)} joins them again ({_of(work_s, waiting)} together)",
        "try": "leave unbatch() out, and let the stages behind it take whole batches"
        if apart
        else "rebatch(n) in place of unbatch().batch(n): it cuts and joins whole batches",
    }


def stage_cause(stage: Stage, pipeline: Pipeline) -> dict[str, str]:
    """Return `where` and `try` for a pipeline whose capacity is that of a stage."""
    return _cause(stage, pipeline, f"{_s(stage.cost_s)} an element", stage.per_element)


def _of_step(stage: Stage, waiting: Waiting) -> dict[str, str]:
    """Return the cause that is a stage, by its seconds of a step."""
    takes = _of(waiting.work_s(stage), waiting)
    return _cause(stage, waiting.pipeline, takes, stage.per_element * waiting.elements)


def _of(work_s: float, waiting: Waiting) -> str:
    """Return seconds of a step, with the step that they are of where `step_time` is shorter."""
    if work_s <= min(waiting.step_s, waiting.usual_step_s):
        return f"{_s(work_s)} a step"
    if _ALL * waiting.traced_step_s <= work_s <= waiting.traced_step_s:
        return f"all {_s(work_s)} of a step under the profiler"
    if work_s <= waiting.traced_step_s:
        return f"{_s(work_s)} a step of {_s(waiting.traced_step_s)} under the profiler"
    return f"{_s(work_s)} a step of {_s(waiting.step_s)} in the mean"


def _cause(stage: Stage, pipeline: Pipeline, takes: str, n_calls: float) -> dict[str, str]:
    calls = f"{n_calls:.0f} calls" if n_calls >= 2 else ""
    spread = f"{stage.parallelism} in parallel" if stage.parallelism > 1 else "sequential"
    if opener := sequential_opener(stage):
        spread += f" in {_OPENERS[opener]}"
    kind = "runs Python" if stage.python else ""
    facts = ", ".join(filter(None, (calls, spread, kind)))
    where = f"stage {_titled(stage)} ({takes}: {facts}) is the slowest"
    empty = not_full(stage, pipeline)
    if empty:
        return {"where": f"{where}; {empty[0]}", "try": empty[1]}
    return {"where": where, "try": "; ".join(remedies(stage, pipeline))}


def _rare_cause(rare: RareWaits, waiting: Waiting) -> dict[str, str]:
    """Return the cause that is in a few steps: first ones, those of epochs, or others."""
    others = f"{_s(rare.longest_s)}, and the others for {_s(rare.usual_s)}"
    if rare.begin_epochs:
        begun = starts(waiting.pipeline)
        return {
            "where": f"the first step of each epoch waits for up to {others}: "
            + ", and ".join(["its pipeline starts anew", *(what for what, _ in begun)]),
            "try": "; ".join(
                [
                    *(remedy for _, remedy in begun),
                    "repeat() the dataset, so that one iter() serves all epochs",
                ]
            ),
        }
    where = f"{rare.n} of {rare.n_calls} steps hold most of the wait: up to {others}"
    if rare.first:
        return {
            "where": f"{where}; they are the first ones",
            "try": "more warm-up (warmup=), until the pipeline runs as it does for long",
        }
    stage = max(waiting.pipeline.stages, key=lambda one: one.runs.longest_s)
    if stage.runs.longest_s >= _EXPLAINS * rare.longest_s:
        where += f"; stage {_titled(stage)} has runs of up to {_s(stage.runs.longest_s)}"
    return {
        "where": where,
        "try": "look at what the elements of these steps do; a larger prefetch() bridges rare "
        "long ones",
    }


def _device_waits(end: Stage, waiting: Waiting) -> dict[str, str]:
    """Return `where` and `try` if the end of the pipeline on a device waits for the host's."""
    stages = waiting.pipeline.stages
    host = [stage for stage in stages if not end.path.startswith(stage.path)]
    if not host:
        return {
            "where": (
                "the device's own prefetch waited for the host: no stage of the host's pipeline "
                "is in the trace"
            ),
            "try": (
                "trace more steps, for the host's pipeline to show; end it with "
                "prefetch(tf.data.AUTOTUNE), and copy ahead"
            ),
        }
    before = (
        f"the device's own prefetch waited {_s(end.self_s / waiting.n_steps)} a step for the host, "
        "whose"
    )
    if host[0].busy_s < _SMALL_WORK * end.self_s:
        return {
            "where": f"{before} pipeline works less: handing elements over takes the time",
            "try": "give each replica a larger batch, so that fewer elements are handed over",
        }
    cause = _of_step(host[0], waiting)
    return {**cause, "where": f"{before} {cause['where']}"}


def with_keras_source(
    detail: Mapping[str, Any], pipeline: tuple[PipelineStage, ...] | Unknown
) -> dict[str, Any]:
    """
    Return the detail of a value with remedies for the source from which Keras makes the pipeline.

    Args:
        detail: The detail, whose `where` is of Keras' own stages in the trace, if it has any.
        pipeline: The stages of the data; those of a tf.data pipeline leave the detail as it is.
    """
    source = pipeline[0] if not isinstance(pipeline, Unknown) and pipeline else None
    if source is None or not source.by_keras or "where" not in detail:
        return dict(detail)
    line = f" at {source.line}" if source.line else ""
    is_in_tf_data = not detail["where"].startswith(_NO_STAGE)
    if source.python:
        made, remedy = f"the PyDataset {source.stage}{line} makes the elements", _FOR_PY_DATASET
    elif is_in_tf_data:
        made, remedy = "Keras makes the pipeline of arrays", _FOR_ARRAYS
    else:
        made, remedy = "Keras makes the batches of arrays", _FOR_ARRAYS_WITHOUT_TF_DATA
    where = f"{made}; {detail['where']}" if is_in_tf_data else made
    return {**detail, "where": where, "try": remedy}


def _titled(stage: Stage) -> str:
    return stage.name + (f" {stage.node!r}" if stage.node else "")


def _s(seconds: float) -> str:
    return format_quantity(seconds, "s")

"""
The input pipeline: the rate at which it could deliver, its stages, and the cause of waits for it.

The data that the steps were given are the evidence: a dataset holds its stages and their functions,
also those that a trace does not show because they are cheap, or run ahead. Without them the trace
counts what it shows. A zero from the trace needs stages that have no functions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pytest_tfperf.advice.by_framework import LOAD_AHEAD, NO_PYTHON_STAGE, text_for
from pytest_tfperf.advice.changes import PREFETCH
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
from pytest_tfperf.facts.stages import Stage, slowest_thread, stage_above
from pytest_tfperf.facts.waits import RareWaits, elements_taken, loops_in_graph, rare_waits
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.metrics.timing import block_seconds, mean_step, timed_step
from pytest_tfperf.quantities import COUNT, SECONDS, format_quantity
from pytest_tfperf.recording import PipelineStage
from pytest_tfperf.stats.steady_state import slow_start
from pytest_tfperf.text import and_more
from pytest_tfperf.values import Column, Source, Table, Unknown, Value

_METRIC = "input_python_stages"
_MOST_STAGES = 1_000
_GENERATOR = "Generator"
"""Stage of `from_generator`, whose three functions are Python (from_generator_op.py)."""
_WITHOUT_FUNCTIONS = frozenset(
    {
        "AssertCardinality",
        "Batch",
        "Cache",
        "Concatenate",
        "FiniteRepeat",
        "FiniteSkip",
        "FiniteTake",
        "FixedLengthRecord",
        "ForeverRepeat",
        "MemoryCache",
        "MemoryCacheImpl",
        "FileCache",
        "Options",
        "PaddedBatch",
        "ParallelBatch",
        "Prefetch",
        "Range",
        "Repeat",
        "Shard",
        "Shuffle",
        "ShuffleAndRepeat",
        "Skip",
        "Take",
        "Tensor",
        "TensorSlice",
        "TextLine",
        "TFRecord",
        "Unbatch",
        "Window",
        "Zip",
    }
)
"""Stages that call no function of the user's (tensorflow/core/ops/dataset_ops.cc)."""
_SOURCES = frozenset(
    {"FixedLengthRecord", "Range", "Tensor", "TensorSlice", "TextLine", "TFRecord"}
)
"""Those of them that take from no other stage."""
_NO_DATA = (
    "the steps were given no data, and the trace shows no input pipeline; pass the data: "
    "tf_profile(step, data), tf_profile.steps(data) or a Keras loop"
)
_IN_GRAPH = (
    "a tf.function loops over a dataset (for … in dataset), whose stages are not visible there; "
    "pass the dataset: tf_profile(step, data)"
)
_NOT_SHOWN = (
    "the trace shows no Python in {}, but a trace may leave it out; pass the dataset: "
    "tf_profile(step, data), tf_profile.steps(data) or a Keras loop"
)
_TRY_KERAS = "set workers= and max_queue_size= of the PyDataset, or use a tf.data.Dataset"
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
    f"from_tensor_slices(...).batch(...).{PREFETCH}"
)
_FOR_ARRAYS_WITHOUT_TF_DATA = "larger batches (batch_size=)"
_NO_STAGE = "no tf.data stage ran"
_NO_WORK = "the trace shows no whole call of a tf.data stage, and so not which one is the slowest"
_TRACE_MORE = "trace more steps (trace_steps=), for the stage that takes it to show"


def analyse_capacity(evidence: Evidence) -> Findings:
    """
    Find the stages of the pipeline, its capacity, and how long steps of a target would wait for it.

    While a step waits the pipeline does what it can, so its capacity is at most the elements ÷ the
    time that the steps waited for them. A step of the target waits as a share of its period: period
    = max(target, elements a step ÷ capacity), share = 1 − target ÷ period.
    """
    names = capacity_name, at_target_name = "input_capacity", "input_bound_at_target"
    if evidence.trace is None:
        return evidence.untraced(*names)
    stages, (trace, steps) = evidence.stages, evidence.pipeline
    tables = {"stages": stage_table(stages, steps.n_steps)} if stages else {}
    taken = elements_taken(trace)
    begun = steps.of(taken.start) >= 0
    n_waited_for = int((begun | (steps.of(taken.end - 1) >= 0)).sum())
    waited_s = float(np.subtract(*evidence.pipeline_waits[::-1]).sum()) * 1e-12
    capacity, why = input_capacity(stages), ""
    cut_off = next((stage.name for stage in stages if stage.calls == 0 == stage.runs.n), None)
    if capacity is None:
        why = (
            "no tf.data stage made an element while the steps were traced, so what the pipeline "
            "costs is not known"
        )
    elif cut_off is not None:
        why = (
            f"no call of stage {cut_off} began and ended while the steps were traced, so what an "
            "element costs is not known; trace more steps"
        )
    elif waited_s and not n_waited_for:
        why = "the traced steps lie within the wait for one element; trace more steps"
    if capacity is None or why:
        unknown = {name: Value.unknown(name, why) for name in names}
        return Findings(values=unknown, tables=tables)
    capacity = min(capacity, n_waited_for / waited_s if waited_s else math.inf)
    recorded = evidence.recording.pipeline
    slowest = max(stages, key=lambda stage: stage.cost_s)
    cause = stage_cause(slowest, Pipeline(stages=stages, recorded=recorded))
    cause = with_keras_source(cause, recorded)
    target_s = evidence.asked.target_step_time_s
    if target_s is None:
        why = "no target: give target_step_time, as in '12 ms'"
        at_target = Value.unknown(at_target_name, why)
    else:
        share = 1 - target_s / max(target_s, float(begun.sum()) / steps.n_steps / capacity)
        detail = {"target_step_time_s": target_s, **cause}
        at_target = Value.of(at_target_name, share, Source.PREDICTED, **detail)
    found = Value.of(capacity_name, capacity, Source.TRACE, **cause)
    return Findings(values={capacity_name: found, at_target_name: at_target}, tables=tables)


def input_capacity(stages: Sequence[Stage]) -> float | None:
    """Return the elements per second that the pipeline could deliver alone, None if unknown."""
    slowest, _ = slowest_thread(stages)
    return 1 / slowest if slowest > 0 else None


def stage_table(stages: Sequence[Stage], n_steps: int) -> Table:
    """Tabulate the tree of stages, the step's side first."""
    return Table.of_each(
        "input pipeline, from the step down",
        sorted(stages, key=lambda stage: stage.path),
        [
            (Column("stage", "stage"), lambda one: "  " * (one.depth - 1) + one.name),
            (Column("name", "name"), lambda one: one.node),
            (Column("calls", "calls a step", COUNT), lambda one: one.calls / n_steps),
            (Column("self_s", "self time a step", SECONDS), lambda one: one.self_s / n_steps),
            (Column("blocking_s", "blocks a step", SECONDS), lambda one: one.blocking_s / n_steps),
            (Column("element_s", "an element", SECONDS), lambda one: one.cost_s),
            (Column("parallelism", "parallelism", COUNT), lambda one: one.parallelism),
            (
                Column("buffered", "buffered", COUNT),
                lambda one: one.buffered if one.buffer_limit else None,
            ),
            (Column("buffer_limit", "of", COUNT), lambda one: one.buffer_limit or None),
            (Column("kind", "kind"), _kind),
        ],
    )


def _kind(stage: Stage) -> str:
    facts = {
        "Python": stage.python,
        "put in by TensorFlow": stage.injected,
        "reads files": stage.reads_files,
        "on the device": stage.on_device,
    }
    return ", ".join(fact for fact, holds in facts.items() if holds)


def analyse(evidence: Evidence) -> Findings:
    """Find the stages of the input pipeline, and those that run Python."""
    pipeline = evidence.recording.pipeline
    if not isinstance(pipeline, Unknown):
        table = Table.of(
            "input pipeline, from the source to the step",
            (Column("stage", "stage"), Column("python", "Python"), Column("line", "line")),
            [(stage.stage, stage.python, stage.line) for stage in pipeline],
            limit=_MOST_STAGES,
        )
        value = _value(pipeline, Source.GRAPH, evidence.framework)
        return Findings(values={_METRIC: value}, tables={"pipeline": table})
    if pipeline.why or evidence.trace is None:
        why = pipeline.why or evidence.recording.ended or _NO_DATA
        return Findings(values={_METRIC: Value.unknown(_METRIC, why)})
    if loops_in_graph(evidence.trace):
        return Findings(values={_METRIC: Value.unknown(_METRIC, _IN_GRAPH)})
    return _in_trace(evidence.stages, evidence.framework)


def _in_trace(stages: Sequence[Stage], framework: str) -> Findings:
    """
    Count a trace's stages that ran Python; a zero needs the whole pipeline down to its source,
    since a cache or a full buffer hides the rest.
    """
    host = [stage for stage in stages if not stage.on_device]
    shown = [
        PipelineStage(stage=stage.name, python="Python")
        for stage in host
        if stage.python or stage.name == _GENERATOR
    ]
    if shown:
        return Findings(values={_METRIC: _value(shown, Source.TRACE, framework)})
    inner = {stage_above(stage.path) for stage in host}
    ends = {stage.name for stage in host if stage.path not in inner}
    hidden = sorted(({stage.name for stage in host} - _WITHOUT_FUNCTIONS) | (ends - _SOURCES))
    if not host or hidden:
        why = _NOT_SHOWN.format(and_more(hidden, 3)) if host else _NO_DATA
        return Findings(values={_METRIC: Value.unknown(_METRIC, why)})
    return Findings(values={_METRIC: _value([], Source.TRACE, framework)})


def _value(pipeline: Sequence[PipelineStage], source: Source, framework: str) -> Value:
    python = [stage for stage in pipeline if stage.python]
    if not python:
        return Value.of(_METRIC, 0, source)
    where = "; ".join(
        f"{stage.stage} runs Python"
        + (f" ({stage.python})" if stage.python != "Python" else "")
        + (f" at {stage.line}" if stage.line else "")
        for stage in python
    )
    is_keras = all(stage.by_keras for stage in python)
    remedy = _TRY_KERAS if is_keras else text_for(NO_PYTHON_STAGE, framework)
    detail = {"where": where, "try": remedy}
    return Value.of(_METRIC, len(python), source, **detail)


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
    traced_step_s: float
    n_steps: int
    """Traced steps."""
    elements: float = 1.0
    """Elements that a step takes."""
    rare: RareWaits | None = None
    """Those timed calls that hold most of the wait, if a few do."""
    pipeline: Pipeline = field(default_factory=lambda: Pipeline(stages=()))

    @property
    def slowest(self) -> list[Stage]:
        """The stages that the slowest thread runs."""
        return slowest_thread(self.pipeline.stages)[1]

    def work_s(self, stage: Stage) -> float:
        """
        Return a stage's seconds of work in a step: of its elements, and at least as seen while
        steps waited, since buffers have to drain before the traced steps wait for the rest.
        """
        needed = stage.cost_s * self.elements
        most = max(self.traced_step_s, self.wait_s)
        return min(max(needed, stage.blocking_s / max(self.n_steps, 1)), most)


def input_cause(evidence: Evidence, share: float) -> dict[str, str]:
    """Return `where` and `try` for steps of which a share waits for input."""
    if not evidence.stages:
        return no_stage_cause(evidence.framework)
    return waiting_cause(waiting_of(evidence, share))


def no_stage_cause(framework: str = TENSORFLOW) -> dict[str, str]:
    """Return `where` and `try` for steps of a framework that wait, while no stage ran."""
    elements = "elsewhere" if framework == JAX else "Python code"
    where = f"{_NO_STAGE}: the elements come from {elements}"
    return {"where": where, "try": text_for(LOAD_AHEAD, framework)}


def waiting_of(evidence: Evidence, share: float) -> Waiting:
    """Return the wait of steps of which a share waits for input."""
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
    thread = sorted(waiting.slowest, key=waiting.work_s, reverse=True)
    together = min(sum(map(waiting.work_s, thread)), waiting.traced_step_s)
    if len(thread) > 1 and together >= needed:
        shown = [f"{one.title} ({_s(waiting.work_s(one))})" for one in thread[:_SHOWN]]
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
                "where": f"stage {stage.title} runs a function of {_s(call_s)} for each of the "
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
    largest = f"stage {stage.title}, works for {_s(waiting.work_s(stage))}"
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
        "where": f"{split.title} hands on the {n_rows:,.0f} rows of a step one by one, and "
        f"{joined.title} joins them again ({_of(work_s, waiting)} together)",
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
    where = f"stage {stage.title} ({takes}: {facts}) is the slowest"
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
        where += f"; stage {stage.title} has runs of up to {_s(stage.runs.longest_s)}"
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
                f"{PREFETCH}, and copy ahead"
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
    """Return the detail, with remedies for the source where Keras makes the pipeline."""
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


def _s(seconds: float) -> str:
    return format_quantity(seconds, "s")

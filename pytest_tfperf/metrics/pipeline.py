"""
The input pipeline: the rate at which it could deliver, its stages, and those that run Python.

The data that the steps were given are the evidence: a dataset holds its stages and their functions,
also those that a trace does not show because they are cheap, or run ahead. Without them the trace
counts what it shows. A zero from the trace needs stages that have no functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pytest_tfperf.advice.by_framework import NO_PYTHON_STAGE, text_for
from pytest_tfperf.advice.input_remedies import Pipeline
from pytest_tfperf.facts.stages import Stage, slowest_thread, stage_above
from pytest_tfperf.facts.waits import elements_taken, loops_in_graph
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.metrics.input_causes import stage_cause, with_keras_source
from pytest_tfperf.quantities import COUNT, SECONDS
from pytest_tfperf.recording import PipelineStage
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


def analyse_capacity(evidence: Evidence) -> Findings:
    """Find the pipeline's capacity, and its stages."""
    if evidence.trace is None:
        return evidence.untraced("input_capacity", "input_bound_at_target")
    stages, (trace, steps) = evidence.stages, evidence.pipeline
    taken = elements_taken(trace)
    begun = steps.of(taken.start) >= 0
    n_waited_for = int((begun | (steps.of(taken.end - 1) >= 0)).sum())
    waited_s = float(np.subtract(*evidence.pipeline_waits[::-1]).sum()) * 1e-12
    found = capacity_values(
        Pipeline(stages=stages, recorded=evidence.recording.pipeline),
        float(begun.sum()) / steps.n_steps,
        evidence.recording.target_step_time_s,
        n_waited_for / waited_s if waited_s else math.inf,
    )
    return Findings(
        values={
            name: replace(
                value, detail=with_keras_source(value.detail, evidence.recording.pipeline)
            )
            for name, value in found.items()
        },
        tables={"stages": stage_table(stages, steps.n_steps)} if stages else {},
    )


def capacity_values(
    pipeline: Pipeline,
    elements_per_step: float,
    target_s: float | None,
    at_most: float = math.inf,
) -> dict[str, Value]:
    """
    Return input_capacity and input_bound_at_target.

    The capacity is unknown if no call of a stage began and ended in the trace. While a step waits
    the pipeline does what it can, so it is at most the elements ÷ the time that the steps waited
    for them.

    A step of the target waits as a share of its period: period = max(target, elements a step ÷
    capacity), share = 1 − target ÷ period.

    Args:
        pipeline: The pipeline.
        elements_per_step: Elements that a step consumes.
        target_s: Seconds of a step of the target, or None.
        at_most: Elements a second that the steps' waits allow.
    """
    stages = pipeline.stages
    capacity = input_capacity(stages)
    cut_off = next((stage.name for stage in stages if stage.calls == 0 == stage.runs.n), None)
    if capacity is None or cut_off is not None:
        why = (
            "no tf.data stage made an element while the steps were traced, so what the pipeline "
            "costs is not known"
            if capacity is None
            else f"no call of stage {cut_off} began and ended while the steps were traced, so what "
            "an element costs is not known; trace more steps"
        )
        return {
            name: Value.unknown(name, why) for name in ("input_capacity", "input_bound_at_target")
        }
    capacity = min(capacity, at_most)
    slowest = max(stages, key=lambda stage: stage.cost_s)
    found = Value.of("input_capacity", capacity, Source.TRACE, **stage_cause(slowest, pipeline))
    if target_s is None:
        return {
            "input_capacity": found,
            "input_bound_at_target": Value.unknown(
                "input_bound_at_target", "no target: give target_step_time, as in '12 ms'"
            ),
        }
    period = max(target_s, elements_per_step / capacity)
    share = 1 - target_s / period
    at_target = Value.of(
        "input_bound_at_target",
        share,
        Source.PREDICTED,
        target_step_time_s=target_s,
        **found.detail,
    )
    return {"input_capacity": found, "input_bound_at_target": at_target}


def input_capacity(stages: Sequence[Stage]) -> float | None:
    """
    Return the elements per second that the pipeline could deliver alone, or None without a known
    cost.
    """
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
        return _found(pipeline, evidence.framework)
    if pipeline.why or evidence.trace is None:
        why = pipeline.why or evidence.recording.ended or _NO_DATA
        return Findings(values={_METRIC: Value.unknown(_METRIC, why)})
    if loops_in_graph(evidence.trace):
        return Findings(values={_METRIC: Value.unknown(_METRIC, _IN_GRAPH)})
    return _in_trace(evidence.stages, evidence.framework)


def _in_trace(stages: Sequence[Stage], framework: str) -> Findings:
    """
    Count the stages of a trace that ran Python.

    A zero needs the whole pipeline, down to its source: a cache or a full buffer hides the rest.
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


def _found(pipeline: Sequence[PipelineStage], framework: str) -> Findings:
    value = _value(pipeline, Source.GRAPH, framework)
    return Findings(values={_METRIC: value}, tables={"pipeline": pipeline_table(pipeline)})


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


def pipeline_table(pipeline: Sequence[PipelineStage]) -> Table:
    """Tabulate the stages that the data define, in the order in which elements pass them."""
    return Table.of(
        "input pipeline, from the source to the step",
        (Column("stage", "stage"), Column("python", "Python"), Column("line", "line")),
        [(stage.stage, stage.python, stage.line) for stage in pipeline],
        limit=_MOST_STAGES,
    )

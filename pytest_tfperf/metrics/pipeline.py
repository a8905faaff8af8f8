"""
Count the stages of the input pipeline that run Python.

The data that the steps were given are the evidence: a dataset holds its stages and their functions,
also those that a trace does not show because they are cheap, or run ahead. Without them the trace
counts what it shows. A zero from the trace needs stages that have no functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_tfperf.facts.host_activity import JAX, TENSORFLOW
from pytest_tfperf.facts.stages import Stage, stage_above
from pytest_tfperf.facts.waits import loops_in_graph
from pytest_tfperf.metrics.evidence import Evidence, Findings
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
_TRY = {
    TENSORFLOW: "write it with TensorFlow ops, or prepare the data before the training; one thread "
    "at a time runs Python, so parallel calls do not help",
    JAX: "load ahead in processes of their own (Grain's DataLoader with workers), or prepare the "
    "data before the training; one thread at a time runs Python",
}
_TRY_ANYWHERE = "prepare the data before the training"
_TRY_KERAS = "set workers= and max_queue_size= of the PyDataset, or use a tf.data.Dataset"


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
    remedy = _TRY_KERAS if is_keras else _TRY.get(framework, _TRY_ANYWHERE)
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

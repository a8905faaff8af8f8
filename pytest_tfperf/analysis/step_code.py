"""Analyses of the step's code rather than its run: padding, alignment, the op guide."""

from __future__ import annotations

from dataclasses import replace

from pytest_tfperf.analysis.evidence import Evidence, Findings
from pytest_tfperf.analysis.host.shown import JAX
from pytest_tfperf.op_guide import findings as op_guide
from pytest_tfperf.padding.gpu_alignment import gpu_alignment
from pytest_tfperf.padding.measured import trace_generation
from pytest_tfperf.padding.overhead import (
    MATRIX_UNIT,
    MEMORY,
    lowered_modules,
    padding_values,
)
from pytest_tfperf.trace.devices import tpus
from pytest_tfperf.values import Unknown, Value

TPU_METRICS = (op_guide.METRIC, MEMORY, MATRIX_UNIT)
"""Metrics about TPUs; others are of no use without one."""
_NOT_ASKED = (
    "not computed: it is about TPUs, the step ran on none, and neither tpu= (tfperf_tpu) nor a "
    "limit asks for it"
)

_OF_JAX = "padding of JAX's programs is measured where they run on a TPU, and not predicted"
_NO_GRAPH = "the rules look at graphs of TensorFlow ops, and JAX has none"


def analyse_padding(evidence: Evidence) -> Findings:
    """Find the padding on TPUs: measured where one ran the step, else predicted."""
    if _is_left_out(evidence, MEMORY) and _is_left_out(evidence, MATRIX_UNIT):
        return _left_out(MEMORY, MATRIX_UNIT)
    trace, code = evidence.trace, evidence.code
    recording = replace(evidence.completed, lowered=code.lowered, ops=code.ops)
    if _ran_elsewhere_on_jax(evidence):
        return Findings(
            values={name: Value.unknown(name, _OF_JAX) for name in (MEMORY, MATRIX_UNIT)}
        )
    if trace is None:
        values, tables = padding_values(recording)
        return Findings(values=values, tables=tables)
    found, use = evidence.executables, evidence.xla
    runs = use.in_metadata(found)
    values, tables = padding_values(
        recording,
        [(found[name], runs[name]) for name in runs],
        trace_generation(trace),
        len(use.modules) - len(found),
    )
    return Findings(values=values, tables=tables)


def analyse_alignment(evidence: Evidence) -> Findings:
    """Find the matrix products whose sizes do not suit the tensor cores of the traced GPUs."""
    if evidence.trace is None:
        return Findings()
    recording = replace(evidence.recording, lowered=evidence.code.lowered)
    known = recording.lowered and not isinstance(recording.lowered, Unknown)
    modules = lowered_modules(recording) if known else evidence.executables.values()
    table, advice = gpu_alignment(evidence.trace, modules)
    return Findings(tables={"alignment": table} if table else {}, advice=tuple(advice))


def analyse_op_guide(evidence: Evidence) -> Findings:
    """Find the rules of the Cloud TPU op guide that the step breaks."""
    if _is_left_out(evidence, op_guide.METRIC):
        return _left_out(op_guide.METRIC)
    if evidence.recording.framework == JAX:
        return Findings(values={op_guide.METRIC: Value.unknown(op_guide.METRIC, _NO_GRAPH)})
    recording = replace(evidence.completed, ops=evidence.code.ops)
    found = op_guide.shown_findings(recording)
    return Findings(
        values={op_guide.METRIC: op_guide.value(recording, found)},
        tables=op_guide.table(found),
        notes=op_guide.notes(found, recording.ignore_findings),
    )


def _ran_elsewhere_on_jax(evidence: Evidence) -> bool:
    """Return whether JAX ran the steps, and on no TPU."""
    trace = evidence.trace
    return evidence.recording.framework == JAX and (trace is None or not tpus(trace))


def _is_left_out(evidence: Evidence, metric: str) -> bool:
    """Return whether nothing asks for a metric about TPUs, and no TPU ran the step."""
    trace = evidence.trace
    return metric in evidence.recording.left_out and (trace is None or not tpus(trace))


def _left_out(*metrics: str) -> Findings:
    return Findings(values={name: Value.not_asked(name, _NOT_ASKED) for name in metrics})

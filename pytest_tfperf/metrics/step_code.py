"""Analyses of the step's code rather than its run: padding, alignment, the op guide."""

from __future__ import annotations

from pytest_tfperf.facts.hlo_ops import ops_of_hlo
from pytest_tfperf.facts.host_activity import JAX
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.op_guide import findings as op_guide
from pytest_tfperf.padding.gpu_alignment import gpu_alignment
from pytest_tfperf.padding.measured import trace_generation
from pytest_tfperf.padding.overhead import (
    MATRIX_UNIT,
    MEMORY,
    padding_values,
)
from pytest_tfperf.recorded_graphs import OpGraph, op_lines
from pytest_tfperf.recording import UNSEEN
from pytest_tfperf.trace.devices import tpus
from pytest_tfperf.values import Unknown, Value

_NO_PROGRAM = "JAX shows the programs of a step before optimisation only if pytest runs it"
TPU_METRICS = (op_guide.METRIC, MEMORY, MATRIX_UNIT)
"""Metrics about TPUs; others are of no use without one."""
_NOT_ASKED = (
    "not computed: it is about TPUs, the step ran on none, and neither tpu= (tfperf_tpu) nor a "
    "limit asks for it"
)


def analyse_padding(evidence: Evidence) -> Findings:
    """Find the padding on TPUs: measured where one ran the step, else predicted."""
    if _is_left_out(evidence, MEMORY) and _is_left_out(evidence, MATRIX_UNIT):
        return _left_out(MEMORY, MATRIX_UNIT)
    trace, recording, lowered = evidence.trace, evidence.recording, evidence.inlined
    lines = op_lines(UNSEEN if evidence.framework == JAX else evidence.code.ops)
    if trace is None:
        values, tables = padding_values(recording, lowered, lines)
        return Findings(values=values, tables=tables)
    found, use = evidence.executables, evidence.xla
    runs = use.in_metadata(found)
    values, tables = padding_values(
        recording,
        lowered,
        lines,
        [(found[name], runs[name]) for name in runs],
        trace_generation(trace),
        len(use.modules) - len(found),
    )
    if not tpus(trace):
        values = evidence.on_its_platform(values)
    return Findings(values=values, tables=tables)


def analyse_alignment(evidence: Evidence) -> Findings:
    """Find the matrix products whose sizes do not suit the tensor cores of the traced GPUs."""
    if evidence.trace is None:
        return Findings()
    lowered = () if isinstance(evidence.inlined, Unknown) else evidence.inlined
    modules = [module for module, _ in lowered] or evidence.executables.values()
    table, advice = gpu_alignment(evidence.trace, modules)
    return Findings(tables={"alignment": table} if table else {}, advice=tuple(advice))


def analyse_op_guide(evidence: Evidence) -> Findings:
    """Find the rules of the Cloud TPU op guide that the step breaks."""
    if _is_left_out(evidence, op_guide.METRIC):
        return _left_out(op_guide.METRIC)
    ops = _ops_of_jax(evidence) if evidence.framework == JAX else evidence.code.ops
    recording = evidence.recording
    found = op_guide.shown_findings(ops, recording.findings, recording.ignore_findings)
    whys = [one.why for one in (ops, recording.graph) if isinstance(one, Unknown)]
    values = {op_guide.METRIC: op_guide.value(found, next(filter(None, whys), ""))}
    return Findings(
        values=evidence.on_its_platform(values),
        tables=op_guide.table(found),
        notes=op_guide.notes(found, recording.ignore_findings),
    )


def _ops_of_jax(evidence: Evidence) -> OpGraph | Unknown:
    """Return the ops of the programs of a step of JAX, before optimisation."""
    if isinstance(evidence.inlined, Unknown):
        return Unknown(evidence.inlined.why or _NO_PROGRAM)
    return ops_of_hlo(module for module, _ in evidence.inlined)


def _is_left_out(evidence: Evidence, metric: str) -> bool:
    """Return whether nothing asks for a metric about TPUs, and no TPU ran the step."""
    trace = evidence.trace
    return metric in evidence.recording.left_out and (trace is None or not tpus(trace))


def _left_out(*metrics: str) -> Findings:
    return Findings(values={name: Value.not_asked(name, _NOT_ASKED) for name in metrics})

"""Analyses of the step's code rather than its run: padding, alignment, the op guide."""

from __future__ import annotations

from dataclasses import replace

from pytest_tfperf.analysis.evidence import Evidence, Findings
from pytest_tfperf.op_guide import findings as op_guide
from pytest_tfperf.padding.gpu_alignment import gpu_alignment
from pytest_tfperf.padding.measured import trace_generation
from pytest_tfperf.padding.overhead import lowered_modules, padding_values
from pytest_tfperf.values import Unknown


def analyse_padding(evidence: Evidence) -> Findings:
    """Find the padding on TPUs: measured where one ran the step, else predicted."""
    trace, code = evidence.trace, evidence.code
    recording = replace(evidence.completed, lowered=code.lowered, ops=code.ops)
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
    recording = replace(evidence.completed, ops=evidence.code.ops)
    found = op_guide.shown_findings(recording)
    return Findings(
        values={op_guide.METRIC: op_guide.value(recording, found)},
        tables=op_guide.table(found),
        notes=op_guide.notes(found, recording.ignore_findings),
    )

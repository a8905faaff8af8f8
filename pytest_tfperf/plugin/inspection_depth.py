"""Depth of the analysis: what a test asks for, and how large a step may be for it."""

from __future__ import annotations

from pytest_tfperf.analysis.evidence import Evidence
from pytest_tfperf.capture.inspection import Depth, StepInspection
from pytest_tfperf.capture.sessions import read_session
from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.compiler.lowering import UNASKED_NODES
from pytest_tfperf.compiler.step_graph import UNASKED_NODES as UNASKED_GRAPH_NODES
from pytest_tfperf.recording import Recording

_FROM_GRAPPLER = ("graph_ops", "graph_reduction")
_FROM_GRAPHS = (*_FROM_GRAPPLER, "xla_coverage")
_FROM_OPS = ("op_guide_findings", "padding_overhead")
"""Padding takes the ops for the lines of its arrays."""
_FROM_HLO = (
    "flops",
    "half_precision",
    "flops_utilization",
    "padding_overhead",
    "mxu_padding_overhead",
)


def evidence_of(recording: Recording, inspection: StepInspection) -> Evidence:
    """Read the traces of a recording."""
    trace = read_session(recording.trace) if recording.trace else None
    first = read_session(recording.cold) if recording.cold else None
    return Evidence(recording, trace, first, inspection)


def asked_findings(wanted: Wanted) -> set[str]:
    """Return the metrics and tables that a test asks for."""
    asked = {limit.metric.name for limit in wanted.limits}
    if wanted.findings or wanted.ignore_findings:
        asked.add("op_guide_findings")
    if asked.intersection(_FROM_GRAPPLER):
        asked |= {"optimizers", "surviving"}
    return asked


def inspection_depth(wanted: Wanted) -> Depth:
    """Return how thoroughly to inspect; a large step only where a limit needs it."""
    return Depth(
        hlo=None if wanted.asks_for(_FROM_HLO) else UNASKED_NODES,
        graphs=None if wanted.asks_for(_FROM_GRAPHS) else UNASKED_GRAPH_NODES,
        ablation=wanted.asks_for(_FROM_GRAPPLER),
        op_guide=wanted.asks_for(_FROM_OPS),
    )

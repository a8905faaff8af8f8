"""Analyses of the step's code rather than its run: padding, alignment, the op guide."""

from __future__ import annotations

from dataclasses import replace

from pytest_tfperf.facts.host_activity import JAX
from pytest_tfperf.graphs import StepGraph
from pytest_tfperf.hlo.cost import Programs, products_in
from pytest_tfperf.hlo.products import Product
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.tpu import op_guide
from pytest_tfperf.tpu.gpu_alignment import gpu_alignment
from pytest_tfperf.tpu.padding import MATRIX_UNIT, MEMORY, padding_values, trace_generation
from pytest_tfperf.tpu.tiles import DEFAULT, generation
from pytest_tfperf.trace.devices import gpus, tpus
from pytest_tfperf.values import Unknown, Value

_NO_PROGRAM = "JAX shows the programs of a step before optimisation only if pytest runs it"
_NOT_ASKED = (
    "not computed: it is about TPUs, the step ran on none, and neither tpu= (tfperf_tpu) nor a "
    "limit asks for it"
)


def analyse_padding(evidence: Evidence) -> Findings:
    """Find the padding on TPUs: measured where one ran the step, else predicted."""
    if _is_left_out(evidence, MEMORY) and _is_left_out(evidence, MATRIX_UNIT):
        return _left_out(MEMORY, MATRIX_UNIT)
    trace, eager, lowered = evidence.trace, evidence.recording.eager, evidence.inlined
    asked, lines = generation(evidence.asked.tpu or DEFAULT), _lines(evidence)
    products, ran = _lowered_products(evidence), _executables(evidence)
    n_missing = len(evidence.xla.modules) - len(ran) if trace else 0
    tpu = trace_generation(trace) if trace else None
    values, tables = padding_values(eager, asked, lowered, lines, products, ran, tpu, n_missing)
    if trace is None or not tpus(trace):
        values = evidence.on_its_platform(values)
    return Findings(values=values, tables=tables)


def analyse_alignment(evidence: Evidence) -> Findings:
    """Find the matrix products whose sizes do not suit the tensor cores of the traced GPUs."""
    if evidence.trace is None or not gpus(evidence.trace):
        return Findings()
    products = _lowered_products(evidence) or products_in(_executables(evidence))
    table, advice = gpu_alignment(evidence.trace, products)
    return Findings(tables={"alignment": table} if table else {}, advice=tuple(advice))


def analyse_op_guide(evidence: Evidence) -> Findings:
    """Find the rules of the Cloud TPU op guide that the step breaks."""
    if _is_left_out(evidence, op_guide.METRIC):
        return _left_out(op_guide.METRIC)
    asked, lowered = evidence.asked, evidence.inlined
    graph = StepGraph(before={}, after={}) if evidence.framework == JAX else evidence.code.graph
    if isinstance(graph, Unknown):
        return Findings(values={op_guide.METRIC: op_guide.value((), graph)})
    unseen = lowered if isinstance(lowered, Unknown) else None
    if unseen and evidence.framework == JAX and not unseen.why:
        unseen = Unknown(_NO_PROGRAM)
    modules = () if isinstance(lowered, Unknown) else [module for module, _ in lowered]
    found = op_guide.findings(modules, graph.outside)
    if evidence.framework != JAX:
        lines = evidence.code.places({one.op for one in found if not one.line})
        found = [replace(one, line=one.line or lines.get(one.op, (None,))[0]) for one in found]
    shown = op_guide.shown_findings(found, asked.findings, asked.ignore_findings)
    values = {op_guide.METRIC: op_guide.value(shown, unseen, sum(graph.before.values()))}
    return Findings(
        values=evidence.on_its_platform(values),
        tables=op_guide.table(shown),
        notes=() if unseen else op_guide.notes(shown, asked.ignore_findings),
    )


def _lowered_products(evidence: Evidence) -> list[Product]:
    """Return the products of the step before optimisation, none if it is not known."""
    costs = evidence.lowered_costs
    return [] if isinstance(costs, Unknown) else products_in(costs)


def _executables(evidence: Evidence) -> Programs:
    """Return the costs of the executables that ran, with their runs in a step."""
    if evidence.trace is None:
        return ()
    costs = evidence.costs
    return [(costs[name], runs) for name, runs in evidence.xla.in_metadata(costs).items()]


def _lines(evidence: Evidence) -> dict[str, str]:
    """Return the user's lines of the ops of TensorFlow in a step's programs, by name."""
    if evidence.framework == JAX or isinstance(evidence.inlined, Unknown):
        return {}
    parts = (part for module, _ in evidence.inlined for part in module.computations.values())
    names = {op.op_name.partition(";")[0] for part in parts for op in part.instructions.values()}
    return {name: line for name, (line, _) in evidence.code.places(names).items()}


def _is_left_out(evidence: Evidence, metric: str) -> bool:
    """Return whether nothing asks for a metric about TPUs, and no TPU ran the step."""
    trace, asked = evidence.trace, evidence.asked
    wants = asked.tpu is not None or asked.metrics is None or metric in asked.metrics
    return not wants and (trace is None or not tpus(trace))


def _left_out(*metrics: str) -> Findings:
    return Findings(values={name: Value.not_asked(name, _NOT_ASKED) for name in metrics})

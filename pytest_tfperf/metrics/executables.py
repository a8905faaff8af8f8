"""Describe the XLA executables of a step: their fusions, and the resources of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pytest_tfperf.facts.executions import XlaUse, short_module
from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.hlo.cost import Costs
from pytest_tfperf.hlo.flops import applications
from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule
from pytest_tfperf.hlo.walk import BODIES, hlo_hash
from pytest_tfperf.metrics.compile_time import compile_seconds
from pytest_tfperf.metrics.counts import per_step
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.metrics.step_flops import work_values
from pytest_tfperf.quantities import BYTES, COUNT, FLOP, SECONDS
from pytest_tfperf.trace.hlo_modules import buffer_sizes
from pytest_tfperf.trace.xspace import Trace
from pytest_tfperf.values import Column, Source, Table, Value

_NO_OPS = frozenset(
    {"tuple", "get-tuple-element", "bitcast"}
)  # with parameters and constants, of which `Costs` has none


def analyse(evidence: Evidence) -> Findings:
    """Find the fusions of the executables that ran, and the executables themselves."""
    trace = evidence.trace
    if trace is None:
        return evidence.untraced("fusions")
    use, found = evidence.xla, evidence.executables
    tables = {}
    if found:
        tables["executables"] = executable_table(
            trace, use, found, evidence.costs, _compiled_s(evidence, trace)
        )
    why = evidence.why_xla_unknown
    value = (
        Value.unknown("fusions", why) if why else fusions(evidence.steps, use, evidence.executables)
    )
    return Findings(values={"fusions": value}, tables=tables)


def _compiled_s(evidence: Evidence, trace: Trace) -> dict[str, float]:
    """Return the compile seconds of each executable, in the first step or later."""
    first = evidence.first_step_trace
    return compile_seconds(trace) | (compile_seconds(first) if first else {})


def fusions(steps: Steps, use: XlaUse, executables: Mapping[str, HloModule]) -> Value:
    """
    Return the metric fusions: those in the distinct executables of a step, each counted once.

    Args:
        steps: The steps.
        use: The executables that ran.
        executables: Their modules by name.
    """
    if len(executables) < len(use.modules):
        return Value.unknown(
            "fusions",
            f"the trace holds the HLO of {len(executables)} of the {len(use.modules)} executables "
            "that ran",
        )
    counts = np.zeros(len(steps), np.int64)
    for name, ran_in in use.steps_in_metadata(executables).items():
        counts[ran_in] += count_fusions(executables[name])
    return replace(per_step("fusions", counts, None), source=Source.HLO)


def count_fusions(module: HloModule) -> int:
    """Count the fusion instructions in all computations of a module."""
    return sum(
        op.opcode == "fusion"
        for part in module.computations.values()
        for op in part.instructions.values()
    )


def executable_table(
    trace: Trace,
    use: XlaUse,
    executables: Mapping[str, HloModule],
    costs: Mapping[str, Costs],
    compiled_s: Mapping[str, float],
) -> Table:
    """
    Tabulate the executables that ran in the steps, those with most FLOPs first.

    `ops` are instructions that run as such, also in loops and calls, but not those within a fusion.
    FLOPs and bytes are of one run, unknown if a loop does not state its iterations. `HLO` is the
    fingerprint.

    Args:
        trace: The trace of the steps.
        use: The executables that ran.
        executables: Their modules by name.
        costs: Cost of one run of each.
        compiled_s: Compile seconds by name.
    """
    buffers = buffer_sizes(trace)
    runs = use.in_metadata(executables)

    def size(name: str, kind: str) -> int | None:
        found: int | None = getattr(buffers.get(name), kind, None)
        return found

    flops = {name: work_values([(costs[name], 1.0)])["flops"].number for name in executables}
    return Table.of_each(
        "XLA executables",
        sorted(executables, key=lambda name: (-(flops[name] or 0), short_module(name))),
        [
            (Column("executable", "executable"), short_module),
            (Column("runs", "runs", COUNT), lambda name: runs[name]),
            (Column("ops", "ops", COUNT), lambda name: _count_ops(costs[name])),
            (Column("fusions", "fusions", COUNT), lambda name: count_fusions(executables[name])),
            (Column("flops", "FLOPs", FLOP), lambda name: flops[name]),
            (
                Column("accessed", "accessed", BYTES),
                lambda name: _accessed(executables[name], costs[name]),
            ),
            (Column("arguments", "arguments", BYTES), lambda name: size(name, "arguments")),
            (Column("outputs", "outputs", BYTES), lambda name: size(name, "outputs")),
            (Column("temporaries", "temporaries", BYTES), lambda name: size(name, "temporaries")),
            (Column("compile_s", "compiled in", SECONDS), compiled_s.get),
            (Column("hlo", "HLO"), lambda name: hlo_hash(executables[name])),
        ],
    )


def _count_ops(costs: Costs) -> int:
    return sum(op.opcode not in _NO_OPS for op in costs.ops)


def _accessed(module: HloModule, costs: Costs) -> int | None:
    """
    Return the bytes that one run of a module reads and writes, or None for a loop of unknown
    length.
    """
    own = {op.name: op.bytes for op in costs.ops}
    totals: dict[int, int | None] = {}
    for part in module.computations.values():  # callees come before their callers
        inside = [_accessed_inside(part, op, totals) for op in part.instructions.values()]
        outside = sum(own.get(op.name, 0) for op in part.instructions.values())
        totals[part.id] = None if None in inside else outside + sum(filter(None, inside))
    return totals[module.entry_id]


def _accessed_inside(
    part: HloComputation, op: HloInstruction, totals: Mapping[int, int | None]
) -> int | None:
    """
    Return the bytes of the computations that an instruction calls; of a conditional, the largest
    branch.
    """
    called = [totals[key] for key in op.called] if op.opcode in BODIES else []
    if None in called or (op.opcode == "while" and op.trip_count is None):
        return None
    each = [total or 0 for total in called]
    if op.opcode == "conditional":
        return max(each, default=0)
    return (
        sum(n * total for n, total in zip(applications(op, part.operands(op)), each, strict=False))
        if each
        else 0
    )

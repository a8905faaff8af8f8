"""
Rules of which changes of a metric against a baseline or a git ref fail a test.

A better program must not be a regression. So a metric that such a program can move either way is
shown as what changed. Only a limit in a test decides it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pytest_tfperf.metric_registry import LOWER, MACHINE, PROGRAM, Metric
from pytest_tfperf.quantities import COUNT, RATIO, format_quantity

ANY, WORSE, RISE, MOVED, NEVER = "any", "worse", "rise", "moved", "never"


class Gate(NamedTuple):
    """The changes of a metric that fail a test, and the reason."""

    change: str
    """
    `any`, `worse` (than before, by the metric's direction), `rise`, `moved` (a fall, where ops that
    XLA compiled run outside it now), or `never`.
    """
    why: str
    """Reason, for people."""
    unless: str = ""
    """Another metric; where it changed too, this one is shown only."""
    beyond: tuple[float, float] = (0.0, 0.0)
    """Share of the value before, and number: a change must exceed both, or it is shown only."""
    if_unknown: bool = True
    """False if a value that became unknown fails nothing, since the same program may have none."""

    def bounds(self, word: str) -> str:
        """Return `beyond` in words, as in `20 % or 50`; empty if every change counts."""
        share, number = self.beyond
        shown = [format_quantity(share, RATIO)] if share else []
        return f" {word} ".join(shown + ([format_quantity(number, COUNT)] if number else []))

    def tolerates(self, before: float, now: float) -> bool:
        """Return whether a change is too small to fail a test, or to be an improvement."""
        share, number = self.beyond
        return abs(now - before) <= max(share * abs(before), number)

    def closes(self, metric: Metric, before: float, now: float) -> bool:
        """Return whether a change is one that fails a test."""
        if self.change == WORSE:
            return (now > before) == (metric.better == LOWER)
        if self.change == MOVED:
            return now < before
        return self.change == ANY or (self.change == RISE and now > before)


def gate_of(metric: Metric) -> Gate:
    """Return the gate of a metric; custom metrics follow their direction."""
    if metric.name in _GATES:
        return _GATES[metric.name]
    if metric.scope == MACHINE:
        return Gate(NEVER, _TIMING)
    if metric.better is None:
        return Gate(ANY, "its project names no better direction, so every change is one to look at")
    where = "on every machine" if metric.scope == PROGRAM else "on one platform"
    return Gate(WORSE, f"the same program has the same value {where}")


def gate_of_value(metric: Metric, detail: Mapping[str, Any]) -> Gate:
    """Return the gate of a metric, which a test may set for its value (`max_rise`)."""
    if "max_rise" in detail:
        return Gate(WORSE, "the test limits its rise")
    return gate_of(metric)


def explained_by(gate: Gate, before: Mapping[str, float], now: Mapping[str, float | None]) -> bool:
    """Return whether the metric changed that may move a gated one in a better program."""
    then, today = before.get(gate.unless), now.get(gate.unless)
    return then is not None and today is not None and then != today


_STEADY = "it is compared where other load keeps step_time from a decision"
_TIMING = "it varies from run to run; the step time is compared instead"
_GATES = {
    "step_time": Gate(WORSE, "it is compared by an interval of runs or turns"),
    "step_cpu_time": Gate(WORSE, _STEADY),
    "device_time": Gate(WORSE, _STEADY),
    "input_capacity": Gate(NEVER, "a stage may do work that the model did before"),
    "device_busy": Gate(NEVER, "it falls where the device needs less time for the same step"),
    "collective_time": Gate(NEVER, "the share rises where the rest of the step gets faster"),
    "input_bound": Gate(NEVER, "the share rises where the rest of the step gets faster"),
    "host_overhead": Gate(NEVER, "the share rises where the rest of the step gets faster"),
    "flops_utilization": Gate(NEVER, "it falls where the step needs fewer FLOPs"),
    "tensor_core_time": Gate(NEVER, "it falls where the kernels on tensor cores get faster"),
    "xla_clusters": Gate(MOVED, "XLA may compile more of the step, or split what it compiled"),
    "xla_launches": Gate(
        WORSE,
        "each launch costs time; XLA may compile more of the step",
        unless="xla_clusters",
    ),
    "xla_coverage": Gate(
        MOVED,
        "it also falls where a step needs fewer of the ops that were compiled",
    ),
    "fusions": Gate(NEVER, "fewer may be larger ones, or fewer ops to fuse"),
    "xla_compiles": Gate(WORSE, "a step after the first should compile nothing"),
    "retraces": Gate(WORSE, "a step after the first should trace nothing"),
    "eager_ops": Gate(WORSE, "each costs a call from Python"),
    "python_calls": Gate(
        WORSE,
        "each takes time; a helper function is a call more, and costs next to nothing",
        beyond=(0.2, 50),
        if_unknown=False,  # coverage and debuggers hide them
    ),
    "graph_ops": Gate(
        WORSE,
        "each op costs time; ops that ran eagerly may move into the graph",
        unless="eager_ops",
    ),
    "graph_reduction": Gate(NEVER, "it falls where there is less to remove"),
    "padding_overhead": Gate(NEVER, "the ratio rises where arrays without padding go"),
    "mxu_padding_overhead": Gate(NEVER, "the ratio rises where products without padding go"),
    "input_python_stages": Gate(WORSE, "Python runs one call at a time"),
    "batch_padding": Gate(
        WORSE,
        "padding is wasted work, and the batches have the same shapes; 4 standard errors are "
        "tolerated",
    ),
    "op_guide_findings": Gate(WORSE, "each is a rule that the step did not break before"),
    "peak_memory": Gate(
        WORSE, "memory is a cost of its own; where allocators report it, 10 % are tolerated"
    ),
    "memory_growth": Gate(NEVER, "it varies from run to run; a limit decides it"),
    "half_precision": Gate(NEVER, "it falls where products in 16 bits go, and others stay"),
    "flops": Gate(RISE, "more FLOPs are more work; fewer are usually wanted", beyond=(0.001, 0)),
    "host_device_copies": Gate(WORSE, "each copy costs time"),
    "host_device_bytes": Gate(WORSE, "each byte costs time"),
    "kernel_launches": Gate(WORSE, "each launch costs the host time"),
}
"""Gates of built-in metrics; others follow their scope and direction."""

"""Differences in what Grappler and XLA made of a step: executables, graph ops, ops outside XLA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pytest_tfperf.analysis.differences.difference import (
    LEAST_RUNS,
    Difference,
    few_names,
    short_name,
    shown_count,
)
from pytest_tfperf.values import Table

_NAMED_TYPES = 4
_EMPTY = Table(title="", columns=(), rows=())


@dataclass(slots=True)
class _ExecutableTotals:
    """Executables of one name together."""

    runs: float = 0.0
    ops: float = 0.0
    fusions: float = 0.0
    hashes: list[str] = field(default_factory=list)
    """Hashes of their HLO, sorted; empty in earlier run files."""


def executable_differences(
    before: Mapping[str, Table], after: Mapping[str, Table]
) -> Iterator[Difference]:
    """Compare the XLA executables by name: which exist, their counts, and their HLO."""
    old, new = _executables(before.get("executables")), _executables(after.get("executables"))
    for name in dict.fromkeys([*old, *new]):
        if name not in new or name not in old:
            word = "lost" if name in old else "new"
            yield Difference(what=f"XLA executable {short_name(name)} {word}")
            continue
        changes = _changed_counts(old[name], new[name])
        hashes, hashes_now = old[name].hashes, new[name].hashes
        if not changes and hashes and hashes_now and hashes != hashes_now:
            changes = ["other instructions, as many as before"]
        if changes:
            yield Difference(what=f"XLA executable {short_name(name)}: {', '.join(changes)}")


def _changed_counts(old: _ExecutableTotals, new: _ExecutableTotals) -> list[str]:
    counts = (
        ("runs", old.runs, new.runs, LEAST_RUNS),
        ("ops", old.ops, new.ops, 1),
        ("fusions", old.fusions, new.fusions, 1),
    )
    return [
        f"{shown_count(before)} → {shown_count(after)} {title}"
        for title, before, after, least in counts
        if abs(after - before) >= least
    ]


def _executables(table: Table | None) -> dict[str, _ExecutableTotals]:
    """
    Sum the executables of each name.

    Executables that run once an epoch, for a smaller last batch, are left out: they may miss the
    window.
    """
    found: dict[str, _ExecutableTotals] = {}
    for row in table.records() if table else ():
        if row["runs"] < LEAST_RUNS:
            continue
        totals = found.setdefault(row["executable"], _ExecutableTotals())
        totals.runs += row["runs"]
        totals.ops += row["ops"]
        totals.fusions += row["fusions"]
        if row.get("hlo"):
            totals.hashes = sorted([*totals.hashes, row["hlo"]])
    return found


def graph_differences(
    before: Mapping[str, Table], after: Mapping[str, Table]
) -> Iterator[Difference]:
    """Compare the ops that Grappler left, by type; nothing where a table is missing or cut."""
    if "graph" not in before or "graph" not in after:
        return
    if before["graph"].n_more or after["graph"].n_more:
        return
    old, new = _ops_after(before["graph"]), _ops_after(after["graph"])
    changes = [
        (op_type, old.get(op_type, 0), new.get(op_type, 0))
        for op_type in dict.fromkeys([*old, *new])
        if old.get(op_type, 0) != new.get(op_type, 0)
    ]
    changes.sort(key=lambda change: -abs(change[2] - change[1]))
    if changes:
        texts = [f"{short_name(op_type)} {was} → {now}" for op_type, was, now in changes]
        yield Difference(what=f"graph: {few_names(texts, _NAMED_TYPES)}")


def _ops_after(table: Table) -> dict[str, int]:
    return {row["type"]: row["after"] for row in table.records()}


def outside_differences(
    before: Mapping[str, Table], after: Mapping[str, Table]
) -> Iterator[Difference]:
    """Name the ops that run outside XLA now and did not before."""
    if "executables" not in before or before.get("outside_xla", _EMPTY).n_more:
        return
    known = {(row["type"], row["why"]) for row in before.get("outside_xla", _EMPTY).records()}
    new = [
        short_name(row["type"]) + (f" at {row['line']}" if row["line"] else "") + f" ({row['why']})"
        for row in after.get("outside_xla", _EMPTY).records()
        if (row["type"], row["why"]) not in known
    ]
    if new:
        yield Difference(what=f"outside XLA now: {few_names(new)}")

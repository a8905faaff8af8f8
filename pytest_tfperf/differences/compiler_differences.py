"""Differences in what Grappler and XLA made of a step: executables, graph ops, ops outside XLA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pytest_tfperf.differences.difference import (
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
    old = op_type_counts(before.get("graph"))
    if old is not None:
        yield from op_type_differences(old, after.get("graph"))


def op_type_counts(graph: Table | None) -> dict[str, int] | None:
    """Return the ops that Grappler left, by type; None if the table is missing or cut."""
    if graph is None or graph.n_more:
        return None
    return {row["type"]: row["after"] for row in graph.records() if row["after"]}


def op_type_differences(old: Mapping[str, int], graph: Table | None) -> Iterator[Difference]:
    """
    Compare ops by type: all new types with a line, then the other changes, the largest first.

    Args:
        old: Number of ops of each type before.
        graph: Table of the ops now; nothing is yielded if it is missing or cut.
    """
    new = op_type_counts(graph)
    if graph is None or new is None:
        return
    lines = {row["type"]: row.get("line") for row in graph.records()}
    changed = [
        (op_type, old.get(op_type, 0), new.get(op_type, 0))
        for op_type in dict.fromkeys([*old, *new])
        if old.get(op_type, 0) != new.get(op_type, 0)
    ]
    changed.sort(key=lambda change: (-abs(change[2] - change[1]), change[0]))
    come = [
        f"{short_name(op_type)} 0 → {now} (new{_at(lines.get(op_type))})"
        for op_type, was, now in changed
        if not was
    ]
    others = [f"{short_name(op_type)} {was} → {now}" for op_type, was, now in changed if was]
    texts = [*come, few_names(others, _NAMED_TYPES)] if others else come
    if texts:
        yield Difference(what=f"graph: {', '.join(texts)}")


def _at(line: str | None) -> str:
    return f", at {line}" if line else ""


def outside_differences(
    before: Mapping[str, Table], after: Mapping[str, Table]
) -> Iterator[Difference]:
    """Name the ops that run outside XLA now and did not before."""
    if "executables" not in before or before.get("outside_xla", _EMPTY).n_more:
        return
    known = {(row["type"], row["why"]) for row in before.get("outside_xla", _EMPTY).records()}
    new = [
        short_name(row["type"])
        + (f" at {row.get('line')}" if row.get("line") else "")
        + f" ({row['why']})"
        for row in after.get("outside_xla", _EMPTY).records()
        if (row["type"], row["why"]) not in known
    ]
    if new:
        yield Difference(what=f"outside XLA now: {few_names(new)}")

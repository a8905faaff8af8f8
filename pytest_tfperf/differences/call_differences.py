"""Differences in the Python functions that a step calls."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_tfperf.differences.difference import (
    LEAST_RUNS,
    Difference,
    added_counts,
    shown_count,
)
from pytest_tfperf.metrics.python_calls import MOST_FUNCTIONS
from pytest_tfperf.quantities import SECONDS, format_quantity
from pytest_tfperf.text import plural
from pytest_tfperf.values import Table

_NAMED = 5


@dataclass(frozen=True, slots=True)
class _Change:
    """A function whose calls changed."""

    name: str
    before: float
    after: float
    is_bound: bool
    """True if the smaller number is a bound, since the function is not among those kept."""
    line: int | None
    self_s: float
    """Seconds a step in its own code now."""

    @property
    def order(self) -> tuple[bool, float, bool, float, str]:
        """Sort key: added calls first, by the time that they take; then what came or went."""
        added = self.after - self.before
        added_s = self.self_s * added / self.after if added > 0 else 0.0
        has_both = min(self.before, self.after) > 0
        return added < 0, -added_s, has_both, -abs(added), self.name

    @property
    def what(self) -> str:
        """Description, as `+40 calls of model.py:wrapper a step (20 → 60)`."""
        added = self.after - self.before
        sign, least = "+" if added > 0 else "−", " or more" if self.is_bound else ""
        before, after = shown_count(self.before), shown_count(self.after)
        if self.is_bound:
            before, after = (
                (f"{before} or fewer", after) if added > 0 else (before, f"{after} or fewer")
            )
        line = "" if self.line is None else f", line {self.line}"
        took = format_quantity(self.self_s, SECONDS)
        itself = f", {took} in itself while counted" if self.self_s and added > 0 else ""
        noun = "call" if abs(added) == 1 and not least else "calls"
        calls = f"{sign}{shown_count(abs(added))}{least} {noun}"
        return f"{calls} of {self.name} a step ({before} → {after}){line}{itself}"


def called_functions(table: Table | None) -> dict[str, float] | None:
    """Return the calls a step of the functions called most; None without their table."""
    return None if table is None else {row["function"]: row["calls"] for row in table.records()}


def call_differences(old: Mapping[str, float] | None, now: Table | None) -> Iterator[Difference]:
    """
    Name the functions that a step calls more or less often, those that take the most time first.

    Args:
        old: The calls a step before, as `called_functions` gives them.
        now: Table of the calls now; nothing is yielded if one of both is missing.
    """
    if old is None or now is None:
        return
    rows = {row["function"]: row for row in now.records()}
    new = {name: row["calls"] for name, row in rows.items()}
    least_old, least_new = _most_unseen(old), _most_unseen(new)
    changes = []
    for name in dict.fromkeys([*new, *old]):
        before, after = old.get(name, least_old), new.get(name, least_new)
        is_bound = (name not in old and least_old > 0) or (name not in new and least_new > 0)
        is_known = not is_bound or (after > before if name in new else before > after)
        if is_known and abs(after - before) >= LEAST_RUNS:
            row = rows.get(name, {})
            changes.append(
                _Change(name, before, after, is_bound, row.get("line"), row.get("self_s") or 0.0)
            )
    changes.sort(key=lambda change: change.order)
    yield from (Difference(what=change.what) for change in changes[:_NAMED])
    if len(changes) > _NAMED:
        others = plural(len(changes) - _NAMED, "other Python function")
        yield Difference(what=f"{others} called more or less often")


def added_calls(old: Mapping[str, float], now: Table | None) -> dict[str, float]:
    """Return the calls a step that came, by the package or file of the functions."""
    found: dict[str, float] = {}
    for name, calls in added_counts(old, called_functions(now) or {}).items():
        package = name.partition(":")[0].partition("/")[0]
        found[package] = found.get(package, 0) + calls
    return found


def host_time_grew(before: Sequence[Mapping[str, float]], now: Mapping[str, float]) -> bool:
    """
    Return whether Python may take more of a step's time than in the median of earlier runs.

    That is the time in which neither a device, TensorFlow nor the input is active.

    Args:
        before: Known metrics of each earlier run.
        now: Known metrics now.
    """
    earlier = [seconds for run in before if (seconds := _host_time_s(run)) is not None]
    after = _host_time_s(now)
    return not earlier or after is None or after > statistics.median(earlier)


def _host_time_s(metrics: Mapping[str, float]) -> float | None:
    if "host_overhead" not in metrics or "step_time" not in metrics:
        return None
    return metrics["host_overhead"] * metrics["step_time"]


def _most_unseen(calls: Mapping[str, float]) -> float:
    """Return the most calls that a function can have which is not among those kept."""
    return min(calls.values()) if len(calls) >= MOST_FUNCTIONS else 0.0

"""What another version of a step calls, compiles and reads: functions, graphs, pipeline stages."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from pytest_tfperf.differences.difference import (
    LEAST_RUNS,
    Difference,
    change_of_time,
    few_names,
    short_name,
    shown_count,
)
from pytest_tfperf.metrics.calls import MOST_FUNCTIONS
from pytest_tfperf.quantities import SECONDS, format_quantity
from pytest_tfperf.text import plural
from pytest_tfperf.values import Table

_NAMED = 5
_NAMED_TYPES = 4
_EMPTY = Table(title="", columns=(), rows=())


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

    `old` is what `called_functions` gave before. Nothing is yielded if one of both is missing.
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


def host_time_grew(before: Sequence[Mapping[str, float]], now: Mapping[str, float]) -> bool:
    """
    Return whether Python may take more of a step's time than in the median of earlier runs.

    That is the time in which neither a device, TensorFlow nor the input is active.
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


@dataclass(slots=True)
class _ExecutableTotals:
    """Executables of one name together."""

    runs: float = 0.0
    ops: float = 0.0
    fusions: float = 0.0
    hashes: list[str] = field(default_factory=list)
    """Hashes of their HLO, sorted."""


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

    Nothing is yielded if the table of now is missing or cut.
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


@dataclass(slots=True)
class _StageTimes:
    """One place in the tree of input stages, in a step."""

    label: str
    """Type of the stage, and the name that the user gave it."""
    parallelism: float | None
    buffer_limit: float | None
    calls: float = 0.0
    self_s: float = 0.0
    blocking_s: float = 0.0


def stage_differences(
    before: Mapping[str, Table], after: Mapping[str, Table], least_s: float
) -> Iterator[Difference]:
    """Compare the stages from the step down; stages of one type and name are matched in order."""
    old, new = _stages(before.get("stages")), _stages(after.get("stages"))
    matcher = SequenceMatcher(
        a=[stage.label for stage in old], b=[stage.label for stage in new], autojunk=False
    )
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if tag == "equal":
            pairs = zip(old[old_start:old_end], new[new_start:new_end], strict=True)
            yield from _changed(pairs, least_s)
        else:
            yield from _came_or_went(old[old_start:old_end], "lost", -1)
            yield from _came_or_went(new[new_start:new_end], "new", 1)


def pipeline_labels(pipeline: Table | None) -> list[str] | None:
    """Return the stages that the data define, as `Map` or `Map: py_function`; None if unknown."""
    if pipeline is None or pipeline.n_more:
        return None
    return [_python_label(row) for row in pipeline.records()]


def pipeline_differences(old: Sequence[str], pipeline: Table | None) -> Iterator[Difference]:
    """
    Compare the stages that the data define: first those that run Python now, then the others.

    `old` is what `pipeline_labels` gave before. Nothing is yielded if the table is missing or cut.
    """
    new = pipeline_labels(pipeline)
    if pipeline is None or new is None:
        return
    rows = pipeline.records()
    come, gone = [], list[str]()
    matcher = SequenceMatcher(a=list(old), b=new, autojunk=False)
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if tag != "equal":
            gone += old[old_start:old_end]
            come += rows[new_start:new_end]
    others = []
    for row in come:
        was_plain = row["stage"] in gone
        if was_plain:
            gone.remove(row["stage"])
        if row.get("python"):
            word = "runs Python now" if was_plain else "is new, and runs Python"
            where = f" at {row.get('line')}" if row.get("line") else ""
            yield Difference(what=f"input stage {row['stage']} {word}: {row.get('python')}{where}")
        else:
            others.append(f"input stage {row['stage']} new")
    others += [f"input stage {label} lost" for label in gone]
    yield from (Difference(what=what) for what in others)


def python_differences(
    before: Mapping[str, Table], after: Mapping[str, Table]
) -> Iterator[Difference]:
    """Name the stages that run Python now and did not before."""
    old = pipeline_labels(before.get("pipeline"))
    if old is not None:
        found = pipeline_differences(old, after.get("pipeline"))
        yield from (one for one in found if "Python" in one.what)


def _python_label(row: Mapping[str, Any]) -> str:
    return f"{row['stage']}: {row.get('python')}" if row.get("python") else str(row["stage"])


def _changed(
    pairs: Iterable[tuple[_StageTimes, _StageTimes]], least_s: float
) -> Iterator[Difference]:
    for old, new in pairs:
        change_s = max(new.self_s - old.self_s, new.blocking_s - old.blocking_s, key=abs)
        if abs(change_s) >= least_s:
            yield Difference(what=_described(old, new, least_s), seconds=change_s)


def _came_or_went(stages: Iterable[_StageTimes], word: str, sign: int) -> Iterator[Difference]:
    for stage in stages:
        if stage.calls >= LEAST_RUNS:
            yield Difference(what=f"input stage {stage.label} {word}", seconds=sign * stage.self_s)


def _stages(table: Table | None) -> list[_StageTimes]:
    """Merge the rows of one place in the tree: a repeated pipeline has one for each epoch."""
    found: dict[tuple[str, ...], _StageTimes] = {}
    path: tuple[str, ...] = ()
    for row in table.records() if table else ():
        label = _label(row)
        path = (*path[: _depth(row)], label)
        stage = found.setdefault(
            path, _StageTimes(label, row.get("parallelism"), row.get("buffer_limit"))
        )
        stage.calls += row["calls"]
        stage.self_s += row["self_s"]
        stage.blocking_s += row["blocking_s"]
    return list(found.values())


def _label(row: Mapping[str, Any]) -> str:
    return f"{row['stage'].strip()} {short_name(row['name'])}".strip()


def _depth(row: Mapping[str, Any]) -> int:
    """Depth in the tree, which the table shows by two spaces a level."""
    return (len(row["stage"]) - len(row["stage"].lstrip())) // 2


def _described(old: _StageTimes, new: _StageTimes, least_s: float) -> str:
    changes = [f"self time {change_of_time(old.self_s, new.self_s)}"]
    if abs(new.blocking_s - old.blocking_s) >= least_s:
        changes.append(f"blocks the step {change_of_time(old.blocking_s, new.blocking_s)}")
    changes += _changed_setting("parallelism", old.parallelism, new.parallelism)
    changes += _changed_setting("buffer", old.buffer_limit, new.buffer_limit)
    return f"input stage {new.label}: {', '.join(changes)}"


def _changed_setting(title: str, old: float | None, new: float | None) -> list[str]:
    if old is None or new is None or old == new:
        return []
    return [f"{title} {shown_count(old)} → {shown_count(new)}"]

"""Differences between the ops of two profiles, by place and type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_tfperf.differences.difference import (
    LEAST_RUNS,
    Difference,
    change_of_time,
    few_names,
    short_name,
    shown_count,
)
from pytest_tfperf.op_types import DATA_SIDE, HOST_SIDE
from pytest_tfperf.values import Table

_FETCH = "IteratorGetNext"
_NAMED = 2
_NUMBER = re.compile(r"(?:[._]\d+)+\Z")
_ALWAYS_TRACED_S = 50e-6
"""
Mean time from which every run of a host op is traced.

TensorFlow stops tracing an op of fewer than 8,000 cycles once its function is warm (tensorflow,
core/common_runtime/executor.cc, KernelStats). This is over ten times as long, since a few slow
events lift the mean.
"""


class _OpKey(NamedTuple):
    """Identity of an op: host, tf.data or a device; its type; its name."""

    where: str
    op_type: str
    name: str


class _OpCost(NamedTuple):
    """Occurrences and self time of an op in a step."""

    runs: float
    self_s: float

    @property
    def mean_s(self) -> float:
        """Self time of one run."""
        return self.self_s / self.runs if self.runs else 0.0


@dataclass(slots=True)
class _Group:
    """Ops of one type in one place, before and after."""

    is_whole: tuple[bool, bool]
    """Whether the tables hold all ops, before and after."""
    runs: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Occurrences in a step."""
    self_s: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Self time in a step."""
    seconds: float = 0.0
    """Change of the self time; only its certain part where a table is cut."""
    lost: list[str] = field(default_factory=list)
    """Names that only the profile before has."""
    new: list[str] = field(default_factory=list)
    """Names that only the profile after has."""

    @property
    def has_changed(self) -> bool:
        """True if the ops certainly came, went, or run more or less often."""
        old, new = self.runs
        whole_old, whole_new = self.is_whole
        is_sure = (whole_old and whole_new) or (old == 0 and whole_old) or (new == 0 and whole_new)
        return is_sure and abs(new - old) >= LEAST_RUNS

    def add(self, key: _OpKey, old: _OpCost | None, new: _OpCost | None, unseen_s: float) -> None:
        """
        Add one op.

        Args:
            key: The op.
            old: Its cost before, None if it is not in that table.
            new: Its cost after, None if it is not in that table.
            unseen_s: Longest self time that the op can have in the table that lacks it.
        """
        unseen = _OpCost(0.0, unseen_s)
        for place, cost in enumerate((old or unseen, new or unseen)):
            self.runs[place] += cost.runs
            self.self_s[place] += cost.self_s
        change = (new or unseen).self_s - (old or unseen).self_s
        if old is None:
            self.seconds += max(change, 0.0)
            self.new.append(key.name)
        elif new is None:
            self.seconds += min(change, 0.0)
            self.lost.append(key.name)
        else:
            self.seconds += change


def op_differences(
    before: Mapping[str, Table], after: Mapping[str, Table], least_s: float
) -> Iterator[Difference]:
    """
    Compare the ops on the host and on devices.

    Ops are grouped by place and type, since names are numbered anew when an op comes or goes.

    Args:
        before: Tables of the profile before.
        after: Tables of the profile after.
        least_s: Shortest change of self time that is a difference.
    """
    for key in ("host_ops", "device_ops"):  # `op_profile` has the same ops once more
        for (where, op_type), group in _groups(before.get(key), after.get(key)).items():
            if group.has_changed or abs(group.seconds) >= least_s:
                place = " in tf.data" if where == DATA_SIDE else f" on the {where}"
                yield Difference(what=_described(group, op_type, place), seconds=group.seconds)


def _groups(before: Table | None, after: Table | None) -> dict[tuple[str, str], _Group]:
    old, new = _costs(before), _costs(after)
    old_unseen_s, new_unseen_s = _longest_unseen_s(before), _longest_unseen_s(after)
    is_whole = (old_unseen_s == 0, new_unseen_s == 0)
    groups: dict[tuple[str, str], _Group] = {}
    for key in dict.fromkeys([*old, *new]):
        if _is_left_out(key, old.get(key), new.get(key)):
            continue
        op_type = _NUMBER.sub("", key.op_type) or key.name
        group = groups.setdefault((key.where, op_type), _Group(is_whole))
        unseen_s = new_unseen_s if key in old else old_unseen_s
        group.add(key, old.get(key), new.get(key), unseen_s)
    return groups


def _is_left_out(key: _OpKey, old: _OpCost | None, new: _OpCost | None) -> bool:
    """Return whether the step's part `input` covers the op, or traces may lack it."""
    if key.where == HOST_SIDE and key.op_type.startswith(_FETCH):
        return True
    longest_s = max((cost.mean_s for cost in (old, new) if cost), default=0.0)
    return key.where in (HOST_SIDE, DATA_SIDE) and longest_s < _ALWAYS_TRACED_S


def _costs(table: Table | None) -> dict[_OpKey, _OpCost]:
    """Sum the rows of each op."""
    costs: dict[_OpKey, _OpCost] = {}
    for row in table.records() if table else ():
        key = _OpKey(row["where"], row["type"], row["op"])
        runs, self_s = costs.get(key, (0.0, 0.0))
        costs[key] = _OpCost(runs + row["occurrences"], self_s + row["self_s"])
    return costs


def _longest_unseen_s(table: Table | None) -> float:
    """Longest self time of an op that was left out of a table, 0 if the table is whole."""
    if table is None or not table.n_more:
        return 0.0
    return min((float(row["self_s"]) for row in table.records()), default=0.0)


def _described(group: _Group, op_type: str, place: str) -> str:
    old, new = group.runs
    what = f"{short_name(op_type)}{place}"
    if not group.has_changed:
        longer = f"{what} takes {'longer' if group.seconds > 0 else 'less long'}"
        return f"{longer} ({change_of_time(*group.self_s)})" if all(group.is_whole) else longer
    come = [name for name in group.new if name != op_type]
    gone = [name for name in group.lost if name != op_type]
    if old == 0:
        count = f"{shown_count(new)} " if group.is_whole[1] else ""
        return f"{count}new {what}" + (f" ({few_names(come)})" if come else "")
    if new == 0:
        count = f"{shown_count(old)} a step" if group.is_whole[0] else "all"
        return f"{what} lost ({count}" + (f": {few_names(gone)})" if gone else ")")
    change = f"{shown_count(abs(new - old))} {'more' if new > old else 'fewer'} {what}"
    return f"{change} ({shown_count(old)} → {shown_count(new)} a step){_renamed(come, gone)}"


def _renamed(come: Sequence[str], gone: Sequence[str]) -> str:
    """Name the ops that came and went; say nothing of many of both, which were numbered anew."""
    if min(len(come), len(gone)) > _NAMED:
        return ""
    return "".join(
        f"; {few_names(names)} {word}" for word, names in (("new", come), ("lost", gone)) if names
    )

"""Differences between two profiles of one step, with the time of each: ops, FLOPs, types, parts."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from pytest_tfperf.differences.difference import (
    LEAST_RUNS,
    LEAST_SHARE,
    Difference,
    added_counts,
    change_of_time,
    few_names,
    most_telling,
    short_name,
    shown_count,
)
from pytest_tfperf.differences.structure import (
    call_differences,
    called_functions,
    executable_differences,
    graph_differences,
    host_time_grew,
    outside_differences,
    python_differences,
    stage_differences,
)
from pytest_tfperf.metrics.op_work import CASTS, TABLE
from pytest_tfperf.op_types import DATA_SIDE, HOST_SIDE
from pytest_tfperf.quantities import FLOP, SHARE, format_change, format_quantity
from pytest_tfperf.results import Check, Profile, Verdict, part_title
from pytest_tfperf.text import Labelled, and_more
from pytest_tfperf.values import PARTS, Table

_FETCH = "IteratorGetNext"
_N_OPS = 2
_NUMBER = re.compile(r"(?:[._]\d+)+\Z")
_ALWAYS_TRACED_S = 50e-6
"""
Mean time from which every run of a host op is traced.

TensorFlow stops tracing an op of fewer than 8,000 cycles once its function is warm (tensorflow,
core/common_runtime/executor.cc, KernelStats). This is over ten times as long, since a few slow
events lift the mean.
"""
_NAMED, _PLACES, _LEAST = 4, 2, 0.05
LOOK_FURTHER = ("try", "look at the other metrics that differ")
"""Advice on a slower step for which no difference is known."""
CAST = "cast them where the data are made or loaded"
"""Advice on inputs of another dtype."""
_IN_MESSAGES, _IN_REPORTS = 5, 20  # differences that are shown
_NAMED_INPUTS = 4
_Comparison = Callable[[Mapping[str, Table], Mapping[str, Table]], Iterator[Difference]]
_COUNTED: dict[str, _Comparison] = {
    "fusions": executable_differences,
    "xla_clusters": executable_differences,
    "xla_launches": executable_differences,
    "xla_coverage": outside_differences,
}
"""Comparison that explains a change of a metric that counts something."""


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
        """Add one op; a table that lacks it may hide a self time of `unseen_s`."""
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
    if min(len(come), len(gone)) > _N_OPS:
        return ""
    return "".join(
        f"; {few_names(names)} {word}" for word, names in (("new", come), ("lost", gone)) if names
    )


class _Op(NamedTuple):
    """Ops that are alike, wherever they stand in a function or layer."""

    op_type: str
    dtype: str
    flops: str
    key: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> _Op:
        each = round(row["flops"] / row["ops"]) if row["ops"] else 0
        return cls(row["type"], row["dtype"], str(each), row["key"])


@dataclass(slots=True)
class _Change:
    """The ops of one type in one function or layer that came and went."""

    come: Counter[_Op] = field(default_factory=Counter)
    gone: Counter[_Op] = field(default_factory=Counter)


def op_counts(table: Table | None) -> dict[str, float] | None:
    """
    Return the ops a step by `type dtype FLOPs function`; None if the table is missing or cut.

    These stay the same as lines move.
    """
    if table is None or table.n_more:
        return None
    found: Counter[str] = Counter()
    for row in table.records():
        found[" ".join(_Op.of(row))] += row["ops"]
    return dict(found)


def work_differences(old: Mapping[str, float] | None, now: Table | None) -> list[Difference]:
    """Name the ops of another type, then those with more FLOPs: see `flop_differences`."""
    return [*dtype_differences(old, now), *flop_differences(old, now)]


def flop_differences(old: Mapping[str, float] | None, now: Table | None) -> list[Difference]:
    """
    Name the ops with more FLOPs than before, with their lines of now, the largest rise first.

    `old` is what `op_counts` gave before. Nothing is returned if one of both is missing.
    """
    rises = []
    for change in _changes(old, now):
        more, less = _flops(change.come), _flops(change.gone)
        rows = [row for row in now.records() if _Op.of(row) in change.come] if now else []
        if more > less:
            after = sum(row["flops"] for row in rows)
            before = max(0.0, after - more + less)
            shown = format_change(before, after, FLOP).replace(" to ", " → ")
            text = f"{_title(rows)}: {shown}{'' if before else ' (new)'}"
            rises.append((more - less, text))
    least = _LEAST * sum(rise for rise, _ in rises)
    rises = sorted((rise for rise in rises if rise[0] >= least), key=lambda rise: -rise[0])
    return [Difference(what=text) for _, text in rises[:_NAMED]]


def dtype_differences(old: Mapping[str, float] | None, now: Table | None) -> list[Difference]:
    """Name the ops that compute in another type, and new casts: see `flop_differences`."""
    casts: Counter[str] = Counter()
    found = []
    for change in _changes(old, now):
        rows = [row for row in now.records() if _Op.of(row) in change.come] if now else []
        come, gone = (_dtypes(ops) for ops in (change.come, change.gone))
        for dtype, n_ops in (come - gone).items():
            rows_in = [row for row in rows if row["dtype"] == dtype]
            if rows_in and rows_in[0]["type"] in CASTS:
                casts[f"{rows_in[0]['type']} to {dtype} {_places(rows_in)}".rstrip()] += n_ops
            elif gone - come:
                text = f"{_title(rows_in)}: {', '.join(gone - come)} → {dtype}"
                found.append((-sum(row["flops"] for row in rows_in), text))
    texts = [f"{shown_count(n)} {text}" for text, n in casts.most_common()]
    texts += [text for _, text in sorted(found)]
    texts.sort(key=lambda text: not text.endswith("64") and " float64 " not in text)
    return [Difference(what=text) for text in texts[:_NAMED]]


def _changes(old: Mapping[str, float] | None, now: Table | None) -> Iterator[_Change]:
    """Yield the changes by type and place; ops whose place is new come for those that are lost."""
    new = op_counts(now)
    if old is None or new is None:
        return
    before, after = ({_read(text).key for text in ops} for ops in (old, new))
    changes: dict[tuple[str, str], _Change] = {}
    for side, counts in (("come", added_counts(old, new)), ("gone", added_counts(new, old))):
        for text, n_ops in counts.items():
            op = _read(text)
            key = op.key if op.key in before & after else ""
            change = changes.setdefault((op.op_type, key), _Change())
            getattr(change, side)[op] += n_ops
    yield from changes.values()


def _read(text: str) -> _Op:
    """Return the op of a text, which a file may hold that somebody edited."""
    return _Op(*[*text.split(" ", 3), "", "", ""][:4])


def _flops(ops: Counter[_Op]) -> float:
    return sum(float(op.flops) * n_ops for op, n_ops in ops.items() if op.flops.isdecimal())


def _dtypes(ops: Counter[_Op]) -> Counter[str]:
    found: Counter[str] = Counter()
    for op, n_ops in ops.items():
        found[op.dtype] += n_ops
    return found


def _title(rows: list[dict[str, Any]]) -> str:
    return f"{rows[0]['type'] if rows else ''} {_places(rows)}".strip()


def _places(rows: list[dict[str, Any]]) -> str:
    return and_more(list(dict.fromkeys(row["place"] for row in rows if row["place"])), _PLACES)


def differences(before: Profile, after: Profile) -> tuple[Difference, ...]:
    """
    Find the differences between two profiles of one step: those with a time first, by size.

    A time differs if it changed by at least 2 % of the step, and by more than the middle half of
    the steps of either profile spans. Ops, stages and executables that came or went differ however
    short they are, except host ops that a trace may lack. Without two traces there are none.
    """
    if not before.steps or not after.steps:
        return ()
    mean_s = statistics.fmean(step.period_s for step in before.steps)
    least_s = max(LEAST_SHARE * mean_s, _middle_half_s(before), _middle_half_s(after))
    timed = [
        *_part_differences(before, after, least_s),
        *op_differences(before.tables, after.tables, least_s),
        *stage_differences(before.tables, after.tables, least_s),
    ]
    timed.sort(key=lambda one: -abs(one.seconds or 0.0))
    return (
        *timed,
        *python_differences(before.tables, after.tables),
        *work_differences(op_counts(before.tables.get(TABLE)), after.tables.get(TABLE)),
        *function_differences(
            [_numbers(before)], called_functions(before.tables.get("python_calls")), after
        ),
        *executable_differences(before.tables, after.tables),
        *graph_differences(before.tables, after.tables),
        *outside_differences(before.tables, after.tables),
    )


def function_differences(
    runs: Sequence[Mapping[str, float]], called: Mapping[str, float] | None, after: Profile
) -> Iterator[Difference]:
    """Compare the Python functions that a step calls, unless the host's own time did not grow."""
    if host_time_grew(runs, _numbers(after)):
        yield from call_differences(called, after.tables.get("python_calls"))


def _numbers(profile: Profile) -> dict[str, float]:
    """Return those known metrics that tell the host's own time."""
    values = {name: profile.metrics.get(name) for name in ("host_overhead", "step_time")}
    return {name: one.number for name, one in values.items() if one and one.number is not None}


def _middle_half_s(profile: Profile) -> float:
    """Span of the middle half of the periods: parts and ops differ by as much without a change."""
    periods = sorted(step.period_s for step in profile.steps)
    return periods[(3 * len(periods) - 1) // 4] - periods[len(periods) // 4]


def _part_differences(before: Profile, after: Profile, least_s: float) -> Iterator[Difference]:
    """Compare the parts of the mean step."""
    old, new = mean_parts_s(before), mean_parts_s(after)
    for part in PARTS:
        change_s = new[part] - old[part]
        if abs(change_s) >= least_s:
            title, change = part_title(part, after), change_of_time(old[part], new[part])
            yield Difference(
                what=f"{title}, of the traced step {change}",
                seconds=change_s,
            )


def mean_parts_s(profile: Profile) -> dict[str, float]:
    """Return the seconds of each part of the mean step; none without steps."""
    steps = profile.steps
    return {part: statistics.fmean(step.parts_s[part] for step in steps) for part in PARTS if steps}


def setting_differences(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> tuple[Difference, ...]:
    """Compare versions, precision policy, flags and all else that both settings hold."""
    return tuple(
        Difference(what=f"{name} {before[name] or 'none'} → {after[name] or 'none'}")
        for name in sorted(after)
        if name in before and before[name] != after[name]
    )


def workload_differences(
    before: Mapping[str, Any], after: Mapping[str, Any], ref: str | None = None
) -> str:
    """Name the fields of two workloads that differ; `ref` is None if the one before is stored."""
    texts = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old != new:
            shown = f"stored {old}" if ref is None else f"{old} on {ref}"
            texts.append(f"{name}: {shown}, now {new}")
    return "; ".join(texts)


def dtype_change(before: Mapping[str, Any], after: Mapping[str, Any], reference: str) -> str:
    """
    Return `inputs are float64 now, float32 in the baseline (float32[8] → float64[8])`.

    It is empty if no input changed its dtype alone.
    """
    old, new = before.get("inputs", ()), after.get("inputs", ())
    if len(old) != len(new):
        return ""
    changed = [
        (was, now)
        for was, now in zip(old, new, strict=True)
        if was != now and was.partition("[")[2] == now.partition("[")[2] != ""
    ]
    if not changed:
        return ""
    dtypes = (
        " and ".join(dict.fromkeys(one.partition("[")[0] for one in side))
        for side in zip(*changed, strict=True)
    )
    of_before, of_now = dtypes
    subject = "an input is" if len(changed) == 1 < len(new) else "inputs are"
    shown = and_more([f"{was} → {now}" for was, now in changed], _NAMED_INPUTS)
    return f"{subject} {of_now} now, {of_before} {reference} ({shown})"


def metric_differences(runs: Sequence[Mapping[str, Any]], after: Profile) -> tuple[Difference, ...]:
    """
    Compare shares of a step with those of stored runs, for which there is no trace.

    Shares differ outside the range of all runs and at least 2 % from their median; largest first.
    """
    changes = []
    for name, value in after.metrics.items():
        stored = [run[name] for run in runs if name in run]
        if value.number is None or not stored or after.registry[name].unit != SHARE:
            continue
        median = statistics.median(stored)
        is_outside = not min(stored) <= value.number <= max(stored)
        if is_outside and abs(value.number - median) >= LEAST_SHARE:
            changes.append((name, median, value.number))
    changes.sort(key=lambda change: -abs(change[2] - change[1]))
    return tuple(
        Difference(what=f"{name} {format_quantity(old, SHARE)} → {format_quantity(new, SHARE)}")
        for name, old, new in changes
    )


def with_differences(
    check: Check,
    found: Sequence[Difference],
    before: Profile | None = None,
    lead: tuple[tuple[Labelled, ...], tuple[Labelled, ...]] = ((), ()),
) -> Check:
    """
    Add differences to the detail of a step time's check, for reports.

    The message of a regression begins with `lead`, a cause that goes before all differences in time
    and its remedy, and the most telling differences. Parts of a step are added from the profile
    before.
    """
    if before is not None and before.steps:
        parts = {part: seconds for part, seconds in mean_parts_s(before).items() if seconds > 0}
        check = replace(check, detail={**check.detail, "parts_before": parts})
    first, remedy = lead
    if check.verdict is Verdict.REGRESSION and (found or first):
        causes = tuple(("", one.line) for one in most_telling(found, _IN_MESSAGES))
        advice = tuple(one for one in check.advice if one != LOOK_FURTHER)
        lines = (*first, *causes, *check.details)
        check = replace(check, details=lines, advice=(*remedy, *advice))
    if not found:
        return check
    kept = [asdict(one) for one in most_telling(found, _IN_REPORTS)]
    return replace(check, detail={**check.detail, "differences": kept})


def with_reasons(check: Check, before: Profile, after: Profile) -> Check:
    """Add the changes behind a regression of a metric that counts something."""
    find = _COUNTED.get(check.metric)
    if find is None or check.verdict is not Verdict.REGRESSION:
        return check
    found = find(before.tables, after.tables)
    return check.with_details(*(("", one.line) for one in found))

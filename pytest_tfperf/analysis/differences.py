"""What differs between two profiles of the same step, and how many seconds of it: its parts, ops, input pipeline, graph and executables."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import SequenceMatcher
from typing import Any

from pytest_tfperf.analysis.host.op_times import DATA_SIDE, HOST_SIDE
from pytest_tfperf.metrics import COUNT, SECONDS, SHARE, format_quantity
from pytest_tfperf.results import Check, Profile, Verdict
from pytest_tfperf.text import and_more, elide
from pytest_tfperf.values import PARTS, Table

_LEAST_SHARE = (
    0.02  # of the step: below this, times of the same code differ too, even on a quiet machine
)
_LEAST_RUNS = (
    0.5  # in a step, of an op or stage: what runs once an epoch may or may not fall into the window
)
# an op that takes fewer than 8,000 cycles is traced no more once its function is warm (tensorflow, core/common_runtime/
# executor.cc, KernelStats); this is over ten times as long, as a few slow events lift the mean
_ALWAYS_TRACED_S = 50e-6
_LINES, _KEPT = 5, 20  # differences in a message, and in a report
_FETCH = "IteratorGetNext"
_NO_TIME = 1e-9  # seconds, the least that is written
_NAMED = 2
_WIDEST = 60  # characters of a name
_NUMBER = re.compile(r"(?:[._]\d+)+\Z")
_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """
    What is not as it was, in words.

    `seconds` is what it adds to a step, below 0 what it saves; None where that is no time. Of a part it is the step's own time, of an op
    its self time on whatever thread or device, of a stage that or the time in which it blocks the step, whichever changed more.
    """

    what: str
    seconds: float | None = None

    @property
    def line(self) -> str:
        """`+1.2 ms: 3 new Transpose on the host`."""
        if self.seconds is None or abs(self.seconds) < _NO_TIME:
            return self.what
        return f"{'+' if self.seconds >= 0 else '−'}{format_quantity(abs(self.seconds), SECONDS)}: {self.what}"


def differences(before: Profile, after: Profile) -> tuple[Difference, ...]:
    """
    All that differs between two profiles of one step: first what has a time, the largest on top, then what has none.

    Times that differ by less than 2 % of the step, or than the middle half of the steps of either side among themselves, are none; ops,
    stages and executables that came or went are, however short, but for those of the host that a trace may have left out. Of profiles
    without a trace nothing is said.
    """
    if not before.steps or not after.steps:
        return ()
    mean_s = statistics.fmean(step.period_s for step in before.steps)
    least_s = max(_LEAST_SHARE * mean_s, *(_spread_s(side) for side in (before, after)))
    timed = [
        *_parts(before, after, least_s),
        *_ops(before, after, least_s),
        *_stages(before, after, least_s),
    ]
    timed.sort(key=lambda one: -abs(one.seconds or 0.0))
    return (*timed, *_executables(before, after), *_graph(before, after), *_outside(before, after))


def _spread_s(profile: Profile) -> float:
    """How far the middle half of the steps lies apart: by as much their parts and ops differ without any change."""
    periods = sorted(step.period_s for step in profile.steps)
    return periods[(3 * len(periods) - 1) // 4] - periods[len(periods) // 4]


def most_telling(found: Sequence[Difference], most: int) -> list[Difference]:
    """So many: those with the largest times, and of the others two at least where there are some."""
    timed, rest = (
        [one for one in found if (one.seconds is None) == untimed] for untimed in (False, True)
    )
    n_rest = min(len(rest), max(2, most - len(timed)))
    return [*timed[: most - n_rest], *rest[:n_rest]]


def _parts(before: Profile, after: Profile, least_s: float) -> Iterator[Difference]:
    """Where the mean step spends its time, part by part."""
    old, new = _mean_parts(before), _mean_parts(after)
    for part in PARTS:
        if abs(new[part] - old[part]) >= least_s:
            yield Difference(
                what=f"{part.replace('_', ' ')}, of the step {_times(old[part], new[part])}",
                seconds=new[part] - old[part],
            )


def _mean_parts(profile: Profile) -> dict[str, float]:
    return {
        part: sum(step.parts_s[part] for step in profile.steps) / len(profile.steps)
        for part in PARTS
    }


@dataclass(slots=True)
class _Group:
    """The ops of one type on one side: how often they run in a step before and after, their self time, and whose names came and went."""

    runs: list[float] = field(default_factory=lambda: [0.0, 0.0])
    self_s: list[float] = field(default_factory=lambda: [0.0, 0.0])
    seconds: float = 0.0
    is_whole: tuple[bool, bool] = (True, True)
    lost: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)

    @property
    def has_changed(self) -> bool:
        """Whether it came, went, or runs more or less often, for sure."""
        old, new = self.runs
        is_sure = (
            all(self.is_whole) or (old == 0 and self.is_whole[0]) or (new == 0 and self.is_whole[1])
        )
        return is_sure and abs(new - old) >= _LEAST_RUNS


def _ops(before: Profile, after: Profile, least_s: float) -> Iterator[Difference]:
    """By side and type, since names are numbered anew when one comes or goes; `op profile` has the same ops once more."""
    for table in ("host_ops", "device_ops"):
        for (side, kind), group in _groups(
            before.tables.get(table), after.tables.get(table)
        ).items():
            if group.has_changed or abs(group.seconds) >= least_s:
                where = " in tf.data" if side == DATA_SIDE else f" on the {side}"
                yield Difference(what=_said(group, kind, where), seconds=group.seconds)


def _groups(before: Table | None, after: Table | None) -> dict[tuple[str, str], _Group]:
    """
    The ops of two tables.

    Of one that is cut an op that is missing may only be shorter than those that it has: then the least that can have changed counts.
    """
    (old, old_unseen_s), (new, new_unseen_s) = _op_rows(before), _op_rows(after)
    groups: dict[tuple[str, str], _Group] = {}
    is_whole = not old_unseen_s, not new_unseen_s
    for key in dict.fromkeys([*old, *new]):
        if key[0] == HOST_SIDE and key[1].startswith(
            _FETCH
        ):  # the step's part "input", and the stages, say so
            continue
        if (
            key[0] in (HOST_SIDE, DATA_SIDE)
            and max(_mean_s(old.get(key)), _mean_s(new.get(key))) < _ALWAYS_TRACED_S
        ):
            continue
        group = groups.setdefault(
            (key[0], _NUMBER.sub("", key[1]) or key[2]), _Group(is_whole=is_whole)
        )
        unseen = (0.0, old_unseen_s if key not in old else new_unseen_s)
        pair = (old.get(key, unseen), new.get(key, unseen))
        for side, (runs, self_s) in enumerate(pair):
            group.runs[side] += runs
            group.self_s[side] += self_s
        if key in old and key in new:
            group.seconds += pair[1][1] - pair[0][1]
        else:
            change = pair[1][1] - pair[0][1]
            group.seconds += max(change, 0.0) if key in new else min(change, 0.0)
            (group.new if key in new else group.lost).append(key[2])
    return groups


def _op_rows(table: Table | None) -> tuple[dict[_Key, tuple[float, float]], float]:
    """(side, type, op) with occurrences and self seconds in a step; and the most that an op takes which was left out."""
    rows: dict[_Key, tuple[float, float]] = {}
    records = table.records() if table else []
    for row in records:
        key = row["where"], row["type"], row["op"]
        runs, self_s = rows.get(key, (0.0, 0.0))
        rows[key] = (runs + row["occurrences"], self_s + row["self_s"])
    is_cut = table is not None and table.n_more > 0
    return rows, min((row["self_s"] for row in records), default=0.0) if is_cut else 0.0


def _mean_s(row: tuple[float, float] | None) -> float:
    """Self seconds of one run of an op."""
    return row[1] / row[0] if row and row[0] else 0.0


def _said(group: _Group, kind: str, where: str) -> str:
    old, new = group.runs
    what = f"{_short(kind)}{where}"
    if not group.has_changed:
        longer = f"{what} takes {'longer' if group.seconds > 0 else 'less long'}"
        return f"{longer} ({_times(*group.self_s)})" if all(group.is_whole) else longer
    come, gone = ([name for name in names if name != kind] for names in (group.new, group.lost))
    if old == 0:
        return f"{f'{_count(new)} ' if group.is_whole[1] else ''}new {what}{f' ({_few(come)})' if come else ''}"
    if new == 0:
        return f"{what} lost ({f'{_count(old)} a step' if group.is_whole[0] else 'all'}{f': {_few(gone)}' if gone else ''})"
    return f"{_count(abs(new - old))} {'more' if new > old else 'fewer'} {what} ({_count(old)} → {_count(new)} a step){_names(come, gone)}"


def _names(come: Sequence[str], gone: Sequence[str]) -> str:
    """Whose names came and went; where many did both, the ops were numbered anew and it says nothing."""
    if min(len(come), len(gone)) > _NAMED:
        return ""
    return "".join(
        f"; {_few(names)} {word}" for word, names in (("new", come), ("lost", gone)) if names
    )


def _stages(before: Profile, after: Profile, least_s: float) -> Iterator[Difference]:
    """Stage by stage from the step down, those of one type and name in the same order."""
    old, new = (
        _merged(profile.tables.get("stages", _NONE).records()) for profile in (before, after)
    )
    matcher = SequenceMatcher(
        a=[stage.label for stage in old], b=[stage.label for stage in new], autojunk=False
    )
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag == "equal":
            for a, b in zip(old[i:j], new[k:m], strict=True):
                change_s = max(b.self_s - a.self_s, b.blocking_s - a.blocking_s, key=abs)
                if abs(change_s) >= least_s:
                    yield Difference(what=_changed_stage(a, b, least_s), seconds=change_s)
            continue
        yield from (
            Difference(what=f"input stage {stage.label} lost", seconds=-stage.self_s)
            for stage in old[i:j]
            if stage.calls >= _LEAST_RUNS
        )
        yield from (
            Difference(what=f"input stage {stage.label} new", seconds=stage.self_s)
            for stage in new[k:m]
            if stage.calls >= _LEAST_RUNS
        )


@dataclass(slots=True)
class _Stage:
    """One place in the tree of input stages, per step."""

    label: str
    """Type of the stage, and the name that the user gave it."""
    parallelism: float | None
    buffer_limit: float | None
    calls: float = 0.0
    self_s: float = 0.0
    blocking_s: float = 0.0


def _merged(rows: Iterable[Mapping[str, Any]]) -> list[_Stage]:
    """Merge the rows of one place in the tree: a repeated pipeline has one for each epoch."""
    found: dict[tuple[str, ...], _Stage] = {}
    path: tuple[str, ...] = ()
    for row in rows:
        name = row["stage"].lstrip()
        depth = (len(row["stage"]) - len(name)) // 2
        label = f"{name.strip()} {_short(row['name'])}".strip()
        path = (*path[:depth], label)
        stage = found.setdefault(path, _Stage(label, row["parallelism"], row["buffer_limit"]))
        stage.calls += row["calls"]
        stage.self_s += row["self_s"]
        stage.blocking_s += row["blocking_s"]
    return list(found.values())


def _changed_stage(old: _Stage, new: _Stage, least_s: float) -> str:
    said = [f"self time {_times(old.self_s, new.self_s)}"]
    if abs(new.blocking_s - old.blocking_s) >= least_s:
        said.append(f"blocks the step {_times(old.blocking_s, new.blocking_s)}")
    said += _changed_setting("parallelism", old.parallelism, new.parallelism)
    said += _changed_setting("buffer", old.buffer_limit, new.buffer_limit)
    return f"input stage {new.label}: {', '.join(said)}"


def _changed_setting(title: str, old: float | None, new: float | None) -> list[str]:
    if old is None or new is None or old == new:
        return []
    return [f"{title} {_count(old)} → {_count(new)}"]


def _executables(before: Profile, after: Profile) -> Iterator[Difference]:
    """By the function's name: those that came and went, whose runs, ops or fusions are not as many as before, and whose HLO is another."""
    old, new = (_programs(profile.tables.get("executables")) for profile in (before, after))
    for name in dict.fromkeys([*old, *new]):
        if name not in new or name not in old:
            yield Difference(
                what=f"XLA executable {_short(name)} {'lost' if name in old else 'new'}"
            )
            continue
        (counts, hashes), (counts_now, hashes_now) = old[name], new[name]
        changes = zip(("runs", "ops", "fusions"), counts, counts_now, strict=True)
        least = {"runs": _LEAST_RUNS}
        said = [
            f"{_count(a)} → {_count(b)} {title}"
            for title, a, b in changes
            if abs(b - a) >= least.get(title, 1)
        ]
        if said or (hashes and hashes_now and hashes != hashes_now):
            yield Difference(
                what=f"XLA executable {_short(name)}: {', '.join(said) or 'other instructions, as many as before'}"
            )


def _programs(table: Table | None) -> dict[str, tuple[tuple[float, ...], list[str]]]:
    """
    Runs, ops and fusions of the executables of one name, together, and the hashes of their HLO; none in earlier run files.

    Those that run once an epoch, for a last batch that is smaller, may or may not fall into the window: they are left out.
    """
    found: dict[str, tuple[tuple[float, ...], list[str]]] = {}
    for row in table.records() if table else ():
        if row["runs"] < _LEAST_RUNS:
            continue
        counts, hashes = found.get(row["executable"], ((0, 0, 0), []))
        more = (row["runs"], row["ops"], row["fusions"])
        found[row["executable"]] = (
            tuple(a + b for a, b in zip(counts, more, strict=True)),
            sorted([*hashes, row["hlo"]] if row.get("hlo") else hashes),
        )
    return found


def _graph(before: Profile, after: Profile) -> Iterator[Difference]:
    """The ops that Grappler left, by type."""
    if "graph" not in before.tables or "graph" not in after.tables:
        return
    old, new = (
        {row["type"]: row["after"] for row in profile.tables["graph"].records()}
        for profile in (before, after)
    )
    changed = [name for name in dict.fromkeys([*old, *new]) if old.get(name, 0) != new.get(name, 0)]
    changed.sort(key=lambda name: -abs(new.get(name, 0) - old.get(name, 0)))
    if changed and not (before.tables["graph"].n_more or after.tables["graph"].n_more):
        yield Difference(
            what=f"graph: {_few([f'{_short(name)} {old.get(name, 0)} → {new.get(name, 0)}' for name in changed], 4)}"
        )


def _outside(before: Profile, after: Profile) -> Iterator[Difference]:
    """What XLA compiled before, or was not there, and runs outside of it now."""
    if "executables" not in before.tables or before.tables.get("outside_xla", _NONE).n_more:
        return
    there = {(row["type"], row["why"]) for row in before.tables.get("outside_xla", _NONE).records()}
    now = [
        _short(row["type"]) + (f" at {row['line']}" if row["line"] else "") + f" ({row['why']})"
        for row in after.tables.get("outside_xla", _NONE).records()
        if (row["type"], row["why"]) not in there
    ]
    if now:
        yield Difference(what=f"outside XLA now: {_few(now)}")


_NONE = Table(title="", columns=(), rows=())


def setting_differences(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> tuple[Difference, ...]:
    """Versions, precision policy, flags and whatever else is recorded of a setting, where both have it and they differ."""
    return tuple(
        Difference(what=f"{name} {before[name] or 'none'} → {after[name] or 'none'}")
        for name in sorted(after)
        if name in before and before[name] != after[name]
    )


def workload_differences(
    before: Mapping[str, Any], after: Mapping[str, Any], ref: str | None = None
) -> str:
    """The fields of two workloads that differ; the first one is stored, or that of a git ref."""
    texts = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old != new:
            shown = f"stored {old}" if ref is None else f"{old} on {ref}"
            texts.append(f"{name}: {shown}, now {new}")
    return "; ".join(texts)


def metric_differences(runs: Sequence[Mapping[str, Any]], after: Profile) -> tuple[Difference, ...]:
    """
    The shares of a step that are not as in any of these runs, and 2 % of it from their median, the most on top.

    That is what is known where no trace is kept to compare with.
    """
    stored = {name: [run[name] for run in runs if name in run] for name in after.metrics}
    pairs = {
        name: (statistics.median(stored[name]), value.number)
        for name, value in after.metrics.items()
        if value.number is not None and stored[name] and after.registry[name].unit == SHARE
        if not min(stored[name]) <= value.number <= max(stored[name])
    }
    changed = sorted(pairs.items(), key=lambda item: -abs(item[1][1] - item[1][0]))
    return tuple(
        Difference(what=f"{name} {format_quantity(old, SHARE)} → {format_quantity(new, SHARE)}")
        for name, (old, new) in changed
        if abs(new - old) >= _LEAST_SHARE
    )


def with_differences(check: Check, found: Sequence[Difference]) -> Check:
    """A check with what differs in its detail, for a report; of a regression the most of it in the message too, before what to try."""
    if not found:
        return check
    told = (
        check.with_details(*(("", one.line) for one in most_telling(found, _LINES)))
        if check.verdict is Verdict.REGRESSION
        else check
    )
    return replace(
        told,
        detail={**check.detail, "differences": [asdict(one) for one in most_telling(found, _KEPT)]},
    )


_COUNTED = {
    "graph_ops": _graph,
    "fusions": _executables,
    "xla_clusters": _executables,
    "xla_launches": _executables,
    "xla_coverage": _outside,
}


def with_reasons(check: Check, before: Profile, after: Profile) -> Check:
    """A regression of a number that counts something, with what of that is not as it was."""
    find = _COUNTED.get(check.metric)
    return (
        check.with_details(*(("", one.line) for one in find(before, after)))
        if find and check.verdict is Verdict.REGRESSION
        else check
    )


def _few(names: Sequence[str], most: int = _NAMED) -> str:
    return and_more(list(map(_short, names)), most)


def _short(text: str) -> str:
    return elide(text, _WIDEST)


def _times(old: float, new: float) -> str:
    return f"{format_quantity(old, SECONDS)} → {format_quantity(new, SECONDS)}"


def _count(number: float) -> str:
    return format_quantity(round(number, 2), COUNT)

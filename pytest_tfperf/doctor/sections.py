"""The sections that `tfperf doctor` prints, from the machine to what it is fit for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType

from pytest_tfperf.checks.limits import DEFAULT_TOLERANCE, LEAST_SHOWN
from pytest_tfperf.doctor.checks import SelfCheck
from pytest_tfperf.doctor.stored_times import StoredChange
from pytest_tfperf.doctor.turns import BUDGET_S, SameCodeTurns
from pytest_tfperf.quantities import RATIO, SECONDS, format_quantity, format_ratio
from pytest_tfperf.results import FORMAT
from pytest_tfperf.stats.detectable_change import Noise, Resolution
from pytest_tfperf.text import plural
from pytest_tfperf.values import Json, Unknown

_NEEDS_STOPPING = (
    "--tfperf-against needs SIGSTOP: Linux or macOS, in a sandbox that lets signals through"
)
_PINNING_HELPS = (
    "a Linux machine with two cores or more: "
    "pinned to the same cores, two processes of the same code differ less"
)
_WIDE = 0.04
"""Twice the spread of pairs of pinned turns on a quiet machine."""
_ELSEWHERE = "structural limits and baselines (--tfperf-only structural) hold on any machine"
_VARIES = (
    "individual measurements vary widely even when pinned: "
    "stop other processes or use another machine"
)
_NOISE_ROWS = (
    "step",
    "over time",
    "pairs of turns",
    "a pair of turns takes",
    "spread of single pairs",
    "ratio, should be 1",
    "its interval",
)
_STRUCTURAL = "This machine is fit for limits and structural baselines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section of the report."""

    key: str
    """Its key in the JSON report."""
    title: str
    data: Json
    """Content of the JSON report."""
    titles: Sequence[str] = ()
    """Titles of the columns, if they have any; the first is of the rows' names."""
    rows: Sequence[Sequence[str]] = ()
    """A name and values, or one value for each title."""
    lines: Sequence[str] = ()
    advice: Sequence[str] = ()
    failed: bool = False
    """True if the machine cannot do what is needed."""


def sections_json(sections: Iterable[Section]) -> Json:
    """Return `{"format", "good", <key of a section>: {..., "failed", "advice"}}`."""
    report: Json = {"format": FORMAT, "good": True}
    for section in sections:
        report["good"] = report["good"] and not section.failed
        verdict = {"failed": section.failed, "advice": list(section.advice)}
        report[section.key] = {**section.data, **verdict}
    return report


def machine_section(environment: Json, others: Mapping[str, str] = MappingProxyType({})) -> Section:
    """Return what `description.describe` tells, and a remark on each further framework."""
    set_values = [f"{name} {value}" for name, value in environment["setting"].items() if value]
    rows = [(name, str(value)) for name, value in environment["machine"].items()]
    rows += [("platform", environment["platform"]), ("setting", ", ".join(set_values))]
    rows += others.items()
    return Section(
        key="machine",
        title="machine class (times are comparable within it)",
        rows=rows,
        data={**environment, "others": dict(others)},
    )


def profiler_section(checks: Sequence[SelfCheck]) -> Section:
    """Return what the checks of the profiler found."""
    is_alone = len({check.framework for check in checks}) == 1
    rows = [
        (
            check.name if is_alone else f"{check.framework}: {check.name}",
            f"{'ok' if check.passed else 'FAILED'}: {check.found}",
        )
        for check in checks
    ]
    return Section(
        key="profiler",
        title="profiler",
        rows=rows,
        data={"checks": [asdict(check) for check in checks]},
        advice=tuple(dict.fromkeys(check.advice for check in checks if check.advice)),
        failed=not all(check.passed for check in checks),
    )


def conditions_section(
    load: tuple[float, int] | None,
    remarks: Sequence[str],
    *,
    watched_s: float,
    can_stop: bool,
    can_pin: bool,
) -> Section:
    """
    Return what else the machine does, and whether turns can be taken on it.

    The load is that of the minute before, with the number of cores.
    """
    rows = []
    if load:
        rows.append(("load average", f"{load[0]:.2f} on {plural(load[1], 'core')}, before"))
    quiet = f"not detected in {watched_s:.0f} s (load, clocks, heat, quotas)"
    rows += [("interference", remark) for remark in remarks or (quiet,)]
    pausing = "ok: SIGSTOP and SIGCONT work"
    pinning = "ok: processes keep to their cores"
    if not can_stop:
        pausing = "FAILED: a process cannot be paused with SIGSTOP"
    if not can_pin:
        pinning = "not possible: one core, or a system without sched_setaffinity"
    rows += [("pause and resume", pausing), ("CPU affinity", pinning)]
    return Section(
        key="conditions",
        title="conditions",
        rows=rows,
        data={
            "load": load[0] if load else None,
            "remarks": list(remarks),
            "can_stop": can_stop,
            "can_pin": can_pin,
        },
        advice=(
            *([] if can_stop else [_NEEDS_STOPPING]),
            *([] if can_pin else [_PINNING_HELPS]),
        ),
        failed=not can_stop,
    )


def noise_section(kinds: Sequence[SameCodeTurns], seconds: float) -> Section:
    """Return how much turns of the same code differ, which took these seconds for each kind."""
    lines: list[str] = []
    advice: list[str] = []
    turns = []
    for kind in kinds:
        unknown = kind.noise.why if isinstance(kind.noise, Unknown) else ""
        lines += [f"{kind.label}: {text}" for text in (*kind.remarks, unknown) if text]
        if not isinstance(kind.noise, Unknown):
            advice += _noise_advice(kind, kind.noise)
        turns.append(
            {
                "pinned": kind.pinned,
                "why": unknown,
                "remarks": list(kind.remarks),
                "noise": None if isinstance(kind.noise, Unknown) else asdict(kind.noise),
            }
        )
    return Section(
        key="noise",
        title=f"present noise, in {seconds:g} s of turns (--seconds)",
        titles=["two processes of the same code", *(kind.label for kind in kinds)],
        rows=list(zip(_NOISE_ROWS, *map(_noise_cells, kinds), strict=True)),
        lines=lines,
        data={"turns": turns},
        advice=advice,
        failed=any(isinstance(kind.noise, Unknown) for kind in kinds),
    )


def resolution_section(kinds: Sequence[SameCodeTurns]) -> Section:
    """Return the slow-down that one test can find, and the tolerance that the same code passes."""
    tolerances = list(dict.fromkeys(tolerance for kind in kinds for tolerance in kind.resolutions))
    names = [f"at tolerance {_share(tolerance)}" for tolerance in tolerances]
    names.append("tolerance that the same code passes")
    columns, turns = [], []
    for kind in kinds:
        cells = [_resolution_cell(kind.resolutions.get(tolerance)) for tolerance in tolerances]
        columns.append([*cells, _share(kind.needed)])
        found = [asdict(one) for one in kind.resolutions.values() if one]
        turns.append({"pinned": kind.pinned, "needed_tolerance": kind.needed, "resolutions": found})
    return Section(
        key="resolution",
        title=f"smallest slow-down detectable in {BUDGET_S:.0f} s of turns (90 % power)",
        titles=["of one test with such a step", *(kind.label for kind in kinds)],
        rows=list(zip(names, *columns, strict=True)),
        data={"budget_s": BUDGET_S, "turns": turns},
        advice=_tolerance_advice(kinds),
    )


def stored_section(changes: Sequence[StoredChange]) -> Section:
    """Return the slow-down that stored times would find here, with processes on any core."""
    return Section(
        key="stored",
        title="smallest slow-down that five stored runs would find, as busy as now (90 % power)",
        titles=["by", "change", "spread of processes"],
        rows=[(_TIMES[one.metric], _change(one.smallest), _share(one.run_sd)) for one in changes],
        lines=[] if changes else ["unknown: the processes have no step time"],
        data={"times": [asdict(one) for one in changes]},
        advice=()
        if _is_stored_time_asked(changes)
        else [f"--tfperf-against REF for times: {_NOT_ASKED}"],
    )


_TIMES = {"step_time": "the clock", "step_cpu_time": "processor time"}
_NOT_ASKED = "--tfperf-baseline asks for them here only where max_regression is set"


_MOST = 9.0
"""A change that is said no more exactly: ten times as slow."""


def _change(smallest: float) -> str:
    return f"over {_share(_MOST)}" if smallest > _MOST else _share(smallest)


def _is_stored_time_asked(changes: Sequence[StoredChange]) -> bool:
    """Return whether `--tfperf-baseline` would ask for a time that no test limits."""
    return any(one.smallest <= LEAST_SHOWN * DEFAULT_TOLERANCE for one in changes)


def _noise_cells(kind: SameCodeTurns) -> list[str]:
    noise = kind.noise
    if isinstance(noise, Unknown):
        return ["unknown", *[""] * (len(_NOISE_ROWS) - 1)]
    interval = "too few turns"
    if noise.low is not None and noise.high is not None:
        interval = f"{format_ratio(noise.low)} to {format_ratio(noise.high)}"
    return [
        format_quantity(noise.step_s, SECONDS),
        ", ".join(f"{seconds * 1e3:.3g}" for seconds in noise.over_time) + " ms",
        str(noise.n),
        format_quantity(noise.pair_s, SECONDS),
        _share(noise.pair_sd),
        format_ratio(noise.ratio),
        interval,
    ]


def _noise_advice(kind: SameCodeTurns, noise: Noise) -> list[str]:
    advice = []
    if noise.holds_one is False:
        advice.append(
            f"{kind.label}: two processes of the same code differ by more than decisions allow "
            "for; run tfperf doctor again, and if that stays, no times can be compared here: "
            f"{_ELSEWHERE}"
        )
    if noise.trend is not None:
        what = "rose" if noise.trend > 0 else "fell"
        advice.append(
            f"{kind.label}: the step {what} by {_share(abs(noise.trend))} over these turns "
            "(heat, a CPU quota, other load)"
        )
    if kind.pinned and noise.pair_sd is not None and noise.pair_sd > _WIDE:
        advice.append(_VARIES)
    return advice


def _resolution_cell(found: Resolution | None) -> str:
    if found is None:
        return "too few turns"
    change = _share(found.minimum_detectable_change)
    if found.effective_tolerance <= found.tolerance:
        return change
    return f"{change} (effective: {_share(found.effective_tolerance)})"


def _tolerance_advice(kinds: Sequence[SameCodeTurns]) -> list[str]:
    """Return what to do if the default tolerance is too small here, or not known to suffice."""
    known = [kind.needed for kind in kinds if kind.needed is not None]
    if not known:
        return ["more seconds of turns (--seconds), to know what can be resolved"]
    if min(known) <= DEFAULT_TOLERANCE:
        return []
    return [
        f"max_regression={_share(min(known))!r} or more: at less, verdicts are often "
        f"INCONCLUSIVE; {_ELSEWHERE}"
    ]


def _share(share: float | None) -> str:
    return "unknown" if share is None else format_quantity(share, RATIO)


def fitness_section(profiler: Section, kinds: Sequence[SameCodeTurns]) -> Section:
    """Return what the machine is fit for; without turns it cannot pause processes."""
    change = None
    if profiler.failed:
        sentence = "This machine is not fit to profile: a check of the profiler failed."
    elif smallest := _smallest_change(kinds):
        change, label = smallest
        stored = [one for kind in kinds[-1:] for one in kind.stored]
        baselines = "baselines" if _is_stored_time_asked(stored) else "structural baselines"
        smallest_stored = min((one.smallest for one in stored), default=math.inf)
        also = f", and five stored runs from {_change(smallest_stored)} on" if stored else ""
        sentence = (
            f"This machine is fit for limits, {baselines} and --tfperf-against: a test with "
            f"{BUDGET_S:.0f} s of turns finds slow-downs from {_share(change)} on "
            f"({label}, 90 % power){also}."
        )
    else:
        sentence = f"{_STRUCTURAL}{_restriction(kinds)}."
    data = {"sentence": sentence, "minimum_detectable_change": change}
    return Section(key="fit", title=sentence, data=data)


def _restriction(kinds: Sequence[SameCodeTurns]) -> str:
    if not kinds:
        return ", not for --tfperf-against, which must pause processes"
    unknown = [kind.noise.why for kind in kinds if isinstance(kind.noise, Unknown)]
    if len(unknown) == len(kinds):
        return f", not for --tfperf-against: {unknown[0]}"
    steady = [kind for kind in kinds if _agrees(kind)]
    if not steady:
        return ", not for step times: processes of the same code differ too much"
    needed = [kind.needed for kind in steady if kind.needed is not None]
    if not needed:
        return "; more turns (--seconds) would show how well it compares step times"
    return f", and for step times in turns at max_regression={_share(min(needed))!r} or more"


def _smallest_change(kinds: Sequence[SameCodeTurns]) -> tuple[float, str] | None:
    """Return the smallest slow-down found at a tolerance that the same code passes, and where."""
    found = [
        (one.minimum_detectable_change, kind.label)
        for kind in kinds
        if _agrees(kind) and kind.needed is not None
        for tolerance, one in kind.resolutions.items()
        if one is not None and kind.needed <= tolerance
    ]
    return min(found, default=None)


def _agrees(kind: SameCodeTurns) -> bool:
    """Return whether the two processes of the same code do not differ noticeably."""
    return not isinstance(kind.noise, Unknown) and kind.noise.holds_one is not False

"""What the HTML report shows of each test, ready for its template: in which order, grouped how, and how much of each table."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pytest_tfperf.analysis.differences import Difference
from pytest_tfperf.report.html.charts import (
    HistoryChart,
    SpreadChart,
    StepChart,
    history_chart,
    spread_chart,
    step_chart,
)
from pytest_tfperf.report.html.tables import WIDEST, cell, cut, quantity
from pytest_tfperf.results import BROKEN, WORST_FIRST, Check, Profile, ProfiledTest, Verdict
from pytest_tfperf.stats.signed_rank import format_ratio
from pytest_tfperf.values import PARTS, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """
    How much is shown: the characters of messages and remarks, the dots in a row of samples.

    `whole` also shows where metrics come from, and what advice rests on.
    """

    message: int
    remark: int
    dots: int
    whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricView:
    """A metric that is known, with the check that says most of it."""

    name: str
    value: str
    source: str
    check: Check | None
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A value that was held against one from before."""

    metric: str
    before: str
    after: str
    ratio: str
    interval: str
    check: Check


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileView:
    """One profile: what was decided, measured and drawn of it."""

    profile: Profile
    messages: tuple[tuple[Check, str], ...]
    changes: tuple[Change, ...]
    n_unchanged: int
    differences: tuple[str, ...]
    steps: StepChart | None
    parts: tuple[tuple[str, str, str], ...]
    spread: SpreadChart | None
    history: HistoryChart | None
    metrics: tuple[MetricView, ...]
    unknown: tuple[tuple[str, tuple[str, ...]], ...]
    files: tuple[tuple[str, str, str], ...]

    def brief(self, name: str) -> str:
        """A metric in a few characters, "" if it is not known; of no name the ratio of the step time to the one before."""
        if not name:
            return next(
                (change.ratio for change in self.changes if change.metric == "step_time"), ""
            )
        return next((metric.value for metric in self.metrics if metric.name == name), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class TestView:
    """One test; `verdict` is its worst, None where nothing was checked, and `is_broken` that it asks for attention."""

    __test__ = False

    number: int
    record: ProfiledTest
    verdict: Verdict | None
    is_broken: bool
    n_checks: tuple[int, int]
    messages: tuple[tuple[Check, str], ...]
    profiles: tuple[ProfileView, ...]


def views_of(tests: Sequence[ProfiledTest], folder: Path | None, detail: Detail) -> list[TestView]:
    """
    The tests, those that ask for most attention first.

    Args:
        folder: What links to files are relative to, if that is known.
        detail: How much of everything else is shown.
    """
    found = [_test(n, test, folder, detail) for n, test in enumerate(tests, 1)]
    return sorted(found, key=_urgency)


def _test(number: int, test: ProfiledTest, folder: Path | None, detail: Detail) -> TestView:
    verdicts = [check.verdict for check in test.checks]
    worst = min(verdicts, key=WORST_FIRST.index, default=None)
    names = {profile.name for profile in test.profiles}
    return TestView(
        number=number,
        record=test,
        verdict=worst,
        is_broken=worst in BROKEN or test.outcome not in ("passed", "skipped"),
        n_checks=(sum(verdict in BROKEN for verdict in verdicts), len(verdicts)),
        messages=_messages(
            [check for check in test.checks if check.profile not in names], detail.message
        ),
        profiles=tuple(
            _profile(
                profile,
                [check for check in test.checks if check.profile == profile.name],
                folder,
                detail,
            )
            for profile in test.profiles
        ),
    )


def _urgency(test: TestView) -> tuple[bool, int, float]:
    """The worse verdict first, and among those that are alike the slower step."""
    slowest = max((check.detail.get("ratio") or 0.0 for check in test.record.checks), default=0.0)
    return (
        not test.is_broken,
        len(WORST_FIRST) if test.verdict is None else WORST_FIRST.index(test.verdict),
        -slowest,
    )


def _profile(
    profile: Profile, checks: Sequence[Check], folder: Path | None, detail: Detail
) -> ProfileView:
    compared = [check for check in checks if "before" in check.detail]
    timed = next((check for check in compared if "ratio" in check.detail), None)
    alike = [check for check in compared if check.verdict is Verdict.PASS and check is not timed]
    step_time = profile.metrics.get("step_time")
    return ProfileView(
        profile=profile,
        messages=_messages(checks, detail.message),
        changes=tuple(
            _change(profile, check) for check in _worst_first(compared) if check not in alike
        ),
        n_unchanged=len(alike),
        differences=tuple(
            Difference(**one).line
            for check in checks
            for one in check.detail.get("differences", ())
        ),
        steps=step_chart(profile.steps, _levels(step_time, timed)),
        parts=_parts(profile),
        spread=spread_chart(_samples(profile, timed), detail.dots),
        history=_history(timed),
        metrics=tuple(
            _metric(name, value, checks, detail.remark)
            for name, value in profile.metrics.items()
            if value.number is not None
        ),
        unknown=_unknown(profile, detail.remark),
        files=tuple((what, path, _link(path, folder)) for what, path in profile.files.items()),
    )


def _worst_first(checks: Sequence[Check]) -> list[Check]:
    return sorted(checks, key=lambda check: WORST_FIRST.index(check.verdict))


def _messages(checks: Sequence[Check], width: int) -> tuple[tuple[Check, str], ...]:
    """The checks that did not pass, the worst first, with what they say."""
    return tuple(
        (check, cut(check.message, width).shown)
        for check in _worst_first(checks)
        if check.verdict is not Verdict.PASS
    )


def _change(profile: Profile, check: Check) -> Change:
    value, detail = profile.metrics.get(check.metric), check.detail
    unit = value.unit if value else ""
    before, after = detail["before"], detail.get("after")
    ratio = detail.get("ratio") or (after / before if before and after is not None else None)
    return Change(
        metric=check.metric,
        before=cell(before, unit).shown,
        after=cell(after, unit).shown or "unknown",
        ratio="" if ratio is None else f"× {format_ratio(ratio)}",
        interval=_interval(detail),
        check=check,
    )


def _interval(detail: Mapping[str, Any]) -> str:
    if detail.get("low") is None or detail.get("high") is None:
        return ""
    level = f", {100 * detail['confidence']:.3g} % interval" if detail.get("confidence") else ""
    return f"{format_ratio(detail['low'])} to {format_ratio(detail['high'])}{level}"


def _levels(step_time: Value | None, timed: Check | None) -> dict[str, float]:
    """Seconds of a step that was not profiled, and of one before, taken in the same way."""
    if timed and timed.kind == "against" and timed.detail.get("after") is not None:
        levels = {"in turns": float(timed.detail["after"])}
    else:
        levels = {"timed": step_time.number} if step_time and step_time.number is not None else {}
    return levels | ({_before(timed): float(timed.detail["before"])} if timed else {})


def _before(check: Check) -> str:
    return "ref" if check.kind == "against" else "baseline"


def _samples(profile: Profile, timed: Check | None) -> dict[str, tuple[str, Sequence[float]]]:
    """The timed blocks without those of a slow start, and beside them what they are held against."""
    step_time = profile.metrics.get("step_time")
    n_dropped = int(step_time.detail.get("n_dropped", 0)) if step_time else 0
    slow = f", without {n_dropped} of a slow start" if n_dropped else ""
    samples: dict[str, tuple[str, Sequence[float]]] = {
        f"timed blocks{slow}": ("dot", profile.blocks_s[n_dropped:])
    }
    if timed and timed.detail.get("turns"):
        after, before = zip(*timed.detail["turns"], strict=True)
        samples |= {"turns of this tree": ("dot", after), "turns of the ref": ("square", before)}
    if timed and timed.detail.get("runs"):
        samples["baseline, run by run"] = ("square", timed.detail["runs"])
    if timed and timed.detail.get("anchor") is not None:
        samples["anchor, the first runs"] = ("tick", [timed.detail["anchor"]])
    return samples


def _history(timed: Check | None) -> HistoryChart | None:
    if timed is None or not timed.detail.get("runs"):
        return None
    detail = timed.detail
    known = detail.get("low") is not None and detail.get("high") is not None
    bounds = (
        (detail["before"] * detail["low"], detail["before"] * detail["high"]) if known else None
    )
    return history_chart(detail["runs"], detail["after"], detail.get("anchor"), bounds)


def _parts(profile: Profile) -> tuple[tuple[str, str, str], ...]:
    """Part, mean seconds and share of the period of each part that there is, the largest first."""
    period, n_steps = sum(step.period_s for step in profile.steps), len(profile.steps)
    sums = {part: sum(step.parts_s.get(part, 0.0) for step in profile.steps) for part in PARTS}
    order = sorted((part for part in PARTS if sums[part] > 0), key=lambda part: -sums[part])
    return tuple(
        (
            part,
            quantity(sums[part] / n_steps, "s"),
            quantity(sums[part] / period, "0..1") if period else "",
        )
        for part in order
    )


def _metric(name: str, value: Value, checks: Sequence[Check], width: int) -> MetricView:
    assert value.number is not None
    low, high = (quantity(number, value.unit) for number in (value.low(), value.high()))
    worst = _worst_first([check for check in checks if check.metric == name])
    where = "; ".join(str(value.detail[key]) for key in ("where", "try") if value.detail.get(key))
    return MetricView(
        name=name,
        value=quantity(value.number, value.unit) if low == high else f"{low}…{high}",
        source=value.source.value if value.source else "",
        check=worst[0] if worst else None,
        where=_remark(where, width),
    )


def _remark(text: str, width: int) -> str:
    """The beginning of it; nothing where there is no room for any."""
    return text if len(text) <= width else f"{text[: width - 1]}…" if width else ""


def _unknown(profile: Profile, width: int) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Reasons, each with the metrics that are unknown for it."""
    reasons: dict[str, list[str]] = {}
    for name, value in profile.metrics.items():
        if value.number is None:
            reasons.setdefault(_remark(value.why or "", max(width, WIDEST)), []).append(name)
    return tuple((why, tuple(names)) for why, names in reasons.items())


def _link(path: str, folder: Path | None) -> str:
    """From the report to a file; never another scheme, whatever a damaged run file says."""
    target = Path(path)
    if not target.is_absolute():
        return quote(path, safe="/")
    return (
        target.as_uri()
        if folder is None
        else quote(Path(os.path.relpath(target, folder.resolve())).as_posix())
    )

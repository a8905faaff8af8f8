"""
Prepare each test for the template of the HTML report.

The page has fixed limits. The most urgent profiles are shown in full; of the others it leaves out
metrics, tables and advice, and says so. Ten profiles take 200 kB, and a hundred less than 1 MB.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from pytest_tfperf.checks.roots import causes
from pytest_tfperf.differences.difference import Difference
from pytest_tfperf.differences.profiles import mean_parts_s
from pytest_tfperf.quantities import SECONDS, SHARE, format_quantity, format_ratio
from pytest_tfperf.report.html.bars import (
    OF_JOB,
    WATERFALL,
    before_after,
    device_bars,
    flame,
    mini_bar,
    padding_bars,
    pipeline_bars,
    waterfall,
)
from pytest_tfperf.report.html.charts import (
    RecordedRuns,
    history_chart,
    memory_chart,
    ratio_chart,
    roofline_chart,
    small_history,
    steps_chart,
    times_chart,
)
from pytest_tfperf.report.step_verdict import parts_of, verdict
from pytest_tfperf.report.text_table import TextTable, cell, text_table
from pytest_tfperf.results import (
    BROKEN,
    WORST_FIRST,
    Check,
    Profile,
    Verdict,
    part_title,
    worst_first,
)
from pytest_tfperf.runs import ProfiledTest
from pytest_tfperf.summary import shown_value
from pytest_tfperf.text import elide, plural
from pytest_tfperf.values import Table, Value

MOST_LETTERS, _REMARK, _WHERE = 2000, 180, 400  # characters
_MOST_IN_FULL = 7  # profiles
Reason = tuple[str, tuple[str, ...]]
"""Reason for which something is unknown, and the metrics that are unknown for it."""
TableGroups = Sequence[tuple[str, Sequence[tuple[TextTable, Markup | None]]]]
"""Titles of groups, and their tables, each with its chart."""


@dataclass(frozen=True, slots=True)
class Detail:
    """The amount that a page shows of one profile."""

    n_rows: int
    """Largest number of rows of a table."""
    n_boxes: int
    """Largest number of boxes in a lane of the waterfall, and a quarter of a level of ops."""
    all_pictures: bool
    """Whether it has the pictures besides the waterfall and the charts, too."""


_IN_SHORT = Detail(0, 0, False)
"""Of profiles that are not shown in full: neither metrics, tables, advice nor a waterfall."""
_OF_FEW = ((3, Detail(50, 24, True)), (10, Detail(5, 4, False)))
_OF_MANY = Detail(4, 4, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricView:
    """A metric that is known."""

    name: str
    value: str
    source: str
    check: Check | None
    """The worst check of it."""
    where: str
    """Where its time goes, and what to try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueChange:
    """A value compared with one from before."""

    metric: str
    before: str
    after: str
    ratio: str
    interval: str
    """Interval of the ratio."""
    check: Check


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileView:
    """One profile: what was decided, measured and drawn of it."""

    profile: Profile
    in_full: bool
    """Whether metrics, tables and advice are shown."""
    messages: Sequence[tuple[Check, str]]
    """Checks that did not pass, with their texts, the worst first."""
    changes: Sequence[ValueChange]
    n_unchanged: int
    """Number of compared values that did not change."""
    change: Markup | None
    """The step before and after, and what differs between the traces."""
    bottleneck: str
    """What most of the step's time goes to, if the trace shows it."""
    pictures: Sequence[Markup]
    """Pictures as wide as the page: the timeline, the input pipeline, devices, ops."""
    charts: Sequence[Markup]
    """Charts side by side."""
    parts: Sequence[tuple[str, str, str, str]]
    """Part, title, mean seconds and share of a step, the largest first."""
    untimed: str
    """Reason why a profile has no times of single steps."""
    bar: Markup | None
    """The parts of the mean step, for a cell of the overview."""
    history: tuple[float, Markup] | None
    """This run ÷ the first one, and the recorded runs for a cell of the overview."""
    summary: Mapping[str, str]
    """Values of the metrics that are known, by name."""
    metrics: Sequence[MetricView]
    unknown: Sequence[Reason]
    """Reasons, each with the metrics that are unknown for it."""
    tables: TableGroups
    files: Sequence[tuple[str, str, str]]
    """Kind, path and link of each kept file."""

    @property
    def ratio(self) -> str:
        """The ratio of the step time to the one before, if they were compared."""
        ratios = [change.ratio for change in self.changes if change.metric == "step_time"]
        return ratios[0] if ratios else ""

    @property
    def is_of_job(self) -> bool:
        """Whether it shows the devices of all hosts."""
        return OF_JOB in self.profile.tables

    @property
    def left_out(self) -> str:
        """Counts of what the page leaves out of a profile that is not shown in full."""
        n_metrics, n_tables = len(self.summary), len(self.profile.tables)
        counted = (
            plural(n_metrics, "metric") if n_metrics else "",
            plural(n_tables, "table") if n_tables else "",
            "advice" if self.profile.advice else "",
        )
        return "" if self.in_full else ", ".join(filter(None, counted))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedTest:
    """One test."""

    __test__ = False

    number: int
    """Number of the test on the page."""
    record: ProfiledTest
    verdict: Verdict | None
    """The worst verdict, None where nothing was checked."""
    is_broken: bool
    """Whether it needs attention: it failed, or one of its checks did."""
    n_checks: tuple[int, int]
    """Checks that failed, and all checks."""
    messages: Sequence[tuple[Check, str]]
    """Checks of no profile of the test, with their texts."""
    profiles: Sequence[ProfileView]


def views_of(tests: Sequence[ProfiledTest], folder: Path | None) -> list[ReportedTest]:
    """
    Return the tests, the most urgent first.

    Args:
        tests: The tests of a run.
        folder: The folder of the page, which links to files are relative to, if it is known.
    """
    numbered = sorted(enumerate(tests, 1), key=lambda one: _urgency(one[1]))
    n_profiles = sum(len(test.profiles) for test in tests)
    detail = next((detail for most, detail in _OF_FEW if n_profiles <= most), _OF_MANY)
    n_full = _MOST_IN_FULL
    views: list[ReportedTest] = []
    for number, test in numbered:
        most_urgent = replace(detail, all_pictures=True)
        views.append(_test(number, test, folder, n_full, detail if views else most_urgent))
        n_full = max(n_full - len(test.profiles), 0)
    return views


def _urgency(test: ProfiledTest) -> tuple[bool, int, float]:
    """Sort key: a worse verdict first, then a slower step."""
    slowest = max((check.detail.get("ratio") or 0.0 for check in test.checks), default=0.0)
    return (not _is_broken(test), verdict_rank(_worst(test)), -slowest)


def verdict_rank(verdict: Verdict | None) -> int:
    """Return the place of a verdict among all, the worst first and none last."""
    return len(WORST_FIRST) if verdict is None else WORST_FIRST.index(verdict)


def _worst(test: ProfiledTest) -> Verdict | None:
    return min((check.verdict for check in test.checks), key=WORST_FIRST.index, default=None)


def _is_broken(test: ProfiledTest) -> bool:
    return _worst(test) in BROKEN or test.outcome not in ("passed", "skipped")


def _test(
    number: int, test: ProfiledTest, folder: Path | None, n_full: int, detail: Detail
) -> ReportedTest:
    names = {profile.name for profile in test.profiles}
    of_none = [check for check in test.checks if check.profile not in names]
    return ReportedTest(
        number=number,
        record=test,
        verdict=_worst(test),
        is_broken=_is_broken(test),
        n_checks=(sum(check.verdict in BROKEN for check in test.checks), len(test.checks)),
        messages=_messages(of_none),
        profiles=[
            _profile(
                profile,
                [check for check in test.checks if check.profile == profile.name],
                folder,
                detail if place < n_full else _IN_SHORT,
            )
            for place, profile in enumerate(test.profiles)
        ],
    )


def _profile(
    profile: Profile, checks: Sequence[Check], folder: Path | None, detail: Detail
) -> ProfileView:
    """Return the view of one profile, in as much detail as the page has room for."""
    compared = [check for check in checks if "before" in check.detail]
    timed = next((one for one in compared if one.is_of_step_time and "ratio" in one.detail), None)
    same = [
        check
        for check in compared
        if check.verdict is Verdict.PASS and not check.is_shown_change and check is not timed
    ]
    known = {n: value for n, value in profile.metrics.items() if value.number is not None}
    in_full = detail.n_rows > 0
    times = times_chart(_samples(profile, timed), detail.all_pictures)
    return ProfileView(
        profile=profile,
        in_full=in_full,
        messages=_messages(checks),
        changes=[change_view(profile, one) for one in worst_first(compared) if one not in same],
        n_unchanged=len(same),
        change=_before_after(profile, timed, checks),
        bottleneck=verdict(profile) if profile.steps else "",
        pictures=_pictures(profile, detail),
        charts=_charts(profile, timed, times, detail),
        parts=_parts(profile) if in_full else (),
        untimed="" if times else _why_untimed(profile),
        bar=mini_bar(parts_s(profile)),
        history=_small_history(timed),
        summary={name: shown_value(value, value.unit) for name, value in known.items()},
        metrics=_metrics(known, checks) if in_full else (),
        unknown=_unknown_reasons(profile) if in_full else (),
        tables=table_groups(profile.tables, detail.n_rows) if in_full else (),
        files=[(kind, path, _link(path, folder)) for kind, path in profile.files.items()],
    )


def _pictures(profile: Profile, detail: Detail) -> list[Markup]:
    """Return the pictures as wide as the page, fewer on a page of many profiles."""
    tables, found = profile.tables, []
    if detail.n_boxes:
        table = tables.get(WATERFALL)
        found = [waterfall(table, detail.n_boxes, lambda part: part_title(part, profile))]
    if detail.all_pictures:
        found += [
            pipeline_bars(tables.get("stages")),
            padding_bars(tables.get("padding")),
            device_bars(tables),
            flame(tables, 4 * detail.n_boxes),
        ]
    return [picture for picture in found if picture]


def _charts(
    profile: Profile, timed: Check | None, times: Markup | None, detail: Detail
) -> list[Markup]:
    found = (
        steps_chart(profile.steps, _levels(profile.metrics.get("step_time"), timed)),
        roofline_chart(profile.tables.get("roofline")) if detail.all_pictures else None,
        _ratios(timed),
        times,
        _history(timed, detail.n_rows > 0),
    )
    return [chart for chart in found if chart]


def _messages(checks: Sequence[Check]) -> list[tuple[Check, str]]:
    own = worst_first(causes(checks))
    failed = [check for check in own if check.verdict is not Verdict.PASS]
    return [(check, elide(check.message, MOST_LETTERS)) for check in failed]


def parts_s(profile: Profile) -> dict[str, float]:
    """Return the mean seconds of a step by part; nothing without steps."""
    return mean_parts_s(profile) if profile.steps else {}


def _before_after(profile: Profile, timed: Check | None, checks: Sequence[Check]) -> Markup | None:
    """Return the picture of what changed, or None if nothing was compared or differs."""
    found = [Difference.of(one) for check in checks for one in check.detail.get("differences", ())]
    before = _detail(timed).get("parts_before") or {}
    return before_after(before, parts_s(profile), [(one.line, one.seconds) for one in found])


def _parts(profile: Profile) -> list[tuple[str, str, str, str]]:
    return [
        (
            part.key,
            part.title,
            format_quantity(part.mean_s, SECONDS),
            format_quantity(part.share, SHARE),
        )
        for part in parts_of(profile)
    ]


def _link(path: str, folder: Path | None) -> str:
    """Return the link to a file; never another scheme, even in a run file of another person."""
    target = Path(path)
    if not target.is_absolute():
        return quote(os.fsencode(path), safe="/")
    if folder is None:
        return target.as_uri()
    return quote(os.fsencode(Path(os.path.relpath(target, folder.resolve())).as_posix()))


# what the charts of step times show


def _detail(timed: Check | None) -> Mapping[str, Any]:
    return timed.detail if timed else {}


def _interval(detail: Mapping[str, Any]) -> tuple[float, float] | None:
    low, high = detail.get("low"), detail.get("high")
    return None if low is None or high is None else (low, high)


def _levels(step_time: Value | None, timed: Check | None) -> dict[str, float]:
    """Return seconds of a step without the profiler, and of one before, measured alike."""
    found = {}
    if timed and timed.kind == "against" and timed.detail.get("after") is not None:
        found["in turns"] = float(timed.detail["after"])
    elif step_time and step_time.number is not None:
        found["step_time"] = step_time.number
    if timed:
        before = "other version" if timed.kind == "against" else "baseline"
        found[before] = float(timed.detail["before"])
    return found


def _samples(profile: Profile, timed: Check | None) -> dict[str, tuple[str, Sequence[float]]]:
    """
    Return timed blocks without those of a slow start, and the turns of both versions.

    The steps of a trace stand for the blocks where none was timed.
    """
    step_time = profile.metrics.get("step_time")
    n_dropped = int(step_time.detail.get("n_dropped", 0)) if step_time else 0
    slow = f", without {n_dropped} of a slow start" if n_dropped else ""
    found: dict[str, tuple[str, Sequence[float]]] = {
        f"timed blocks{slow}": ("own", profile.blocks_s[n_dropped:])
    }
    if profile.steps and not profile.blocks_s:
        found = {"traced steps": ("own", [step.period_s for step in profile.steps])}
    if turns := _detail(timed).get("turns"):
        after, before = zip(*turns, strict=True)
        found["turns of this version"] = ("own", after)
        found["turns of the other version"] = ("other", before)
    return found


def _why_untimed(profile: Profile) -> str:
    step_time = profile.metrics.get("step_time")
    why = step_time.why if step_time else None
    return elide(why or "no step was timed without the profiler", 600)


def _ratios(timed: Check | None) -> Markup | None:
    detail = _detail(timed)
    sizes = [int(pair["n"]) for pair in detail.get("process_pairs", ())]
    tolerance = detail.get("tolerance")
    return ratio_chart(detail.get("turns") or (), sizes, _interval(detail), tolerance)


def _recorded(detail: Mapping[str, Any]) -> RecordedRuns:
    runs = detail.get("runs") or ()
    commits = [str(commit) for commit in detail.get("commits", ())]
    return RecordedRuns(
        runs=runs,
        commits=commits if len(commits) == len(runs) else (),
        anchor=detail.get("anchor"),
    )


def _history(timed: Check | None, named: bool) -> Markup | None:
    """Return the chart of the recorded runs, with or without a text for each of them."""
    if timed is None or not timed.detail.get("runs"):
        return None
    detail, before = timed.detail, timed.detail["before"]
    bounds, tolerance = _interval(detail), detail.get("tolerance")
    return history_chart(
        _recorded(detail),
        detail["after"],
        (before * bounds[0], before * bounds[1]) if bounds else None,
        None if tolerance is None else before * (1 + tolerance),
        named,
    )


def _small_history(timed: Check | None) -> tuple[float, Markup] | None:
    detail = _detail(timed)
    recorded = _recorded(detail)
    picture = small_history(recorded, detail["after"]) if recorded.runs else None
    if picture is None:
        return None
    first = recorded.runs[0]
    return (detail["after"] / first if first else 1.0), picture


# metrics and compared values


def change_view(profile: Profile, check: Check) -> ValueChange:
    """Return the view of a comparison, as texts in the metric's unit."""
    value, detail = profile.metrics.get(check.metric), check.detail
    unit, interval = value.unit if value else "", _interval(detail)
    level = detail.get("confidence")
    return ValueChange(
        metric=check.metric,
        before=cell(detail["before"], unit),
        after=cell(detail.get("after"), unit) or "unknown",
        ratio="" if check.ratio is None else f"× {format_ratio(check.ratio)}",
        interval=(" to ".join(map(format_ratio, interval)) if interval else "")
        + (f", {format_quantity(level, SHARE)} interval" if interval and level else ""),
        check=check,
    )


def _metrics(known: Mapping[str, Value], checks: Sequence[Check]) -> list[MetricView]:
    views: list[MetricView] = []
    first: dict[str, str] = {}  # metrics of one cause often have the same text
    for name, value in known.items():
        worst = worst_first([check for check in checks if check.metric == name])
        found = [str(value.detail[key]) for key in ("where", "try") if value.detail.get(key)]
        where = elide("; ".join(found), _WHERE)
        views.append(
            MetricView(
                name=name,
                value=shown_value(value, value.unit),
                source=value.source.value if value.source else "",
                check=worst[0] if worst else None,
                where=f"as for {first[where]}" if where in first else where,
            )
        )
        if where:
            first.setdefault(where, name)
    return views


def _unknown_reasons(profile: Profile) -> list[Reason]:
    """Group the unknown metrics of a profile by their reason."""
    reasons: dict[str, list[str]] = {}
    for name, value in profile.metrics.items():
        if value.number is None:
            reasons.setdefault(elide(value.why or "", _REMARK), []).append(name)
    return [(why, tuple(names)) for why, names in reasons.items()]


# tables by subject

_OVER_STEP = "memory_over_step"
_MANY_ROWS = 50  # from which on a timeline is a table too, and not only a picture
_GROUPS = (
    ("Variants", ("comparison",)),
    ("Events of the median step", (WATERFALL,)),
    ("Input pipeline", ("stages", "pipeline")),
    ("Ops", ("op_work", "host_ops", "device_ops", "functions", "kernels")),
    ("Op profile", ("op_profile", "roofline")),
    ("Devices and collectives", (OF_JOB, "job_collectives", "device_parts", "collectives")),
    ("XLA: executables, and what stayed outside", ("executables", "outside_xla")),
    ("Grappler: the graph before and after", ("graph", "optimizers")),
    ("Python", ("python_calls",)),
    ("Padding and op guide", ("padding", "batch_padding", "alignment", "op_guide")),
    ("Memory", ("memory", _OVER_STEP, "memory_at_peak")),
)


def table_groups(tables: Mapping[str, Table], n_rows: int) -> TableGroups:
    """Return the tables by subject, at most `n_rows` rows of each, and their charts."""
    grouped = {key for _, keys in _GROUPS for key in keys}
    groups = (*_GROUPS, ("More", tuple(key for key in tables if key not in grouped)))
    left_out = {WATERFALL} if n_rows < _MANY_ROWS else set()
    shown = tables.keys() - left_out
    return [
        (title, [(text_table(key, tables[key], n_rows), _memory(key, tables[key])) for key in own])
        for title, keys in groups
        if (own := [key for key in keys if key in shown])
    ]


def _memory(key: str, table: Table) -> Markup | None:
    if key != _OVER_STEP:
        return None
    return memory_chart([(row.get("into_step_s", 0.0), row.get("held")) for row in table.records()])

"""
Prepare each test for the template of the HTML report.

The page has fixed limits. The most urgent profiles are shown in full; of the others it leaves out
metrics, tables and advice, and says so. A hundred profiles then take less than 1 MB.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from pytest_tfperf.checks.roots import causes
from pytest_tfperf.differences.difference import Difference
from pytest_tfperf.quantities import SECONDS, SHARE, format_quantity
from pytest_tfperf.report.html.bars import Bars, padding_bars, pipeline_bars
from pytest_tfperf.report.html.before_after import (
    BeforeAfter,
    StepBar,
    before_after,
    mean_bar,
    parts_of_detail,
)
from pytest_tfperf.report.html.comparison_charts import (
    history_of,
    levels,
    ratios,
    samples,
    small_history_of,
    why_untimed,
)
from pytest_tfperf.report.html.detail import IN_SHORT, MOST_IN_FULL, Detail, detail_of
from pytest_tfperf.report.html.device_bars import DeviceBars, device_bars
from pytest_tfperf.report.html.flame import Flame, flame
from pytest_tfperf.report.html.histogram import Histograms, histograms
from pytest_tfperf.report.html.history_chart import HistoryChart, SmallHistory
from pytest_tfperf.report.html.metric_views import (
    MOST_LETTERS,
    MetricView,
    Reason,
    ValueChange,
    change_view,
    metric_views,
    unknown_reasons,
)
from pytest_tfperf.report.html.ratio_chart import RatioChart
from pytest_tfperf.report.html.roofline_chart import RooflineChart, roofline_chart
from pytest_tfperf.report.html.step_chart import StepChart, step_chart
from pytest_tfperf.report.html.tables import TableGroups, table_groups
from pytest_tfperf.report.html.waterfall import WATERFALL, Waterfall, waterfall
from pytest_tfperf.report.step_verdict import parts_of, verdict
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileView:
    """One profile: what was decided, measured and drawn of it."""

    profile: Profile
    """The profile."""
    messages: tuple[tuple[Check, str], ...]
    """Checks that did not pass, with their texts, the worst first."""
    changes: tuple[ValueChange, ...]
    """Compared values."""
    n_unchanged: int
    """Number of compared values that did not change."""
    change: BeforeAfter | None
    """The step before and after, and what differs between the traces."""
    ratios: RatioChart | None
    """Chart of the ratios of turns, or None."""
    bottleneck: str
    """What most of the step's time goes to, if the trace shows it."""
    waterfall: Waterfall | None
    """Timeline of the median step, or None."""
    pictures: tuple[Bars, ...]
    """The input pipeline, and the padding by array, if they are known."""
    devices: DeviceBars | None
    """The mean step of each device by part, or None."""
    flame: Flame | None
    """Ops by self time, or None."""
    roofline: RooflineChart | None
    """Ops of the devices below the roofline, or None."""
    steps: StepChart | None
    """Chart of the steps, or None."""
    parts: tuple[tuple[str, str, str, str], ...]
    """Part, title, mean seconds and share of a step, the largest first."""
    times: Histograms | None
    """Distributions of the step times, or None."""
    untimed: str
    """Reason why a profile has no distribution."""
    history: HistoryChart | None
    """Chart of the recorded runs, or None."""
    small_history: SmallHistory | None
    """The same for a cell of the overview."""
    summary: Mapping[str, str]
    """Values of the metrics that are known, by name."""
    metrics: tuple[MetricView, ...]
    """Known metrics."""
    unknown: tuple[Reason, ...]
    """Reasons, each with the metrics that are unknown for it."""
    tables: TableGroups
    """Groups of tables."""
    in_full: bool
    """Whether metrics, tables and advice are shown."""
    files: tuple[tuple[str, str, str], ...]
    """Kind, path and link of each kept file."""

    @property
    def ratio(self) -> str:
        """The ratio of the step time to the one before, if they were compared."""
        ratios = [change.ratio for change in self.changes if change.metric == "step_time"]
        return ratios[0] if ratios else ""

    @property
    def bar(self) -> StepBar | None:
        """The parts of the mean step as one bar, or None if they are unknown."""
        return mean_bar(self.profile.steps)

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
    """Record of the test."""
    verdict: Verdict | None
    """The worst verdict, None where nothing was checked."""
    is_broken: bool
    """Whether it needs attention: it failed, or one of its checks did."""
    n_checks: tuple[int, int]
    """Checks that failed, and all checks."""
    messages: tuple[tuple[Check, str], ...]
    """Checks of no profile of the test, with their texts."""
    profiles: tuple[ProfileView, ...]
    """Its profiles."""


def views_of(tests: Sequence[ProfiledTest], folder: Path | None) -> list[ReportedTest]:
    """
    Return the tests, the most urgent first.

    Args:
        tests: The tests of a run.
        folder: The folder of the page, which links to files are relative to, if it is known.
    """
    numbered = sorted(enumerate(tests, 1), key=lambda one: _urgency(one[1]))
    n_profiles = sum(len(test.profiles) for test in tests)
    detail = detail_of(n_profiles)
    n_full = MOST_IN_FULL
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
        profiles=tuple(
            _profile(
                profile,
                [check for check in test.checks if check.profile == profile.name],
                folder,
                detail if place < n_full else IN_SHORT,
            )
            for place, profile in enumerate(test.profiles)
        ),
    )


def _profile(
    profile: Profile, checks: Sequence[Check], folder: Path | None, detail: Detail
) -> ProfileView:
    """Return the view of one profile, in as much detail as the page has room for."""
    n_rows = detail.n_rows
    compared = [check for check in checks if "before" in check.detail]
    timed = next((check for check in compared if "ratio" in check.detail), None)
    same = [
        check
        for check in compared
        if check.verdict is Verdict.PASS and not check.is_shown_change and check is not timed
    ]
    known = {n: value for n, value in profile.metrics.items() if value.number is not None}
    differing = [one for check in checks for one in check.detail.get("differences", ())]
    return ProfileView(
        profile=profile,
        messages=_messages(checks),
        changes=tuple(
            change_view(profile, check) for check in worst_first(compared) if check not in same
        ),
        n_unchanged=len(same),
        change=_before_after(profile, timed, [Difference.of(one) for one in differing]),
        ratios=ratios(timed),
        bottleneck=verdict(profile) if profile.steps else "",
        waterfall=_waterfall(profile, detail.n_boxes),
        pictures=_bars(profile) if detail.all_pictures else (),
        devices=device_bars(profile.tables) if detail.all_pictures else None,
        flame=flame(profile.tables, 4 * detail.n_boxes) if detail.all_pictures else None,
        roofline=roofline_chart(profile.tables.get("roofline")) if detail.all_pictures else None,
        steps=step_chart(profile.steps, levels(profile.metrics.get("step_time"), timed)),
        parts=_parts(profile) if n_rows else (),
        times=histograms(samples(profile, timed), detail.all_pictures),
        untimed=why_untimed(profile),
        history=history_of(timed, n_rows > 0),
        small_history=small_history_of(timed),
        summary={name: shown_value(value, value.unit) for name, value in known.items()},
        metrics=metric_views(known, checks) if n_rows else (),
        unknown=unknown_reasons(profile) if n_rows else (),
        tables=table_groups(profile.tables, n_rows) if n_rows else (),
        in_full=n_rows > 0,
        files=tuple((kind, path, _link(path, folder)) for kind, path in profile.files.items()),
    )


def _waterfall(profile: Profile, n_boxes: int) -> Waterfall | None:
    """Return the timeline, with fewer boxes on a page of many profiles."""
    if not n_boxes:
        return None
    table = profile.tables.get(WATERFALL)
    return waterfall(table, n_boxes, lambda part: part_title(part, profile))


def _bars(profile: Profile) -> tuple[Bars, ...]:
    tables = profile.tables
    found = (pipeline_bars(tables.get("stages")), padding_bars(tables.get("padding")))
    return tuple(bars for bars in found if bars is not None)


def _messages(checks: Sequence[Check]) -> tuple[tuple[Check, str], ...]:
    own = worst_first(causes(checks))
    failed = [check for check in own if check.verdict is not Verdict.PASS]
    return tuple((check, elide(check.message, MOST_LETTERS)) for check in failed)


def _before_after(
    profile: Profile, timed: Check | None, found: Sequence[Difference]
) -> BeforeAfter | None:
    """Return the picture of what changed, or None if nothing was compared or differs."""
    parts = parts_of_detail(timed.detail) if timed else {}
    return before_after(parts, profile.steps, [(one.line, one.seconds) for one in found])


def _parts(profile: Profile) -> tuple[tuple[str, str, str, str], ...]:
    return tuple(
        (
            part.key,
            part.title,
            format_quantity(part.mean_s, SECONDS),
            format_quantity(part.share, SHARE),
        )
        for part in parts_of(profile)
    )


def _link(path: str, folder: Path | None) -> str:
    """Return the link to a file; never another scheme, even in a damaged run file."""
    target = Path(path)
    if not target.is_absolute():
        return quote(os.fsencode(path), safe="/")
    if folder is None:
        return target.as_uri()
    return quote(os.fsencode(Path(os.path.relpath(target, folder.resolve())).as_posix()))

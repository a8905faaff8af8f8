"""
Prepare each test for the template of the HTML report.

The page has fixed limits. The most urgent profiles are shown in full; of the others it leaves out
metrics, tables and advice, and says so. Ten profiles take 200 kB, and a hundred less than 900 kB.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape

from pytest_tfperf.checks.roots import causes
from pytest_tfperf.differences.difference import Difference
from pytest_tfperf.differences.profiles import mean_parts_s
from pytest_tfperf.metric_registry import shown_unit
from pytest_tfperf.quantities import SECONDS, SHARE, format_quantity, format_ratio
from pytest_tfperf.report.html.bars import (
    OF_JOB,
    before_after,
    device_bars,
    flame,
    mini_bar,
    padding_bars,
    pipeline_bars,
    remedy_bars,
)
from pytest_tfperf.report.html.charts import (
    History,
    history_chart,
    memory_chart,
    ratio_chart,
    roofline_chart,
    small_history,
    steps_chart,
    times_chart,
)
from pytest_tfperf.report.html.svg import element, hatched
from pytest_tfperf.report.html.timeline import WATERFALL, waterfall
from pytest_tfperf.report.remedies import without_remedies
from pytest_tfperf.report.step_verdict import parts_of, verdict
from pytest_tfperf.report.text_table import TextTable, compared_cells, text_table
from pytest_tfperf.results import (
    BROKEN,
    DECIDED,
    WORST_FIRST,
    Check,
    Profile,
    Verdict,
    asked_ones,
    part_title,
    tone_of,
    worst_first,
)
from pytest_tfperf.runs import ProfiledTest
from pytest_tfperf.summary import shown_value
from pytest_tfperf.text import and_more, elide
from pytest_tfperf.values import PARTS, REMEDIES, Table, Value

_MESSAGE, _REMARK, _WHERE, CELL = 2000, 180, 400, 60  # characters
_MOST_IN_FULL, _FEW = 6, 3  # profiles
_ROWS, _ROWS_OF_FEW = 4, 50  # of a table
_UNTIMED = "no step was timed without the profiler"
_SYMBOLS = {
    Verdict.FAIL: "✗",
    Verdict.REGRESSION: "▲",
    Verdict.UNKNOWN: "?",
    Verdict.MISSING: "∅",
    Verdict.INCONCLUSIVE: "~",
    Verdict.INCOMPARABLE: "≠",
    Verdict.NEW: "+",
    Verdict.IMPROVED: "▼",
    Verdict.PASS: "✓",
}
Reason = tuple[str, tuple[str, ...]]
"""Reason for which something is unknown, and the metrics that are unknown for it."""
TableGroups = Sequence[tuple[str, Sequence[tuple[TextTable, Markup | None]]]]
"""Titles of groups, and their tables, each with its chart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileView:
    """One profile: what was decided, measured and drawn of it."""

    profile: Profile
    in_full: bool
    messages: Sequence[tuple[Check, str]]
    compared: TextTable | None
    change: Markup | None
    """The step before and after, and what differs between the traces."""
    bottleneck: str
    pictures: Sequence[Markup]
    """As wide as the page; charts stand side by side."""
    charts: Sequence[Markup]
    parts: TextTable | None
    untimed: str
    """Reason why a profile has no times of single steps."""
    metrics: TextTable | None
    unknown: Sequence[Reason]
    groups: TableGroups
    files: Sequence[tuple[str, str, str]]
    """Kind, path and link of each kept file."""
    cells: Sequence[str]
    """Step, history, ratio, input bound and memory in the overview."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedTest:
    """One test."""

    __test__ = False

    number: int
    record: ProfiledTest
    state: Markup
    """Its worst verdict, or its outcome where nothing was checked."""
    verdict: Verdict | None
    is_broken: bool
    """Whether it needs attention: it failed, or one of its checks did."""
    is_open: bool
    messages: Sequence[tuple[Check, str]]
    """Checks of no profile of the test, with their texts."""
    profiles: Sequence[ProfileView]


def views_of(tests: Sequence[ProfiledTest], folder: Path | None) -> list[ReportedTest]:
    """Return the tests on a page in a folder, if it is known, the most urgent first."""
    numbered = sorted(enumerate(tests, 1), key=lambda one: _urgency(one[1]))
    n_profiles = sum(len(test.profiles) for test in tests)
    n_rows, n_full = _ROWS_OF_FEW if n_profiles <= _FEW else _ROWS, _MOST_IN_FULL
    views: list[ReportedTest] = []
    for number, test in numbered:
        profiles = [
            _profile(test, profile, folder, n_rows if place < n_full else 0)
            for place, profile in enumerate(test.profiles)
        ]
        n_full = max(n_full - len(test.profiles), 0)
        worst, is_broken = _worst(test), _is_broken(test)
        failed = ("✗", "bad") if is_broken else ("·", "none")
        views.append(
            ReportedTest(
                number=number,
                record=test,
                state=badge(worst) if worst else _badge(test.outcome, *failed, len(WORST_FIRST)),
                verdict=worst,
                is_broken=is_broken,
                is_open=is_broken
                or len(tests) == 1
                or any(OF_JOB in profile.tables for profile in test.profiles),
                messages=_messages(_checks_of_none(test)),
                profiles=profiles,
            )
        )
    return views


def _urgency(test: ProfiledTest) -> tuple[bool, int, float]:
    """Sort key: a worse verdict first, then a slower step."""
    worst = _worst(test)
    rank = len(WORST_FIRST) if worst is None else WORST_FIRST.index(worst)
    slowest = max((check.detail.get("ratio") or 0.0 for check in test.checks), default=0.0)
    return (not _is_broken(test), rank, -slowest)


def _worst(test: ProfiledTest) -> Verdict | None:
    """Return the worst verdict on what was asked, or else on all."""
    verdicts = [check.verdict for check in asked_ones(test.checks)]
    return min(verdicts, key=WORST_FIRST.index, default=None)


def _is_broken(test: ProfiledTest) -> bool:
    return _worst(test) in BROKEN or test.outcome not in ("passed", "skipped")


def badge(verdict: Verdict) -> Markup:
    """Return a verdict as a sign and a word in its colour, which tables sort by its rank."""
    return _badge(verdict.value, _SYMBOLS[verdict], tone_of([verdict]), WORST_FIRST.index(verdict))


def _badge(word: str, symbol: str, tone: str, rank: int) -> Markup:
    return element("span", f"{symbol} {word}", class_=f"v {tone}", data_rank=rank)


def _checks_of_none(test: ProfiledTest) -> list[Check]:
    names = {profile.name for profile in test.profiles}
    return [check for check in test.checks if check.profile not in names]


def overview(tests: Sequence[ReportedTest], noun: str) -> TextTable:
    """Return a row for each profile, and for each test without one."""
    rows = []
    for test in tests:
        for view in test.profiles or (None,):
            name = view.profile.name if view else ""
            key = f"{test.record.key}/{name}" if name else test.record.key
            link = element(
                "a",
                elide(key, CELL),
                href=f"#t{test.number}",
                title=key if len(key) > CELL else None,
            )
            checks = [one for one in test.record.checks if view and one.profile == name]
            if view is None or view is test.profiles[0]:
                checks += _checks_of_none(test.record)
            row = [link, test.state, _counted(checks)] if noun == "test" else [link]
            rows.append([*row, *(view.cells if view else [""] * 5)])
    texts = (noun, "verdict", "checks") if noun == "test" else (noun,)
    numbers = ("step", "ratio", "input bound", "memory")
    titles = (*texts, "step", "history", *numbers[1:])
    first = ", the most urgent first" if noun == "test" else ""
    return TextTable.of(titles, rows, numbers, title=f"All {noun}s{first}")


def _counted(checks: Sequence[Check]) -> str:
    """Return how many of some checks failed, or else are not decided, with their metrics."""
    undecided = frozenset(Verdict) - BROKEN - DECIDED
    for weight, what, verdicts in ((-1000, "failed", BROKEN), (-1, "not decided", undecided)):
        found = [check for check in worst_first(checks) if check.verdict in verdicts]
        if found:
            names = list(dict.fromkeys(elide(check.metric, CELL) for check in found))
            words = f"{len(found)} of {len(checks)} {what}: {and_more(names, 3)}"
            return element("span", words, data_rank=weight * len(found))
    return element("span", f"{len(checks)} passed", data_rank=0) if checks else ""


def _profile(test: ProfiledTest, profile: Profile, folder: Path | None, n_rows: int) -> ProfileView:
    """Return the view of one profile; without rows for its tables, charts and checks alone."""
    checks = [check for check in test.checks if check.profile == profile.name]
    compared = [check for check in checks if "before" in check.detail]
    timed = next((one for one in compared if one.is_of_step_time and "ratio" in one.detail), None)
    history, found = _history(timed), timed.detail if timed else {}
    titles = {part: part_title(part, profile) for part in PARTS}
    known = {n: value for n, value in profile.metrics.items() if value.number is not None}
    shown = {
        name: shown_value(value, shown_unit(name, value.unit)) for name, value in known.items()
    }
    in_full, times = n_rows > 0, _times(profile, timed)
    parts_s, step_time = mean_parts_s(profile), shown.get("step_time", "")
    bar = mini_bar(parts_s)
    step = profile.metrics.get("step_time")
    changes = [
        Difference.of(one) for check in checks for one in check.detail.get("differences", ())
    ]
    return ProfileView(
        profile=profile,
        in_full=in_full,
        messages=_messages(checks, leaves_remedies_out=in_full),
        compared=_compared(profile, compared, timed),
        change=before_after(found.get("parts_before") or {}, parts_s, changes, titles),
        bottleneck=verdict(profile) if profile.steps else "",
        pictures=_pictures(profile, n_rows, titles) if in_full else (),
        charts=_charts(profile, timed, times, in_full, titles),
        parts=_parts(profile) if in_full else None,
        untimed="" if times else elide((step and step.why) or _UNTIMED, 600),
        metrics=_metrics(known, shown, checks) if in_full else None,
        unknown=_unknown_reasons(profile) if in_full else (),
        groups=table_groups(profile.tables, n_rows) if in_full else (),
        files=[(kind, path, _link(path, folder)) for kind, path in profile.files.items()],
        cells=(
            bar + f" {step_time}" if bar else step_time,
            small_history(history) if history else "",
            f"× {format_ratio(timed.ratio)}" if timed and timed.ratio is not None else "",
            shown.get("input_bound", ""),
            shown.get("peak_memory", ""),
        ),
    )


def _messages(
    checks: Sequence[Check], leaves_remedies_out: bool = False
) -> list[tuple[Check, str]]:
    own = worst_first(causes(checks))
    own = [without_remedies(check) for check in own] if leaves_remedies_out else own
    failed = [check for check in own if check.verdict is not Verdict.PASS]
    return [(check, elide(check.message, _MESSAGE)) for check in failed]


def _link(path: str, folder: Path | None) -> str:
    """Return the link to a file; never another scheme, even in a run file of another person."""
    target = Path(path)
    if not target.is_absolute():
        return quote(os.fsencode(path), safe="/")
    if folder is None:
        return target.as_uri()
    return quote(os.fsencode(Path(os.path.relpath(target, folder.resolve())).as_posix()))


# pictures and charts


def _pictures(profile: Profile, n_rows: int, titles: Mapping[str, str]) -> list[Markup]:
    """Return the pictures as wide as the page, of as many boxes as it has room for."""
    tables, n_boxes = profile.tables, max(n_rows // 2, 4)
    found = (
        remedy_bars(tables.get(REMEDIES)),
        waterfall(tables.get(WATERFALL), n_boxes, titles),
        pipeline_bars(tables.get("stages")),
        padding_bars(tables.get("padding")),
        device_bars(tables),
        flame(tables, 2 * n_boxes),
    )
    return [picture for picture in found if picture]


def _charts(
    profile: Profile,
    timed: Check | None,
    times: Sequence[Markup],
    in_full: bool,
    titles: Mapping[str, str],
) -> list[Markup]:
    found, history = timed.detail if timed else {}, _history(timed)
    sizes = [int(pair["n"]) for pair in found.get("process_pairs", ())]
    charts = (
        steps_chart(profile.steps, _levels(profile.metrics.get("step_time"), timed), titles),
        roofline_chart(profile.tables.get("roofline")) if in_full else None,
        ratio_chart(found.get("turns") or (), sizes, _interval(found), found.get("tolerance")),
        *times,
        history_chart(history, in_full) if history else None,
    )
    return [chart for chart in charts if chart]


def _interval(detail: Mapping[str, Any]) -> tuple[float, float] | None:
    low, high = detail.get("low"), detail.get("high")
    return None if low is None or high is None else (low, high)


def _levels(step_time: Value | None, timed: Check | None) -> dict[str, float]:
    """Return seconds of a step without the profiler, and of one before, measured alike."""
    found = {}
    if timed and timed.metric != "step_time":  # of processors or devices, whose seconds are others
        timed = None
    if timed and timed.kind == "against" and timed.detail.get("after") is not None:
        found["in turns"] = float(timed.detail["after"])
    elif step_time and step_time.number is not None:
        found["step_time"] = step_time.number
    if timed:
        before = "other version" if timed.kind == "against" else "baseline"
        found[before] = float(timed.detail["before"])
    return found


def _times(profile: Profile, timed: Check | None) -> list[Markup]:
    """Draw timed blocks, or else traced steps, and the turns of both versions."""
    step_time = profile.metrics.get("step_time")
    n_dropped = int(step_time.detail.get("n_dropped", 0)) if step_time else 0
    slow = f", without {n_dropped} of a slow start" if n_dropped else ""
    what, own = f"timed blocks{slow}", profile.blocks_s[n_dropped:]
    if profile.steps and not profile.blocks_s:
        what, own = "traced steps", tuple(step.period_s for step in profile.steps)
    turns = (timed.detail.get("turns") if timed else ()) or ()
    of = f", {timed.metric}" if timed and timed.metric != "step_time" else ""
    after, before = ([pair[n] for pair in turns] for n in (0, 1))
    charts = (
        times_chart(what, {"median": own}),
        times_chart(
            f"turns{of}; square: the other version",
            {"median of this version": after, "of the other": before},
        ),
    )
    return [chart for chart in charts if chart]


def _history(timed: Check | None) -> History | None:
    """Return the recorded runs and this one, with what it is compared with."""
    detail = timed.detail if timed else {}
    if timed is None or not detail.get("runs"):
        return None
    runs, commits, before = detail["runs"], detail.get("commits", ()), detail["before"]
    bounds, tolerance = _interval(detail), detail.get("tolerance")
    return History(
        values=[*runs, detail["after"]],
        commits=commits if len(commits) == len(runs) else (),
        anchor=detail.get("anchor"),
        limit=None if tolerance is None else before * (1 + tolerance),
        bounds=(before * bounds[0], before * bounds[1]) if bounds else None,
        metric=timed.metric.replace("_", " "),
    )


# tables


def _compared(profile: Profile, checks: Sequence[Check], timed: Check | None) -> TextTable | None:
    """Return the values that changed, and that of the step time, with a count of the others."""
    changed = [
        check
        for check in worst_first(checks)
        if check.verdict is not Verdict.PASS or check.is_shown_change or check is timed
    ]
    rows = []
    for check in changed:
        value, level = profile.metrics.get(check.metric), check.detail.get("confidence")
        before, after, ratio, interval = compared_cells(
            check, shown_unit(check.metric, value.unit if value else "")
        )
        rows.append(
            [
                elide(check.metric, CELL),
                before,
                after,
                f"× {ratio}" if ratio else "",
                f"{interval}, {format_quantity(level, SHARE)} interval"
                if interval and level
                else interval,
                element("span", check.word, class_="v none")
                if check.is_shown_change
                else badge(check.verdict),
            ]
        )
    n_same = len(checks) - len(changed)
    are = "others are" if n_same > 1 else "other is"
    title = f"compared; {n_same} {are} as before" if n_same else "compared"
    titles = ("metric", "before", "after", "ratio", "interval", "verdict")
    return TextTable.of(titles, rows, titles[1:4], title=title) if checks else None


def _parts(profile: Profile) -> TextTable | None:
    rows = [
        [
            element("span", hatched(part.key), part.title),
            format_quantity(part.mean_s, SECONDS),
            format_quantity(part.share, SHARE),
        ]
        for part in parts_of(profile)
    ]
    titles = ("part", "time", "share")
    return TextTable.of(titles, rows, titles[1:], title="parts of a step, mean") if rows else None


def _metrics(
    known: Mapping[str, Value], shown: Mapping[str, str], checks: Sequence[Check]
) -> TextTable | None:
    """Return what is known, with the worst check of each, where its time goes, and what to try."""
    rows: list[list[str]] = []
    first: dict[str, str] = {}  # metrics of one cause often have the same text
    for name, value in known.items():
        own = worst_first([check for check in checks if check.metric == name])
        found = [str(value.detail[key]) for key in ("where", "try") if value.detail.get(key)]
        where = elide("; ".join(found), _WHERE)
        wanted = own and (own[0].kind == "limit" or own[0].verdict is not Verdict.PASS)
        rows.append(
            [
                elide(name, CELL),
                shown[name],
                value.source.value if value.source else "",
                escape(own[0].wanted) if wanted else "",
                f"{_SYMBOLS[own[0].verdict]} {own[0].verdict.value}" if own else "",
                element("p", f"as for {first[where]}" if where in first else where)
                if where
                else "",
            ]
        )
        if where:
            first.setdefault(where, name)
    titles = ("metric", "value", "from", "wanted", "verdict", "where, and what to try")
    return TextTable.of(titles, rows, ("value",), title="metrics") if rows else None


def _unknown_reasons(profile: Profile) -> list[Reason]:
    """Group the unknown metrics of a profile by their reason."""
    reasons: dict[str, list[str]] = {}
    for name, value in profile.metrics.items():
        if value.number is None:
            reasons.setdefault(elide(value.why or "", _REMARK), []).append(name)
    return [(why, tuple(names)) for why, names in reasons.items()]


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
    left_out = {REMEDIES, *([WATERFALL] if n_rows < _MANY_ROWS else [])}  # of which are pictures
    shown = tables.keys() - left_out
    return [
        (
            title,
            [
                (
                    text_table(key, tables[key], n_rows),
                    memory_chart(tables[key]) if key == _OVER_STEP else None,
                )
                for key in own
            ],
        )
        for title, keys in groups
        if (own := [key for key in keys if key in shown])
    ]

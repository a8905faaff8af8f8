"""Pages of traces, one or more of them or two compared, and of a history."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pytest_tfperf.differences.profiles import differences, mean_parts_s
from pytest_tfperf.metrics.multi_host import AnalysedTrace
from pytest_tfperf.quantities import format_alike
from pytest_tfperf.report.comparison import ComparedTraces
from pytest_tfperf.report.html.bars import before_after
from pytest_tfperf.report.html.charts import History, history_chart
from pytest_tfperf.report.html.page import ComparedView, Head, render_page
from pytest_tfperf.report.html.views import views_of
from pytest_tfperf.report.step_verdict import facts_of, figures_and_ops, verdict
from pytest_tfperf.report.text_table import text_table
from pytest_tfperf.results import Profile, part_title
from pytest_tfperf.runs import ProfiledTest
from pytest_tfperf.text import format_slowdown, plural
from pytest_tfperf.values import PARTS

_MOST_ROWS = 50


def render_traces(traces: Sequence[AnalysedTrace]) -> str:
    """Render analysed traces, at least one, of one job or of several."""
    cards = _cards([one.with_traced_times() for one in traces])
    return render_page(_head(traces), views_of(cards, None))


def render_compared(compared: ComparedTraces) -> str:
    """Render the comparison of two traces, and both traces below it."""
    old, new = compared.old, compared.new
    hlo = [text_table(*one, _MOST_ROWS) for one in compared.hlo.items()]
    hlo = [one if one.rows else replace(one, title=f"{one.title}: none") for one in hlo]
    titles = {part: part_title(part, new) for part in PARTS}
    view = ComparedView(
        metrics=compared.metrics,
        change=before_after(mean_parts_s(old), mean_parts_s(new), differences(old, new), titles),
        hlo=[("Differences of the HLO", [(one, None) for one in hlo])] if hlo else [],
    )
    names = _names([old, new])
    head = Head(
        title=f"tfperf: {' and '.join(names)}",
        heading=f"{names[0]} → {names[1]}",
        verdict=_change(old, new),
        tone="open",
        lines=(*compared.titles, *compared.notes),
        noun="trace",
    )
    return render_page(head, views_of(_cards([old, new]), None), compared=view)


def _cards(profiles: Sequence[Profile]) -> list[ProfiledTest]:
    """Return traces as the subjects of cards."""
    return [
        ProfiledTest(
            nodeid=profile.name,
            file=profile.name.removesuffix(name).rstrip("/"),
            key=name,
            outcome="passed",
            profiles=(replace(profile, name=""),),
            checks=(),
        )
        for profile, name in zip(profiles, _names(profiles), strict=True)
    ]


def _names(profiles: Sequence[Profile]) -> list[str]:
    """Return the file names of traces, or their whole paths where two files have one name."""
    short = [Path(profile.name).name for profile in profiles]
    return short if len(set(short)) == len(short) else [profile.name for profile in profiles]


def _head(traces: Sequence[AnalysedTrace]) -> Head:
    """Return the top of a page of traces: the bottleneck of the slowest one."""
    slowest = max(traces, key=lambda one: one.step_time.number or 0.0)
    profile = slowest.profile
    file = Path(profile.name).name
    name = f"{file}: " if len(traces) > 1 else ""
    lines = (
        f"{name}{facts_of(slowest)}",
        *figures_and_ops(profile),
        *profile.notes,
        f"The whole timeline, for ui.perfetto.dev: tfperf export {profile.name} -o trace.json.gz",
    )
    return Head(
        title=f"tfperf: {file}",
        heading=file if len(traces) == 1 else f"{len(traces)} traces",
        verdict=f"{name}{verdict(profile, slowest.devices)}",
        tone="open",
        lines=lines,
        noun="trace",
    )


def _change(old: Profile, new: Profile) -> str:
    """Return the change of the median period, and of the mean one if that goes the other way."""
    if not old.steps or not new.steps:
        return "A trace shows no step, so no time is compared."
    before, after = ([step.period_s for step in one.steps] for one in (old, new))
    medians = statistics.median(before), statistics.median(after)
    means = statistics.fmean(before), statistics.fmean(after)
    if not min(*medians, *means) > 0:
        return "A trace shows no time of a step, so no time is compared."
    times = " to ".join(format_alike(medians[0], medians[1], "s"))
    sentence = f"Traced steps are {format_slowdown(medians[1] / medians[0])}: {times}"
    if (medians[1] > medians[0]) == (means[1] > means[0]):
        return f"{sentence}."
    return (
        f"{sentence} (median). The mean step changes from {' to '.join(format_alike(*means, 's'))}."
    )


def render_trends(
    metric: str,
    trends: Sequence[tuple[str, str, History]],
    facts: Sequence[str],
) -> str:
    """Render series of a metric, each with title, facts and runs, below common facts."""
    changed = [
        f"{title}: {runs.changes.sentences[-1]}" for title, _, runs in trends if runs.changes.points
    ]
    n_known = sum(runs.changes.is_known for *_, runs in trends)
    none = f"No change of level in the {metric} of {plural(n_known, 'profile')}"
    if n_known < len(trends):
        none += f"; of {len(trends) - n_known} more it is not known"
    if not n_known:
        none = f"Changes of level in the {metric} are not known"
    head = Head(
        title=f"tfperf: history of {metric}",
        heading=f"History of {metric}",
        verdict=changed[0] if changed else f"{none}.",
        tone="open" if changed else "none",
        lines=facts,
        noun="profile",
    )
    views = [(title, about, history_chart(runs)) for title, about, runs in trends]
    return render_page(head, (), trends=views)

"""
A run, or traces, as one HTML page that needs no network and no other file.

`page.html` is its template. `page.css` and `page.js` are written into it, and its content security
policy allows only these two. Everything but search and sort works without JavaScript.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from pytest_tfperf.checks.roots import causes
from pytest_tfperf.metric_registry import METRICS, Metric
from pytest_tfperf.quantities import SCALES, format_quantity
from pytest_tfperf.report.failure import failure_headline
from pytest_tfperf.report.html.svg import BOX_HEIGHT, Key, hatched
from pytest_tfperf.report.html.views import (
    Reason,
    ReportedTest,
    TableGroups,
    badge,
    overview,
    views_of,
)
from pytest_tfperf.report.run_text import count_line, describe_other_python
from pytest_tfperf.report.text_table import TextTable
from pytest_tfperf.results import BROKEN, tone_of, undecided_times
from pytest_tfperf.runs import ProfiledTest, Run
from pytest_tfperf.text import elide, plain, plural
from pytest_tfperf.values import PART_TITLES, PARTS, Json

_HERE = Path(__file__).parent
# colours for colour-blind people (Okabe and Ito, Color Universal Design, 2002), each with its own
# hatching
_PATTERNS = {
    "compile": ("#cc79a7", "M0,0L6,6M6,0L0,6"),
    "output": ("#b8a800", "M0,3h6"),
    "input": ("#d55e00", "M-1,7L7,-1M-1,1L1,-1M5,7L7,5"),
    "kernel_launch": ("#e69f00", "M-1,-1L7,7M5,-1L7,1M-1,5L1,7"),
    "host_compute": ("#56b4e9", "M1,1.5h1.5M4,4.5h1.5"),
    "collective": ("#0072b2", "M3,0v6"),
    "device_to_device": ("#555555", "M0,3h6M3,0v6"),
    "device_compute": ("#009e73", ""),
    "other": ("#777777", "M3,1v4M1,3h4"),
    "waiting": ("#882255", "M0,0L6,6"),  # in collectives, where the devices are drawn one by one
}
_NAME_WIDTH = 100  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The top of a page."""

    title: str
    heading: str
    verdict: str
    tone: str
    """That of the verdict: `bad`, `open`, `good` or `none`."""
    lines: Sequence[str] = ()
    noun: str = "test"
    """Name of a card's subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedView:
    """A comparison of two traces."""

    metrics: TextTable
    change: Markup | None
    """The mean step before and after, and what differs."""
    hlo: TableGroups


def render_html(run: Run, folder: Path | None = None) -> str:
    """Render a run on a page in a folder, if it is known, which links to files are relative to."""
    tests = views_of(run.tests, folder)
    return render_page(_run_head(run, tests), tests, _environments(run.tests))


def render_page(
    head: Head,
    tests: Sequence[ReportedTest],
    environments: Sequence[Mapping[str, Any]] = (),
    compared: ComparedView | None = None,
    trends: Sequence[tuple[str, str, Markup | None]] = (),
) -> str:
    """Render a page: its top, a comparison, trends (title, facts and chart of each), and cards."""
    style, script = (_without_indents(name) for name in ("page.css", "page.js"))
    page: str = _template().render(
        head=head,
        tests=tests,
        overview=overview(tests, head.noun) if len(tests) > 1 else None,
        keys=_part_keys(tests),
        environments=environments,
        compared=compared,
        trends=trends,
        glossary=_glossary(tests),
        unknown=_unknown_in_all(tests),
        patterns=_PATTERNS,
        box_height=BOX_HEIGHT,
        factors=json.dumps(_factors()),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
    )
    return plain(page)


def _run_head(run: Run, tests: Sequence[ReportedTest]) -> Head:
    sentence, tone = _verdict(run, tests)
    commit = f", commit {_brief(run.commit)}" if run.commit else ""
    return Head(
        title=f"tfperf: {len(run.tests)} tests, {run.created}",
        heading=f"Performance of {plural(len(run.tests), 'test')}",
        verdict=sentence,
        tone=tone,
        lines=(
            *run.not_checked,
            count_line(run.tests).text,
            undecided_times(test.checks for test in run.tests),
            f"{run.created}{commit}",
        ),
    )


def _verdict(run: Run, tests: Sequence[ReportedTest]) -> tuple[str, str]:
    """Return the headline of the most urgent check, or what is to be said without one; its tone."""
    for test in tests:
        for check in causes(one for one in test.record.checks if one.verdict in BROKEN):
            return failure_headline(test.record.key, check), "bad"
    if n := sum(test.is_broken for test in tests):
        return f"{plural(n, 'test')} failed, for other reasons than performance", "bad"
    if n := sum(test.verdict is not None and tone_of([test.verdict]) == "open" for test in tests):
        undecided = plural(n, "test has", "tests have")
        return f"No check failed; {undecided} undecided checks", "open"
    if run.not_checked or any(test.n_unchecked for test in run.tests):
        return "No check failed, and not all was checked", "open"
    if undecided_times(test.checks for test in run.tests):
        return "No check failed, and not all times are decided", "open"
    checked = any(test.record.checks for test in tests)
    return ("All checks passed", "good") if checked else ("Nothing was checked", "none")


@functools.cache
def _template() -> Any:
    from jinja2 import (  # slow to load, and most runs write no page
        Environment,
        FileSystemLoader,
        StrictUndefined,
    )

    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "other_python": describe_other_python,
        "quantity": format_quantity,
        "badge": badge,
        "tone_of": tone_of,
    }
    environment.filters |= {"brief": _brief}
    return environment.get_template("page.html")


def _without_indents(name: str) -> str:
    return "\n".join(map(str.strip, (_HERE / name).read_text("utf-8").splitlines()))


def _brief(text: object, width: int = _NAME_WIDTH) -> str:
    return elide(str(text), width)


def _hash(text: str) -> str:
    """Return the hash of a style or script in a content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _factors() -> dict[str, float]:
    """Return the factor of each suffix of a quantity, by which the script sorts."""
    scaled = {suffix: factor for scales in SCALES.values() for factor, suffix in scales}
    return {"": 1.0, "/s": 1.0, "%": 0.01, **scaled}


def _part_keys(tests: Iterable[ReportedTest]) -> list[Key]:
    """Return the keys to the parts of all steps, which the overview draws."""
    steps = [step for test in tests for one in test.record.profiles for step in one.steps]
    shown = {part for step in steps for part, seconds in step.parts_s.items() if seconds > 0}
    return [(hatched(part), PART_TITLES[part]) for part in PARTS if part in shown]


def _glossary(tests: Iterable[ReportedTest]) -> Iterable[Metric]:
    """Return the built-in metrics, and the project's custom ones."""
    own = {
        name: metric
        for test in tests
        for profile in test.record.profiles
        for name, metric in profile.own.items()
    }
    return {**METRICS, **own}.values()


def _unknown_in_all(tests: Iterable[ReportedTest]) -> tuple[Reason, ...]:
    """Return the reasons for unknown metrics that all profiles share, if there are several."""
    shown = [view.unknown for test in tests for view in test.profiles if view.in_full]
    if len(shown) < 2:
        return ()
    return tuple(reason for reason in shown[0] if all(reason in other for other in shown[1:]))


def _environments(tests: Iterable[ProfiledTest]) -> list[Json]:
    """Return the different environments of the tests that made profiles."""
    found: list[Json] = []
    for test in tests:
        if test.environment and test.environment not in found:
            found.append(dict(test.environment))
    return found

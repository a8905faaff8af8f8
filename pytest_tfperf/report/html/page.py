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
from pytest_tfperf.report.html.svg import BOX_HEIGHT
from pytest_tfperf.report.html.views import (
    Reason,
    ReportedTest,
    TableGroups,
    verdict_rank,
    views_of,
)
from pytest_tfperf.report.run_text import count_line, describe_other_python
from pytest_tfperf.results import BROKEN, DECIDED, Verdict
from pytest_tfperf.runs import ProfiledTest, Run
from pytest_tfperf.text import elide, plural
from pytest_tfperf.values import Json

_HERE = Path(__file__).parent
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
MOST_LETTERS = 600
"""Characters of a sentence at the top of a page."""
_NAME_WIDTH = 100  # characters
# characters that change the direction of the text behind them
_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROL = dict.fromkeys(
    (*range(9), 11, 12, *range(14, 32), 127, *_BIDI), "\N{REPLACEMENT CHARACTER}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The top of a page."""

    title: str
    """Title of the document."""
    heading: str
    """First heading."""
    verdict: str
    """Most important sentence."""
    tone: str
    """Its tone: `bad`, `open`, `good` or `none`."""
    lines: tuple[str, ...] = ()
    """Sentences below it."""
    noun: str = "test"
    """Name of a card's subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedView:
    """A comparison of two traces."""

    rows: Sequence[tuple[str, str, str, str]]
    """Metric, value before, value after, ratio."""
    change: Markup | None
    """The mean step before and after, and what differs."""
    tables: TableGroups
    """Differences of the HLO."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendView:
    """The values of one metric over many runs."""

    title: str
    facts: str
    """Machine and branch."""
    chart: Markup | None
    """The values; None for one run."""


def render_html(run: Run, folder: Path | None = None) -> str:
    """
    Render a run.

    Args:
        run: The run.
        folder: The folder of the page, which links to files are relative to, if it is known.
    """
    tests = views_of(run.tests, folder)
    return render_page(_run_head(run, tests), tests, _environments(run.tests))


def render_page(
    head: Head,
    tests: Sequence[ReportedTest],
    environments: Sequence[Mapping[str, Any]] = (),
    compared: ComparedView | None = None,
    trends: Sequence[TrendView] = (),
) -> str:
    """
    Render a page.

    Args:
        head: Its top.
        tests: Its cards.
        environments: Environments of the tests.
        compared: A comparison to show before the cards, or None.
        trends: Values over many runs.
    """
    style, script = (_without_indents(name) for name in ("page.css", "page.js"))
    page = _template().render(
        head=head,
        tests=tests,
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
    return _clean(page)


def _run_head(run: Run, tests: Sequence[ReportedTest]) -> Head:
    """Return the head of a run: the headline of its most urgent check."""
    headlines = [
        (failure_headline(test.record.key, check), check.verdict)
        for test in tests
        for check in causes(check for check in test.record.checks if check.verdict in BROKEN)[:1]
    ]
    counts = elide(count_line(run.tests).text, MOST_LETTERS)
    commit = f", commit {_brief(run.commit)}" if run.commit else ""
    sentence, tone = (
        (headlines[0][0], _tone(headlines[0][1])) if headlines else _without_broken(run, tests)
    )
    return Head(
        title=f"tfperf: {len(run.tests)} tests, {run.created}",
        heading=f"Performance of {plural(len(run.tests), 'test')}",
        verdict=elide(sentence, MOST_LETTERS),
        tone=tone,
        lines=(*run.not_checked, counts, f"{run.created}{commit}"),
    )


def _without_broken(run: Run, tests: Sequence[ReportedTest]) -> tuple[str, str]:
    """Return the verdict of a run without a failed check, and its tone."""
    failed = [test for test in tests if test.is_broken]
    if failed:
        return f"{plural(len(failed), 'test')} failed, for other reasons than performance", "bad"
    undecided = [test for test in tests if test.verdict and _tone(test.verdict) == "open"]
    if undecided:
        return (
            f"No check failed; {plural(len(undecided), 'test has', 'tests have')} undecided checks",
            "open",
        )
    if run.not_checked:
        return "No check failed, and not all was checked", "open"
    checked = any(test.record.checks for test in tests)
    return ("All checks passed", "good") if checked else ("Nothing was checked", "none")


def _clean(page: str) -> str:
    """Replace control characters, halves of surrogate pairs and changes of text direction."""
    return page.translate(_CONTROL).encode("utf-8", "replace").decode("utf-8")


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
        "plural": plural,
        "quantity": format_quantity,
        "symbol": _SYMBOLS.__getitem__,
        "tone": _tone,
        "verdict_rank": verdict_rank,
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


def _tone(verdict: Verdict) -> str:
    """Return the tone of a verdict: it fails a test, decides nothing, or is good."""
    return "bad" if verdict in BROKEN else "good" if verdict in DECIDED else "open"


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

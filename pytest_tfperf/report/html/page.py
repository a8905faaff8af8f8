"""
A run as one HTML page that needs nothing else: no network, no other file, and without JavaScript all but searching and sorting.

`page.html` is its template, `page.css` and `page.js` are written into it; its content security policy allows these two alone.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pytest_tfperf.metrics import METRICS, Metric
from pytest_tfperf.report.html.charts import short
from pytest_tfperf.report.html.tables import cut, quantity, tables_view
from pytest_tfperf.report.html.views import Detail, TestView, views_of
from pytest_tfperf.report.terminal import count_line
from pytest_tfperf.results import BROKEN, DECIDED, WORST_FIRST, Run, Verdict
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
# colours that colour-blind people tell apart (Okabe and Ito, Color Universal Design, 2002), each with lines of its own
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
}
PAGE_BYTES = 1_000_000
"""What the page of a run of a hundred profiles is smaller than."""
_SAFE = 0.98  # what tables take is estimated
_WITHOUT_TABLES = 0.7  # of the page, at most
_WEIGHT = 4  # of the room of a test that asks for attention
_DETAILS = (
    Detail(message=2000, remark=180, dots=200),
    Detail(message=800, remark=60, dots=60),
    Detail(message=250, remark=0, dots=20, whole=False),
)
_ONE_COUNT, _NAME = 600, 100  # characters
_TURNING = (
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
)  # what stands behind them would be read in another order
_CONTROL = dict.fromkeys(
    (*range(9), 11, 12, *range(14, 32), 127, *_TURNING), "\N{REPLACEMENT CHARACTER}"
)


def render_html(run: Run, folder: Path | None = None) -> str:
    """
    The page; links to kept traces and exported files are relative to `folder`, where it will lie, if that is known.

    Of a hundred profiles it is smaller than `PAGE_BYTES`: what is said is cut until the page is small without its tables, and these get
    the room that is left, those of tests that ask for attention more of it.
    """
    style, script = ((_HERE / name).read_text("utf-8") for name in ("page.css", "page.js"))
    page = functools.partial(
        _template().render,
        run=run,
        environments=_environments(run),
        count=cut(count_line(run.tests).text, _ONE_COUNT).shown,
        glossary=_glossary(run),
        patterns=_PATTERNS,
        weight=_WEIGHT,
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
    )
    for detail in _DETAILS:
        tests = views_of(run.tests, folder, detail)
        taken = len(_clean(page(tests=tests, detail=detail, room=0)).encode())
        if taken <= _WITHOUT_TABLES * PAGE_BYTES:
            break
    shares = sum(len(test.profiles) * (_WEIGHT if test.is_broken else 1) for test in tests)
    return _clean(
        page(tests=tests, detail=detail, room=(_SAFE * PAGE_BYTES - taken) / max(shares, 1))
    )


def _clean(page: str) -> str:
    """Without what no page can hold: control characters, halves of surrogate pairs, and what changes the direction of text."""
    return page.translate(_CONTROL).encode("utf-8", "replace").decode("utf-8")


@functools.cache
def _template() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # most runs write no page

    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "cut": cut,
        "quantity": quantity,
        "symbol": _SYMBOLS.__getitem__,
        "tone": _tone,
        "tables_view": tables_view,
        "test_rank": _rank,
    }
    environment.filters |= {"short": short, "brief": _brief}
    return environment.get_template("page.html")


def _brief(text: object, width: int = _NAME) -> str:
    """What people and programs named or wrote, as long as there is room for."""
    return cut(str(text), width).shown


def _hash(text: str) -> str:
    """What a content security policy knows a style or script by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _tone(verdict: Verdict) -> str:
    """As on the terminal: what fails a test, what is not decided, and the rest."""
    return "bad" if verdict in BROKEN else "good" if verdict in DECIDED else "open"


def _rank(test: TestView) -> int:
    """The place of a test where they are sorted by verdict."""
    return len(WORST_FIRST) if test.verdict is None else WORST_FIRST.index(test.verdict)


def _glossary(run: Run) -> Iterable[Metric]:
    """The built-in metrics, and those that the project added."""
    own = {
        name: metric
        for test in run.tests
        for profile in test.profiles
        for name, metric in profile.own.items()
    }
    return {**METRICS, **own}.values()


def _environments(run: Run) -> list[Json]:
    """The different places where tests ran."""
    found: list[Json] = []
    for test in run.tests:
        if test.environment not in found:
            found.append(dict(test.environment))
    return found

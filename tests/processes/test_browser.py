"""The HTML report as Chromium shows it: what it loads and says, what is drawn where, what keys and searches do, and names that mean harm."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import made_traces
from helpers import sample_run as shown_run
from helpers.browser import AXE, OPEN_ALL, VIOLATIONS, Browser, Page, needs_chromium
from helpers.builders import LAPTOP, check, profile, record_of, run_of, value

from pytest_tfperf.cli.main import main
from pytest_tfperf.metric_registry import Metric
from pytest_tfperf.report.html.page import render_html
from pytest_tfperf.text import plain
from pytest_tfperf.values import PARTS, Advice, Column, Source, Step, Table, Value

pytestmark = needs_chromium

NASTY = "</script></style></title><script>harm=1</script>\"'><img src=x onerror=harm=2>&amp;{{ 7*7 }}🤖\u202eab\u200f\u05d0"
VERY_LONG = NASTY + "x" * 10_000
# every text that is seen, against what is behind it: WCAG 2.1, 1.4.3
CONTRASTS = """(() => {
  const light = (part) => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const contrast = (...colours) => {
    const [lighter, darker] = colours.map(luminance).sort((a, b) => b - a);
    return (lighter + 0.05) / (darker + 0.05);
  };
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const behind = (element) => {
    const colour = parts(getComputedStyle(element).backgroundColor);
    return colour[3] === 0 ? behind(element.parentElement) : colour;
  };
  return [...document.querySelectorAll("body *")].filter((element) => !element.closest("script, .skip")
      && element.checkVisibility() && [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())).map((element) => {
    const style = getComputedStyle(element), box = element.closest("foreignObject"), chart = box ? null : element.closest("svg");
    const fill = box && getComputedStyle(box.previousElementSibling).fill; // hatched along its foot, or one colour
    if (box) return [fill.startsWith("url") ? contrast(parts(style.color), behind(box.closest("figure"))) : contrast(parts(style.color), parts(fill)), element.outerHTML.slice(0, 80)];
    const around = chart && style.stroke !== "none" ? parts(style.stroke) : behind(chart?.ownerSVGElement?.parentElement ?? chart?.parentElement ?? element);
    return [contrast(parts(chart ? style.fill : style.color), around), element.outerHTML.slice(0, 80)];
  });
})()"""
# texts of charts that leave their picture or stand on another
CROWDED = """[...document.querySelectorAll("svg.chart")].filter((chart) => chart.checkVisibility()).flatMap((chart) => {
  const all = chart.getBoundingClientRect(), texts = [...chart.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
  const out = texts.filter(([, box]) => box.left < all.left - 1 || box.right > all.right + 1 || box.top < all.top - 1 || box.bottom > all.bottom + 1);
  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top + 2 < b.bottom - 2 && b.top + 2 < a.bottom - 2;
  return [...out, ...texts.filter(([, one], n) => texts.some(([, other], m) => m > n && meet(one, other)))].map(([text]) => text);
})"""
SHOWN = "[...document.querySelectorAll('.test')].filter((test) => test.checkVisibility()).map((test) => test.id)"


def table_of(keys, *rows):
    return Table.of(NASTY, [Column(key, key) for key in keys.split()], rows)


def pictured(*names):
    """The tables of all pictures, with these names in every place that holds text."""
    return {
        "median_step": table_of(
            "lane name part start_s length_s",
            ("step", "", "input", 0.0, 0.004),
            ("step", "", names[0], 0.004, 0.006),
            *((lane, name, lane, 0.001, 0.005) for lane in names for name in names),
        ),
        "stages": table_of(
            "stage name self_s blocking_s kind",
            *((f"  {name}", name, 0.001, 0.001, name) for name in names),
        ),
        "padding": table_of(
            "array shape padded bytes padded_bytes", *((name, name, name, 1, 4) for name in names)
        ),
        "roofline": table_of(
            "op self_s flop_rate bandwidth flop_per_byte bound_by share_of_the_roof",
            *((name, 0.001, 1e12, 1e11, 10.0, name, 0.5) for name in names),
        ),
        "device_ops": table_of(
            "where type op self_s", *((name, name, name, 0.001) for name in names)
        ),
    }


def nasty_run():
    """Names that mean harm wherever a project, a model or a damaged run file has a name."""
    columns = (
        Column("op", "op"),
        Column("type", "type"),
        Column("self_s", "self", "s"),
        Column(NASTY, NASTY, NASTY),
    )
    measured = replace(
        profile(
            NASTY,
            notes=(VERY_LONG,),
            step_time=0.01,
            input_bound=value("input_bound", 0.2, where=VERY_LONG, **{"try": NASTY}),
        ),
        tables={
            "host_ops": Table(
                title=NASTY,
                columns=columns,
                rows=((VERY_LONG, NASTY, 0.001, 1.5), (NASTY, VERY_LONG, 0.002, 2)),
            ),
            **pictured(NASTY, VERY_LONG),
        },
        advice=(Advice(what=VERY_LONG, because=NASTY, win_s=0.01, look=NASTY),),
        steps=shown_run.steps(0.01, 0.02),
        files={NASTY: "javascript:harm=3", "long": VERY_LONG},
        ended=NASTY,
    )
    own = Metric(VERY_LONG, "count", "higher", "program", NASTY)
    measured = replace(
        measured,
        metrics={**measured.metrics, own.name: Value(number=3.0, unit="count", source=Source.OWN)},
        own={own.name: own},
    )
    difference = {
        "before": 0.01,
        "after": 0.02,
        "ratio": 2.0,
        "differences": [{"what": VERY_LONG, "seconds": None}],
        "runs": [0.010, 0.0101, 0.0099, 0.010, 0.0101, 0.0099] * 2 + [0.02] * 6,
        "commits": [NASTY, VERY_LONG] * 9,
    }
    checks = [
        check("FAIL", NASTY, VERY_LONG, NASTY),
        replace(check("REGRESSION", "step_time", NASTY, NASTY, "baseline"), detail=difference),
    ]
    environment = {**LAPTOP, "platform": VERY_LONG, "machine": {NASTY: NASTY}}
    tests = [
        record_of(measured, key=VERY_LONG, file=NASTY, checks=checks, environment=environment),
        record_of(profile(), key=NASTY),
    ]
    return run_of(*tests, commit=VERY_LONG)


def drawn_run():
    """Every chart, its lines close to one another, and a table as wide as they become."""
    timed = {
        "before": 0.0100,
        "after": 0.0102,
        "ratio": 1.02,
        "low": 0.9,
        "high": 1.2,
        "tolerance": 0.05,
        "runs": [0.0100, 0.0101, 0.0099, 0.0100, 0.0101, 0.0099] * 2 + [0.0104, 0.0105, 0.0106] * 3,
        "commits": [f"{n:012x}" for n in range(21)],
        "anchor": 0.0101,
    }
    few = {"before": 0.01, "after": 0.0102, "ratio": 1.02, "runs": [0.01, 0.0101], "anchor": None}
    held = Table.of(
        "memory over train 1",
        [Column("into_step_s", "into the step", "s"), Column("held", "held", "bytes")],
        [(n / 1000, 2**20 + n) for n in range(10)],
    )
    wide = Table.of(
        "ops",
        [Column(f"column_{n}", f"column {n}", "s" if n % 2 else "") for n in range(10)],
        [("layer/dense/MatMul", 0.00123) * 5],
    )
    parts = dict.fromkeys(PARTS, 0.001)
    measured = replace(
        profile(step_time=value("step_time", 0.0102, n_dropped=12)),
        steps=(Step(name="train 1", period_s=0.009, parts_s=parts),) * 20,
        blocks_s=tuple(0.010 + n / 1e5 for n in range(40)),
        tables={"memory_over_step": held, "wide": wide},
    )
    return run_of(
        record_of(
            measured,
            checks=[replace(check("REGRESSION", "step_time", kind="baseline"), detail=timed)],
        ),
        record_of(
            replace(profile(step_time=0.0102), blocks_s=(0.0101,) * 30),
            key="test_alike",
            checks=[replace(check("PASS", "step_time", kind="baseline"), detail=few)],
        ),
        record_of(profile(), key="test_unknown"),
    )


def histories_run():
    """Histories and distributions of many sizes and spreads, with and without changes."""
    random = np.random.default_rng(8)
    long_ticks = replace(profile(), blocks_s=tuple(np.linspace(0.01006, 0.01026, 30).tolist()))
    tests = [record_of(long_ticks, key="test_long_ticks")]  # six of 10.05 ms
    for number in range(30):
        n, spread = int(random.choice([1, 3, 12, 40])), random.choice([0.0, 0.001, 0.02, 0.3])
        scale = 10.0 ** random.uniform(-6, 1)
        times = scale * np.exp(spread * random.normal(size=n + 1))
        times[n // 2 :] *= random.choice([1.0, 1.05, 3.0])
        *runs, now = times.tolist()
        before = float(np.median(runs))
        timed = {"before": before, "after": now, "ratio": now / before, "runs": runs}
        lines = {"low": 0.9, "high": 1.2, "tolerance": 0.05, "anchor": runs[0]}
        blocks = scale * np.exp(spread * random.normal(size=int(random.choice([1, 50, 2000]))))
        tests.append(
            record_of(
                replace(profile(step_time=now), blocks_s=tuple(blocks.tolist())),
                key=f"test_{number}",
                checks=[
                    replace(
                        check("PASS", "step_time", kind="baseline"),
                        detail=timed | (lines if number % 2 else {}),
                    )
                ],
            )
        )
    return run_of(*tests)


def sorted_run():
    """A table whose rows stand in none of its orders."""
    columns = (
        Column("op", "op"),
        Column("self_s", "self", "s"),
        Column("size", "size", "bytes"),
        Column("share", "share", "0..1"),
    )
    rows = (("b", 0.0012, 2**20, 0.09), ("c", 1.0, None, 0.5), ("A", 0.0009, 3000.0, 0.1))
    return run_of(
        record_of(
            replace(profile(), tables={"host_ops": Table(title="ops", columns=columns, rows=rows)})
        )
    )


@pytest.fixture(scope="module")
def browser(tmp_path_factory, processes):
    with Browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.fixture(scope="module")
def opened(browser, tmp_path_factory):
    def written(run, **options):
        path = tmp_path_factory.mktemp("page") / "run.html"
        path.write_text(render_html(run, path.parent), encoding="utf-8")
        return Page(browser, path, **options)

    return written


@pytest.fixture(scope="module")
def trace_page(browser, tmp_path_factory):
    """The page of a made trace."""
    path = tmp_path_factory.mktemp("trace") / "gpu.xplane.pb"
    path.write_bytes(made_traces.pipeline())
    page = path.with_name("page.html")
    assert main(["analyze", str(path), "-o", str(page)]) == 0
    return lambda **options: Page(browser, page, **options)


# the left ends and widths of all boxes of a waterfall, in percent
BOXES = "[...document.querySelectorAll('.waterfall .fall svg:not(.tick)')].map((box) => ['x', 'width'].map((name) => parseFloat(box.getAttribute(name))))"
# boxes of one row that overlap, and texts of the axis that do
OVERLAPPING = """(() => {
  const places = (selector) => [...document.querySelectorAll(selector)].map((one) => one.getBoundingClientRect());
  const meet = (a, b) => a.left < b.right - 0.5 && b.left < a.right - 0.5 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  return [".fall svg:not(.tick) > rect", ".fall .tick text", ".fall .lane"].flatMap((selector) => {
    const all = places(selector);
    return all.flatMap((one, n) => all.slice(n + 1).filter((other) => meet(one, other)).map(() => selector));
  });
})()"""


def faults(page):
    return page.told(
        "Runtime.exceptionThrown",
        "Runtime.consoleAPICalled",
        "Log.entryAdded",
        "Page.javascriptDialogOpening",
    )


@pytest.mark.nightly
@pytest.mark.skipif(not AXE, reason="TFPERF_AXE names no axe.min.js (npm install axe-core)")
@pytest.mark.parametrize("shown", ["run", "drawn", "trace"])
def test_axe_finds_no_violation(opened, trace_page, shown):
    if shown == "trace":
        page = trace_page()
    else:
        page = opened(shown_run.a_run() if shown == "run" else drawn_run())
    page.js(OPEN_ALL)
    page.js(f"{Path(AXE).read_text('utf-8')};0")
    for width, scheme in ((320, "light"), (1400, "light"), (1400, "dark")):
        page.look(width, scheme)
        assert page.js(VIOLATIONS) == []


@pytest.mark.full
def test_a_page_of_a_trace_is_silent_and_nothing_overlaps(trace_page):
    page = trace_page()
    page.js(OPEN_ALL)
    for width in (320, 400, 1400):
        page.look(width)
        assert page.js("document.documentElement.scrollWidth") == width
        assert page.js(CROWDED) == []
        assert page.js(OVERLAPPING) == []
    for scheme in ("light", "dark"):
        page.look(scheme=scheme)
        assert [one for one in page.js(CONTRASTS) if one[0] < 4.5] == []
    assert faults(page) == []


@pytest.mark.full
def test_a_waterfall_zooms_and_moves(trace_page):
    page = trace_page()
    whole = page.js(BOXES)
    assert all(left >= 0 and left + width <= 100.1 for left, width in whole)
    page.js("document.querySelector('[aria-label=\"Zoom in\"]').click()")
    zoomed = page.js(BOXES)
    # around the middle, twice as wide
    for (left, width), (new_left, new_width) in zip(whole, zoomed, strict=True):
        assert new_width == pytest.approx(2 * width, abs=0.01)
        assert new_left == pytest.approx(2 * (left - 25), abs=0.01)
    page.js("document.querySelector('[aria-label=\"Later\"]').click()")
    assert page.js(BOXES)[0][0] == pytest.approx(zoomed[0][0] - 25, abs=0.01)
    assert page.js(OVERLAPPING) == []
    page.js("document.querySelector('[aria-label=\"Show the whole step\"]').click()")
    assert page.js(BOXES) == [pytest.approx(one, abs=0.01) for one in whole]
    assert faults(page) == []


FULL = pytest.mark.full


@pytest.mark.imports("browser")
@pytest.mark.parametrize(
    "made",
    [
        shown_run.a_run,
        pytest.param(drawn_run, marks=FULL),
        pytest.param(histories_run, marks=FULL),
        pytest.param(nasty_run, marks=FULL),
    ],
    ids=["shown", "drawn", "histories", "nasty"],
)
def test_a_page_is_silent_loads_nothing_and_fits_in_light_and_dark(opened, made):
    page = opened(made())
    page.js(OPEN_ALL)
    for width in (320, 400, 1400):
        page.look(width)
        assert page.js("document.documentElement.scrollWidth") == width
        assert page.js(CROWDED) == []
        if width < 640:  # each cell of a metric is seen without scrolling
            cells = "[...document.querySelectorAll('.metrics td')]"
            assert (
                page.js(f"Math.max(...{cells}.map((one) => one.getBoundingClientRect().right))")
                < width
            )
    for scheme in ("light", "dark"):
        page.look(scheme=scheme)
        contrasts = page.js(CONTRASTS)
        assert len(contrasts) > 100
        assert [one for one in contrasts if one[0] < 4.5] == []
        assert (
            page.js(
                "getComputedStyle(search, '::placeholder').color === getComputedStyle(document.querySelector('.faint')).color"
            )
            is True
        )
    assert (
        page.js("getComputedStyle(document.body).backgroundColor") == "rgb(16, 20, 24)"
    )  # dark it was
    assert faults(page) == []
    assert [request["request"]["url"] for request in page.told("Network.requestWillBeSent")] == [
        page.js("location.href")
    ]
    dead = "[...document.querySelectorAll('a[href^=\"#\"]')].filter((link) => !document.getElementById(link.hash.slice(1))).length"
    assert page.js(dead) == 0


@pytest.mark.imports("browser")
def test_names_that_mean_harm_are_shown_and_do_none(opened):
    page = opened(nasty_run())
    assert page.js("document.title").startswith("tfperf: 2 tests")
    assert page.js("typeof harm") == "undefined"
    assert page.js(
        "[document.scripts.length, document.images.length, document.styleSheets.length]"
    ) == [1, 0, 1]
    assert page.js(
        "document.querySelectorAll('.test')[1].querySelector('h2').textContent"
    ) == plain(f"test_model.py::{NASTY}")
    assert page.js(
        "[...document.querySelectorAll('a:not([href^=\"#\"])')].map((link) => link.protocol)"
    ) == ["file:", "file:"]


@pytest.mark.full
def test_a_mark_says_what_it_is_where_the_pointer_is(opened):
    page = opened(drawn_run())
    under = """((selector, share = 0.5) => {
      const box = document.querySelector(selector).getBoundingClientRect();
      const found = document.elementFromPoint(box.left + box.width / 2, box.top + share * box.height);
      return found.querySelector("title")?.textContent;
    })"""
    page.js("document.querySelector('.history').scrollIntoView()")
    assert (
        page.js(f"{under}('.history rect.area', 0.05)") == "since commit 00000000000c: 5 % slower"
    )
    assert page.js(f"{under}('.history circle')") == "10 ms, commit 000000000000"
    assert page.js(
        "[...document.querySelectorAll('.runs title')].map((one) => one.textContent)"
    ) == [
        "21 recorded runs of 9.9 ms to 10.6 ms, median 10.1 ms, now 10.2 ms, anchor 10.1 ms",
        "2 recorded runs of 10 ms to 10.1 ms, median 10 ms, now 10.2 ms",
    ]


def press_until(page, condition, key="Tab", most=100):
    for _ in range(most):
        if page.js(condition):
            return
        page.press(key)
    raise AssertionError(f"{most} times {key}, and not yet {condition}")


@pytest.mark.imports("browser")
def test_a_search_leaves_the_tests_and_rows_that_have_its_words(opened):
    page = opened(shown_run.a_run())
    assert page.js(SHOWN) == ["t1", "t2"]
    page.press("/", text="/")
    page.send("Input.insertText", text="RESNET50 missing")
    assert page.js(SHOWN) == ["t2"]
    assert page.js("document.querySelectorAll('#overview tbody tr:not([hidden])').length") == 1
    assert page.js("document.getElementById('found').textContent") == "1 of 2 tests"
    page.press("Escape")
    assert (page.js(SHOWN), page.js("search.value")) == (["t1", "t2"], "")
    page.send(
        "Input.insertText", text="batch"
    )  # a stage of the input pipeline, and a part of the other's name
    stages = "[...document.querySelectorAll('#t1 .tree tbody tr')].filter((row) => row.checkVisibility()).map((row) => row.cells[0].textContent)"
    assert page.js(stages) == ["Batch"]
    page.press("Escape")
    page.send("Input.insertText", text="nothing of the kind")
    assert (page.js(SHOWN), page.js("document.getElementById('found').textContent")) == (
        [],
        "0 of 2 tests",
    )


@pytest.mark.full
def test_a_table_is_sorted_by_quantities_not_by_their_digits(opened):
    page = opened(sorted_run())
    page.js(OPEN_ALL)
    orders = {
        "op": ("Abc", "cbA"),
        "self": ("cbA", "Abc"),
        "size": ("bAc", "Abc"),
        "share of its side": ("cAb", "bAc"),
    }
    for title, wanted in orders.items():
        # the Tab key comes to the table, arrows to its columns
        press_until(page, "!!document.activeElement.closest('th')")
        press_until(page, f"document.activeElement.textContent === '{title}'", "ArrowRight")
        for order, direction in zip(
            wanted,
            ("ascending", "descending") if title == "op" else ("descending", "ascending"),
            strict=True,
        ):
            page.press("Enter", text="\r")
            assert (
                page.js(
                    "[...document.activeElement.closest('table').tBodies[0].rows].map((row) => row.cells[0].textContent).join('')"
                )
                == order
            )
            assert page.js("document.activeElement.parentElement.ariaSort") == direction


@pytest.mark.full
def test_the_tab_key_reaches_all_there_is_to_press_and_shows_where_it_is(opened):
    page = opened(shown_run.a_run())
    page.js(OPEN_ALL)
    page.js(
        "window.wanted = new Set(document.querySelectorAll('a, button:not([tabindex=\"-1\"]), input, summary, .scroll'))"
    )
    assert 20 < page.js("wanted.size") < 50
    for _ in range(page.js("wanted.size")):
        page.press("Tab")
        assert (
            page.js(
                "wanted.delete(document.activeElement) && getComputedStyle(document.activeElement).outlineStyle"
            )
            != "none"
        )
    assert page.js("[...wanted].map((left) => left.outerHTML)") == []


@pytest.mark.full
def test_a_button_opens_all_tests_and_then_closes_them(opened):
    page = opened(
        run_of(
            record_of(checks=[check("FAIL")]), record_of(key="test_quiet", checks=[check("PASS")])
        )
    )
    seen = []
    for _ in range(3):
        seen.append((page.js("every.textContent"), page.js("[t1.open, t2.open]")))
        page.js("every.click()")
    assert seen == [
        ("Open all", [True, False]),
        ("Close all", [True, True]),
        ("Open all", [False, False]),
    ]


@pytest.mark.full
def test_a_link_opens_the_test_that_it_leads_to(opened):
    page = opened(
        run_of(
            record_of(checks=[check("FAIL")]), record_of(key="test_quiet", checks=[check("PASS")])
        )
    )
    assert page.js("t2.open") is False
    page.open(page.js("location.href") + "#t2")
    press_until(page, "t2.open", key="Shift")  # the page is told soon
    page.js("t2.open = false")
    page.js("document.querySelector('a[href=\"#t1\"]').click()")
    assert page.js("t1.open") is True


@pytest.mark.full
def test_without_script_all_can_be_read_and_what_would_do_nothing_is_not_there(opened):
    page = opened(shown_run.a_run(), script=False)
    assert (
        page.js(
            "document.querySelector('.tools').checkVisibility() || document.querySelectorAll('th button').length > 0"
        )
        is False
    )
    assert page.js(SHOWN) == ["t1", "t2"]
    page.js("document.querySelector('#t1 .group > summary').click()")
    assert page.js("document.querySelector('#t1 .group > ul').checkVisibility()") is True


@pytest.mark.full
def test_print_is_light_has_what_is_open_with_all_its_groups_and_cuts_nothing_off(opened):
    page = opened(drawn_run())
    page.look(media="print", width=700, scheme="dark")
    assert page.js("document.querySelectorAll('.group[open]').length") == 0
    assert (
        page.js(
            "[...document.querySelectorAll('#t1 .group > :not(summary)')].every((part) => part.checkVisibility())"
        )
        is True
    )
    assert page.js("document.querySelector('.tools').checkVisibility()") is False
    assert page.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.js(OPEN_ALL)
    assert (
        page.js(
            "[...document.querySelectorAll('table')].filter((table) => table.getBoundingClientRect().right > 700).length"
        )
        == 0
    )

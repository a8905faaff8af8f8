"""The devices of a job on a page, as Chromium shows them: widths, colours, names that mean harm, accessibility."""

from dataclasses import replace
from pathlib import Path

import pytest
from helpers.browser import AXE, OPEN_ALL, VIOLATIONS, Browser, Page, needs_chromium
from helpers.builders import profile, record_of, run_of
from helpers.pods import write_pod

from pytest_tfperf.cli.main import main
from pytest_tfperf.report.html.page import render_html
from pytest_tfperf.values import Column, Table

pytestmark = [pytest.mark.full, needs_chromium]
NASTY = (
    "</script></title><script>harm=1</script>\"'><img src=x onerror=harm=2>&amp;{{ 7*7 }}\u202e"
    + "x" * 500
)
BARS = """[...document.querySelectorAll('.devices li')].map((row) => {
  const [name, bar] = row.children, at = (one) => one.getBoundingClientRect();
  return [name.textContent, at(name).width, at(bar).width, at(name).right <= at(bar).left, [...bar.querySelectorAll('rect')].map((one) => Math.round(at(one).width))];
})"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory, processes):
    with Browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.fixture(scope="module")
def job_page(tmp_path_factory):
    """The page of 10 hosts of 8 cores, one of which works longer."""
    folder = tmp_path_factory.mktemp("job")
    write_pod(
        folder, 10, 8, lambda host, core: 10 if (host, core) == (7, 3) else 8, lambda host: 0, 2
    )
    page = folder / "page.html"
    assert main(["analyze", str(folder), "-o", str(page)]) == 0
    return page


def nasty_page(folder):
    keys = ["device", "step", "device_compute", "collective", "idle", "waiting", "remark"]
    rows = tuple((f"{NASTY}{n}", 10, 5, 3, 2, 1, NASTY) for n in range(3))
    table = Table(title=NASTY, columns=tuple(Column(key, NASTY) for key in keys), rows=rows)
    run = run_of(record_of(replace(profile(), tables={"device_parts": table})))
    path = folder / "nasty.html"
    path.write_text(render_html(run, folder), encoding="utf-8")
    return path


def test_64_of_80_devices_are_drawn_the_worst_first(browser, job_page):
    page = Page(browser, job_page)
    rows = page.js(BARS.replace("All('.devices li')", "('.devices').querySelectorAll('li')"))
    assert (len(rows), rows[0][0]) == (64, "host_7/TPU:3")
    caption = page.js("document.querySelector('.devices').closest('figure').textContent")
    assert "16 more are not drawn" in caption
    # 11 ms of compute and 2 ms in the collective; the others 9, 2 and 2 ms of waiting
    [compute, collective] = rows[0][4]
    assert compute / collective == pytest.approx(5.5, rel=0.05)
    assert [width / rows[1][4][1] for width in rows[1][4]] == pytest.approx([4.5, 1, 1], rel=0.05)
    assert {bar[2] for bar in rows} == {rows[0][2]}, "all bars are of one scale"


@pytest.mark.parametrize("shown", ["job", "nasty"])
def test_devices_fit_each_width_and_harm_nothing(browser, job_page, tmp_path, shown):
    page = Page(browser, job_page if shown == "job" else nasty_page(tmp_path))
    page.js(OPEN_ALL)
    for width in (320, 768, 1600):
        page.look(width)
        assert page.js("document.documentElement.scrollWidth") == width
        for _, _, bar_width, beside, _ in page.js(BARS):
            assert bar_width > width / 4, width
            assert beside, width
    assert page.js("typeof harm") == "undefined"
    assert page.told("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded") == []


@pytest.mark.skipif(not AXE, reason="TFPERF_AXE names no axe.min.js (npm install axe-core)")
@pytest.mark.nightly
@pytest.mark.parametrize("shown", ["job", "nasty"])
def test_axe_finds_no_violation(browser, job_page, tmp_path, shown):
    page = Page(browser, job_page if shown == "job" else nasty_page(tmp_path))
    page.js(OPEN_ALL)
    page.js(f"{Path(AXE).read_text('utf-8')};0")
    for width, scheme in ((320, "light"), (1600, "light"), (1600, "dark")):
        page.look(width, scheme)
        assert page.js(VIOLATIONS) == []

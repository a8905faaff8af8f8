"""Numbers at the ends of their range in every report: what is not zero is not shown as zero, nor what is not all as all."""

import re
from dataclasses import replace

import pytest
from helpers.builders import check, profile, record_of, run_of, value

from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.quantities import SHARE
from pytest_tfperf.report.html.page import render_html
from pytest_tfperf.report.markdown import render_markdown
from pytest_tfperf.report.run_text import render
from pytest_tfperf.text import BOUNDLESS
from pytest_tfperf.values import PARTS, Column, Step, Table

UNITS = ("s", "1/s", "0..1", "ratio", "count", "bytes", "FLOP", "bytes/s", "FLOP/s")
ZERO = re.compile(r"-?0(\.0+)?( ?[^\d\s.]\S*)?")


def run_with(number, share, after):
    """A run whose metrics, tables, parts and comparisons hold these numbers."""
    metrics = {
        name: value(name, share if metric.unit == SHARE else number, low=number, high=2 * number)
        if name != "step_time"
        else number
        for name, metric in METRICS.items()
    }
    parts = dict.fromkeys(PARTS, 0.0) | {"input": share, "host_compute": 1 - share}
    table = Table.of(
        "ops", [Column(f"c{n}", f"c{n}", unit) for n, unit in enumerate(UNITS)], [[number] * 9]
    )
    shares = Table.of("shares", [Column("s", "s", "0..1")], [[share]])
    measured = replace(
        profile(steps=(Step(name="train", period_s=1.0, parts_s=parts),), **metrics),
        tables={"own": table, "shares": shares},
    )
    checks = [
        replace(
            check("REGRESSION", name, kind="baseline"),
            detail={"before": number, "after": after, "ratio": after / number},
        )
        for name in METRICS
    ]
    return run_of(record_of(measured, checks=checks))


def cells(run):
    """The cells of the tables of each report."""
    for one in re.findall("<td[^>]*>(.*?)(?=<t[dr]|</t)", render_html(run), re.DOTALL):
        yield re.sub("<[^>]*>", "", one).strip()
    for line in render_markdown(run).split("\n"):
        if line.startswith("| "):
            yield from line.strip("| ").split(" | ")
    for line in render(run, BOUNDLESS, 1):
        if "  " in line.text:
            yield from re.split(" {2,}", line.text)


@pytest.mark.parametrize("number", [1e-12, 1e-7, 0.004])
def test_what_is_not_zero_is_not_shown_as_zero(number):
    shown = list(cells(run_with(number, number, 2 * number)))
    assert len(shown) > 300
    assert [one for one in shown if ZERO.fullmatch(one)] == []


@pytest.mark.parametrize("share", [0.996, 0.9996, 0.99999999])
def test_what_is_not_all_is_not_shown_as_all(share):
    assert [one for one in cells(run_with(share, share, share)) if "100 %" in one] == []

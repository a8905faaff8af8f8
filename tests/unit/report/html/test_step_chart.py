"""The geometry of the traced steps, counted by hand: 304 wide between 48 and 352, 160 high between 10 and 170."""

import re

import pytest

from pytest_tfperf.report.html.step_chart import step_chart
from pytest_tfperf.values import PARTS, Step


def step(name="train 1", **parts):
    parts_s = dict.fromkeys(PARTS, 0.0) | parts
    return Step(name=name, period_s=sum(parts_s.values()), parts_s=parts_s)


def heights(chart, part):
    """The heights of the bars of a part."""
    return [float(height) for height in re.findall(r"v-([\d.]+)", dict(chart.bars)[part])]


TWO = [step(input=0.001, device_compute=0.003), step(input=0.002)]


def test_bars_are_to_scale_and_stand_on_one_another():
    chart = step_chart(TWO, {})
    # 4 ms are 160 high, so 1 ms is 40; two slots of 152 are centred at 124 and 276
    assert heights(chart, "input") == [40, 80]
    assert heights(chart, "device_compute") == [120]
    assert [(tick.at, tick.text) for tick in chart.ticks] == [
        (170, "0 ms"),
        (130, "1 ms"),
        (90, "2 ms"),
        (50, "3 ms"),
        (10, "4 ms"),
    ]
    assert chart.thick == 40
    assert chart.label == "2 traced steps by part, 2 ms to 4 ms, median 3 ms"


def test_reference_times_share_the_scale_and_are_always_drawn():
    chart = step_chart(TWO, {"timed": 0.003, "baseline": 0.008})
    assert chart.ticks[-1].text == "8 ms"
    assert [(line.at, line.text) for line in chart.lines] == [
        (110, "timed 3 ms"),
        (10, "baseline 8 ms"),
    ]
    assert heights(chart, "input") == [20, 40]


def test_many_steps_are_drawn_up_to_a_limit_and_counted():
    chart = step_chart([step(input=0.001)] * 130, {})
    assert len(heights(chart, "input")) == 100
    assert chart.thick == pytest.approx(0.84 * 3.04)
    assert chart.n_more == 30


def test_a_part_that_is_missing_or_negative_has_no_height():
    chart = step_chart([Step(name="a", period_s=1.0, parts_s={"input": 1.0, "output": -0.5})], {})
    assert dict(chart.bars).keys() == {"input"}
    assert heights(chart, "input") == [160]


@pytest.mark.parametrize("steps", [[], [step()]])
def test_steps_without_time_have_no_chart(steps):
    assert step_chart(steps, {"timed": 1.0}) is None

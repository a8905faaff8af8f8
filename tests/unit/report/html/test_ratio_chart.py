"""The ratios of a comparison's turns, counted by hand."""

import re

import pytest

from pytest_tfperf.report.html.ratio_chart import Decided, ratio_chart

UNDECIDED = Decided(low=None, high=None, tolerance=None)


def n_dots(path):
    return len(re.findall("h0", path))


def test_each_pair_of_processes_has_its_own_dots():
    turns = [(1.1, 1.0)] * 3 + [(1.2, 1.0)] * 2
    chart = ratio_chart(turns, [3, 2], Decided(low=1.05, high=1.25, tolerance=0.05))
    assert [n_dots(path) for path in chart.dots] == [3, 2]
    assert chart.bounds == (48 + 304 * 3 / 5,)
    assert [line.text for line in chart.lines] == ["equal", "limit 1.050"]
    high, low = chart.band
    assert high < low < chart.lines[0].at  # upwards is slower
    assert low == chart.lines[1].at
    assert chart.label == (
        "ratios of 5 pairs of turns in 2 pairs of processes, median 1.100; interval 1.050 to 1.250"
    )


def test_without_an_interval_there_is_no_band():
    chart = ratio_chart([(1.0, 1.0), (1.1, 1.0)], [2], UNDECIDED)
    assert chart.band is None
    assert chart.label.endswith("; no interval")
    assert [line.text for line in chart.lines] == ["equal"]


def test_ratios_far_away_are_counted_and_not_drawn():
    turns = [(1.0 + n / 1000, 1.0) for n in range(20)] + [(9.0, 1.0)]
    chart = ratio_chart(turns, [21], UNDECIDED)
    assert n_dots(chart.dots[0]) == 20
    assert chart.beyond == "1 far away not drawn"


@pytest.mark.parametrize(("sizes", "expected"), [([2, 2], 1), ([], 1), ([4, -1], 1), ([1, 2], 2)])
def test_sizes_that_do_not_fit_the_turns_give_one_group(sizes, expected):
    assert len(ratio_chart([(1.0, 1.0)] * 3, sizes, UNDECIDED).dots) == expected


@pytest.mark.parametrize("turns", [[], [(1.0, 0.0)], [(0.0, 1.0), (1.0, 1.0)]])
def test_turns_without_a_ratio_give_no_chart(turns):
    assert ratio_chart(turns, [len(turns)], UNDECIDED) is None


def test_many_turns_draw_a_bounded_number_of_dots():
    chart = ratio_chart([(1.0, 1.0)] * 5000, [5000], UNDECIDED)
    assert n_dots(chart.dots[0]) <= 200

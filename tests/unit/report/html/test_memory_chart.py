"""The memory over a step, counted by hand: 304 wide between 48 and 352, 100 high between 10 and 110."""

import pytest

from pytest_tfperf.report.html.memory_chart import memory_chart


def test_memory_is_drawn_from_zero_with_gaps_where_unknown():
    chart = memory_chart([(0.0, None), (0.001, 2**30), (0.002, 4 * 2**30), (0.003, 4 * 2**30)])
    # 4 GiB are 100 high; four parts of 76
    assert [(tick.at, tick.text) for tick in chart.ticks] == [
        (110, "0 B"),
        (85, "1 GiB"),
        (60, "2 GiB"),
        (35, "3 GiB"),
        (10, "4 GiB"),
    ]
    assert chart.path.count("M") == 1, "one line, that begins where the memory is known"
    assert chart.has_gaps
    assert not memory_chart([(0.0, 1), (0.001, 2)]).has_gaps
    assert (chart.end, chart.label) == ("4 ms", "memory over the 4 ms of a step, at most 4 GiB")


@pytest.mark.parametrize(
    "parts", [[], [(0.0, 1)], [(0.0, None), (1.0, None)], [(0.0, 0), (1.0, 0)]]
)
def test_missing_memory_has_no_chart(parts):
    assert memory_chart(parts) is None

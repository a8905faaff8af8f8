"""The roofline, counted by hand."""

import pytest

from pytest_tfperf.report.html.roofline_chart import roofline_chart
from pytest_tfperf.values import Column, Table

KEYS = ("op", "category", "self_s", "flops", "flop_rate", "bandwidth", "flop_per_byte", "bound_by", "share_of_the_roof")  # fmt: skip


def roofline(*rows):
    return roofline_chart(Table.of("roofline", [Column(key, key) for key in KEYS], rows))


COMPUTE = ("gemm", "dot", 0.004, 4e9, 5e13, 5e10, 1000.0, "compute", 0.5)
MEMORY = ("add", "fusion", 0.001, 1e6, 1e11, 1e11, 1.0, "memory", 0.1)


def test_a_dot_stands_where_its_logarithms_are():
    chart = roofline(COMPUTE, MEMORY)
    # peaks: 1e14 FLOP/s and 1e12 bytes/s; axes: 1 to 1000 FLOP per byte, 1e11 to 1e14 FLOP/s
    gemm, add = chart.dots
    assert (add.x, add.y) == (48, 170)
    assert gemm.x == 352
    assert gemm.y == pytest.approx(10 + 160 * 0.30103 / 3, abs=0.1)
    assert gemm.radius == 2 * add.radius
    assert chart.roof
    assert [tick.text for tick in chart.ticks] == ["100 G", "1 T", "10 T", "100 T"]
    assert [tick.text for tick in chart.across] == ["1", "10", "100", "1000"]
    assert "gemm: 50 TFLOP/s at 1e+03 FLOP per byte, bound by compute" in chart.label


def test_without_peaks_there_is_no_roof():
    chart = roofline((*COMPUTE[:-2], None, None))
    assert chart.roof == ""
    assert len(chart.dots) == 1


def test_ops_without_figures_are_left_out():
    for place in [2, 4, 6]:
        for value in [None, 0.0, -1.0, float("inf"), "1"]:
            odd = list(COMPUTE)
            odd[place] = value
            assert roofline(tuple(odd)) is None, (place, value)
            assert len(roofline(tuple(odd), MEMORY).dots) == 1, (place, value)


def test_without_a_table_there_is_no_chart():
    assert roofline_chart(None) is None
    assert roofline_chart(Table.of("roofline", (Column("op", "op"),), [("a",)])) is None

"""Geometry of the waterfall, counted by hand; odd tables of damaged run files."""

import math

import pytest

from pytest_tfperf.report.html.waterfall import waterfall as drawn
from pytest_tfperf.values import Column, Table

COLUMNS = tuple(Column(key, key) for key in ("lane", "name", "part", "start_s", "length_s"))


def waterfall(table, most):
    return drawn(table, most, lambda part: part.replace("_", " "))


def table(*rows):
    return Table.of("timeline of train 3", COLUMNS, rows, len(rows))


STEP = (("step", "", "input", 0.0, 0.002), ("step", "", "host_compute", 0.002, 0.008))


def test_boxes_are_in_percent_of_the_step():
    picture = waterfall(table(*STEP, ("host ops", "MatMul", "host_compute", 0.005, 0.001)), 10)
    step, ops = picture.lanes
    assert [(box.left, box.width, box.name) for box in step.boxes] == [
        (0, 20, "input"),
        (20, 80, "host compute"),
    ]
    assert [(box.left, box.width, box.text) for box in ops.boxes] == [
        (50, 10, "MatMul: 1 ms, from 5 ms")
    ]
    assert [(box.left, box.width) for box in picture.shades] == [(0, 20)]
    assert picture.parts == (("input", "input"), ("host_compute", "host compute"))
    assert picture.label == "timeline of train 3: 10 ms, host compute 80 %, input 20 %"
    assert [tick.at for tick in picture.ticks] == [0, 20, 40, 60, 80, 100]


def test_events_that_overlap_stand_below_each_other():
    rows = [
        ("tf.data", "Prefetch", "input", 0.0, 0.004),
        ("tf.data", "Map", "input", 0.001, 0.002),
        ("tf.data", "Batch", "input", 0.004, 0.001),
    ]
    picture = waterfall(table(*STEP, *rows), 10)
    tops = {box.name: box.top for box in picture.lanes[1].boxes}
    assert tops["Prefetch"] == tops["Batch"] < tops["Map"]
    assert picture.height > tops["Map"] + 16


def test_no_two_boxes_overlap():
    rows = [("lane", f"op{n}", "host_compute", 0.0003 * (n % 17), 0.0007) for n in range(40)]
    boxes = waterfall(table(*STEP, *rows), 40).lanes[1].boxes
    for n, one in enumerate(boxes):
        for other in boxes[:n]:
            apart = one.left >= other.left + other.width - 0.01 or (
                other.left >= one.left + one.width - 0.01
            )
            assert apart or one.top != other.top


def test_the_longest_events_are_drawn_and_the_others_counted():
    rows = [("lane", f"op{n}", "host_compute", 0.0001 * n, 0.00001 * (n + 1)) for n in range(9)]
    picture = waterfall(table(*STEP, ("lane", "", "host_compute", 0.0, 0.001), *rows), 3)
    assert [box.name for box in picture.lanes[1].boxes] == ["", "op6", "op7", "op8"]
    assert picture.n_more == 6


def test_a_strip_of_very_many_parts_is_drawn_by_the_largest_part_of_equal_times():
    # 40 pieces of 0.25 ms, of which three of four are compute; then 10 ms of input
    parts = ("input", "host_compute", "host_compute", "host_compute")
    rows = [("step", "", parts[n % 4], 0.00025 * n, 0.00025) for n in range(40)]
    rows.append(("step", "", "input", 0.01, 0.01))
    whole = waterfall(table(*rows), 5)  # at most 50 pieces
    assert len(whole.lanes[0].boxes) == 41
    coarse = waterfall(table(*rows), 1)  # at most 10, of 2 ms
    assert [(box.left, box.width, box.part) for box in coarse.lanes[0].boxes] == [
        (0, 50, "host_compute"),
        (50, 50, "input"),
    ]
    assert coarse.n_more == whole.n_more == 0
    assert coarse.label == whole.label  # the shares are those of all pieces


def test_without_a_table_or_a_step_there_is_no_picture():
    assert waterfall(None, 5) is None
    assert waterfall(table(), 5) is None
    assert waterfall(table(("step", "", "input", 0.0, 0.0)), 5) is None


@pytest.mark.parametrize(
    "odd", [("lane", "x", "input", None, 0.1), ("lane", "x", "input", math.nan, 0.1), ("lane", "x", "input", "1", 0.1), ("lane", "x", "?", 0.0, -1.0)],
    ids=str,
)  # fmt: skip
def test_rows_of_a_damaged_run_file_are_left_out(odd):
    picture = waterfall(table(*STEP, odd), 5)
    assert [lane.title for lane in picture.lanes] == ["step"]


def test_columns_of_another_version_give_no_picture():
    other = Table.of("timeline", (Column("a", "a"), Column("b", "b")), [("step", 1.0)])
    assert waterfall(other, 5) is None

"""Bars of pages: the numbers that they show, counted by hand, and what is not drawn."""

import math

import pytest
from helpers.pictures import Picture
from helpers.sample_run import TRAIN

from pytest_tfperf.differences.difference import Difference
from pytest_tfperf.report.html.bars import (
    before_after,
    device_bars,
    flame,
    mini_bar,
    padding_bars,
    pipeline_bars,
    remedy_bars,
)
from pytest_tfperf.report.html.timeline import waterfall as drawn
from pytest_tfperf.values import PART_TITLES, REMEDIES, Column, Table


def table(keys, *rows, title="table", n_more=0):
    columns = tuple(Column(key, key) for key in keys)
    return Table(title=title, columns=columns, rows=rows, n_more=n_more)


def shares(picture):
    """Widths of the light and the dark part of each row."""
    return [
        tuple(float(one.get("width")) for one in bar.iter("rect"))
        for bar in picture.all("svg", **{"class": "bar"})
    ]


STAGES = ("stage", "name", "calls", "self_s", "blocking_s", "parallelism", "buffered", "buffer_limit", "kind")  # fmt: skip


def test_the_critical_path_leads_to_the_stage_that_the_step_waits_for():
    rows = (
        ("  Prefetch", "", 1.0, 0.0, 0.0, 1, 0.25, 2, ""),
        ("    Zip", "", 1.0, 0.001, 0.0, 1, None, None, ""),
        ("      Map", "a", 1.0, 0.004, 0.001, 4, None, None, ""),
        ("      Map2", "b", 1.0, 0.002, 0.003, 1, None, None, "Python"),
        ("        Range", "", 1.0, 0.0, 0.0, 1, None, None, ""),
    )
    picture = Picture(pipeline_bars(table(STAGES, *rows)))
    assert picture.texts("b") == ["Prefetch", "Zip", "Map2"]
    assert shares(picture) == [(0, 0), (25, 0), (100, 25), (75, 75), (0, 0)]
    facts = picture.texts("span", **{"class": "faint"})
    assert facts[0] == "0 ns of work a step, buffer 0.25 of 2"
    assert facts[2] == "a, 4 ms of work a step, the step waits 1 ms for it, × 4 parallel"
    assert facts[3] == "b, 2 ms of work a step, the step waits 3 ms for it, Python"


def test_stages_are_indented_where_the_pipeline_branches():
    names = (
        "Prefetch",
        "  Zip",
        "    Map",
        "      Range",
        "    Batch",
        "      Filter",
        "        Range",
    )
    rows = [(name, "", 1.0, 0.001, 0.0, 1, None, None, "") for name in names]
    lines = Picture(pipeline_bars(table(STAGES, *rows))).all("li")
    indents = [line.findall("span")[0].get("class") for line in lines]
    assert indents == [None, None, *["in1"] * 5]


def test_without_waits_there_is_no_critical_path():
    idle = ("  Map", "", 1.0, 0.001, 0.0, 1, None, None, "")
    assert Picture(pipeline_bars(table(STAGES, idle))).texts("b") == []
    assert pipeline_bars(None) is None
    assert pipeline_bars(table(STAGES)) is None


PADDING = ("array", "shape", "padded", "bytes", "padded_bytes")


def test_arrays_stand_by_the_bytes_that_padding_costs():
    rows = (
        ("a", "f32[8,128]", "f32[8,128]", 4096, 4096),
        ("c", "f32[8,1]", "f32[8,128]", 32, 2048),
        ("b", "f32[1,128]", "f32[8,128]", 512, 4096),
    )
    picture = Picture(padding_bars(table(PADDING, *rows)))
    assert shares(picture) == [(100, 87.5), (50, 49.22)]
    first, second = picture.texts("li")
    assert first == "b f32[1,128] 3.5 KiB of padding, padded to f32[8,128]"
    assert second.startswith("c f32[8,1] ")
    assert padding_bars(table(PADDING, rows[0])) is None


def test_both_steps_have_the_scale_of_the_longer_one():
    after = {"input": 0.005, "host_compute": 0.010, "other": 0.005}
    picture = Picture(before_after({"input": 0.002, "host_compute": 0.008}, after, [], PART_TITLES))
    assert picture.boxes() == [
        (0, 10, "input 2 ms"),
        (10, 40, "host compute 8 ms"),
        (0, 25, "input 5 ms"),
        (25, 50, "host compute 10 ms"),
        (75, 25, "Python and the loop 5 ms"),
    ]
    assert picture.texts("p")[:2] == ["input 2 ms", "host compute 8 ms"]
    assert picture.texts("text") == ["before, mean 10 ms", "after, mean 20 ms"]
    assert picture.label.startswith(
        "before, mean 10 ms: input 2 ms, host compute 8 ms; after, mean 20 ms"
    )


def test_changes_go_right_where_they_cost_time_and_left_where_they_save_it():
    changes = [
        Difference(what=what, seconds=seconds)
        for what, seconds in (("a", 0.002), ("b", -0.001), ("c new", None))
    ]
    picture = Picture(before_after({"input": 0.1}, {}, changes, PART_TITLES))
    assert picture.texts("li") == ["+2 ms: a", "−1 ms: b", "c new"]
    found = [(one.get("x"), one.get("width")) for one in picture.all("rect")]
    assert found == [("33.3", "66.7"), ("0", "33.3")]
    assert picture.texts("p") == ["Not known: the parts of the step before."]
    assert before_after({}, {"input": 0.01}, [], PART_TITLES) is None
    assert before_after({"input": 0.0}, {}, [], PART_TITLES) is None
    assert mini_bar({}) is None


DEVICES = ("device", "step", "device_compute", "collective", "idle", "waiting", "remark")


def device(name, compute=6, collective=3, idle=1, waiting=2, remark=None):
    return (name, 10, compute, collective, idle, waiting, remark)


def devices(*rows, **options):
    return table(DEVICES, *rows, **options)


def test_a_device_shows_each_part_with_waiting_apart_and_its_time():
    rows = device("GPU:1"), device("GPU:0", 3, 2, 0, 0)
    picture = Picture(device_bars({"device_parts": devices(*rows)}))
    assert picture.boxes()[:4] == [
        (0, 60, "compute 6 s"),
        (60, 10, "collective 1 s"),
        (70, 20, "waiting in collectives 2 s"),
        (90, 10, "idle 1 s"),
    ]
    assert [box[:2] for box in picture.boxes()[4:]] == [(0, 30), (30, 20)]
    assert picture.keys == ["compute", "collective", "waiting in collectives", "idle"]
    assert picture.texts("li")[1].endswith("5 s")
    label = "GPU:1: compute 6 s, collective 1 s, waiting in collectives 2 s, idle 1 s"
    assert picture.label == label


def test_unknown_waiting_is_not_drawn_and_the_reason_stands_below():
    rows = [device(f"GPU:{n}", waiting=None, remark="waiting: who knows") for n in range(2)]
    picture = Picture(device_bars({"device_parts": devices(*rows)}))
    assert picture.keys == ["compute", "collective", "idle"]
    assert picture.texts("p", **{"class": "faint"}) == ["Not known of all: waiting: who knows."]


def test_the_devices_of_the_job_come_before_those_of_the_host_and_at_most_64():
    rows = [device(f"GPU:{n}") for n in range(65)]
    host, job = devices(*rows), devices(*rows, title="job", n_more=448)
    picture = Picture(device_bars({"device_parts": host, "job_device_parts": job}))
    assert picture.caption == "job; 449 more are not drawn"
    assert len(picture.all("li")) == 64
    for found in [], [device("GPU:0")], [device("a", 0, 0, 0), device("b", None, None, None)]:
        assert device_bars({"device_parts": devices(*found)}) is None


OPS = ("where", "op", "type", "self_s")
HOST = table(
    OPS,
    ("host", "a/MatMul", "MatMul", 0.006),
    ("tf.data", "PyFunc", "PyFunc", 0.001),
    ("host", "b/MatMul", "MatMul", 0.002),
    ("host", "Relu", "Relu", 0.001),
)


def test_groups_stand_above_their_ops_the_longest_first():
    picture = Picture(flame({"host_ops": HOST}))
    levels = {}
    for one in picture.all("rect"):
        levels.setdefault(one.get("fill"), []).append(one)
    assert list(map(len, levels.values())) == [2, 3, 4]
    assert picture.boxes()[5:] == [
        (0, 60, "a/MatMul: 6 ms, 60 %"),
        (60, 20, "b/MatMul: 2 ms, 20 %"),
        (80, 10, "Relu: 1 ms, 10 %"),
        (90, 10, "PyFunc: 1 ms, 10 %"),
    ]
    assert picture.boxes()[:2] == [(0, 90, "host: 9 ms, 90 %"), (90, 10, "tf.data: 1 ms, 10 %")]
    assert "a/MatMul 60 %" in picture.texts("p")
    assert picture.label.startswith("ops on the host, 10 ms a step; the longest: a/MatMul: 6 ms")


def test_devices_come_before_the_host_and_boxes_are_bounded():
    gpu = table(OPS, ("GPU", "gemm", "fusion", 0.001), n_more=7)
    picture = Picture(flame({"host_ops": HOST, "device_ops": gpu}))
    assert picture.caption == "ops on the devices by self time a step; 7 shorter ones together"
    many = table(OPS, *(("host", f"op{n}", "Add", 0.001) for n in range(5000)))
    assert len(Picture(flame({"host_ops": many})).boxes()) <= 502
    assert flame({}) is None
    idle = table(OPS, ("host", "b", "B", 0.0))
    assert flame({"host_ops": idle}) is None


def test_ops_that_the_table_leaves_out_keep_their_share():
    rows = (("GPU", "gemm", "fusion", 0.003, 0.3), ("GPU", "add", "fusion", 0.001, 0.1))
    picture = Picture(flame({"device_ops": table((*OPS, "share"), *rows, n_more=40)}))
    assert picture.boxes()[1:] == [
        (40, 60, "shorter ops: 6 ms, 60 %"),
        (0, 40, "fusion: 4 ms, 40 %"),
        (40, 60, "shorter ops: 6 ms, 60 %"),
        (0, 30, "gemm: 3 ms, 30 %"),
        (30, 10, "add: 1 ms, 10 %"),
    ]
    assert picture.label == (
        "ops on the devices, 10 ms a step; the longest: gemm: 3 ms, 30 %; add: 1 ms, 10 %"
    )


STEP = (("step", "", "input", 0.0, 0.002), ("step", "", "host_compute", 0.002, 0.008))


def waterfall(most, *rows):
    keys = ("lane", "name", "part", "start_s", "length_s")
    found = table(keys, *rows, title="timeline of train 3")
    return Picture(drawn(found, most, PART_TITLES))


def events(picture):
    """Boxes with their upper ends."""
    tops = [
        int(one.get("y"))
        for one in picture.all("svg")
        if one.find("rect") is not None and one.find("title") is not None
    ]
    return [(*box, top) for box, top in zip(picture.boxes(), tops, strict=True)]


def test_events_are_in_percent_of_the_step():
    picture = waterfall(10, *STEP, ("host ops", "MatMul", "host_compute", 0.005, 0.001))
    assert picture.boxes() == [
        (0, 20, "input: 2 ms, from 0 ns"),
        (20, 80, "host compute: 8 ms, from 2 ms"),
        (50, 10, "MatMul: 1 ms, from 5 ms"),
    ]
    assert picture.keys == ["input", "host compute"]
    assert picture.label == "timeline of train 3: 10 ms, host compute 80 %, input 20 %"
    assert picture.texts("text")[:6] == ["0 ms", "2 ms", "4 ms", "6 ms", "8 ms", "10 ms"]
    assert picture.texts("b") == ["input", "host compute", "MatMul"]


def test_no_two_events_overlap():
    rows = [("lane", f"op{n}", "host_compute", 0.0003 * (n % 17), 0.0007) for n in range(40)]
    boxes = events(waterfall(40, *STEP, *rows))[2:]
    for n, (left, width, _, top) in enumerate(boxes):
        for other, wide, _, above in boxes[:n]:
            apart = left >= other + wide - 0.01 or other >= left + width - 0.01
            assert apart or top != above


def test_the_longest_events_are_drawn_and_the_others_counted():
    rows = [("lane", f"op{n}", "host_compute", 0.0001 * n, 0.00001 * (n + 1)) for n in range(9)]
    picture = waterfall(3, *STEP, ("lane", "", "host_compute", 0.0, 0.001), *rows)
    names = [words.partition(":")[0] for *_, words in picture.boxes()[2:]]
    assert names == ["all events", "op6", "op7", "op8"]
    assert picture.caption == "timeline of train 3; 6 shorter events are not drawn"


def test_a_strip_of_very_many_parts_is_drawn_by_the_largest_part_of_equal_times():
    # 40 pieces of 0.25 ms, of which three of four are compute; then 10 ms of input
    parts = ("input", "host_compute", "host_compute", "host_compute")
    rows = [("step", "", parts[n % 4], 0.00025 * n, 0.00025) for n in range(40)]
    rows.append(("step", "", "input", 0.01, 0.01))
    whole = waterfall(5, *rows)  # at most 50 pieces
    assert len(whole.boxes()) == 41
    coarse = waterfall(1, *rows)  # at most 10, of 2 ms
    assert [box[:2] for box in coarse.boxes()] == [(0, 50), (50, 50)]
    assert coarse.label == whole.label  # the shares are those of all pieces


def test_without_a_table_or_a_step_there_is_no_timeline():
    assert drawn(None, 5, PART_TITLES) is None
    keys = ("lane", "name", "part", "start_s", "length_s")
    assert drawn(table(keys), 5, PART_TITLES) is None
    assert drawn(table(keys, ("step", "", "input", 0.0, 0.0)), 5, PART_TITLES) is None


def test_remedies_go_right_where_they_are_faster_and_are_hollow_where_they_are_no_remedy():
    shown = remedy_bars(TRAIN.tables[REMEDIES])
    picture = Picture(shown)
    bars = picture.all("svg", **{"class": "bar hollow"})
    assert len(bars) == 3  # a bound, work that is left out, and other outputs
    [good] = picture.all("svg", **{"class": "bar faster"})
    [bad] = picture.all("svg", **{"class": "bar slower"})
    zero = 100 * math.log(1 / 0.4) / math.log(10 / 0.4)
    [right], [left] = list(good.iter("rect")), list(bad.iter("rect"))
    assert float(right.get("x")) == pytest.approx(zero, abs=0.06)
    assert float(left.get("x")) < zero
    assert "write: <code>model.py:3  num_parallel_calls=tf.data.AUTOTUNE</code>" in shown
    assert "deterministic=False: no time was left" in shown
    nothing = Table.of("remedies", TRAIN.tables[REMEDIES].columns, [])
    assert "nothing was measured" in remedy_bars(nothing)
    assert remedy_bars(None) is None

"""Bars of the input pipeline and of padding, counted by hand."""

from pytest_tfperf.report.html.bars import padding_bars, pipeline_bars
from pytest_tfperf.values import Column, Table

STAGES = ("stage", "name", "calls", "self_s", "blocking_s", "element_s", "parallelism", "buffered", "buffer_limit", "kind")  # fmt: skip
PADDING = ("array", "made_by", "shape", "padded", "bytes", "padded_bytes", "line", "try")


def table(keys, *rows):
    return Table.of("table", [Column(key, key) for key in keys], rows)


def stages(*rows):
    return table(STAGES, *rows)


def test_the_critical_path_leads_to_the_stage_that_the_step_waits_for():
    found = pipeline_bars(
        stages(
            ("  Prefetch", "", 1.0, 0.0, 0.0, 0.0, 1, 0.25, 2, ""),
            ("    Zip", "", 1.0, 0.001, 0.0, 0.0, 1, None, None, ""),
            ("      Map", "a", 1.0, 0.004, 0.001, 0.0, 4, None, None, ""),
            ("      Map", "b", 1.0, 0.002, 0.003, 0.0, 1, None, None, "Python"),
            ("        Range", "", 1.0, 0.0, 0.0, 0.0, 1, None, None, ""),
        )
    )
    assert [row.marked for row in found.rows] == [True, True, False, True, False]
    assert [row.indent for row in found.rows] == [1, 2, 3, 3, 4]
    assert [(row.width, row.dark) for row in found.rows] == [
        (0, 0),
        (25, 0),
        (100, 25),
        (75, 75),
        (0, 0),
    ]
    texts = [row.text for row in found.rows]
    assert texts[0] == "0 ns of work a step, buffer 0.25 of 2"
    assert texts[2] == "a, 4 ms of work a step, the step waits 1 ms for it, × 4 parallel"
    assert texts[3] == "b, 2 ms of work a step, the step waits 3 ms for it, Python"


def test_a_pipeline_that_never_delays_the_step_has_no_critical_path():
    found = pipeline_bars(stages(("  Map", "", 1.0, 0.001, 0.0, 0.0, 1, None, None, "")))
    assert [row.marked for row in found.rows] == [False]


def test_unknown_times_are_no_bars():
    found = pipeline_bars(stages(("  Map", "", None, None, None, None, None, None, None, None)))
    assert [(row.width, row.dark) for row in found.rows] == [(0, 0)]
    assert found.rows[0].text == "work not known, wait of the step not known"


def test_arrays_stand_by_the_bytes_that_padding_costs():
    found = padding_bars(
        table(
            PADDING,
            ("a", "x", "f32[8,128]", "f32[8,128]", 4096, 4096, "", ""),
            ("b", "x", "f32[1,128]", "f32[8,128]", 512, 4096, "", ""),
            ("c", "x", "f32[8,1]", "f32[8,128]", 32, 2048, "", ""),
        )
    )
    assert [row.name for row in found.rows] == ["b f32[1,128]", "c f32[8,1]"]
    assert found.rows[0].text == "3.5 KiB of padding, padded to f32[8,128]"
    assert [(row.width, row.dark) for row in found.rows] == [(100, 87.5), (50, 49.22)]


def test_without_rows_or_columns_there_is_no_picture():
    assert pipeline_bars(None) is None
    assert pipeline_bars(stages()) is None
    assert padding_bars(table(("array",), ("a",))) is None
    assert padding_bars(table(PADDING, ("a", "", "", "", 8, 8, "", ""))) is None

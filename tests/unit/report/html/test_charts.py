"""The geometry of charts, counted by hand: 304 wide between 48 and 352, 160 high between 10 and 170."""

import pytest

from pytest_tfperf.report.html.axis import tick_texts, ticks_between
from pytest_tfperf.report.html.charts import history_chart, spread_chart, step_chart
from pytest_tfperf.report.html.memory_chart import memory_chart
from pytest_tfperf.values import PARTS, Step


def step(name="train 1", **parts):
    parts_s = dict.fromkeys(PARTS, 0.0) | parts
    return Step(name=name, period_s=sum(parts_s.values()), parts_s=parts_s)


TWO = [step(input=0.001, device_compute=0.003), step(input=0.002)]


@pytest.mark.parametrize(
    ("low", "high", "ticks", "texts"),
    [
        (0, 0.004, [0, 0.001, 0.002, 0.003, 0.004], ["0 ms", "1 ms", "2 ms", "3 ms", "4 ms"]),
        (0, 0.0041, [0, 0.002, 0.004, 0.006], ["0 ms", "2 ms", "4 ms", "6 ms"]),
        (0.0123, 0.0124, [0.0123, 0.01235, 0.0124], ["12.30 ms", "12.35 ms", "12.40 ms"]),
        (3.0, 3.0, [3.0, 4.0], ["3 s", "4 s"]),
        (0.0, 0.0, [0.0, 0.5], ["0 ms", "500 ms"]),
        (2e-6, 9e-6, [2e-6, 4e-6, 6e-6, 8e-6, 10e-6], ["2 µs", "4 µs", "6 µs", "8 µs", "10 µs"]),
    ],
)
def test_ticks_are_round_numbers_around_what_is_shown(low, high, ticks, texts):
    found = ticks_between(low, high)
    assert found == pytest.approx(ticks)
    assert tick_texts(found) == texts


def test_bars_are_to_scale_and_stand_on_one_another():
    chart = step_chart(TWO, {})
    # 4 ms are 160 high, so 1 ms is 40; two slots of 152 are centred at 124 and 276
    assert dict(chart.bars) == {
        "input": "M124,170v-40M276,170v-80",
        "device_compute": "M124,130v-120",
    }
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
    assert dict(chart.bars)["input"] == "M124,170v-20M276,170v-40"


def test_many_steps_are_drawn_up_to_a_limit_and_counted():
    chart = step_chart([step(input=0.001)] * 130, {})
    assert dict(chart.bars)["input"].count("M") == 100
    assert chart.thick == pytest.approx(0.84 * 3.04)
    assert chart.n_more == 30


def test_a_part_that_is_missing_or_negative_has_no_height():
    chart = step_chart([Step(name="a", period_s=1.0, parts_s={"input": 1.0, "output": -0.5})], {})
    assert dict(chart.bars) == {"input": "M200,170v-160"}


@pytest.mark.parametrize("steps", [[], [step()]])
def test_steps_without_time_have_no_chart(steps):
    assert step_chart(steps, {"timed": 1.0}) is None


def test_samples_of_all_rows_share_one_axis():
    chart = spread_chart(
        {
            "blocks": ("dot", [0.001, 0.003, 0.005]),
            "none": ("dot", []),
            "baseline": ("square", [0.002]),
        },
        200,
    )
    blocks, baseline = chart.rows
    # 1 ms to 5 ms over 304: 76 each
    assert [(tick.at, tick.text) for tick in chart.ticks] == [
        (48, "1 ms"),
        (124, "2 ms"),
        (200, "3 ms"),
        (276, "4 ms"),
        (352, "5 ms"),
    ]
    assert blocks.path == f"M48,{blocks.base}h0M200,{blocks.base}h0M352,{blocks.base}h0"
    assert baseline.path == f"M124,{baseline.base}h0"
    assert (blocks.middle.at, blocks.middle.text, blocks.n) == (200, "3 ms", 3)
    assert baseline.base - blocks.base == 44
    assert chart.label == "blocks: 3 of 1 ms to 5 ms, median 3 ms; baseline: 1 of 2 ms"


def test_samples_that_are_alike_are_piled_up_within_their_row():
    few = spread_chart({"blocks": ("dot", [1.0] * 3)}, 200).rows[0]
    assert few.path == f"M48,{few.base}h0M48,{few.base - 5}h0M48,{few.base - 10}h0"
    many = spread_chart({"blocks": ("dot", [1.0] * 44)}, 200).rows[0]
    assert many.path.endswith(f"M48,{many.base - 21.5}h0")  # 43 times half a unit


def test_very_many_samples_are_thinned_out_and_counted_whole():
    rows = spread_chart(
        {"many": ("dot", [n / 1000 for n in range(1, 1001)]), "few": ("dot", [0.5] * 150)}, 150
    ).rows
    assert [(row.path.count("M"), row.n) for row in rows] == [
        (143, 1000),
        (150, 150),
    ]  # every seventh


def test_samples_far_from_the_others_are_counted_and_do_not_squeeze_them():
    near = [
        0.010 + n / 100_000 for n in range(40)
    ]  # around 10.2 ms; what is more than twice that is far
    chart = spread_chart(
        {"blocks": ("dot", [*near, 0.020, 0.022, 1.45]), "few": ("dot", [0.01, 0.05])}, 200
    )
    assert chart.beyond == "2 far slower, up to 1.45 s, are not drawn"
    assert (chart.rows[0].path.count("M"), chart.rows[0].n, chart.rows[0].middle.text) == (
        41,
        43,
        "10.2 ms",
    )
    assert chart.ticks[-1].text == "50 ms"
    assert chart.label.startswith("blocks: 43 of 10 ms to 1.45 s")
    assert (
        spread_chart({"blocks": ("dot", [*near, 1.0])}, 200).beyond
        == "1 far slower, up to 1 s, is not drawn"
    )
    assert spread_chart({"blocks": ("dot", [*near, 0.020])}, 200).beyond == ""


def test_missing_samples_have_no_chart():
    assert spread_chart({"blocks": ("dot", [])}, 200) is None


def test_runs_of_a_history_name_their_commits():
    chart = history_chart([0.010, 0.012], 0.011, None, None, commits=["abc", ""])
    assert [text for *_, text in chart.commits] == ["10 ms, commit abc"]
    assert history_chart([0.010, 0.012], 0.011, None, None, commits=["abc"]).commits == ()


def test_a_history_has_a_line_at_the_longest_time_that_is_tolerated():
    chart = history_chart([0.010, 0.010], 0.010, None, None, limit=0.011)
    assert chart.limit.text == "limit 11 ms"
    assert chart.limit.at < chart.now[1]  # upwards is slower


def test_a_history_runs_from_old_to_new_and_this_run_is_last():
    chart = history_chart([0.010, 0.012], 0.014, 0.011, (0.013, 0.014))
    # 10 ms to 14 ms over 100: 25 each; three slots of 304 / 3
    assert [(tick.at, tick.text) for tick in chart.ticks] == [
        (110, "10 ms"),
        (85, "11 ms"),
        (60, "12 ms"),
        (35, "13 ms"),
        (10, "14 ms"),
    ]
    assert chart.path == "M98.7,110L200,60"
    assert chart.dots == "M98.7,110h0M200,60h0"
    assert chart.now == (301.3, 10)
    assert chart.span == "M301.3,35V10"
    assert (chart.anchor.at, chart.anchor.text) == (85, "anchor 11 ms")
    assert chart.label == "2 recorded runs of 10 ms to 12 ms, median 11 ms, now 14 ms, anchor 11 ms"


def test_a_history_may_have_neither_anchor_nor_interval():
    chart = history_chart([0.01], 0.01, None, None)
    assert (chart.anchor, chart.span, chart.label) == (
        None,
        "",
        "1 recorded run of 10 ms, now 10 ms",
    )
    assert history_chart([], 0.01, None, None) is None


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
    assert chart.path == "M124,85H200V10H276V10H352"
    assert (chart.end, chart.label) == ("4 ms", "memory over the 4 ms of a step, at most 4 GiB")


@pytest.mark.parametrize(
    "parts", [[], [(0.0, 1)], [(0.0, None), (1.0, None)], [(0.0, 0), (1.0, 0)]]
)
def test_missing_memory_has_no_chart(parts):
    assert memory_chart(parts) is None

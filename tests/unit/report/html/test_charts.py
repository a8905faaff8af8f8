"""Charts of a profile: the numbers that they show, counted by hand, and what is not drawn."""

import re

import numpy as np
import pytest
from helpers.pictures import Picture

from pytest_tfperf.report.html.charts import (
    History,
    history_chart,
    memory_chart,
    ratio_chart,
    roofline_chart,
    small_history,
    steps_chart,
    times_chart,
)
from pytest_tfperf.values import PART_TITLES, PARTS, Column, Step, Table


def step(**parts):
    parts_s = dict.fromkeys(PARTS, 0.0) | parts
    return Step(name="train 1", period_s=sum(parts_s.values()), parts_s=parts_s)


TWO = [step(input=0.001, device_compute=0.003), step(input=0.002)]


def heights(picture, part):
    """Heights of the bars of a part."""
    return [
        float(high)
        for one in picture.all("path", stroke=f"url(#h-{part})")
        for high in re.findall(r"v-([\d.]+)", one.get("d"))
    ]


def test_steps_are_to_scale_beside_the_times_to_compare_with():
    picture = Picture(steps_chart(TWO, {}, PART_TITLES))
    assert heights(picture, "input") == [40, 80]  # 4 ms are 160 high
    assert heights(picture, "device_compute") == [120]
    assert picture.texts("text") == ["0 ms", "1 ms", "2 ms", "3 ms", "4 ms", "steps, in order"]
    assert picture.label == "2 traced steps by part, 2 ms to 4 ms, median 3 ms"
    picture = Picture(steps_chart(TWO, {"step_time": 0.003, "baseline": 0.008}, PART_TITLES))
    assert picture.keys == ["step_time 3 ms", "baseline 8 ms"]
    assert heights(picture, "input") == [20, 40]


def test_many_steps_are_counted_and_steps_without_time_have_no_chart():
    picture = Picture(steps_chart([step(input=0.001)] * 130, {}, PART_TITLES))
    assert len(heights(picture, "input")) == 100
    assert picture.caption == "traced steps by part; the first; 30 more are not drawn"
    assert steps_chart([], {"timed": 1.0}, PART_TITLES) is None
    assert steps_chart([step()], {"timed": 1.0}, PART_TITLES) is None


def times(*values, **others):
    return Picture(times_chart("blocks", {"own": values, **others}))


def dots(picture, kind="dot"):
    """Places of the dots of a kind."""
    return [
        tuple(map(float, place))
        for one in picture.all("path", class_=f"{kind} small")
        for place in re.findall(r"M([\d.]+),([\d.]+)h0", one.get("d"))
    ]


def test_times_are_dots_in_order_beside_their_median():
    picture = times(0.001, 0.002, 0.005)
    assert dots(picture) == [(99, 110), (200, 85), (301, 10)]  # of 1 to 5 ms
    assert picture.keys == ["own 2 ms"]
    assert picture.caption == "time of a step: blocks"
    assert picture.label == "blocks: 3 of 1 ms to 5 ms, median 2 ms"
    both = times(0.001, 0.003, other=[0.002, 0.005])
    assert len(dots(both, "square")) == 2
    assert both.keys == ["own 2 ms", "other 3.5 ms"]


def test_no_time_is_lost():
    for seconds in [0.0, 1e-9, 0.0105, 3.0, 5e4]:
        assert len(dots(times(*[seconds] * 30))) == 30, seconds
    for n in [1, 2, 9, 100]:
        values = (0.01 * np.exp(0.1 * np.random.default_rng(n).normal(size=n))).tolist()
        assert len(dots(times(*values))) == n
    assert len(dots(times(*[0.01] * 2499))) == 193  # each 13th


def test_times_far_from_the_others_are_counted_and_do_not_squeeze_them():
    near = [0.010 + n / 100_000 for n in range(40)]  # around 10.2 ms; far is more than twice that
    picture = times(*near, 0.020, 0.022, 1.45)
    assert picture.caption.endswith("; 2 far slower, up to 1.45 s, are not drawn")
    assert len(dots(picture)) == 41
    assert times(*near, 1.0, 2.0).caption.endswith("; 2 far slower, up to 2 s, are not drawn")
    assert "far" not in times(*near, 0.020).caption
    assert "far" not in times(*[0.01] * 6, 1.0).caption  # of few, none is far


def test_without_times_there_is_no_chart():
    assert times_chart("blocks", {"own": []}) is None
    assert times(*[], other=[0.01, 0.02]).label == "blocks: 2 of 10 ms to 20 ms, median 15 ms"


def history(*runs, now, named=True, **more):
    return Picture(history_chart(History(values=(*runs, now), **more), named))


# ten recorded runs and this one, 10 % slower from the seventh on
SLOWED = [0.0100, 0.0101, 0.0099, 0.0100, 0.0101, 0.0099, 0.0110, 0.0111, 0.0109, 0.0110]


def test_a_history_runs_from_old_to_new_and_this_run_is_last():
    picture = history(0.010, 0.012, now=0.014, anchor=0.011, bounds=(0.013, 0.014), limit=0.012)
    assert picture.texts("text")[:5] == ["10 ms", "11 ms", "12 ms", "13 ms", "14 ms"]
    first, second, now = picture.all("circle")[0], *picture.all("circle")[1:]
    assert [float(one.get("cy")) for one in (first, second, now)] == [110, 60, 10]
    assert float(first.get("cx")) < float(second.get("cx")) < float(now.get("cx"))
    assert picture.keys == ["anchor 11 ms", "limit 12 ms"]
    assert picture.caption == "step time history (round: this run)"
    label = "2 recorded runs of 10 ms to 12 ms, median 11 ms, now 14 ms, anchor 11 ms"
    assert picture.label == label


def test_runs_name_their_commits_or_say_that_they_are_not_known():
    picture = history(0.010, 0.012, now=0.011, commits=["abc", ""])
    assert picture.texts("title") == [
        "10 ms, commit abc",
        "12 ms, its commit is not known",
        "now",
    ]
    assert history(0.010, now=0.011, named=False).texts("title") == ["now"]


def test_lines_that_are_not_known_are_named():
    picture = history(0.01, now=0.01)
    assert picture.keys == []
    assert picture.caption.endswith("; not known: anchor, limit, interval of this run")
    assert picture.label == "1 recorded run of 10 ms, now 10 ms"
    assert history_chart(History(values=(0.01,))) is None


def test_small_noise_is_drawn_small():
    picture = history(0.0100, 0.0101, now=0.0100)
    assert picture.texts("text")[0] == "9.8 ms"  # not 10.00 ms, 10.02 ms


def test_a_change_of_level_is_marked_at_its_run_and_told():
    commits = [f"c{n}" for n in range(10)]
    picture = history(*SLOWED[1:], SLOWED[-1], now=0.011, commits=commits)
    assert "since commit c5: 10 % slower" in picture.texts("title")
    assert picture.texts("p", **{"class": "faint"}) == [
        "Since commit c5: 10 % slower, 10 ms to 11 ms (p = 0.0043)."
    ]
    assert picture.label.endswith("now 11 ms; since commit c5: 10 % slower")
    steady = history(*[0.01, 0.0101] * 6, now=0.01)
    assert steady.texts("p", **{"class": "faint"}) == ["No change of level in 13 runs."]


def test_a_small_history_says_what_it_draws():
    picture = Picture(small_history(History(values=(0.010, 0.012, 0.014))))
    label = "2 recorded runs of 10 ms to 12 ms, median 11 ms, now 14 ms"
    assert picture.texts("title") == [label]


def n_dots(picture):
    """Dots of each process pair."""
    return [
        one.get("d").count("h0")
        for one in picture.all("path")
        if one.get("class") in ("dot small", "square small")
    ]


def test_each_pair_of_processes_has_its_own_dots_beside_the_decision():
    turns = [(1.1, 1.0)] * 3 + [(1.2, 1.0)] * 2
    picture = Picture(ratio_chart(turns, [3, 2], (1.05, 1.25), 0.05))
    assert n_dots(picture) == [3, 2]
    assert picture.keys == ["equal", "limit 1.050"]
    said = "ratio of each pair of turns, by process pair; shaded: interval 1.050 to 1.250"
    assert picture.caption == said
    assert picture.label == (
        "ratios of 5 pairs of turns in 2 pairs of processes, median 1.100; interval 1.050 to 1.250"
    )
    undecided = Picture(ratio_chart([(1.0, 1.0), (1.1, 1.0)], [2], None, None))
    assert undecided.label.endswith("; no interval")
    assert undecided.caption.endswith("; not known: its interval")


def test_ratios_far_away_are_counted_and_many_are_thinned_out():
    turns = [(1.0 + n / 1000, 1.0) for n in range(20)] + [(9.0, 1.0)]
    picture = Picture(ratio_chart(turns, [21], None, None))
    assert n_dots(picture) == [20]
    assert picture.caption.endswith("; 1 far away not drawn")
    assert n_dots(Picture(ratio_chart([(1.0, 1.0)] * 5000, [5000], None, None))) == [200]


def test_sizes_that_do_not_fit_the_turns_give_one_group_and_no_ratios_no_chart():
    for sizes, expected in [([2, 2], 1), ([], 1), ([1, 2], 2)]:
        picture = Picture(ratio_chart([(1.0, 1.0)] * 3, sizes, None, None))
        assert len(n_dots(picture)) == expected, sizes
    for turns in [], [(1.0, 0.0)], [(0.0, 1.0), (1.0, 1.0)]:
        assert ratio_chart(turns, [len(turns)], None, None) is None


def test_memory_is_drawn_from_zero_with_gaps_where_unknown():
    def drawn(*parts):
        columns = [Column("into_step_s", "into", "s"), Column("held", "held", "bytes")]
        return memory_chart(Table.of("memory", columns, parts))

    known = [(0.001, 2**30), (0.002, 4 * 2**30), (0.003, 4 * 2**30)]
    picture = Picture(drawn((0.0, None), *known))
    ticks = ["0 GiB", "1 GiB", "2 GiB", "3 GiB", "4 GiB"]
    assert picture.texts("text") == [*ticks, "0", "4 ms"]
    assert picture.caption == "memory over a step; not known in the gaps"
    assert picture.label == "memory over the 4 ms of a step, at most 4 GiB"
    assert Picture(drawn(*known)).caption == "memory over a step"
    for parts in [], [(0.0, 1)], [(0.0, None), (1.0, None)], [(0.0, 0), (1.0, 0)]:
        assert drawn(*parts) is None


KEYS = ("op", "self_s", "flops", "flop_rate", "bandwidth", "flop_per_byte", "bound_by", "share_of_the_roof")  # fmt: skip
COMPUTE = ("gemm", 0.004, 4e9, 5e13, 5e10, 1000.0, "compute", 0.5)
MEMORY = ("add", 0.001, 1e6, 1e11, 1e11, 1.0, "memory", 0.1)


def roofline(*rows):
    return roofline_chart(Table.of("roofline", [Column(key, key) for key in KEYS], rows))


def test_ops_stand_below_the_roof_where_their_logarithms_are():
    picture = Picture(roofline(COMPUTE, MEMORY))
    gemm, add = picture.all("circle")
    # peaks: 1e14 FLOP/s and 1e12 bytes/s; axes: 1 to 1000 FLOP per byte, 1e11 to 1e14 FLOP/s
    assert (add.get("cx"), add.get("cy")) == ("48", "170")
    assert gemm.get("cx") == "352"
    assert float(gemm.get("cy")) == pytest.approx(10 + 160 * 0.30103 / 3, abs=0.1)
    assert float(gemm.get("r")) == 2 * float(add.get("r"))
    ticks = ["100 G", "1 T", "10 T", "100 T", "1", "10", "100", "1 k"]
    assert picture.texts("text") == [*ticks, "FLOP per byte"]
    assert "gemm: 50 TFLOP/s at 1,000 FLOP per byte, bound by compute" in picture.label
    without = Picture(roofline((*COMPUTE[:-2], None, None)))
    assert without.caption.endswith("; not known: the roof")


def test_ops_without_figures_are_left_out():
    for place in [1, 3, 5]:
        for value in [None, 0.0]:
            odd = list(COMPUTE)
            odd[place] = value
            assert roofline(tuple(odd)) is None, (place, value)
            assert len(Picture(roofline(tuple(odd), MEMORY)).all("circle")) == 1, (place, value)
    assert roofline_chart(None) is None

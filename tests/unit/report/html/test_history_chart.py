"""The history of step times, counted by hand: 304 wide between 48 and 352, 100 high between 10 and 110."""

import pytest

from pytest_tfperf.report.html.history_chart import RecordedRuns, history_chart, small_history


def chart_of(*runs, now, commits=(), anchor=None, **more):
    return history_chart(RecordedRuns(runs=runs, commits=commits, anchor=anchor), now, **more)


# ten recorded runs and this one, 10 % slower from the seventh on
SLOWED = [0.0100, 0.0101, 0.0099, 0.0100, 0.0101, 0.0099, 0.0110, 0.0111, 0.0109, 0.0110]


def test_runs_name_their_commits_or_say_that_they_are_not_known():
    chart = chart_of(0.010, 0.012, now=0.011, commits=["abc", ""])
    assert [text for *_, text in chart.commits] == [
        "10 ms, commit abc",
        "12 ms, its commit is not known",
    ]
    chart = chart_of(0.010, 0.012, now=0.011)
    assert {text.partition(", ")[2] for *_, text in chart.commits} == {"its commit is not known"}


def test_a_history_has_a_line_at_the_longest_time_that_is_tolerated():
    chart = chart_of(0.010, 0.010, now=0.010, limit=0.011)
    assert chart.limit.text == "limit 11 ms"
    assert chart.limit.at < chart.now[1]  # upwards is slower


def test_a_history_runs_from_old_to_new_and_this_run_is_last():
    chart = chart_of(0.010, 0.012, now=0.014, anchor=0.011, bounds=(0.013, 0.014), limit=0.012)
    # 10 ms to 14 ms over 100: 25 each; three slots of 304 / 3
    assert [(tick.at, tick.text) for tick in chart.ticks] == [
        (110, "10 ms"),
        (85, "11 ms"),
        (60, "12 ms"),
        (35, "13 ms"),
        (10, "14 ms"),
    ]
    assert [y for _, y, _ in chart.commits] == [110, 60]
    assert chart.now[1] == 10
    assert (chart.anchor.at, chart.anchor.text) == (85, "anchor 11 ms")
    assert chart.label == "2 recorded runs of 10 ms to 12 ms, median 11 ms, now 14 ms, anchor 11 ms"
    assert chart.unknown == ""


def test_lines_that_are_not_known_are_named():
    chart = chart_of(0.01, now=0.01)
    assert (chart.anchor, chart.limit, chart.span) == (None, None, "")
    assert chart.unknown == "anchor, limit, interval of this run"
    assert chart.label == "1 recorded run of 10 ms, now 10 ms"
    assert chart_of(0.01, now=0.01, anchor=0.01, limit=0.02).unknown == "interval of this run"


def test_a_history_without_runs_has_no_picture():
    assert history_chart(RecordedRuns(runs=()), 0.01) is None
    assert small_history(RecordedRuns(runs=()), 0.01) is None


def test_small_noise_is_drawn_small():
    chart = chart_of(0.0100, 0.0101, now=0.0100)
    assert chart.ticks[0].text == "9.8 ms"  # not 10.00 ms, 10.02 ms
    heights = [y for _, y, _ in chart.commits]
    assert abs(heights[0] - heights[1]) < 25


def test_a_change_of_level_is_marked_at_its_run():
    commits = [f"c{n}" for n in range(10)]
    chart = chart_of(*SLOWED[1:], SLOWED[-1], now=0.011, commits=commits)
    (mark,) = chart.changes
    assert mark.text == "since commit c5: 10 % slower"
    assert mark.at == chart.commits[5][0]
    assert chart.sentences == ("Since commit c5: 10 % slower, 10 ms to 11 ms (p = 0.0043).",)
    assert chart.label.endswith("now 11 ms; since commit c5: 10 % slower")
    assert chart.levels.count("M") == 2, "one before and one from there on"


def test_a_history_says_that_no_change_was_found_or_why_it_is_not_known():
    steady = chart_of(*[0.01, 0.0101] * 6, now=0.01)
    assert (steady.changes, steady.levels) == ((), "")
    assert steady.sentences == ("No change of level in 13 runs.",)
    few = chart_of(0.01, now=0.01)
    assert few.sentences == ("Changes of level are not known: 11 runs show one, and there are 2.",)


def test_a_small_history_is_a_line_to_this_run():
    line = small_history(RecordedRuns(runs=(0.010, 0.012)), 0.014)
    assert line.rise == pytest.approx(1.4)
    assert line.label == "2 recorded runs of 10 ms to 12 ms, median 11 ms, now 14 ms"
    assert small_history(RecordedRuns(runs=(0.01, 0.01)), 0.01).rise == 1
    assert small_history(RecordedRuns(runs=(0.0, 0.0)), 0.0).rise == 1

"""Histories of step times: what is kept, what is frozen, what starts anew, what does not count twice."""

import json

import pytest
from helpers.builders import created

from pytest_tfperf.baseline.history import (
    KEPT_RUNS,
    LOAD_MOVES,
    history_of,
    least_s,
    merge_runs,
    rounded,
    steady_history_of,
)
from pytest_tfperf.json_file import parse_json

WORKLOAD = {"batch": 8}


def run(step_time, second, **metrics):
    return {
        "step_time": step_time,
        "commit": f"commit{second}",
        "created": created(second),
        **metrics,
    }


def merged(old, *runs, workload=WORKLOAD, tolerance=0.05):
    return merge_runs(old, runs, workload, tolerance, 2)


def recorded_one_by_one(times):
    entry = None
    for second, time in enumerate(times):
        entry = merged(entry, run(time, second)).entry
    return entry


def seconds(entry):
    return [int(one["commit"].removeprefix("commit")) for one in entry["runs"]]


def test_numbers_are_stored_whole_or_to_six_digits():
    cases = [
        (3.0, 3),
        (0, 0),
        (123456789.0, 123456789),
        (1 / 3, 0.333333),
        (1234567.5, 1234570.0),
        (1e-9 / 3, 3.33333e-10),
        (-2.5, -2.5),
        (1e18, 10**18),
        (1.2345678e19, 1.23457e19),
        (-1e99, -1e99),
    ]
    for number, stored in cases:
        assert (rounded(number), type(rounded(number))) == (stored, type(stored)), (number, stored)
        assert parse_json(json.dumps(rounded(number))) == stored, "what is stored is read again"


def test_the_last_ten_runs_are_kept():
    cases = [(1, range(1)), (9, range(9)), (10, range(10)), (11, range(1, 11)), (13, range(3, 13))]
    for n_runs, kept in cases:
        times = [1.0, 1.01] * n_runs
        assert seconds(recorded_one_by_one(times[:n_runs])) == list(kept), n_runs
        assert seconds(merged(None, *(run(times[n], n) for n in range(n_runs))).entry) == list(
            kept
        ), n_runs
        assert KEPT_RUNS == 10, n_runs


def test_the_anchor_is_the_middle_of_the_first_five_runs_and_then_stays():
    """Also where its runs are no longer kept: times that creep up are compared with the first ones."""
    times = [1.0, 1.4, 1.1, 1.3, 1.2, *(1.2 + n / 1000 for n in range(2 * KEPT_RUNS))]
    anchors = [recorded_one_by_one(times[:n])["anchor"] for n in range(1, len(times) + 1)]
    assert [anchor["step_time"] for anchor in anchors[:5]] == pytest.approx(
        [1.0, 1.2, 1.1, 1.2, 1.2]
    )
    assert [anchor["runs"] for anchor in anchors[:5]] == [1, 2, 3, 4, 5]
    assert {anchor["commit"] for anchor in anchors} == {"commit0"}
    assert anchors[4:] == [anchors[4]] * (2 * KEPT_RUNS + 1)


def test_each_metric_has_a_middle_of_its_own_over_the_runs_that_know_it():
    entry = merged(None, run(1.0, 0, epoch_gap=5.0), run(3.0, 1), run(2.0, 2, epoch_gap=7.0)).entry
    assert entry["anchor"] == {
        "step_time": 2.0,
        "epoch_gap": 6.0,
        "commit": "commit0",
        "created": created(0),
        "runs": 3,
    }


def test_an_anchor_of_one_run_as_it_was_once_stored_becomes_one_of_five():
    runs = [{"step_time": 1.0 + n / 100, "commit": ""} for n in range(5)]
    old = {"workload": WORKLOAD, "anchor": runs[0], "runs": runs}
    assert history_of(old, 2).n_anchor == 1
    anchor = merged(old, run(1.02, 0)).entry["anchor"]
    assert (anchor["step_time"], anchor["runs"]) == (1.02, 5)


def test_runs_are_kept_in_the_order_in_which_they_were_made():
    entry = merged(None, run(1.0, 5), run(1.1, 3)).entry
    assert seconds(entry) == [3, 5]
    assert seconds(merged(entry, run(1.05, 4)).entry) == [3, 4, 5]


def test_a_run_does_not_count_twice():
    entry = merged(None, run(1.0, 0), run(1.0, 1)).entry
    again = merged(entry, run(1.0, 1))
    assert (again.entry, again.n_added, again.left_out) == (
        None,
        0,
        ((0, "it is recorded already"),),
    )
    both = merged(None, run(1.0, 0), run(1.0, 0))
    assert (both.n_added, len(both.entry["runs"]), both.left_out) == (
        1,
        1,
        ((1, "it is recorded already"),),
    )


def test_two_machines_that_ran_in_the_same_second_are_two_runs():
    assert merged(None, run(1.0, 0), run(1.01, 0)).n_added == 2


def test_a_run_from_before_those_that_are_kept_does_not_come_back():
    entry = recorded_one_by_one([1.0, 1.01] * 6)
    again = merged(entry, run(1.0, 0))
    assert (again.entry, again.left_out) == (
        None,
        ((0, f"not among the latest 10 runs, which are kept since {created(2)}"),),
    )


@pytest.mark.parametrize("jump", [3600, -3600])
def test_a_clock_that_was_set_between_two_runs_loses_none(jump):
    """Runs stand in the order of their dates, and all of them count."""
    now = 7200
    entry = merged(None, *(run(1.0 + n / 100, now + n) for n in range(4))).entry
    done = merged(entry, run(1.05, now + 4 + jump), run(1.06, now + 5 + jump))
    assert (done.n_added, done.level, done.left_out) == (2, None, ())
    assert sorted(history_of(done.entry, 2).runs) == [1.0, 1.01, 1.02, 1.03, 1.05, 1.06]
    assert seconds(done.entry) == sorted(seconds(done.entry))


def test_runs_that_a_wrong_clock_dated_are_named_by_their_date():
    entry = merged(None, *(run(1.0 + n / 100, 7200 + n) for n in range(10))).entry
    [(_, why)] = merged(entry, run(1.05, 3600)).left_out
    assert why == f"not among the latest 10 runs, which are kept since {created(7200)}"


def test_another_level_starts_the_history_anew_and_the_anchor_too():
    entry = recorded_one_by_one([1.0, 1.01] * 3)
    done = merged(entry, run(0.7, 10), run(0.71, 11))
    assert (
        done.what
        == "times: the history starts anew with 2 runs: step_time was 1 s, and is 705 ms now"
    )
    assert seconds(done.entry) == [10, 11]
    assert (
        done.entry["anchor"]["step_time"],
        done.entry["anchor"]["runs"],
        done.entry["since"],
    ) == (0.705, 2, created(10))
    after = merged(done.entry, run(1.0, 3), run(0.7, 12))
    assert (seconds(after.entry), after.left_out) == (
        [10, 11, 12],
        ((0, f"older than its history, which started anew at {created(10)}"),),
    )


def test_older_runs_that_come_with_another_level_are_left_out():
    entry = recorded_one_by_one([1.0, 1.01] * 3)
    done = merged(entry, run(1.0, 3, epoch_gap=1.0), run(0.7, 10))
    assert (seconds(done.entry), done.n_added) == ([10], 1)
    assert done.left_out == ((0, "older than the change of level that starts the history anew"),)


def test_older_runs_of_another_level_do_not_put_newer_ones_aside():
    entry = merged(None, *(run(1.0 + n / 100, 10 + n) for n in range(6))).entry
    done = merged(entry, run(5.0, 3))
    assert done.level is None
    assert seconds(done.entry) == [3, 10, 11, 12, 13, 14, 15]


def test_drift_that_is_recorded_starts_the_history_anew_at_the_test_s_own_tolerance():
    runs = [run(1.03, n) for n in range(10)]
    old = {"workload": WORKLOAD, "anchor": {**run(1.0, 0), "runs": 5}, "runs": runs}
    assert merged(old, run(1.03, 20), tolerance=0.05).level is None
    assert merged(old, run(1.03, 20), tolerance=0.005).level == ("step_time", 1.0, 1.03)


def test_a_history_of_another_workload_is_none():
    entry = merged(recorded_one_by_one([1.0] * 6), run(1.1, 10), workload={"batch": 16})
    assert (entry.entry["workload"], seconds(entry.entry), entry.level) == (
        {"batch": 16},
        [10],
        None,
    )


def test_runs_without_a_step_time_decide_no_level():
    old = {"workload": WORKLOAD, "anchor": {}, "runs": [{"epoch_gap": 1.0}]}
    assert merged(old, run(1.0, 1)).level is None


@pytest.mark.parametrize(
    ("n", "what"), [(1, "times: 1 run added, 1 kept"), (12, "times: 10 runs added, 10 kept")]
)
def test_a_merge_describes_what_it_did(n, what):
    assert merged(None, *(run(1.0, second) for second in range(n))).what == what


def busy(step_time, second, load=0.5, **metrics):
    return run(step_time, second, other_load=load, **metrics)


def test_a_busy_run_took_at_least_what_others_cannot_explain():
    cases = [
        ({"other_load": 0.04}, 4, 1.0),
        ({}, 4, 1.0),
        ({"other_load": 0.05}, 4, 0.8 / LOAD_MOVES),  # others had a fifth of a core
        ({"other_load": 0.5, "step_cpu_time": 0.6}, 4, 0.15 / LOAD_MOVES),
        ({"other_load": 0.5, "step_cpu_time": 0.6}, 1, 0.6 / LOAD_MOVES),
        ({"other_load": 0.5}, 1, 0.5 / LOAD_MOVES),
        ({"other_load": 1.0, "step_cpu_time": 9.0}, 4, 1.0),  # never more than it took
        ({"other_load": 1.0}, 4, 0.001),
    ]
    for others, cores, expected in cases:
        assert least_s({"step_time": 1.0, **others}, cores) == pytest.approx(expected), others


def test_five_quiet_runs_are_compared_alone_and_fewer_with_the_busy_ones():
    entry = None
    for second in range(4):
        entry = merged(entry, run(1.0, 2 * second)).entry
        entry = merged(entry, busy(3.0, 2 * second + 1, step_cpu_time=1.5)).entry
    few = history_of(entry, 2)
    assert sorted(few.runs) == [1.0] * 4 + [3.0] * 4
    assert sorted(few.least) == pytest.approx([1.5 / 2 / LOAD_MOVES] * 4 + [1.0] * 4)
    assert few.least_anchor < few.anchor
    many = history_of(merged(entry, run(1.0, 9)).entry, 2)
    assert (many.runs, many.least) == ((1.0,) * 5, ())
    assert (many.anchor, many.least_anchor) == (1.0, None)


def test_ten_runs_of_each_kind_are_kept():
    entry = None
    for second in range(KEPT_RUNS + 3):
        entry = merged(entry, run(1.0, second)).entry
        entry = merged(entry, busy(1.1, 100 + second)).entry
    kept = [one.get("other_load", 0) for one in entry["runs"]]
    assert (kept.count(0), kept.count(0.5)) == (KEPT_RUNS, KEPT_RUNS)
    assert seconds(entry) == sorted(seconds(entry))


def test_busy_runs_of_another_level_start_the_history_anew_by_their_processor_time():
    quiet = None
    for second in range(5):
        quiet = merged(quiet, run(1.0, second, step_cpu_time=1.5, other_load=0.0)).entry
    for cpu, expected in [
        (1.5, None),
        (1.5 * LOAD_MOVES, None),
        (2.3, ("step_cpu_time", 1.5, 2.3)),
    ]:
        found = merged(quiet, busy(3.0, 9, step_cpu_time=cpu))
        assert found.level == expected, cpu
    assert found.what == (
        "times: the history starts anew with 1 run: step_cpu_time was 1.5 s, and is 2.3 s now"
    )
    assert len(found.entry["runs"]) == 1
    assert merged(quiet, busy(8.0, 9, load=0.05, step_cpu_time=12.0)).level == (
        "step_time",
        1.0,
        8.0,
    )


def test_processor_times_of_another_load_may_differ_by_what_load_moves():
    entry = None
    for second, load in enumerate([0.0, 0.3, 0.3, 0.3, 0.3]):
        history, few = steady_history_of(entry or {"runs": [], "anchor": {}}, "step_cpu_time", 1.0)
        assert (len(history.runs), few) == (second, 1), "a doubled time covers what load moves"
        entry = merged(entry, busy(1.0, second, load, step_cpu_time=1.0 + load)).entry
    for load, moved in [(0.0, 1), (0.44, 1), (0.46, LOAD_MOVES), (1.0, LOAD_MOVES), (None, 1.2)]:
        history, found = steady_history_of(entry, "step_cpu_time", load)
        assert (history.runs, found) == ((1.0, 1.3, 1.3, 1.3, 1.3), moved), load
    assert steady_history_of(merged(None, run(1.0, 0)).entry, "step_cpu_time", 0.0)[0].runs == ()

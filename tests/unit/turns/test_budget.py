"""The time that another process pair has for its turns, by hand."""

import pytest

from pytest_tfperf.turns import against
from pytest_tfperf.turns.against import RunBudget
from pytest_tfperf.turns.paired_test import (
    LaterTurns,
    PairedTurns,
    TurnTime,
    describe_spending,
    next_time,
    time_when_ready,
)


def turns(spent_s, waited_s=0.0, n=10):
    return PairedTurns(pairs=((1.0, 1.0, True),) * n, spent_s=spent_s, waited_s=waited_s)


def test_the_time_that_is_left():
    cases = [
        (turns(7.5), [], 7.5, 22.5),
        (turns(2), [], 7.5, 28),
        (turns(15), [], 7.5, 15),
        (turns(29), [], 7.5, 7.5),  # a slow step: the second pair has its share
        (turns(40, n=1), [], 7.5, 7.5),
        (turns(7.5), [turns(7.5, waited_s=4)], 7.5, 11),
        (turns(7.5), [turns(14, waited_s=2)], 6.5, 6.5),
    ]
    for first, later, seconds, most_s in cases:
        found = next_time(first, LaterTurns(turns=tuple(later)), 30, 4, is_suspected=False)
        assert found == TurnTime(seconds=seconds, most_s=most_s, least=6), (first, later, seconds)


def test_a_third_pair_needs_time_for_its_start_and_the_least_turns():
    for waited_s, goes_on in [(5.25, True), (5.26, False), (40, False)]:
        # 15 s less the wait so far, less as much again, for six turns of 0.75 s
        later = LaterTurns(turns=(turns(7.5, waited_s),))
        found = next_time(turns(7.5), later, 30, 4, is_suspected=False)
        assert (found is not None) is goes_on, waited_s


def test_a_third_pair_has_time_if_a_regression_lacks_no_more():
    cases = [
        (turns(7.5), [turns(20, waited_s=10)], (7.5, 7.5)),
        (turns(5), [turns(20, waited_s=10)], (5, 5)),
        (turns(7.5), [turns(7.5, waited_s=4)], (7.5, 11)),
        (turns(7.5), [turns(10, 5), turns(7.5, 5)], None),  # three pairs are enough for one
    ]
    for first, later, time in cases:
        found = next_time(first, LaterTurns(turns=tuple(later)), 30, 4, is_suspected=True)
        assert found == (time and TurnTime(seconds=time[0], most_s=time[1], least=6)), time


def test_a_pair_that_no_other_can_follow_has_all_that_is_left():
    cases = [(0, 7.5), (5.25, 7.5), (5.26, 17.24), (14, 8.5), (16, 7.5), (40, 7.5)]
    for waited_s, seconds in cases:
        time = TurnTime(seconds=7.5, most_s=22.5, least=6)
        found = time_when_ready(time, waited_s, turns(7.5))
        assert found == TurnTime(seconds=pytest.approx(seconds), most_s=22.5, least=6), waited_s


def test_spending():
    one = describe_spending(turns(7.5), LaterTurns())
    assert one == "spent 7.5 s on turns in one pair of processes"
    more = describe_spending(turns(7.5), LaterTurns(turns=(turns(7, 4), turns(6, 9))))
    assert more == "spent 20.5 s on turns in 3 pairs of processes, 13 s on their start"


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_the_budget_of_a_run_counts_what_is_spent_on_turns_and_starts(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(against, "perf_counter", clock)
    budget = RunBudget(100)
    clock.now += 50  # of other tests
    with budget.spending():
        clock.now += 10
        assert budget.left_s == 90
    clock.now += 50
    assert budget.left_s == 90
    left = "--tfperf-budget-total 100 left"
    for kept_s, seconds, cut in [
        (0, 30, ""),
        (60, 30, ""),
        (70, 20, f"{left} 20 s for it"),
        (84, 6, f"{left} 6 s for it"),
        (84.1, 0, f"{left} no time for it"),
        (120, 0, f"{left} no time for it"),
    ]:
        assert budget.of_test(30, kept_s) == (seconds, cut), kept_s
    assert RunBudget(None).of_test(30, 1e9) == (30, "")
    assert RunBudget(5).of_test(5, 0) == (5, "")

"""How many calls a turn has, and for how long there are turns."""

from random import Random

from pytest_tfperf.turn import Ready, Turn
from pytest_tfperf.turns.paired_test import TurnTime
from pytest_tfperf.turns.rounds import epoch_of, turn_size, turn_sizes


def ready(call_s, least_s=0.02, inputs=(), epoch_calls=None):
    return Ready(
        workload={"inputs": list(inputs)},
        call_s=call_s,
        least_s=least_s,
        most_calls=None,
        epoch_calls=epoch_calls,
    )


def test_turns_are_alike_and_long_enough_in_both_versions():
    for tree, ref, turn in (
        # the quicker one's turn lasts 20 ms
        ((0.001, 0.02), (0.002, 0.02), Turn(untimed=3, timed=20)),
        # the larger of the two least times
        ((0.002, 0.02), (0.001, 0.05), Turn(untimed=7, timed=50)),
        ((0.05, 0.02), (0.05, 0.02), Turn(untimed=1, timed=1)),
        ((0.0, 0.02), (0.05, 0.02), Turn(untimed=2500, timed=20_000)),  # a step of no time
    ):
        assert turn_size([ready(*tree), ready(*ref)], Random(1)) == turn, (tree, ref)


def test_a_much_slower_version_runs_fewer_calls():
    for tree_s, turns in (
        (0.01, [Turn(untimed=3, timed=20)] * 2),  # ten times as long: the same calls
        (0.011, [Turn(untimed=1, timed=2), Turn(untimed=3, timed=20)]),
        (8.0, [Turn(untimed=1, timed=1), Turn(untimed=3, timed=20)]),
        (0.0001, [Turn(untimed=25, timed=200)] * 2),
        (0.00009, [Turn(untimed=28, timed=223), Turn(untimed=3, timed=20)]),
    ):
        assert turn_sizes([ready(tree_s), ready(0.001)], Random(1)) == turns, tree_s


DATA = ["float32[8]"]


def test_turns_of_steps_with_data_are_longer_and_begin_at_any_point_of_a_burst():
    sides = [ready(call_s, inputs=DATA) for call_s in (0.01, 0.02)]
    turns = [turn_size(sides, Random(seed)) for seed in range(200)]
    assert {turn.timed for turn in turns} == {20}  # 0.2 s of the quicker one
    assert {turn.untimed for turn in turns} == set(range(10, 20))  # 0.1 to 0.2 s
    assert turn_size([ready(0.5, inputs=DATA)], Random(1)) == Turn(untimed=1, timed=1)


def test_turns_cover_whole_epochs():
    for epoch, turn in (
        (50, Turn(untimed=100, timed=50)),
        (15, Turn(untimed=100, timed=30)),  # two epochs are 20 ms long
        (1, Turn(untimed=100, timed=20)),
        (1000, Turn(untimed=100, timed=1000)),  # just a second
    ):
        sides = [ready(0.001, inputs=DATA, epoch_calls=epoch)] * 2
        assert epoch_of(sides) == epoch
        assert turn_size(sides, Random(1)) == turn, epoch


def test_turns_cover_parts_of_epochs_that_are_long_or_differ():
    for epochs in (
        (1001, 1001),  # longer than a second
        (50, 51),
        (50, None),
        (None, None),
        (0, 0),
    ):
        sides = [ready(0.001, inputs=DATA, epoch_calls=epoch) for epoch in epochs]
        assert epoch_of(sides) is None, epochs
        assert turn_size(sides, Random(1)).timed == 200, epochs


def test_a_slow_step_has_more_time_until_it_has_the_least_turns():
    time = TurnTime(seconds=1, most_s=2, least=4)
    for spent_s, n, is_left in (
        (0.9, 0, True),
        (1.0, 4, False),
        (0.9, 4, True),
        (1.0, 3, True),
        (1.9, 3, True),
        (2.0, 3, False),
    ):
        assert time.is_left(spent_s, n) is is_left, (spent_s, n)

"""Two real processes under a coordinator, in plain Python: turns, profiles and lost processes."""

from random import Random

import pytest
from helpers.scripted_child import scripted

from pytest_tfperf.child import turn_runner
from pytest_tfperf.child.process import ChildProcess
from pytest_tfperf.child.turn_runner import epoch_of, turn_size, turn_sizes
from pytest_tfperf.errors import PairedError
from pytest_tfperf.paired.coordinator import (
    PairedTest,
    PairedTurns,
    TurnTime,
    run_paired_test,
    run_turns,
)
from pytest_tfperf.turns import Ready, Turn

SERVES = """
def received():
    return receive() or os._exit(0)
def ask(**message):
    send(**message)
    return received()
def profile(name, step_s, workload="w", most_calls=None, turns=10**9, call_s=0.001, log=[]):
    ready = dict(workload={"batch": workload}, call_s=call_s, least_s=0.002, most_calls=most_calls)
    turn = ask(ready=ready, profile=name, tolerance=None)["turn"]
    while turn and turns:
        log.append(turn)
        turns -= 1
        turn = ask(step_s=step_s)["turn"] if turns else None
    return dict(name=name, turns=len(log))
send(collected=["test"], profiled=[], errors={})
while True:
    command = received()
"""


@pytest.fixture
def start(cleanup, tmp_path):
    """Starts a process that runs this code as its test, whatever the test is called."""
    children = []

    def new(code, label="ref"):
        loop = SERVES + "".join(f"    {line}\n" for line in code.splitlines())
        child = ChildProcess(scripted(loop, label, tmp_path), cleanup)
        children.append(child)
        child.next_event()
        return child

    yield new
    for child in children:
        child.kill()


def a_test(*profiles, void=()):
    """A test that makes these profiles."""
    return f"ask(profiles=[{', '.join(profiles)}], void={list(void)!r})\nsend(ended=True)"


def once(ready):
    """A play of one pair of turns."""
    return PairedTurns(pairs=((1.0, 1.0, True),))


@pytest.mark.parametrize(
    ("tree", "ref", "turn"),
    [
        (
            (0.001, 0.02),
            (0.002, 0.02),
            Turn(untimed=3, timed=20),
        ),  # the quicker one's turn lasts 20 ms
        (
            (0.002, 0.02),
            (0.001, 0.05),
            Turn(untimed=7, timed=50),
        ),  # the larger of the two least times
        ((0.05, 0.02), (0.05, 0.02), Turn(untimed=1, timed=1)),
        ((0.0, 0.02), (0.05, 0.02), Turn(untimed=2500, timed=20_000)),  # a step of no time
    ],
)
def test_turns_are_alike_and_long_enough_in_both_versions(tree, ref, turn):
    sides = [
        Ready(workload={"inputs": []}, call_s=call, least_s=least, most_calls=None)
        for call, least in (tree, ref)
    ]
    assert turn_size(sides, Random(1)) == turn


@pytest.mark.parametrize(
    ("tree_s", "turns"),
    [
        (0.01, [Turn(untimed=3, timed=20)] * 2),  # ten times as long: the same calls
        (0.011, [Turn(untimed=1, timed=2), Turn(untimed=3, timed=20)]),
        (8.0, [Turn(untimed=1, timed=1), Turn(untimed=3, timed=20)]),
        (0.0001, [Turn(untimed=25, timed=200), Turn(untimed=3, timed=20)][:1] * 2),
        (0.00009, [Turn(untimed=28, timed=223), Turn(untimed=3, timed=20)]),
    ],
)
def test_a_much_slower_version_runs_fewer_calls(tree_s, turns):
    sides = [
        Ready(workload={"inputs": []}, call_s=call, least_s=0.02, most_calls=None)
        for call in (tree_s, 0.001)
    ]
    assert turn_sizes(sides, Random(1)) == turns


def test_turns_of_steps_with_data_are_longer_and_begin_at_any_point_of_a_burst():
    sides = [
        Ready(workload={"inputs": ["float32[8]"]}, call_s=call, least_s=0.02, most_calls=None)
        for call in (0.01, 0.02)
    ]
    turns = [turn_size(sides, Random(seed)) for seed in range(200)]
    assert {turn.timed for turn in turns} == {20}  # 0.2 s of the quicker one
    assert {turn.untimed for turn in turns} == set(range(10, 20))  # 0.1 to 0.2 s
    slow = Ready(workload={"inputs": ["float32[8]"]}, call_s=0.5, least_s=0.02, most_calls=None)
    assert turn_size([slow], Random(1)) == Turn(untimed=1, timed=1)


@pytest.mark.parametrize(
    ("epochs", "call_s", "turn"),
    [
        ((50, 50), 0.001, Turn(untimed=100, timed=50)),
        ((15, 15), 0.001, Turn(untimed=100, timed=30)),  # two epochs are 20 ms long
        ((1, 1), 0.001, Turn(untimed=100, timed=20)),
        ((1000, 1000), 0.001, Turn(untimed=100, timed=1000)),  # just a second
    ],
)
def test_turns_cover_whole_epochs(epochs, call_s, turn):
    sides = readies(epochs, call_s)
    assert epoch_of(sides) == epochs[0]
    assert turn_size(sides, Random(1)) == turn


@pytest.mark.parametrize(
    ("epochs", "call_s"),
    [
        ((1001, 1001), 0.001),  # longer than a second
        ((50, 51), 0.001),
        ((50, None), 0.001),
        ((None, None), 0.001),
        ((0, 0), 0.001),
    ],
)
def test_turns_cover_parts_of_epochs_that_are_long_or_differ(epochs, call_s):
    sides = readies(epochs, call_s)
    assert epoch_of(sides) is None
    assert turn_size(sides, Random(1)).timed == 200


def readies(epochs, call_s):
    return [
        Ready(
            workload={"inputs": ["float32[8]"]},
            call_s=call_s,
            least_s=0.02,
            most_calls=None,
            epoch_calls=epoch,
        )
        for epoch in epochs
    ]


def turns_of(tree, ref, n=3, seconds=60):
    time = TurnTime(seconds=seconds, most_s=seconds)
    return lambda ready: run_turns(tree, ref, ready, time, lambda logs: len(logs) >= n)


def test_both_versions_run_every_turn(start):
    tree, ref = start(a_test("profile('', 0.002)"), "tree"), start(a_test("profile('', 0.001)"))
    paired = run_paired_test(tree, ref, "test", (None, None), turns_of(tree, ref))
    assert [turn[:2] for turn in paired.turns[""].pairs] == [(0.002, 0.001)] * 3
    assert paired.turns[""].log_ratios == [pytest.approx(0.6931471805599453)] * 3
    assert paired.tree_profiles == paired.ref_profiles == [{"name": "", "turns": 3}]
    assert not paired.turns[""].exhausted


def test_who_is_first_is_left_to_chance(start):
    tree, ref = start(a_test("profile('', 1)"), "tree"), start(a_test("profile('', 1)"))
    paired = run_paired_test(tree, ref, "test", (None, None), turns_of(tree, ref, 64))
    firsts = sum(tree_first for *_, tree_first in paired.turns[""].pairs)
    assert 8 <= firsts <= 56  # missed once in 10 ** 10


def test_a_version_stands_still_while_the_other_runs(start):
    look = "open('/proc/%d/stat').read().rpartition(') ')[2][0]"
    ref = start(a_test("profile('', 1)"))
    turns = "\n".join(
        [
            "turn = ask(ready=dict(workload={}, call_s=0.001, least_s=0.002, most_calls=None), profile='', tolerance=0.1)['turn']",
            "seen = []",
            "while turn:",
            f"    seen.append({look % ref._process.pid})",
            "    turn = ask(step_s=1)['turn']",
            "ask(profiles=[seen], void=[])",
        ]
    )
    tree = start(turns, "tree")
    paired = run_paired_test(tree, ref, "test", (None, None), turns_of(tree, ref, 8))
    assert paired.tree_profiles == [["T"] * 8]
    assert paired.ready_pairs[""].tolerance == 0.1


def test_the_time_is_over(start):
    tree, ref = start(a_test("profile('', 1)"), "tree"), start(a_test("profile('', 1)"))
    paired = run_paired_test(tree, ref, "test", (None, None), turns_of(tree, ref, seconds=0))
    assert paired.turns == {"": PairedTurns(spent_s=paired.turns[""].spent_s)}


def test_a_slow_step_has_more_time_until_it_has_the_least_turns(start):
    tree, ref = start(a_test("profile('', 1)"), "tree"), start(a_test("profile('', 1)"))
    time = TurnTime(seconds=0, most_s=60, least=4)
    paired = run_paired_test(
        tree,
        ref,
        "test",
        (None, None),
        lambda ready: run_turns(tree, ref, ready, time, lambda _: False),
    )
    assert len(paired.turns[""].pairs) == 4


@pytest.mark.parametrize(
    ("spent_s", "n", "is_left"),
    [
        (0.9, 0, True),
        (1.0, 4, False),
        (0.9, 4, True),
        (1.0, 3, True),
        (1.9, 3, True),
        (2.0, 3, False),
    ],
)
def test_time_of_turns(spent_s, n, is_left):
    assert TurnTime(seconds=1, most_s=2, least=4).is_left(spent_s, n) is is_left


@pytest.mark.parametrize(
    ("tree", "ref"),
    [
        ("turns=2", ""),
        ("", "turns=2"),
        ("most_calls=7", ""),
        ("", "most_calls=8"),
    ],  # a turn is of one call and two
)
def test_steps_that_run_out_end_the_turns_and_nothing_else(start, tree, ref):
    tree, ref = (
        start(a_test(f"profile('', 1, {tree})"), "tree"),
        start(a_test(f"profile('', 1, {ref})")),
    )
    paired = run_paired_test(tree, ref, "test", (None, None), turns_of(tree, ref, 9))
    assert paired.turns[""].exhausted
    assert len(paired.turns[""].pairs) in (1, 2)
    assert paired.tree_profiles
    assert paired.ref_profiles
    again = run_paired_test(tree, ref, "test", (None, None), once) if answered(tree, ref) else None
    assert again.tree_profiles
    assert again.ref_profiles


def answered(*children):
    for child in children:
        child.send(checks=[])
        assert child.next_event() == {"ended": True}
    return True


def test_profiles_meet_by_name(start):
    tree = start(a_test("profile('a', 1)", "profile('new', 1)", "profile('c', 1)"), "tree")
    ref = start(
        a_test(
            "profile('old', 1)",
            "profile('a', 1)",
            "profile('b', 1)",
            "profile('c', 1)",
            "profile('last', 1)",
        )
    )
    paired = run_paired_test(tree, ref, "test", (None, None), once)
    assert list(paired.ready_pairs) == ["a"]  # the ref's has gone on to c and beyond to find "new"
    assert paired.missed == {"c"}
    assert [profile["name"] for profile in paired.tree_profiles] == ["a", "new", "c"]
    assert [profile["name"] for profile in paired.ref_profiles] == ["old", "a", "b", "c", "last"]


def test_no_turns_are_wanted(start):
    tree, ref = start(a_test("profile('', 1)"), "tree"), start(a_test("profile('', 1)"))
    paired = run_paired_test(tree, ref, "test", (None, None), lambda ready: None)
    assert paired.turns == {}
    assert list(paired.ready_pairs) == [""]
    assert paired.ref_profiles == [{"name": "", "turns": 0}]


def test_without_a_ref(start):
    paired = run_paired_test(
        start(a_test("profile('', 1)"), "tree"), None, "test", (None, None), once
    )
    assert paired == PairedTest(tree_profiles=[{"name": "", "turns": 0}])


def test_what_makes_it_void_is_known_of_both(start):
    tree, ref = (
        start(a_test("profile('', 1)", void=["t", "both"]), "tree"),
        start(a_test("profile('', 1)", void=["both", "r"])),
    )
    assert run_paired_test(tree, ref, "test", (None, None), once).void == ("t", "both", "r")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("os._exit(3)", "ref ended with exit status 3"),
        ("profile('', 1, turns=1); os._exit(3)", "ref ended with exit status 3"),
        ("profile('', 1); os._exit(3)", "ref ended with exit status 3"),
        ("profile('other', 1); os._exit(3)", "ref ended with exit status 3"),
        ("send(stopped='enough'); receive()", "it stopped the run: enough"),
    ],
)
def test_a_ref_that_is_lost_leaves_the_tree_to_end_its_test(start, code, why):
    tree, ref = start(a_test("profile('', 1)"), "tree"), start(code)
    paired = run_paired_test(tree, ref, "test", (None, None), turns_of(tree, ref))
    assert paired.ref_profiles.why.startswith(why)
    assert ref.has_ended
    assert paired.tree_profiles


def test_a_ref_that_hangs(start, monkeypatch):
    tree, ref = start(a_test("profile('', 1)"), "tree"), start("time.sleep(600)")
    in_time = ref.next_event

    def soon(seconds=None):
        return in_time(0.1)

    monkeypatch.setattr(ref, "next_event", soon)
    paired = run_paired_test(tree, ref, "test", (None, None), once)
    assert paired.ref_profiles.why == "ref did not answer within 0 s"
    assert paired.tree_profiles


def test_a_ref_that_hangs_in_a_turn(start, monkeypatch):
    monkeypatch.setattr(turn_runner, "_PATIENCE_S", 0.2)
    hangs = "ask(ready=dict(workload={}, call_s=0.001, least_s=0.002, most_calls=None), profile='', tolerance=None); time.sleep(600)"
    tree, ref = start(a_test("profile('', 1)"), "tree"), start(hangs)
    paired = run_paired_test(tree, ref, "test", (None, None), turns_of(tree, ref))
    assert paired.ref_profiles.why.startswith("ref did not answer within")
    assert paired.tree_profiles


@pytest.mark.parametrize(
    "code", ["os._exit(3)", "profile('', 1, turns=1); os._exit(3)", "profile('', 1); os._exit(3)"]
)
def test_a_tree_that_is_lost_is_an_error(start, code):
    tree, ref = start(code, "tree"), start(a_test("profile('', 1)"))
    with pytest.raises(PairedError, match="tree ended with exit status 3"):
        run_paired_test(tree, ref, "test", (None, None), turns_of(tree, ref))


@pytest.mark.parametrize("victim", ["tree", "ref"])
def test_one_is_killed_between_two_turns(start, victim):
    sides = {
        "tree": start(a_test("profile('', 1)"), "tree"),
        "ref": start(a_test("profile('', 1)")),
    }

    def until_one_dies(logs):
        if len(logs) == 2:
            sides[victim]._process.kill()
        return len(logs) > 2

    def turns_of(ready):
        time = TurnTime(seconds=60, most_s=60)
        return run_turns(*sides.values(), ready, time, until_one_dies)

    if victim == "tree":
        with pytest.raises(PairedError, match="tree ended with SIGKILL"):
            run_paired_test(*sides.values(), "test", (None, None), turns_of)
    else:
        paired = run_paired_test(*sides.values(), "test", (None, None), turns_of)
        assert paired.ref_profiles.why.startswith("ref ended with SIGKILL")
        assert paired.turns == {}


def test_a_test_on_the_tree_that_profiles_nothing_or_stops_the_run(start):
    tree, ref = start("send(ended=True)", "tree"), start(a_test("profile('', 1)"))
    paired = run_paired_test(tree, ref, "test", (None, None), once)
    assert paired.tree_profiles is None
    assert paired.ref_profiles
    stopped = run_paired_test(
        start("send(stopped='enough'); receive()", "tree"), None, "test", (None, None), once
    )
    assert stopped.stopped == "enough"

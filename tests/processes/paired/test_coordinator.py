"""Two real processes under a referee, in plain Python: who plays when, what of it is known, and what becomes of the other when one is lost."""

from random import Random

import pytest
from helpers.scripted_side import speaking

from pytest_tfperf.child.process import Player
from pytest_tfperf.child.turn_client import size_of_turn
from pytest_tfperf.errors import PairedError
from pytest_tfperf.paired import coordinator
from pytest_tfperf.paired.coordinator import Match, Turns, run_match, take_turns
from pytest_tfperf.turns import Ready, Turn

SERVES = """
def heard():
    return hear() or os._exit(0)
def ask(**message):
    say(**message)
    return heard()
def profile(name, step_s, workload="w", most_calls=None, turns=10**9, call_s=0.001, log=[]):
    ready = dict(workload={"batch": workload}, call_s=call_s, least_s=0.002, most_calls=most_calls)
    turn = ask(ready=ready, profile=name, tolerance=None)["turn"]
    while turn and turns:
        log.append(turn)
        turns -= 1
        turn = ask(played=step_s)["turn"] if turns else None
    return dict(name=name, turns=len(log))
say(collected=["test"], profiled=[], errors={})
while True:
    command = heard()
"""


@pytest.fixture
def play(janitor, tmp_path):
    """Starts a process that runs this code as its test, whatever the test is called."""
    players = []

    def start(code, label="ref"):
        player = Player(
            label,
            speaking(SERVES + "".join(f"    {line}\n" for line in code.splitlines())),
            tmp_path,
            {},
            (),
            janitor,
        )
        players.append(player)
        player.next_event()
        return player

    yield start
    for player in players:
        player.kill()


def a_test(*profiles, void=()):
    """A test that makes these profiles."""
    return f"ask(profiles=[{', '.join(profiles)}], void={list(void)!r})\nsay(ended=True)"


def once(opening):
    """A play of one pair of turns."""
    return Turns(played=((1.0, 1.0, True),))


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
def test_turns_are_alike_and_long_enough_on_both_sides(tree, ref, turn):
    sides = [
        Ready(workload={"inputs": []}, call_s=call, least_s=least, most_calls=None)
        for call, least in (tree, ref)
    ]
    assert size_of_turn(sides, Random(1)) == turn


def test_turns_of_steps_with_data_are_longer_and_begin_at_any_point_of_a_burst():
    sides = [
        Ready(workload={"inputs": ["float32[8]"]}, call_s=call, least_s=0.02, most_calls=None)
        for call in (0.01, 0.02)
    ]
    turns = [size_of_turn(sides, Random(seed)) for seed in range(200)]
    assert {turn.timed for turn in turns} == {20}  # 0.2 s of the quicker one
    assert {turn.untimed for turn in turns} == set(range(10, 20))  # 0.1 to 0.2 s
    slow = Ready(workload={"inputs": ["float32[8]"]}, call_s=0.5, least_s=0.02, most_calls=None)
    assert size_of_turn([slow], Random(1)) == Turn(untimed=1, timed=1)


def playing(tree, ref, n=3, seconds=60):
    return lambda opening: take_turns(tree, ref, opening, seconds, lambda logs: len(logs) >= n)


def test_both_play_every_turn_and_are_asked_alike(play):
    tree, ref = play(a_test("profile('', 0.002)"), "tree"), play(a_test("profile('', 0.001)"))
    match = run_match(tree, ref, "test", (None, None), playing(tree, ref))
    assert [turn[:2] for turn in match.turns[""].played] == [(0.002, 0.001)] * 3
    assert match.turns[""].log_ratios == [pytest.approx(0.6931471805599453)] * 3
    assert match.tree_profiles == match.ref_profiles == [{"name": "", "turns": 3}]
    assert not match.turns[""].over


def test_who_is_first_is_left_to_chance(play):
    tree, ref = play(a_test("profile('', 1)"), "tree"), play(a_test("profile('', 1)"))
    match = run_match(tree, ref, "test", (None, None), playing(tree, ref, 64))
    firsts = sum(tree_first for *_, tree_first in match.turns[""].played)
    assert 8 <= firsts <= 56  # missed once in 10 ** 10


def test_a_side_stands_still_while_the_other_plays(play):
    look = "open('/proc/%d/stat').read().rpartition(') ')[2][0]"
    ref = play(a_test("profile('', 1)"))
    turns = "\n".join(
        [
            "turn = ask(ready=dict(workload={}, call_s=0.001, least_s=0.002, most_calls=None), profile='', tolerance=0.1)['turn']",
            "seen = []",
            "while turn:",
            f"    seen.append({look % ref._process.pid})",
            "    turn = ask(played=1)['turn']",
            "ask(profiles=[seen], void=[])",
        ]
    )
    tree = play(turns, "tree")
    match = run_match(tree, ref, "test", (None, None), playing(tree, ref, 8))
    assert match.tree_profiles == [["T"] * 8]
    assert match.openings[""].tolerance == 0.1


def test_the_time_is_over(play):
    tree, ref = play(a_test("profile('', 1)"), "tree"), play(a_test("profile('', 1)"))
    match = run_match(tree, ref, "test", (None, None), playing(tree, ref, seconds=0))
    assert match.turns == {"": Turns(spent_s=match.turns[""].spent_s)}


@pytest.mark.parametrize(
    ("tree", "ref"),
    [
        ("turns=2", ""),
        ("", "turns=2"),
        ("most_calls=7", ""),
        ("", "most_calls=8"),
    ],  # a turn is of one call and two
)
def test_steps_that_run_out_end_the_turns_and_nothing_else(play, tree, ref):
    tree, ref = (
        play(a_test(f"profile('', 1, {tree})"), "tree"),
        play(a_test(f"profile('', 1, {ref})")),
    )
    match = run_match(tree, ref, "test", (None, None), playing(tree, ref, 9))
    assert match.turns[""].over
    assert len(match.turns[""].played) in (1, 2)
    assert match.tree_profiles
    assert match.ref_profiles
    again = run_match(tree, ref, "test", (None, None), once) if answered(tree, ref) else None
    assert again.tree_profiles
    assert again.ref_profiles


def answered(*players):
    for player in players:
        player.say(checks=[])
        assert player.next_event() == {"ended": True}
    return True


def test_profiles_meet_by_name(play):
    tree = play(a_test("profile('a', 1)", "profile('new', 1)", "profile('c', 1)"), "tree")
    ref = play(
        a_test(
            "profile('old', 1)",
            "profile('a', 1)",
            "profile('b', 1)",
            "profile('c', 1)",
            "profile('last', 1)",
        )
    )
    match = run_match(tree, ref, "test", (None, None), once)
    assert list(match.openings) == ["a"]  # the ref's has gone on to c and beyond to find "new"
    assert match.missed == {"c"}
    assert [profile["name"] for profile in match.tree_profiles] == ["a", "new", "c"]
    assert [profile["name"] for profile in match.ref_profiles] == ["old", "a", "b", "c", "last"]


def test_no_turns_are_wanted(play):
    tree, ref = play(a_test("profile('', 1)"), "tree"), play(a_test("profile('', 1)"))
    match = run_match(tree, ref, "test", (None, None), lambda opening: None)
    assert match.turns == {}
    assert list(match.openings) == [""]
    assert match.ref_profiles == [{"name": "", "turns": 0}]


def test_without_a_ref(play):
    match = run_match(play(a_test("profile('', 1)"), "tree"), None, "test", (None, None), once)
    assert match == Match(tree_profiles=[{"name": "", "turns": 0}])


def test_what_makes_it_void_is_known_of_both(play):
    tree, ref = (
        play(a_test("profile('', 1)", void=["t", "both"]), "tree"),
        play(a_test("profile('', 1)", void=["both", "r"])),
    )
    assert run_match(tree, ref, "test", (None, None), once).void == ("t", "both", "r")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("os._exit(3)", "ref ended with exit status 3"),
        ("profile('', 1, turns=1); os._exit(3)", "ref ended with exit status 3"),
        ("profile('', 1); os._exit(3)", "ref ended with exit status 3"),
        ("profile('other', 1); os._exit(3)", "ref ended with exit status 3"),
        ("say(stopped='enough'); hear()", "it stopped the run: enough"),
    ],
)
def test_a_ref_that_is_lost_leaves_the_tree_to_end_its_test(play, code, why):
    tree, ref = play(a_test("profile('', 1)"), "tree"), play(code)
    match = run_match(tree, ref, "test", (None, None), playing(tree, ref))
    assert match.lost.startswith(why)
    assert ref.has_ended
    assert match.ref_profiles is None
    assert match.tree_profiles


def test_a_ref_that_hangs(play, monkeypatch):
    tree, ref = play(a_test("profile('', 1)"), "tree"), play("time.sleep(600)")
    in_time = ref.next_event

    def soon(seconds=None):
        return in_time(0.1)

    monkeypatch.setattr(ref, "next_event", soon)
    match = run_match(tree, ref, "test", (None, None), once)
    assert match.lost == "ref did not answer within 0 s"
    assert match.tree_profiles


def test_a_ref_that_hangs_in_a_turn(play, monkeypatch):
    monkeypatch.setattr(coordinator, "_PATIENCE_S", 0.2)
    hangs = "ask(ready=dict(workload={}, call_s=0.001, least_s=0.002, most_calls=None), profile='', tolerance=None); time.sleep(600)"
    tree, ref = play(a_test("profile('', 1)"), "tree"), play(hangs)
    match = run_match(tree, ref, "test", (None, None), playing(tree, ref))
    assert match.lost.startswith("ref did not answer within")
    assert match.tree_profiles


@pytest.mark.parametrize(
    "code", ["os._exit(3)", "profile('', 1, turns=1); os._exit(3)", "profile('', 1); os._exit(3)"]
)
def test_a_tree_that_is_lost_is_an_error(play, code):
    tree, ref = play(code, "tree"), play(a_test("profile('', 1)"))
    with pytest.raises(PairedError, match="tree ended with exit status 3"):
        run_match(tree, ref, "test", (None, None), playing(tree, ref))


@pytest.mark.parametrize("victim", ["tree", "ref"])
def test_one_is_killed_between_two_turns(play, victim):
    sides = {"tree": play(a_test("profile('', 1)"), "tree"), "ref": play(a_test("profile('', 1)"))}

    def until_one_dies(logs):
        if len(logs) == 2:
            sides[victim]._process.kill()
        return len(logs) > 2

    def playing(opening):
        return take_turns(*sides.values(), opening, 60, until_one_dies)

    if victim == "tree":
        with pytest.raises(PairedError, match="tree ended with SIGKILL"):
            run_match(*sides.values(), "test", (None, None), playing)
    else:
        match = run_match(*sides.values(), "test", (None, None), playing)
        assert match.lost.startswith("ref ended with SIGKILL")
        assert match.turns == {}


def test_a_test_on_the_tree_that_profiles_nothing_or_stops_the_run(play):
    tree, ref = play("say(ended=True)", "tree"), play(a_test("profile('', 1)"))
    match = run_match(tree, ref, "test", (None, None), once)
    assert match.tree_profiles is None
    assert match.ref_profiles
    stopped = run_match(
        play("say(stopped='enough'); hear()", "tree"), None, "test", (None, None), once
    )
    assert stopped.stopped == "enough"

"""Two real processes under a coordinator, in plain Python: turns, profiles and lost processes."""

import pytest
from helpers.scripted_child import scripted

from pytest_tfperf.errors import PairedError
from pytest_tfperf.results import Profile
from pytest_tfperf.turns import rounds as turn_runner
from pytest_tfperf.turns.messages import Ended, Judged
from pytest_tfperf.turns.paired_test import (
    PairedTest,
    PairedTurns,
    TurnTime,
    run_paired_test,
    run_turns,
)
from pytest_tfperf.turns.pytest_child import ChildProcess

pytestmark = pytest.mark.usefixtures("processes")

SERVES = """
def ask(message):
    send(message)
    return receive() or os._exit(0)
def at(name, tolerance=None, **ready):
    ready = Ready(**{"workload": {}, "call_s": 0.001, "least_s": 0.002, "most_calls": None, **ready})
    return ask(AtProfile(profile=name, ready=ready, tolerance=tolerance)).turn
def profile(name, step_s, workload="w", most_calls=None, turns=10**9, cpu_s=None, log=[]):
    turn = at(name, workload={"batch": workload}, most_calls=most_calls)
    while turn and turns:
        log.append(turn)
        turns -= 1
        turn = ask(Ran(step_s=step_s, cpu_s=cpu_s)).turn if turns else None
    return Profile(name=name, metrics={}, workload={"turns": len(log)})
def end(profiles, void=()):
    ask(Profiled(profiles=tuple(profiles), tolerance=None, setting={}, void=void))
    send(Ended())
send(Collected(tests=["test"], profiled=[], errors={}))
while True:
    receive() or os._exit(0)
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
    return f"end([{', '.join(profiles)}], {list(void)!r})"


def made(**workload):
    """The profile of such a test."""
    return Profile(name="", metrics={}, workload=workload)


def once(ready):
    """A play of one pair of turns."""
    return PairedTurns(pairs=((1.0, 1.0, True),))


def turns_of(tree, ref, n=3, seconds=60):
    time = TurnTime(seconds=seconds, most_s=seconds)
    return lambda ready: run_turns(tree, ref, ready, time, lambda logs: len(logs) >= n)


def test_both_versions_run_every_turn(start):
    tree, ref = start(a_test("profile('', 0.002)"), "tree"), start(a_test("profile('', 0.001)"))
    paired = run_paired_test(tree, ref, "test", (None, None), turns_of(tree, ref))
    assert [turn[:2] for turn in paired.turns[""].pairs] == [(0.002, 0.001)] * 3
    assert paired.turns[""].log_ratios == [pytest.approx(0.6931471805599453)] * 3
    assert paired.tree_profiles == paired.ref_profiles == (made(turns=3),)
    assert not paired.turns[""].exhausted


def test_processor_time_counts_only_if_both_versions_tell_it(start):
    for of_ref, expected in [("0.5", ((2.0, 0.5),) * 3), ("None", ())]:
        tree = start(a_test("profile('', 1, cpu_s=2.0)"), "tree")
        ref = start(a_test(f"profile('', 1, cpu_s={of_ref})"))
        paired = run_paired_test(tree, ref, "test", (None, None), turns_of(tree, ref))
        assert paired.turns[""].cpu_pairs == expected
        assert len(paired.turns[""].pairs) == 3


@pytest.mark.full
def test_who_is_first_is_left_to_chance(start):
    tree, ref = start(a_test("profile('', 1)"), "tree"), start(a_test("profile('', 1)"))
    paired = run_paired_test(tree, ref, "test", (None, None), turns_of(tree, ref, 64))
    firsts = sum(tree_first for *_, tree_first in paired.turns[""].pairs)
    assert 8 <= firsts <= 56  # missed once in 10 ** 10


@pytest.mark.full
def test_a_version_stands_still_while_the_other_runs(start):
    look = "open('/proc/%d/stat').read().rpartition(') ')[2][0]"
    ref = start(a_test("profile('', 1)"))
    turns = "\n".join(
        [
            "turn = at('', tolerance=0.1)",
            "seen = []",
            "while turn:",
            f"    seen.append({look % ref._process.pid})",
            "    turn = ask(Ran(step_s=1)).turn",
            "end([Profile(name='', metrics={}, workload={'seen': seen})])",
        ]
    )
    tree = start(turns, "tree")
    paired = run_paired_test(tree, ref, "test", (None, None), turns_of(tree, ref, 8))
    assert paired.tree_profiles == (made(seen=["T"] * 8),)
    assert paired.ready_pairs[""].tolerance == 0.1


@pytest.mark.full
def test_the_time_is_over(start):
    tree, ref = start(a_test("profile('', 1)"), "tree"), start(a_test("profile('', 1)"))
    paired = run_paired_test(tree, ref, "test", (None, None), turns_of(tree, ref, seconds=0))
    assert paired.turns == {"": PairedTurns(spent_s=paired.turns[""].spent_s)}


@pytest.mark.full
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


@pytest.mark.full
def test_steps_that_run_out_end_the_turns_and_nothing_else(start):
    # a turn is of one call and two
    for of_tree, of_ref in (
        ("turns=2", ""),
        ("", "turns=2"),
        ("most_calls=7", ""),
        ("", "most_calls=8"),
    ):
        tree = start(a_test(f"profile('', 1, {of_tree})"), "tree")
        ref = start(a_test(f"profile('', 1, {of_ref})"))
        paired = run_paired_test(tree, ref, "test", (None, None), turns_of(tree, ref, 9))
        assert paired.turns[""].exhausted, (of_tree, of_ref)
        assert len(paired.turns[""].pairs) in (1, 2), (of_tree, of_ref)
        assert paired.tree_profiles
        assert paired.ref_profiles
        assert answered(tree, ref)
        again = run_paired_test(tree, ref, "test", (None, None), once)
        assert again.tree_profiles, (of_tree, of_ref)
        assert again.ref_profiles, (of_tree, of_ref)


def answered(*children):
    for child in children:
        child.send(Judged(checks=()))
        assert child.next_event() == Ended()
    return True


@pytest.mark.full
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
    assert [profile.name for profile in paired.tree_profiles] == ["a", "new", "c"]
    assert [profile.name for profile in paired.ref_profiles] == ["old", "a", "b", "c", "last"]


@pytest.mark.full
def test_no_turns_are_wanted(start):
    tree, ref = start(a_test("profile('', 1)"), "tree"), start(a_test("profile('', 1)"))
    paired = run_paired_test(tree, ref, "test", (None, None), lambda ready: None)
    assert paired.turns == {}
    assert list(paired.ready_pairs) == [""]
    assert paired.ref_profiles == (made(turns=0),)


@pytest.mark.full
def test_without_a_ref(start):
    paired = run_paired_test(
        start(a_test("profile('', 1)"), "tree"), None, "test", (None, None), once
    )
    assert paired == PairedTest(tree_profiles=(made(turns=0),))


@pytest.mark.full
def test_what_makes_it_void_is_known_of_both(start):
    tree, ref = (
        start(a_test("profile('', 1)", void=["t", "both"]), "tree"),
        start(a_test("profile('', 1)", void=["both", "r"])),
    )
    assert run_paired_test(tree, ref, "test", (None, None), once).void == ("t", "both", "r")


@pytest.mark.full
def test_a_ref_that_is_lost_leaves_the_tree_to_end_its_test(start):
    for code, why in (
        ("os._exit(3)", "ref ended with exit status 3"),
        ("profile('', 1, turns=1); os._exit(3)", "ref ended with exit status 3"),
        ("profile('', 1); os._exit(3)", "ref ended with exit status 3"),
        ("profile('other', 1); os._exit(3)", "ref ended with exit status 3"),
        ("send(Stopped(why='enough')); receive()", "it stopped the run: enough"),
    ):
        tree, ref = start(a_test("profile('', 1)"), "tree"), start(code)
        paired = run_paired_test(tree, ref, "test", (None, None), turns_of(tree, ref))
        assert paired.ref_profiles.why.startswith(why), code
        assert ref.has_ended, code
        assert paired.tree_profiles, code


@pytest.mark.full
def test_a_ref_that_hangs(start, monkeypatch):
    tree, ref = start(a_test("profile('', 1)"), "tree"), start("time.sleep(600)")
    in_time = ref.next_event

    def soon(seconds=None):
        return in_time(0.1)

    monkeypatch.setattr(ref, "next_event", soon)
    paired = run_paired_test(tree, ref, "test", (None, None), once)
    assert paired.ref_profiles.why == "ref did not answer within 0 s"
    assert paired.tree_profiles


@pytest.mark.full
def test_a_ref_that_hangs_in_a_turn(start, monkeypatch):
    monkeypatch.setattr(turn_runner, "_PATIENCE_S", 0.2)
    hangs = "at(''); time.sleep(600)"
    tree, ref = start(a_test("profile('', 1)"), "tree"), start(hangs)
    paired = run_paired_test(tree, ref, "test", (None, None), turns_of(tree, ref))
    assert paired.ref_profiles.why.startswith("ref did not answer within")
    assert paired.tree_profiles


@pytest.mark.full
def test_a_tree_that_is_lost_is_an_error(start):
    for code in (
        "os._exit(3)",
        "profile('', 1, turns=1); os._exit(3)",
        "profile('', 1); os._exit(3)",
    ):
        tree, ref = start(code, "tree"), start(a_test("profile('', 1)"))
        with pytest.raises(PairedError, match="tree ended with exit status 3"):
            run_paired_test(tree, ref, "test", (None, None), turns_of(tree, ref))


@pytest.mark.full
def test_a_test_on_the_tree_that_profiles_nothing_or_stops_the_run(start):
    tree, ref = start("send(Ended())", "tree"), start(a_test("profile('', 1)"))
    paired = run_paired_test(tree, ref, "test", (None, None), once)
    assert paired.tree_profiles is None
    assert paired.ref_profiles
    stopped = run_paired_test(
        start("send(Stopped(why='enough')); receive()", "tree"), None, "test", (None, None), once
    )
    assert stopped.stopped == "enough"

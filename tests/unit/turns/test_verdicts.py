"""The checks of a paired test, from its turns and profiles; no process runs."""

import itertools
import math
from dataclasses import replace

import pytest
from helpers.builders import profile, value

from pytest_tfperf.plugin.options import Options
from pytest_tfperf.plugin.profiled_item import undecided as shown_as
from pytest_tfperf.results import Verdict
from pytest_tfperf.stats.process_spread import BUSY_PROCESS_SD, Residuals, constant_spread
from pytest_tfperf.turn import Ready
from pytest_tfperf.turns.paired_test import (
    LaterTurns,
    PairedTest,
    PairedTurns,
    ReadyPair,
    pair_estimates,
)
from pytest_tfperf.turns.verdicts import Terms, absent_check, undecided, verdicts
from pytest_tfperf.values import PARTS, Step, Value

PINNED = constant_spread(pinned=True)
TERMS = Terms(ref="main", n_tests=1, constant=PINNED, budget_s=30)
READY = Ready(workload={}, call_s=0.001, least_s=0.02, most_calls=None)


def turns_of(ratio, n=32, noise=0.001, cpu=None, **fields):
    """Turns whose middle ratio is this; above and below it by turns. `cpu` is that of processor time."""
    signs = [sign for sign, _ in zip(itertools.cycle([1, -1]), range(n), strict=False)]
    return PairedTurns(
        pairs=tuple((ratio * math.exp(sign * noise), 1.0, sign > 0) for sign in signs),
        cpu_pairs=tuple((cpu * math.exp(sign * 0.001) / 2, 0.5) for sign in signs) if cpu else (),
        **fields,
    )


def paired_of(here, there, turns=None, tolerance=0.05, **fields):
    """Two sides with these profiles; the one without a name has these turns."""
    by_name = {} if turns is None else {"": turns}
    ready_pairs = {
        name: ReadyPair(profile=name, tree=READY, ref=READY, tolerance=tolerance)
        for name in by_name
    }
    return PairedTest(
        turns=by_name,
        ready_pairs=ready_pairs,
        tree_profiles=tuple(here),
        ref_profiles=None if there is None else tuple(there),
        tolerance=tolerance,
        **fields,
    )


def later_of(*turns, why=""):
    """Turns of the profile without a name in further process pairs."""
    return {"": LaterTurns(turns=turns, why=why)}


def timing(turns, *again, why="", tolerance=0.05, terms=TERMS, **fields):
    """The check of step_time."""
    paired = paired_of(
        [profile(step_time=1.0)], [profile(step_time=1.0)], turns, tolerance, **fields
    )
    later = later_of(*again, why=why)
    [check] = [
        check for check in verdicts(paired, later, terms, None) if check.metric == "step_time"
    ]
    return check


def test_a_regression_takes_two_pairs_of_processes():
    cases = [
        (1.0, None, "PASS"),
        (1.02, None, "PASS"),
        (0.9, None, "PASS"),  # no second pair ran
        (0.9, 0.9, "PASS"),
        (0.7, 0.7, "IMPROVED"),
        (1.05, None, "INCONCLUSIVE"),
        (1.2, None, "INCONCLUSIVE"),  # no second pair ran
        (1.4, 1.4, "REGRESSION"),
        (1.2, 1.2, "INCONCLUSIVE"),  # not so clear that two suffice
        (1.06, 1.045, "INCONCLUSIVE"),
        (1.05, 1.05, "INCONCLUSIVE"),
        (1.04, 1.02, "PASS"),
        (1.05, 1.02, "INCONCLUSIVE"),  # they differ more than processes of the same code do
    ]
    for ratio, again, verdict in cases:
        check = timing(turns_of(ratio), *([turns_of(again)] if again else []))
        assert check.verdict is Verdict(verdict), (ratio, again)
        assert "main" in check.message, (ratio, again)
        assert check.wanted == "at most 5 % slower", (ratio, again)
        assert check.kind == "against", (ratio, again)


DRAINING = profile(step_time=value("step_time", 1.0, settled=False))
COMPUTES = profile(step_time=1.0, step_cpu_time=0.5)
WAITS = profile(step_time=1.0, step_cpu_time=Value.unknown("step_cpu_time", "the step waits"))


def either(*turns, profiles=(COMPUTES, COMPUTES), **fields):
    """The check of the time of the step, by the clock or by the processor."""
    paired = paired_of(profiles[:1], profiles[1:], turns[0], **fields)
    found = verdicts(paired, later_of(*turns[1:]), TERMS, None)
    [check] = [check for check in found if check.is_of_step_time]
    return check


def test_processor_time_fails_a_test_that_the_clock_does_not_decide():
    check = either(*[turns_of(1.05, cpu=1.25, other_load=0.6)] * 3)
    assert (check.metric, check.verdict) == ("step_cpu_time", Verdict.REGRESSION)
    assert check.wanted == "at most 5 % more"
    assert check.sentence == "step_cpu_time is 25 % more than main: 500 ms to 625 ms, limit 5 %"
    assert "(25 % more, 25 % more, 25 % more)" in check.message
    assert "the clock: does not decide: step_time is 5 % slower than main" in check.message
    assert "if intended: a larger max_regression" in check.message
    assert check.detail["ratio"] == pytest.approx(1.25)
    assert (len(check.detail["turns"]), check.detail["turns"][0][1]) == (96, 0.5)


def test_processor_time_decides_nothing_where_the_clock_does():
    """A better program may use more threads."""
    for ratio, verdict in [(1.0, "PASS"), (0.7, "IMPROVED"), (1.4, "REGRESSION")]:
        check = either(*[turns_of(ratio, cpu=1.25)] * 3)
        assert (check.metric, check.verdict) == ("step_time", Verdict(verdict)), ratio
        shown = "processor time: step_cpu_time is 25 % more than main: 500 ms to 625 ms, limit 5 %"
        assert shown in check.message, ratio
        assert ("does not gate" in check.message) == (ratio < 1.1), ratio


def test_processor_time_never_passes_a_test():
    no, neither = "it shows no regression", "it does not decide either"
    for cpu, says in [(0.5, no), (1.0, no), (1.05, neither)]:
        check = either(*[turns_of(1.05, cpu=cpu, other_load=0.6)] * 3)
        assert (check.metric, check.verdict) == ("step_time", Verdict.INCONCLUSIVE), cpu
        assert says in check.message, cpu


def test_processor_time_that_is_no_measure_of_the_step_decides_nothing():
    slower = turns_of(1.05, cpu=3.0, other_load=0.6)
    untold, few = replace(slower, cpu_pairs=()), turns_of(1.05, n=4, cpu=30.0, other_load=0.6)
    settling = value("step_time", 1.0, settled=False)
    draining = profile(step_time=settling, step_cpu_time=0.5)
    cases = [
        ([slower] * 3, (COMPUTES, WAITS), "the step waits"),
        ([slower] * 3, (WAITS, COMPUTES), "the step waits"),
        ([slower, untold, slower], (COMPUTES, COMPUTES), "unknown in these turns"),
        ([few] * 3, (COMPUTES, COMPUTES), "too few pairs of turns"),
        ([slower], (COMPUTES, COMPUTES), "too few pairs of processes show it"),
        ([slower] * 3, (draining, COMPUTES), "buffers were still draining"),
    ]
    for turns, profiles, said in cases:
        check = either(*turns, profiles=profiles)
        assert (check.metric, check.verdict) == ("step_time", Verdict.INCONCLUSIVE), said
        assert said in check.message, said


def test_turns_go_on_while_the_clock_may_still_pass():
    paired = paired_of([COMPUTES], [COMPUTES], turns_of(1.05, cpu=1.25))
    later = later_of(*[turns_of(1.05, cpu=1.25)] * 2)
    assert list(undecided(paired, later, TERMS)) == [""]


def test_a_pair_that_could_not_run_says_why():
    why = "process pair 2 could not run: the process on main ended with SIGKILL"
    check = timing(turns_of(1.4), why=why)
    assert check.verdict is Verdict.INCONCLUSIVE
    assert f"\n  {why}" in check.message


def test_the_message_says_how_the_time_was_spent_unless_the_check_passed():
    first, second = turns_of(1.4, spent_s=7.0), turns_of(1.4, spent_s=8.0, waited_s=5.0)
    assert "spent 15 s on turns in 2 pairs of processes, 5 s on their start" in (
        timing(first, second).message
    )
    assert (
        "spent 7 s on turns in one pair of processes" in timing(turns_of(1.05, spent_s=7)).message
    )
    assert "spent" not in timing(turns_of(1.0, spent_s=7.0)).message


def test_the_message_and_the_detail_name_the_assumed_spread():
    check = timing(turns_of(1.4), turns_of(1.4))
    assert "differ by 0.45 %: the constant for pinned processes" in check.message
    assert check.detail["process_sd"] == 0.0045
    wide = replace(TERMS, stored=Residuals(total=0.002, degrees=20))  # a variance of 1 %²
    check = timing(turns_of(1.4), turns_of(1.4), terms=wide)
    assert "differ by 1 %: earlier runs on this machine" in check.message
    assert check.detail["process_sd_source"] == "earlier runs on this machine"


def test_five_pairs_of_a_test_widen_its_interval():
    ratios = [1.05, 1.11, 0.99, 1.11, 0.99]
    check = timing(*map(turns_of, ratios), terms=replace(TERMS, budget_s=60))
    assert check.detail["process_sd"] > 0.03
    assert "this run, with the constant for pinned processes before it" in check.message


def test_the_figures_agree_with_each_other():
    first, second = turns_of(1.4, spent_s=7.0), turns_of(1.3, spent_s=8.0, waited_s=5.0)
    detail = timing(first, second).detail
    assert detail["ratio"] == pytest.approx(math.sqrt(1.4 * 1.3), rel=1e-6)
    assert detail["after"] == pytest.approx(detail["before"] * detail["ratio"])
    assert len(detail["turns"]) == 64
    pairs = [(one["n"], one["spent_s"], one["waited_s"]) for one in detail["process_pairs"]]
    assert pairs == [(32, 7.0, 0.0), (32, 8.0, 5.0)]
    assert [one["ratio"] for one in detail["process_pairs"]] == pytest.approx([1.4, 1.3])


def test_load_of_other_processes_is_shown_unless_the_check_passed():
    cases = [
        (1.0, 0.3, None, None),
        (1.05, 0.3, None, "30 %"),
        (1.05, None, None, None),
        (1.2, 0.1, 0.25, "25 %"),
        (1.2, None, 0.25, "25 %"),
    ]
    for ratio, first, second, said in cases:
        message = timing(
            turns_of(ratio, other_load=first), turns_of(ratio, other_load=second)
        ).message
        assert ("other processes used" in message) == (said is not None), (ratio, first)
        assert (
            said is None
            or f"other processes used {said} of the cores meanwhile"
            in message.replace("%", " %").replace("  ", " ")
        ), (ratio, first)


def test_a_setting_that_differs_is_among_the_differences():
    settings = (
        {"precision": "mixed_float16", "xla_flags": ""},
        {"precision": "float32", "xla_flags": ""},
    )
    check = timing(turns_of(1.4), turns_of(1.4), settings=settings)
    assert "\n  precision float32 → mixed_float16" in check.message
    assert check.detail["differences"] == [
        {"what": "precision float32 → mixed_float16", "seconds": None}
    ]


def test_too_few_turns_for_an_interval_say_which_budget_would_have_been_enough():
    cases = [
        (turns_of(1.0, 4, spent_s=3.0), [], 9),  # 12 of 0.75 s
        (turns_of(1.5, 4, spent_s=3.0), [turns_of(1.0, 3, spent_s=3.0, waited_s=5.5)], 15),
        (turns_of(1.0, 4, spent_s=3.0, exhausted=True), [], None),  # seconds give no more turns
        (turns_of(1.05, spent_s=3.0), [], None),
    ]
    for first, again, budget in cases:
        message = timing(first, *again).message
        said = "a pair of turns took 750 ms, and 6 are needed in each of two pairs of processes"
        assert (f"\n  {said}: --tfperf-budget {budget} at least" in message) == bool(budget), (
            first,
            again,
            budget,
        )
        assert ("are needed" in message) == bool(budget), (first, again, budget)


def test_profiles_without_a_verdict_are_undecided():
    names = {"same": 1.0, "slower": 1.4, "faster": 0.7, "near": 1.05}
    turns = {name: turns_of(ratio) for name, ratio in names.items()} | {"none": PairedTurns()}
    ready_pairs = {
        name: ReadyPair(profile=name, tree=READY, ref=READY, tolerance=0.05) for name in turns
    }
    paired = PairedTest(turns=turns, ready_pairs=ready_pairs)
    later = {name: LaterTurns() for name in names}
    assert list(undecided(paired, later, TERMS)) == ["slower", "faster", "near"]
    later |= {name: LaterTurns(turns=(turns_of(names[name]),)) for name in ("slower", "faster")}
    assert list(undecided(paired, later, TERMS)) == ["near"]


def test_a_test_without_a_tolerance_has_the_default_one():
    assert timing(turns_of(1.0), tolerance=None).wanted == "at most 5 % slower"


def test_a_profile_without_times_names_the_reason():
    cases = [
        (None, (), "UNKNOWN", "this form of profiling gives no times"),
        (PairedTurns(exhausted=True), (), "UNKNOWN", "too few steps left for a turn"),
        (
            turns_of(1.05, 3, exhausted=True),
            (),
            "INCONCLUSIVE",
            "the loop ended after 3 pairs of turns",
        ),
        (turns_of(1.0, 3), (), "INCONCLUSIVE", "too few for an interval"),
        (None, ("",), "INCONCLUSIVE", "never measured side by side"),
    ]
    for turns, missed, verdict, text in cases:
        check = timing(turns, missed=frozenset(missed))
        assert check.verdict is Verdict(verdict), text
        assert text in check.message, text


def test_the_steps_that_are_left_are_told_where_they_run_out():
    cases = [(3, 0, ": 3 on here, 0 on HEAD"), (None, 1, ": 1 on HEAD"), (None, None, "")]
    for on_tree, on_ref, said in cases:
        tree, ref = (replace(READY, most_calls=n_left) for n_left in (on_tree, on_ref))
        pair = ReadyPair(profile="", tree=tree, ref=ref, tolerance=None)
        assert pair.steps_left("here", "HEAD") == said, on_ref


def test_no_times_fail_a_test_only_where_it_has_asked_for_them():
    assert timing(None, tolerance=None).verdict is Verdict.INCONCLUSIVE
    assert timing(None, tolerance=0.05).verdict is Verdict.UNKNOWN


def test_buffers_that_still_drain_on_either_side_leave_it_open():
    heres = [
        (DRAINING, profile(step_time=1.0), "the working tree"),
        (profile(step_time=1.0), DRAINING, "main"),
        (DRAINING, DRAINING, "the working tree and main"),
    ]
    for ratio in [1.0, 1.2]:
        for here, there, sides in heres:
            paired = paired_of([here], [there], turns_of(ratio))
            [check] = [
                check
                for check in verdicts(paired, later_of(turns_of(ratio)), TERMS, None)
                if check.metric == "step_time"
            ]
            assert check.verdict is Verdict.INCONCLUSIVE, (ratio, sides)
            assert f"buffers were still draining on {sides}, so" in check.message, (ratio, sides)


def test_buffers_that_still_drain_are_given_no_other_pair():
    still = profile(step_time=1.0)
    for here, there, names in ((still, still, [""]), (DRAINING, still, []), (still, DRAINING, [])):
        paired = paired_of([here], [there], turns_of(1.4))
        assert list(undecided(paired, {"": LaterTurns()}, TERMS)) == names


def test_turns_of_whole_epochs_decide_while_buffers_drain():
    turns = turns_of(1.4, covers_epochs=True)
    paired = paired_of([DRAINING], [DRAINING], turns)
    assert list(undecided(paired, {"": LaterTurns()}, TERMS)) == [""]
    found = by_metric(verdicts(paired, later_of(turns), TERMS, None))
    assert found["step_time"].verdict is Verdict.REGRESSION
    assert "draining" not in found["step_time"].message


def by_metric(checks):
    return {check.metric: check for check in checks}


def test_a_test_that_the_budget_of_the_run_cuts_short_is_undecided_for_it():
    """A decision that its turns have made stands."""
    cut = "--tfperf-budget-total 60 left 8 s for it"
    terms = replace(TERMS, cut=cut)
    check = timing(turns_of(1.05), terms=terms)
    assert check.verdict is Verdict.INCONCLUSIVE
    assert f"\n  {cut}\n" in check.message
    assert check.message.endswith("\n  try: a larger --tfperf-budget-total")
    passed = timing(turns_of(1.0), terms=terms)
    assert passed.verdict is Verdict.PASS
    assert cut not in passed.message


def test_a_test_that_the_budget_of_the_run_does_not_reach_is_undecided_and_its_structure_is_not():
    paired = paired_of(
        [profile(step_time=1.0, retraces=2)], [profile(step_time=1.0, retraces=0)], turns_of(1)
    )
    cut = "--tfperf-budget-total 60 left no time for it"
    found = by_metric(verdicts(replace(paired, turns={}), {}, replace(TERMS, cut=cut), None))
    assert found["retraces"].verdict is Verdict.REGRESSION
    assert found["step_time"].verdict is Verdict.INCONCLUSIVE
    said = f"step_time is not compared: {cut}\n  try: a larger --tfperf-budget-total"
    assert found["step_time"].message == said
    assert {check.kind for check in found.values()} == {"against"}


def test_a_profile_in_one_version_only_is_new():
    paired = paired_of([profile("a"), profile("b")], [profile("a"), profile("old")])
    found = [
        (check.profile, check.verdict)
        for check in verdicts(
            paired,
            {},
            Terms(ref="main", n_tests=1, constant=PINNED, budget_s=30, only="structural"),
            None,
        )
    ]
    assert found == [("b", Verdict.NEW), ("old", Verdict.NEW)]


def test_another_workload_is_not_compared_and_shown():
    paired = paired_of(
        [profile(workload={"inputs": ["f32[9]"], "batch": 9})],
        [profile(workload={"inputs": ["f32[8]"], "batch": 9})],
        turns_of(9),
    )
    [check] = verdicts(paired, {}, TERMS, None)
    assert check.verdict is Verdict.INCOMPARABLE
    assert "inputs: ['f32[8]'] on main, now ['f32[9]']" in check.message
    assert "batch" not in check.message


def test_inputs_of_another_dtype_than_on_the_ref_are_named_and_undecided():
    paired = paired_of(
        [profile(workload={"inputs": ["float64[8]"]})],
        [profile(workload={"inputs": ["float32[8]"]})],
        turns_of(9),
    )
    found = verdicts(paired, {}, TERMS, None)
    assert found[0].message.splitlines() == [
        "inputs are float64 now, float32 on main (float32[8] → float64[8])",
        "  nothing is compared: its workload is on the working tree alone "
        "(inputs: ['float32[8]'] on main, now ['float64[8]'])",
        "  try: cast them where the data are made or loaded",
    ]
    assert shown_as(tuple(found), Options()) == "INCOMPARABLE"


def test_a_workload_that_says_less_than_on_the_ref_is_another_one():
    paired = paired_of(
        [profile(workload={"batch": 9})],
        [profile(workload={"batch": 9, "replicas": 2})],
        turns_of(9),
    )
    [check] = verdicts(paired, {}, TERMS, None)
    assert check.verdict is Verdict.INCOMPARABLE
    assert "(replicas: 2 on main, now None)" in check.message


def test_an_absent_ref_gives_every_profile_the_same_check():
    absent = absent_check(Verdict.UNKNOWN, "on main the test fails")
    checks = verdicts(paired_of([profile("a"), profile("b")], None), {}, TERMS, absent)
    assert [(check.profile, check.verdict, check.message) for check in checks] == [
        ("a", Verdict.UNKNOWN, "on main the test fails"),
        ("b", Verdict.UNKNOWN, "on main the test fails"),
    ]


def traced(input_s, retraces=0):
    parts = {part: input_s if part == "input" else 0.0 for part in PARTS}
    return profile(
        step_time=1.0, retraces=retraces, steps=(Step(name="step 1", period_s=0.1, parts_s=parts),)
    )


@pytest.mark.parametrize(("ratio", "said"), [(1.4, True), (1.0, False)])
def test_trace_differences_are_in_the_detail_and_in_a_regression_s_message(ratio, said):
    paired = paired_of([traced(0.03)], [traced(0.01)], turns_of(ratio))
    [check] = [
        one
        for one in verdicts(paired, later_of(turns_of(ratio)), TERMS, None)
        if one.metric == "step_time"
    ]
    assert check.detail["differences"] == [
        {"what": "input, of the traced step 10 ms → 30 ms", "seconds": pytest.approx(0.02)}
    ]
    assert ("\n  +20 ms: input, of the traced step 10 ms → 30 ms" in check.message) is said


def test_beside_others_processes_are_taken_to_differ_as_they_do_there():
    """A slow-down that a quiet machine shows in two process pairs may be that of two processes."""
    enough = Residuals(total=20 * PINNED.sd**2, degrees=20)
    for terms in (TERMS, replace(TERMS, stored=enough), replace(TERMS, earlier=enough)):
        for load, spread in [(None, PINNED.sd), (0.4, BUSY_PROCESS_SD)]:
            turns = turns_of(1.0, other_load=load)
            pairs = pair_estimates(turns, LaterTurns(turns=(turns_of(1.0),)))
            assert terms.spread(pairs).sd == pytest.approx(spread, rel=0.03), load
    found = {}
    for load in (None, 0.4):
        turns = turns_of(1.07, other_load=load)
        later = {"": LaterTurns(turns=(turns, turns))}
        [check] = verdicts(paired_of([profile()], [profile()], turns), later, TERMS, None)
        found[load] = check.verdict
    assert found == {None: Verdict.REGRESSION, 0.4: Verdict.INCONCLUSIVE}

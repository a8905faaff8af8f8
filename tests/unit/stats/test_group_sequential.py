"""The verdict on paired turns: hand counts, equality at the boundaries, and error rates by simulation."""

import gzip
import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from helpers.binomial import binomial_quantile
from helpers.refusals import refusal
from helpers.turns import decide_turns, turns

from pytest_tfperf.results import Verdict
from pytest_tfperf.stats.sequential import (
    CPU_SHARE,
    ERROR,
    LEAST_TURNS,
    RUN_ERROR,
    SINGLE_RATIO_BOUND,
    PairEstimate,
    StoppingRule,
    critical_values,
    decide,
    has_enough_turns,
    pair_estimate,
    planned_pairs,
    standard_error,
)

BY_CLOCK = ERROR * (1 - CPU_SHARE)
HALF_SLOWER = math.log(1.5)  # e to it is 1.5 to the last bit, as is 1 + the tolerance


def rule(tolerance=0.02, n_tests=1, process_sd=0.0, n_pairs=4):
    return StoppingRule(
        tolerance=tolerance, n_tests=n_tests, process_sd=process_sd, n_pairs=n_pairs
    )


def test_the_error_of_a_regression_is_shared_by_the_tests_and_by_both_times():
    for n_tests, error in [(1, 0.005), (10, 0.005), (11, 0.05 / 11), (200, 0.00025)]:
        clock = rule(n_tests=n_tests)
        cpu = replace(clock, error_share=CPU_SHARE)
        both = clock.slower_error + cpu.slower_error
        assert both == pytest.approx(error), n_tests
        assert n_tests * both <= RUN_ERROR + 1e-15, n_tests


def test_the_error_is_spent_over_the_process_pairs():
    cubes = [8 / 64, 27 / 64, 1]  # of the share of pairs; one pair decides no regression
    slower = critical_values(
        tuple(BY_CLOCK * part for part in (0, cubes[0], cubes[1] - cubes[0], 1 - cubes[1]))
    )
    evenly = critical_values((ERROR / 4,) * 4)
    for n in (2, 3, 4):
        assert rule().slower_z(n) == pytest.approx(slower[n - 1], abs=1e-3)
        assert rule().passing_z(n) == pytest.approx(evenly[n - 1], abs=1e-3)
    assert rule().slower_z(1) == rule().slower_z(2)
    assert rule().passing_z(1) == pytest.approx(evenly[0], abs=1e-3)


def test_the_last_analysis_spends_what_is_left():
    for n in [1, 2, 3, 4]:
        left = critical_values((*(ERROR / 4,) * (n - 1), ERROR * (5 - n) / 4))
        assert rule().passing_z(n, final=True) == pytest.approx(left[-1], rel=1e-6), n
        assert rule().passing_z(n, final=True) <= rule().passing_z(n) + 1e-9, n
        assert rule().slower_z(n, final=True) <= rule().slower_z(n) + 1e-9, n


def test_two_pairs_alone_have_the_whole_error_of_a_regression():
    z = -NormalDist().inv_cdf(BY_CLOCK)
    assert rule(n_pairs=2).slower_z(2) == pytest.approx(z, abs=1e-3)
    assert rule(n_pairs=4).slower_z(2, final=True) == pytest.approx(z, abs=1e-3)


def test_a_tolerance_below_the_resolvable_one_is_raised():
    found = rule(tolerance=0.005, process_sd=0.0045)
    z = max(found.slower_z(4), found.passing_z(4))
    assert found.resolvable_tolerance == pytest.approx(math.expm1(z * 0.0045 / 2), rel=1e-12)
    assert found.resolvable_tolerance == pytest.approx(0.00646, abs=1e-5)
    decision = decide_turns([turns(1)], found)
    assert decision.tolerance == found.effective_tolerance == found.resolvable_tolerance
    assert decision.requested_tolerance == 0.005
    assert rule(n_tests=200, process_sd=0.0045).resolvable_tolerance > found.resolvable_tolerance


def test_a_resolvable_tolerance_is_not_raised():
    floor = rule(process_sd=0.0045).resolvable_tolerance
    for tolerance in (floor, 0.02):
        decision = decide_turns([turns(1)], rule(tolerance=tolerance, process_sd=0.0045))
        assert (decision.tolerance, decision.requested_tolerance) == (tolerance, tolerance)


def test_an_invalid_stopping_rule_is_refused():
    for wrong in [
        {"tolerance": -0.01},
        {"tolerance": math.nan},
        {"tolerance": math.inf},
        {"process_sd": -1},
        {"process_sd": math.nan},
        {"n_tests": 0},
        {"n_pairs": 1},
    ]:
        said = refusal(ValueError, lambda wrong: rule(**wrong), wrong)
        assert "at least one test and 2 process pairs" in said, wrong


def test_a_budget_is_planned_for_process_pairs_of_six_seconds():
    for budget_s, n in [
        (0.1, 2),
        (10, 2),
        (14, 2),
        (16, 3),
        (30, 5),
        (60, 10),
        (96, 16),
        (1e9, 16),
    ]:
        assert planned_pairs(budget_s) == n, budget_s


def test_the_standard_error_by_hand():
    # of six samples the 95 % interval is from the least to the greatest; it holds 1 - 2 / 2^6
    logs = [-0.3, -0.2, -0.1, 0.1, 0.2, 0.3]
    z = -NormalDist().inv_cdf(1 / 2**6)
    assert standard_error(logs) == pytest.approx(0.3 / z, rel=1e-9)
    assert standard_error(logs[:5]) is None
    assert LEAST_TURNS == 6


@pytest.mark.parametrize(("n", "sd"), [(8, 0.02), (40, 0.02), (300, 0.1)])
def test_the_standard_error_is_about_that_of_the_mean(n, sd):
    random = np.random.default_rng(2)
    found = [standard_error(random.normal(0, sd, n)) for _ in range(200)]
    assert 0.95 <= np.mean(found) / (sd / math.sqrt(n)) <= 1.25


def test_a_pair_counts_at_most_512_turns():
    found = pair_estimate([0.0] * 512 + [1.0] * 1000)
    assert (found.n, found.ratio, found.least, found.greatest) == (512, 1, 1, 1)


@pytest.mark.parametrize("logs", [[], [math.nan] * 8, [math.inf] * 8])
def test_an_invalid_ratio_is_refused(logs):
    with pytest.raises(ValueError, match="finite"):
        decide_turns([logs], rule())


def test_two_process_pairs_by_hand():
    # six turns from -0.3 to 0.3 and no noise in the second pair: errors s and 0, process_sd 0.1
    logs = [-0.3, -0.2, -0.1, 0.1, 0.2, 0.3]
    error = -0.3 / NormalDist().inv_cdf(1 / 2**6)
    first, second = 1 / (0.01 + error**2), 1 / 0.01
    asked = rule(tolerance=0.05, process_sd=0.1)
    found = decide_turns([logs, [0.2] * 6], asked, final=True)
    middle, spread = 0.2 * second / (first + second), 1 / math.sqrt(first + second)
    assert math.log(found.ratio) == pytest.approx(middle)
    assert math.log(found.low) == pytest.approx(middle - asked.slower_z(2, final=True) * spread)
    assert math.log(found.high) == pytest.approx(middle + asked.passing_z(2, final=True) * spread)
    tails = [NormalDist().cdf(-z(2, final=True)) for z in (asked.slower_z, asked.passing_z)]
    assert found.confidence == pytest.approx(1 - sum(tails))
    assert (found.n, found.verdict) == (12, Verdict.INCONCLUSIVE)


def test_the_boundaries_belong_to_neither_side():
    for log, tolerance, verdict in [
        (HALF_SLOWER, 0.5, Verdict.INCONCLUSIVE),  # just the tolerance: neither above nor below
        (HALF_SLOWER, 0.4999999, Verdict.REGRESSION),
        (HALF_SLOWER, 0.5000001, Verdict.PASS),
        (0.0, 0.5, Verdict.PASS),  # just as fast is not faster
        (-1e-9, 0.5, Verdict.IMPROVED),
        (0.0, 0.0, Verdict.INCONCLUSIVE),
        (-1e-9, 0.0, Verdict.IMPROVED),
        (1e-9, 0.0, Verdict.REGRESSION),
    ]:
        for final in (False, True):
            assert decide_turns([[log] * 8] * 3, rule(tolerance), final=final).verdict is verdict, (
                log,
                tolerance,
            )


def test_a_regression_takes_three_process_pairs_or_two_where_it_is_clear():
    for final in [False, True]:
        for ratio, n, n_planned, is_found in [
            (1.05, 1, 4, False),
            (1.05, 2, 4, False),
            (1.05, 3, 4, True),
            (1.05, 2, 2, True),  # no third pair is planned
            (1.05, 1, 2, False),
            (1.5, 1, 4, False),
            (1.5, 2, 4, True),  # 1.47 times what is tolerated
            (1.28, 2, 4, True),
            (1.27, 2, 4, False),  # the interval begins below 1.02 x 1.25
        ]:
            pairs = [turns(ratio, seed=seed) for seed in range(n)]
            found = decide_turns(pairs, rule(n_pairs=n_planned), final=final)
            assert found.low > 1.02, (final, ratio, n, n_planned, is_found)
            assert (found.verdict is Verdict.REGRESSION) is is_found, (final, ratio, n, n_planned)
            assert found.is_suspected is not is_found, (final, ratio, n, n_planned)


@pytest.mark.parametrize(
    ("first", "verdict"),
    [(1.031, Verdict.INCONCLUSIVE), (1.05, Verdict.INCONCLUSIVE), (1.0500001, Verdict.REGRESSION)],
)
def test_a_pair_that_was_disturbed_confirms_no_other(first, verdict):
    """With little weight it would let the other one decide."""
    noisy = PairEstimate(ratio=first, error=0.3, least=0.5, greatest=2, n=6)
    clear = PairEstimate(ratio=1.514, error=0.03, least=1.4, greatest=1.6, n=6)
    decision = decide([noisy, clear], rule(tolerance=0.05, process_sd=0.0045), final=True)
    assert decision.low > 1.05
    assert decision.verdict is verdict
    assert decision.is_suspected is (verdict is Verdict.INCONCLUSIVE)


def test_all_pairs_count():
    for pairs, verdict, n_pairs in [
        ([turns(1)], Verdict.PASS, 1),
        ([turns(0.9)], Verdict.PASS, 1),
        ([turns(0.9), turns(0.9, seed=1)], Verdict.PASS, 2),
        ([turns(0.9), turns(0.9, seed=1), turns(0.9, seed=2)], Verdict.IMPROVED, 3),
        ([turns(0.9), turns(0.9, seed=1), turns(1.001, sd=0)], Verdict.PASS, 3),
        ([turns(1.02), turns(1.02, seed=1)], Verdict.INCONCLUSIVE, 2),
        ([turns(1.1), turns(1.1, seed=1), turns(1.1, seed=2)], Verdict.REGRESSION, 3),
        ([turns(1.02), turns(1.05), turns(1.5)], Verdict.INCONCLUSIVE, 3),
        ([[0.1] * 5], Verdict.INCONCLUSIVE, 1),
    ]:
        decision = decide_turns(pairs, rule(), final=True)
        assert decision.verdict is verdict, (pairs, n_pairs)
        assert len(decision.pairs) == n_pairs, (pairs, verdict)


def test_pairs_that_disagree_are_averaged():
    asked = rule(tolerance=0.05, process_sd=0.01)
    decision = decide_turns([turns(1.07, sd=0), turns(1.01, sd=0)], asked, final=True)
    assert decision.ratio == pytest.approx(math.sqrt(1.07 * 1.01))
    assert decision.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("logs", [[-0.3] * 8, [math.log(0.01)]])  # with an interval, and without
def test_a_clear_improvement_takes_two_process_pairs(logs):
    assert decide_turns([logs], rule()).verdict is Verdict.INCONCLUSIVE
    assert decide_turns([logs], rule(), final=True).verdict is Verdict.PASS
    assert decide_turns([logs] * 2, rule()).verdict is Verdict.IMPROVED


def test_an_improvement_takes_three_process_pairs_or_two_where_it_is_clear():
    for ratio, n, n_planned, is_found in [
        (0.9, 2, 4, False),
        (0.9, 3, 4, True),
        (0.9, 2, 2, True),  # no third pair is planned
        (0.82, 2, 4, False),  # the interval ends above 1 / 1.25
        (0.78, 2, 4, True),
        (0.78, 1, 4, False),
    ]:
        found = decide_turns(
            [turns(ratio, seed=seed) for seed in range(n)], rule(n_pairs=n_planned)
        )
        assert found.high < 1, (ratio, n, n_planned, is_found)
        assert found.verdict is (Verdict.IMPROVED if is_found else Verdict.INCONCLUSIVE), (
            ratio,
            n,
            n_planned,
        )


@pytest.mark.parametrize("pairs", [[], [[0.0] * 8] * 5])
def test_no_pair_and_more_than_planned_are_refused(pairs):
    with pytest.raises(ValueError, match=f"not {len(pairs)}"):
        decide_turns(pairs, rule())


OUTRIGHT = math.log(1.5) + math.log(3)  # just the tolerance times the bound on a single ratio


def test_too_few_turns_for_an_interval_decide_what_each_of_them_shows():
    for logs, verdict in [
        ([OUTRIGHT - 1e-9], Verdict.INCONCLUSIVE),
        ([OUTRIGHT + 1e-9], Verdict.REGRESSION),
        ([OUTRIGHT + 1e-9, math.log(10)], Verdict.REGRESSION),
        ([OUTRIGHT - 1e-9, math.log(10)], Verdict.INCONCLUSIVE),  # all must agree
        ([math.log(10)] * 5, Verdict.REGRESSION),
        ([math.log(10)] * 4 + [0.0], Verdict.INCONCLUSIVE),
        ([math.log(1 / 3) - 1e-9], Verdict.IMPROVED),
        ([math.log(1 / 3) + 1e-9], Verdict.PASS),
        ([math.log(1.5 / 3) - 1e-9], Verdict.PASS),
        ([math.log(1.5 / 3) + 1e-9], Verdict.INCONCLUSIVE),
    ]:
        found = decide_turns([logs] * 2, rule(tolerance=0.5), final=True)
        assert found.verdict is verdict, logs
        assert found.by_single_ratios is (verdict is not Verdict.INCONCLUSIVE), logs
        assert (found.low, found.high, found.minimum_detectable_change) == (None, None, None), (
            logs,
            verdict,
        )


def test_an_interval_goes_before_single_ratios():
    found = decide_turns([[math.log(10)] * 8] * 2, rule())
    assert (found.verdict, found.by_single_ratios) == (Verdict.REGRESSION, False)
    mixed = decide_turns([[0.02] * 8, [math.log(10)] * 2], rule(process_sd=0.01), final=True)
    assert math.log(mixed.ratio) == pytest.approx(0.02)  # a pair with too few turns has no weight


def test_nothing_passes_beside_a_slower_pair_with_too_few_turns():
    for few, n_few, others, verdict in [
        (0.3, 5, 0.0, Verdict.INCONCLUSIVE),
        (0.3, 5, -0.3, Verdict.INCONCLUSIVE),
        (0.3, 5, 0.3, Verdict.REGRESSION),
        (0.3, 6, 0.0, Verdict.INCONCLUSIVE),  # enough turns, by the common estimate
        (0.04, 5, 0.0, Verdict.PASS),
    ]:
        asked = rule(tolerance=0.05, process_sd=0.0045)
        pairs = [[few] * n_few, *[[others] * 6] * 3]
        for order in (pairs, pairs[::-1]):
            found = decide_turns(order, asked, final=True)
            assert found.verdict is verdict, (few, n_few, others)


def test_ten_times_slower_is_a_regression_after_few_turns_of_two_process_pairs():
    for n in [1, 2, 5]:
        for second, verdict in [(10.0, Verdict.REGRESSION), (1.0, Verdict.INCONCLUSIVE)]:
            pairs = [[math.log(10)] * n, [math.log(second)] * n]
            decision = decide_turns(pairs, rule(tolerance=0.05), final=True)
            assert decision.verdict is verdict, (n, second)
            alone = decide_turns(pairs[:1], rule(tolerance=0.05), final=True)
            assert (alone.verdict, alone.is_suspected) == (Verdict.INCONCLUSIVE, True), (
                n,
                second,
                verdict,
            )


RECORDED = Path(__file__).parents[3] / "benchmarks" / "data"


@pytest.mark.parametrize("file", ["turns.jsonl.gz", "busy_turns.jsonl.gz"])
def test_recorded_turns_of_the_same_code_are_never_slower_outright(file):
    suspected = trials = 0
    with gzip.open(RECORDED / file, "rt", encoding="utf-8") as lines:
        for recorded in map(json.loads, lines):
            if not recorded["planted"]:
                ratios = [slow / fast for slow, fast, _ in recorded["turns"]]
                trials += len(ratios)
                suspected += sum(ratio > SINGLE_RATIO_BOUND for ratio in ratios)
    # the exact 95 % interval of the share ends where so few have a chance of 2.5 %; a regression takes two process pairs
    assert suspected < binomial_quantile(0.025, trials, math.sqrt(0.001))


def test_turns_of_a_pair_end_when_the_rest_would_change_nothing():
    for logs, enough in [
        ([0.5] * 7, False),  # not a planned size
        ([0.5] * 8, True),
        ([0.5] * 9, False),
        ([math.log(1.02) + 4.01 * 0.01] * 8, True),
        ([math.log(1.02) + 3.99 * 0.01] * 8, False),
        ([math.log(1.02) - 4.01 * 0.01] * 16, True),
        ([0.0] * 128, False),
        ([0.0] * 512, True),
        ([0.0] * 513, True),
    ]:
        assert has_enough_turns(logs, rule(process_sd=0.01)) is enough, logs


def test_the_minimum_detectable_change_by_hand():
    asked = rule(tolerance=0.5, process_sd=0.01)
    found = decide_turns([[HALF_SLOWER] * 16] * 2, asked, final=True)
    z = asked.slower_z(2, final=True) + NormalDist().inv_cdf(0.9)
    assert found.minimum_detectable_change == pytest.approx(
        1.5 * math.exp(z * 0.01 / math.sqrt(2)) - 1
    )


def process_pair(random, ratio, n, process_sd, sd):
    """Heavy-tailed turns of a process pair that is off by what processes differ by."""
    return (
        math.log(ratio) + random.normal(0, process_sd) + sd * random.standard_t(4, n) / math.sqrt(2)
    )


def decided(random, asked, ratio, n, sd):
    """The decision on as many process pairs as are needed, each with n turns."""
    pairs = []
    while len(pairs) < asked.n_pairs:
        pairs.append(process_pair(random, ratio, n, asked.process_sd, sd))
        decision = decide_turns(pairs, asked, final=len(pairs) == asked.n_pairs)
        if decision.verdict is not Verdict.INCONCLUSIVE:
            break
    return decision


NOISE = [(0.0045, 0.02), (0.0, 0.05), (0.027, 0.06)]


def check_detectable(process_sd, sd, draws):
    random, asked = np.random.default_rng(3), rule(process_sd=process_sd, n_pairs=2)
    at = 1 + asked.effective_tolerance
    stated = np.median(
        [
            decide_turns(
                [process_pair(random, at, 100, 0, sd) for _ in range(2)], asked, final=True
            ).minimum_detectable_change
            for _ in range(30)
        ]
    )
    verdicts = [decided(random, asked, 1 + stated, 100, sd).verdict for _ in range(draws)]
    assert verdicts.count(Verdict.REGRESSION) >= binomial_quantile(0.001, draws, 0.9)


def check_error_rates(n_tests, process_sd, sd, draws):
    """At the tolerance, where a regression and a pass are both wrong."""
    random, asked = np.random.default_rng(7), rule(n_tests=n_tests, process_sd=process_sd)
    at = 1 + asked.effective_tolerance
    verdicts = [decided(random, asked, at, 64, sd).verdict for _ in range(draws)]
    regressions = verdicts.count(Verdict.REGRESSION)
    assert regressions <= binomial_quantile(0.999, draws, asked.slower_error)
    passes = verdicts.count(Verdict.PASS) + verdicts.count(Verdict.IMPROVED)
    assert passes <= binomial_quantile(0.999, draws, ERROR)


def test_the_minimum_detectable_change_is_found_in_nine_of_ten_cases():
    check_detectable(*NOISE[0], draws=60)


def test_error_rates_at_the_tolerance_are_as_stated():
    check_error_rates(1, *NOISE[0], draws=60)


@pytest.mark.nightly
@pytest.mark.parametrize(("process_sd", "sd"), NOISE)
def test_rates_are_as_stated_in_many_draws(process_sd, sd):
    check_detectable(process_sd, sd, draws=150)
    for n_tests in (1, 200):
        check_error_rates(n_tests, process_sd, sd, draws=300)


def test_the_same_code_passes_early_and_is_never_a_regression():
    random, asked = np.random.default_rng(9), rule(process_sd=0.0045)
    decisions = [decided(random, asked, 1, 100, 0.02) for _ in range(100)]
    verdicts = [decision.verdict for decision in decisions]
    assert verdicts.count(Verdict.REGRESSION) == 0
    assert verdicts.count(Verdict.PASS) + verdicts.count(Verdict.IMPROVED) >= 98
    assert np.mean([len(decision.pairs) for decision in decisions]) <= 2


def test_what_is_slower_is_found():
    for ratio, tolerance in [(1.05, 0.02), (1.03, 0.01)]:
        random, asked = np.random.default_rng(9), rule(tolerance, process_sd=0.0045)
        verdicts = [decided(random, asked, ratio, 100, 0.02).verdict for _ in range(40)]
        assert verdicts.count(Verdict.REGRESSION) >= 38, ratio


def test_a_decision_is_plain_json():
    decision = decide_turns([turns(1.01), turns(1)], rule(tolerance=0.001, process_sd=0.0045))
    data = json.loads(json.dumps(asdict(decision)))
    assert data["verdict"] == "INCONCLUSIVE"
    assert [one["n"] for one in data["pairs"]] == [64, 64]
    assert data["requested_tolerance"] == 0.001


@pytest.mark.parametrize("sign", [1, -1])
def test_pairs_that_contradict_the_assumed_spread_widen_the_interval(sign):
    """By hand: log ratios of 0.10 and 0.02 with errors of 0.01, of which no spread is assumed."""
    same = rule(process_sd=0.0, tolerance=0.01)
    agreeing = decide([pair_of(sign * 0.06, 0.01), pair_of(sign * 0.06, 0.01)], same)
    differing = decide([pair_of(sign * 0.10, 0.01), pair_of(sign * 0.02, 0.01)], same)
    # Q is 2 x (0.04 / 0.01)^2 = 32 with one degree, beyond 10.8: errors are sqrt(32) times larger
    assert (
        math.log(differing.ratio)
        == pytest.approx(math.log(agreeing.ratio))
        == pytest.approx(sign * 0.06)
    )
    widths = [math.log(one.high / one.low) for one in (differing, agreeing)]
    assert widths[0] / widths[1] == pytest.approx(math.sqrt(32))
    assert differing.verdict is Verdict.INCONCLUSIVE


def test_pairs_that_differ_by_chance_do_not():
    """The 0.999 quantile of chi square with one degree is 10.83, by the approximation 11.16 = 2 x 2.362²."""
    for off, is_wider in [(0.0236, False), (0.0237, True)]:
        for n in [1, 2]:
            pairs = [pair_of(off, 0.01), pair_of(-off, 0.01)][:n]
            found = decide(pairs, rule(process_sd=0.0))
            half = (math.log(found.high) - math.log(found.ratio)) * math.sqrt(n) / 0.01
            usual = rule(process_sd=0.0).passing_z(n, final=False)
            assert (half > usual + 1) is (is_wider and n > 1), off


def pair_of(log, error):
    ratio = math.exp(log)
    return PairEstimate(ratio=ratio, error=error, least=ratio, greatest=ratio, n=8)

"""The verdict on paired turns: hand counts, equality at the boundaries, scipy's quantiles, and error rates by simulation."""

import gzip
import json
import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from pytest_tfperf.results import Verdict
from pytest_tfperf.stats.sequential_test import (
    INTERIM_SIZES,
    SINGLE_RATIO_BOUND,
    InterimResult,
    StoppingRule,
    decide,
    interim_analysis,
)

HALF_SLOWER = math.log(1.5)  # e to it is 1.5 to the last bit, as is 1 + the tolerance


def rule(tolerance=0.02, n_tests=1, process_sd=0.0):
    return StoppingRule(tolerance=tolerance, n_tests=n_tests, process_sd=process_sd)


def turns(ratio, n=64, sd=0.005, seed=0):
    """Log ratios around a ratio, mirrored, so that the estimate is the ratio itself."""
    noise = np.abs(np.random.default_rng(seed).normal(0, sd, n // 2))
    return (math.log(ratio) + np.column_stack([noise, -noise]).ravel()).tolist()


@pytest.mark.parametrize(
    ("n_tests", "error"), [(1, 0.05), (20, 0.05), (21, math.sqrt(0.05 / 21)), (200, 0.0158113883)]
)
def test_the_error_is_split_over_tests_and_interim_analyses(n_tests, error):
    found = rule(n_tests=n_tests)
    assert found.error == pytest.approx(error)
    assert n_tests * found.error**2 <= 0.05 + 1e-15  # of two pairs, of any test
    assert len(INTERIM_SIZES) * (1 - found.confidence) / 2 == pytest.approx(found.error)


@pytest.mark.parametrize("n_tests", [1, 20, 200])
def test_the_quantile_is_that_of_scipy(n_tests):
    found = rule(n_tests=n_tests, process_sd=0.0045)
    assert found.z == pytest.approx(scipy.stats.norm.isf(found.error / 7), rel=1e-12)
    assert found.resolvable_tolerance == pytest.approx(
        math.exp(0.0045 * scipy.stats.norm.isf(found.error / 7)) - 1, rel=1e-12
    )


@pytest.mark.parametrize(("n_tests", "percent"), [(1, 1.109), (20, 1.109), (200, 1.286)])
def test_a_tolerance_below_the_resolvable_one_is_raised(n_tests, percent):
    found = rule(tolerance=0.01, n_tests=n_tests, process_sd=0.0045)
    assert (
        found.effective_tolerance
        == found.resolvable_tolerance
        == pytest.approx(percent / 100, abs=1e-5)
    )
    decision = decide([turns(1)], found)
    assert (decision.tolerance, decision.requested_tolerance) == (found.resolvable_tolerance, 0.01)


def test_a_resolvable_tolerance_is_not_raised():
    floor = rule(process_sd=0.0045).resolvable_tolerance
    for tolerance in (floor, 0.02):
        decision = decide([turns(1)], rule(tolerance=tolerance, process_sd=0.0045))
        assert (decision.tolerance, decision.requested_tolerance) == (tolerance, tolerance)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tolerance": -0.01},
        {"tolerance": math.nan},
        {"tolerance": math.inf},
        {"process_sd": -1},
        {"process_sd": math.nan},
        {"n_tests": 0},
    ],
)
def test_an_invalid_stopping_rule_is_refused(wrong):
    with pytest.raises(ValueError, match="zero or more and at least one test"):
        rule(**wrong)


def test_eight_turns_by_hand():
    # of eight samples the interval is from the least to the greatest; each half is widened by 0.3
    logs = [-0.4, -0.3, -0.2, -0.1, 0.1, 0.2, 0.3, 0.4]
    z = rule().z
    found = interim_analysis(logs, rule(process_sd=0.3 / z))
    assert math.log(found.ratio) == pytest.approx(0, abs=1e-12)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((-0.5, 0.5))  # 3, 4, 5
    assert (found.n, found.verdict) == (8, None)
    assert found.confidence == pytest.approx(1 - 2 * 0.05 / 7)


def test_each_side_is_widened_by_itself():
    logs = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.4]
    found = interim_analysis(logs, rule(process_sd=0.3 / rule().z))
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((-0.3, 0.5))


@pytest.mark.parametrize(
    ("log", "tolerance", "verdict"),
    [
        (HALF_SLOWER, 0.5, None),  # just the tolerance: neither above nor below
        (HALF_SLOWER, 0.4999999, Verdict.REGRESSION),
        (HALF_SLOWER, 0.5000001, Verdict.PASS),
        (0.0, 0.5, Verdict.PASS),  # just as fast is not faster
        (-1e-9, 0.5, Verdict.IMPROVED),
        (0.0, 0.0, None),
        (-1e-9, 0.0, Verdict.IMPROVED),
        (1e-9, 0.0, Verdict.REGRESSION),
    ],
)
def test_the_boundaries_belong_to_neither_side(log, tolerance, verdict):
    assert interim_analysis([log] * 8, rule(tolerance)).verdict is verdict
    assert interim_analysis([log] * 8, rule(tolerance), final=True).verdict is (
        verdict or Verdict.INCONCLUSIVE
    )


@pytest.mark.parametrize("n", [1, 7, 9, 12, 511, 513])
def test_analyses_happen_only_at_planned_sizes_and_the_end(n):
    with pytest.raises(
        ValueError,
        match=f"^{n} pairs of turns are not analysed: only 8, 16, 32, 64, 128, 256, 512, and the end$",
    ):
        interim_analysis([0.0] * n, rule())
    assert interim_analysis([0.0] * n, rule(), final=True).n == n


@pytest.mark.parametrize(("n_tests", "needed"), [(1, 8), (20, 8), (200, 9), (20_000, 13)])
def test_too_few_turns_for_the_confidence_decide_nothing(n_tests, needed):
    few = interim_analysis([1.0] * (needed - 1), rule(n_tests=n_tests), final=True)
    assert (few.verdict, few.low, few.high, few.n) == (Verdict.INCONCLUSIVE, None, None, needed - 1)
    assert few.ratio == pytest.approx(math.e)
    assert (
        interim_analysis([1.0] * needed, rule(n_tests=n_tests), final=True).verdict
        is Verdict.REGRESSION
    )
    assert interim_analysis([1.0] * 8, rule(n_tests=n_tests)).verdict is (
        Verdict.REGRESSION if needed == 8 else None
    )


OUTRIGHT = math.log(1.5) + math.log(3)  # just the tolerance times the bound on a single ratio


@pytest.mark.parametrize(
    ("logs", "verdict"),
    [
        ([OUTRIGHT - 1e-9], Verdict.INCONCLUSIVE),
        ([OUTRIGHT + 1e-9], Verdict.REGRESSION),
        ([OUTRIGHT + 1e-9, math.log(10)], Verdict.REGRESSION),
        ([OUTRIGHT - 1e-9, math.log(10)], Verdict.INCONCLUSIVE),  # all must agree
        ([math.log(10)] * 7, Verdict.REGRESSION),
        ([math.log(10)] * 6 + [0.0], Verdict.INCONCLUSIVE),
        ([math.log(1 / 3) - 1e-9], Verdict.IMPROVED),
        ([math.log(1 / 3) + 1e-9], Verdict.PASS),
        ([math.log(1.5 / 3) - 1e-9], Verdict.PASS),
        ([math.log(1.5 / 3) + 1e-9], Verdict.INCONCLUSIVE),
    ],
)
def test_too_few_turns_for_an_interval_decide_what_each_of_them_shows(logs, verdict):
    found = interim_analysis(logs, rule(tolerance=0.5), final=True)
    assert found.verdict is verdict
    assert found.by_single_ratios is (verdict is not Verdict.INCONCLUSIVE)
    assert (found.low, found.high) == (None, None)


def test_an_interval_goes_before_single_ratios():
    found = interim_analysis([math.log(10)] * 8, rule(), final=True)
    assert (found.verdict, found.by_single_ratios) == (Verdict.REGRESSION, False)
    assert found.low is not None


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize(
    ("second", "verdict"), [(10.0, Verdict.REGRESSION), (1.0, Verdict.INCONCLUSIVE)]
)
def test_ten_times_slower_is_a_regression_after_few_turns_of_two_process_pairs(n, second, verdict):
    decision = decide([[math.log(10)] * n, [math.log(second)] * n], rule(tolerance=0.05))
    assert decision.verdict is verdict
    assert decide([[math.log(10)] * n], rule(tolerance=0.05)).verdict is Verdict.INCONCLUSIVE


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
    most = scipy.stats.binomtest(suspected, trials).proportion_ci(0.95, method="exact").high
    assert most**2 <= 0.001  # a regression takes two process pairs


@pytest.mark.parametrize("logs", [[], [math.nan] * 8, [math.inf] * 8])
def test_an_invalid_ratio_is_refused(logs):
    with pytest.raises(ValueError, match="finite"):
        interim_analysis(logs, rule(), final=True)


@pytest.mark.parametrize(
    ("pairs", "verdict", "n_looks"),
    [
        ([turns(1)], Verdict.PASS, 1),
        ([turns(0.9)], Verdict.IMPROVED, 1),
        ([turns(1.05)], Verdict.INCONCLUSIVE, 1),  # a suspicion alone
        ([turns(1.05), turns(1.06, seed=1)], Verdict.REGRESSION, 2),
        ([turns(1.05), turns(1)], Verdict.INCONCLUSIVE, 2),
        ([turns(1.05), turns(0.9)], Verdict.INCONCLUSIVE, 2),
        ([turns(1.05), turns(1.02)], Verdict.INCONCLUSIVE, 2),
        ([turns(1.05), [0.1] * 7], Verdict.INCONCLUSIVE, 2),
        ([turns(1), turns(1.05)], Verdict.PASS, 1),  # nobody asked a second pair
        ([turns(1.02), turns(1.05)], Verdict.INCONCLUSIVE, 1),
        ([[0.1] * 7], Verdict.INCONCLUSIVE, 1),
    ],
)
def test_a_regression_needs_two_process_pairs(pairs, verdict, n_looks):
    decision = decide(pairs, rule())
    assert decision.verdict is verdict
    assert len(decision.pairs) == n_looks
    first = decision.pairs[0]
    assert (decision.ratio, decision.low, decision.high, decision.n) == (
        first.ratio,
        first.low,
        first.high,
        first.n,
    )


@pytest.mark.parametrize("pairs", [[], [[0.0] * 8] * 3])
def test_one_or_two_process_pairs_are_decided_on(pairs):
    with pytest.raises(ValueError, match=f"not {len(pairs)}"):
        decide(pairs, rule())


@pytest.mark.parametrize(("ratio", "verdict"), [(1.0, Verdict.PASS), (1.05, Verdict.INCONCLUSIVE)])
def test_turns_after_the_deciding_analysis_are_ignored(ratio, verdict):
    early, late = turns(ratio, 16, sd=0.001), turns(2.1 - ratio, 500)
    alone, followed = decide([early[:8]], rule()), decide([early[:8] + late], rule())
    assert followed == alone
    assert (alone.verdict, alone.n) == (verdict, 8)


def test_turns_beyond_the_last_size_are_ignored():
    decision = decide([turns(1.02, 512) + [1.0] * 100], rule())
    assert (decision.n, decision.verdict) == (512, Verdict.INCONCLUSIVE)


@pytest.mark.parametrize(("n", "looked"), [(8, 8), (9, 9), (200, 200), (512, 512)])
def test_the_last_analysis_is_at_the_end(n, looked):
    assert decide([[HALF_SLOWER] * n], rule(tolerance=0.5)).n == looked


def test_the_minimum_detectable_change_by_hand():
    # both of two pairs find it with 90 %, so each with 94.87 %, which is 1.632 standard errors above the lower end
    z = rule().z
    found = decide([[HALF_SLOWER] * 16], rule(tolerance=0.5, process_sd=0.01))
    assert math.log(found.ratio / found.low) == pytest.approx(0.01 * z)
    assert found.minimum_detectable_change == pytest.approx(
        1.5 * math.exp(0.01 * (z + scipy.stats.norm.ppf(math.sqrt(0.9)))) - 1
    )
    assert decide([[0.0] * 7], rule()).minimum_detectable_change is None
    assert decide([[0.1] * 8, [0.1] * 7], rule()).minimum_detectable_change is None


def test_the_minimum_detectable_change_is_that_of_the_noisier_pair():
    quiet, noisy = [0.1] * 8, turns(1, 8, sd=0.05)
    both = decide([quiet, noisy], rule())
    assert len(both.pairs) == 2
    assert (
        both.minimum_detectable_change
        == decide([noisy], rule()).minimum_detectable_change
        > decide([quiet], rule()).minimum_detectable_change
    )


def process_pair(random, ratio, n, process_sd, sd):
    """Heavy-tailed turns of a process pair that is off by what processes differ by."""
    return (
        math.log(ratio) + random.normal(0, process_sd) + sd * random.standard_t(4, n) / math.sqrt(2)
    )


@pytest.mark.parametrize(("process_sd", "sd"), [(0.0045, 0.02), (0.0, 0.05), (0.027, 0.06)])
def test_the_minimum_detectable_change_is_found_in_nine_of_ten_cases(process_sd, sd):
    random, asked, draws = np.random.default_rng(3), rule(process_sd=process_sd), 150
    stated = np.median(
        [
            decide(
                [process_pair(random, 1 + asked.effective_tolerance, 100, 0, sd)], asked
            ).minimum_detectable_change
            for _ in range(30)
        ]
    )
    decisions = [
        decide([process_pair(random, 1 + stated, 100, process_sd, sd) for _ in range(2)], asked)
        for _ in range(draws)
    ]
    found = sum(decision.verdict is Verdict.REGRESSION for decision in decisions)
    assert found >= scipy.stats.binom.ppf(0.001, draws, 0.9)


@pytest.mark.parametrize("n_tests", [1, 20, 200])
@pytest.mark.parametrize(("process_sd", "sd"), [(0.0045, 0.02), (0.0, 0.03), (0.027, 0.06)])
def test_error_rates_at_the_tolerance_are_as_stated(n_tests, process_sd, sd):
    random, asked, draws = (
        np.random.default_rng(7),
        rule(n_tests=n_tests, process_sd=process_sd),
        200,
    )
    verdicts = [
        decide([process_pair(random, 1 + asked.effective_tolerance, 64, process_sd, sd)], asked)
        .pairs[0]
        .verdict
        for _ in range(draws)
    ]
    most = scipy.stats.binom.ppf(0.999, draws, asked.error)
    assert verdicts.count(Verdict.REGRESSION) <= most
    assert verdicts.count(Verdict.PASS) + verdicts.count(Verdict.IMPROVED) <= most


def test_the_same_code_is_never_suspected_and_mostly_passes_early():
    random, asked = np.random.default_rng(9), rule(process_sd=0.0045)
    decisions = [decide([process_pair(random, 1, 180, 0.0045, 0.02)], asked) for _ in range(200)]
    assert not any(decision.pairs[0].verdict is Verdict.REGRESSION for decision in decisions)
    assert (
        np.median(
            [decision.n if decision.verdict is Verdict.PASS else math.inf for decision in decisions]
        )
        <= 32
    )


def test_five_percent_at_a_tolerance_of_two_is_found():
    random, asked = np.random.default_rng(9), rule(process_sd=0.0045)
    decisions = [
        decide([process_pair(random, 1.05, 180, 0.0045, 0.02) for _ in range(2)], asked)
        for _ in range(100)
    ]
    assert sum(decision.verdict is Verdict.REGRESSION for decision in decisions) >= 99


def test_a_decision_is_plain_json():
    decision = decide([turns(1.05), turns(1)], rule(tolerance=0.001, process_sd=0.0045))
    data = json.loads(json.dumps(asdict(decision)))
    assert data["verdict"] == "INCONCLUSIVE"
    assert [one["verdict"] for one in data["pairs"]] == ["REGRESSION", "INCONCLUSIVE"]
    assert data["requested_tolerance"] == 0.001
    assert InterimResult(**data["pairs"][0]) == decision.pairs[0]

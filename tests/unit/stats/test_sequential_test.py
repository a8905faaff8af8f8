"""The verdict on paired turns: hand counts, equality at the boundaries, scipy's quantiles, and error rates by simulation."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
import scipy.stats

from pytest_tfperf.results import Verdict
from pytest_tfperf.stats.sequential_test import LOOKS, Look, Rule, decide, look, message

HALF_SLOWER = math.log(1.5)  # e to it is 1.5 to the last bit, as is 1 + the tolerance


def rule(tolerance=0.02, n_tests=1, spread=0.0):
    return Rule(tolerance=tolerance, n_tests=n_tests, spread=spread)


def turns(ratio, n=64, sd=0.005, seed=0):
    """Log ratios around a ratio, mirrored, so that the estimate is the ratio itself."""
    noise = np.abs(np.random.default_rng(seed).normal(0, sd, n // 2))
    return (math.log(ratio) + np.column_stack([noise, -noise]).ravel()).tolist()


@pytest.mark.parametrize(
    ("n_tests", "error"), [(1, 0.05), (20, 0.05), (21, math.sqrt(0.05 / 21)), (200, 0.0158113883)]
)
def test_the_error_is_split_over_the_tests_and_the_looks(n_tests, error):
    found = rule(n_tests=n_tests)
    assert found.error == pytest.approx(error)
    assert n_tests * found.error**2 <= 0.05 + 1e-15  # of two pairs, of any test
    assert len(LOOKS) * (1 - found.confidence) / 2 == pytest.approx(found.error)


@pytest.mark.parametrize("n_tests", [1, 20, 200])
def test_the_quantile_is_that_of_scipy(n_tests):
    found = rule(n_tests=n_tests, spread=0.0045)
    assert found.z == pytest.approx(scipy.stats.norm.isf(found.error / 7), rel=1e-12)
    assert found.floor == pytest.approx(
        math.exp(0.0045 * scipy.stats.norm.isf(found.error / 7)) - 1, rel=1e-12
    )


@pytest.mark.parametrize(("n_tests", "percent"), [(1, 1.109), (20, 1.109), (200, 1.286)])
def test_a_tolerance_below_what_processes_differ_by_is_raised_to_it(n_tests, percent):
    found = rule(tolerance=0.01, n_tests=n_tests, spread=0.0045)
    assert found.held == found.floor == pytest.approx(percent / 100, abs=1e-5)
    decision = decide([turns(1)], found)
    assert (decision.tolerance, decision.raised_from) == (found.floor, 0.01)


def test_a_tolerance_at_the_floor_or_above_stays():
    floor = rule(spread=0.0045).floor
    for tolerance in (floor, 0.02):
        decision = decide([turns(1)], rule(tolerance=tolerance, spread=0.0045))
        assert (decision.tolerance, decision.raised_from) == (tolerance, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tolerance": -0.01},
        {"tolerance": math.nan},
        {"tolerance": math.inf},
        {"spread": -1},
        {"spread": math.nan},
        {"n_tests": 0},
    ],
)
def test_what_is_no_rule_is_refused(wrong):
    with pytest.raises(ValueError, match="zero or more and at least one test"):
        rule(**wrong)


def test_eight_turns_by_hand():
    # of eight samples the interval is from the least to the greatest; each half is widened by 0.3
    logs = [-0.4, -0.3, -0.2, -0.1, 0.1, 0.2, 0.3, 0.4]
    z = rule().z
    found = look(logs, rule(spread=0.3 / z))
    assert math.log(found.ratio) == pytest.approx(0, abs=1e-12)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((-0.5, 0.5))  # 3, 4, 5
    assert (found.n, found.verdict) == (8, None)
    assert found.confidence == pytest.approx(1 - 2 * 0.05 / 7)


def test_each_side_is_widened_by_itself():
    logs = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.4]
    found = look(logs, rule(spread=0.3 / rule().z))
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
    assert look([log] * 8, rule(tolerance)).verdict is verdict
    assert look([log] * 8, rule(tolerance), final=True).verdict is (verdict or Verdict.INCONCLUSIVE)


@pytest.mark.parametrize("n", [1, 7, 9, 12, 511, 513])
def test_it_is_looked_at_planned_sizes_and_at_the_end_alone(n):
    with pytest.raises(
        ValueError,
        match=f"^{n} pairs of turns are not looked at: only 8, 16, 32, 64, 128, 256, 512, and the end$",
    ):
        look([0.0] * n, rule())
    assert look([0.0] * n, rule(), final=True).n == n


@pytest.mark.parametrize(("n_tests", "needed"), [(1, 8), (20, 8), (200, 9), (20_000, 13)])
def test_too_few_turns_for_the_confidence_decide_nothing(n_tests, needed):
    few = look([1.0] * (needed - 1), rule(n_tests=n_tests), final=True)
    assert (few.verdict, few.low, few.high, few.n) == (Verdict.INCONCLUSIVE, None, None, needed - 1)
    assert few.ratio == pytest.approx(math.e)
    assert look([1.0] * needed, rule(n_tests=n_tests), final=True).verdict is Verdict.REGRESSION
    assert look([1.0] * 8, rule(n_tests=n_tests)).verdict is (
        Verdict.REGRESSION if needed == 8 else None
    )


@pytest.mark.parametrize("logs", [[], [math.nan] * 8, [math.inf] * 8])
def test_what_is_no_turn_is_refused(logs):
    with pytest.raises(ValueError, match="finite"):
        look(logs, rule(), final=True)


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
def test_what_follows_the_look_that_decides_is_not_looked_at(ratio, verdict):
    early, late = turns(ratio, 16, sd=0.001), turns(2.1 - ratio, 500)
    alone, followed = decide([early[:8]], rule()), decide([early[:8] + late], rule())
    assert followed == alone
    assert (alone.verdict, alone.n) == (verdict, 8)


def test_what_is_recorded_beyond_the_last_look_is_not_looked_at():
    decision = decide([turns(1.02, 512) + [1.0] * 100], rule())
    assert (decision.n, decision.verdict) == (512, Verdict.INCONCLUSIVE)


@pytest.mark.parametrize(("n", "looked"), [(8, 8), (9, 9), (200, 200), (512, 512)])
def test_the_last_look_is_at_the_end(n, looked):
    assert decide([[HALF_SLOWER] * n], rule(tolerance=0.5)).n == looked


def test_the_smallest_change_by_hand():
    # both of two pairs find it with 90 %, so each with 94.87 %, which is 1.632 standard errors above the lower end
    z = rule().z
    found = decide([[HALF_SLOWER] * 16], rule(tolerance=0.5, spread=0.01))
    assert math.log(found.ratio / found.low) == pytest.approx(0.01 * z)
    assert found.smallest == pytest.approx(
        1.5 * math.exp(0.01 * (z + scipy.stats.norm.ppf(math.sqrt(0.9)))) - 1
    )
    assert decide([[0.0] * 7], rule()).smallest is None
    assert decide([[0.1] * 8, [0.1] * 7], rule()).smallest is None


def test_the_smallest_change_is_that_of_the_noisier_of_two_pairs():
    quiet, noisy = [0.1] * 8, turns(1, 8, sd=0.05)
    both = decide([quiet, noisy], rule())
    assert len(both.pairs) == 2
    assert both.smallest == decide([noisy], rule()).smallest > decide([quiet], rule()).smallest


def process_pair(random, ratio, n, spread, sd):
    """Heavy-tailed turns of a process pair that is off by what processes differ by."""
    return math.log(ratio) + random.normal(0, spread) + sd * random.standard_t(4, n) / math.sqrt(2)


@pytest.mark.parametrize(("spread", "sd"), [(0.0045, 0.02), (0.0, 0.05), (0.027, 0.06)])
def test_the_smallest_change_that_it_states_is_found_in_nine_of_ten_cases(spread, sd):
    random, asked, draws = np.random.default_rng(3), rule(spread=spread), 150
    stated = np.median(
        [
            decide([process_pair(random, 1 + asked.held, 100, 0, sd)], asked).smallest
            for _ in range(30)
        ]
    )
    decisions = [
        decide([process_pair(random, 1 + stated, 100, spread, sd) for _ in range(2)], asked)
        for _ in range(draws)
    ]
    found = sum(decision.verdict is Verdict.REGRESSION for decision in decisions)
    assert found >= scipy.stats.binom.ppf(0.001, draws, 0.9)


@pytest.mark.parametrize("n_tests", [1, 20, 200])
@pytest.mark.parametrize(("spread", "sd"), [(0.0045, 0.02), (0.0, 0.03), (0.027, 0.06)])
def test_where_the_truth_is_the_tolerance_a_pair_is_wrong_as_rarely_as_it_says(n_tests, spread, sd):
    random, asked, draws = np.random.default_rng(7), rule(n_tests=n_tests, spread=spread), 200
    verdicts = [
        decide([process_pair(random, 1 + asked.held, 64, spread, sd)], asked).pairs[0].verdict
        for _ in range(draws)
    ]
    most = scipy.stats.binom.ppf(0.999, draws, asked.error)
    assert verdicts.count(Verdict.REGRESSION) <= most
    assert verdicts.count(Verdict.PASS) + verdicts.count(Verdict.IMPROVED) <= most


def test_of_the_same_code_none_is_suspected_and_most_pass_early():
    random, asked = np.random.default_rng(9), rule(spread=0.0045)
    decisions = [decide([process_pair(random, 1, 180, 0.0045, 0.02)], asked) for _ in range(200)]
    assert not any(decision.pairs[0].verdict is Verdict.REGRESSION for decision in decisions)
    assert (
        np.median(
            [decision.n if decision.verdict is Verdict.PASS else math.inf for decision in decisions]
        )
        <= 32
    )


def test_five_percent_at_a_tolerance_of_two_is_found():
    random, asked = np.random.default_rng(9), rule(spread=0.0045)
    decisions = [
        decide([process_pair(random, 1.05, 180, 0.0045, 0.02) for _ in range(2)], asked)
        for _ in range(100)
    ]
    assert sum(decision.verdict is Verdict.REGRESSION for decision in decisions) >= 99


def test_a_decision_is_plain_json():
    decision = decide([turns(1.05), turns(1)], rule(tolerance=0.001, spread=0.0045))
    data = json.loads(json.dumps(asdict(decision)))
    assert data["verdict"] == "INCONCLUSIVE"
    assert [one["verdict"] for one in data["pairs"]] == ["REGRESSION", "INCONCLUSIVE"]
    assert data["raised_from"] == 0.001
    assert Look(**data["pairs"][0]) == decision.pairs[0]


TRY = "\n  try: "


@pytest.mark.parametrize(
    ("pairs", "asked", "said"),
    [
        (
            [[0.0] * 8],
            rule(),
            "(1.000 to 1.000, 98.6 % interval, 8 pairs of turns), wanted at most 2 % slower",
        ),
        (
            [[-0.2] * 8],
            rule(),
            "is 0.819 times that of main (0.819 to 0.819, 98.6 % interval, 8 pairs of turns), wanted at most 2 % slower: it is faster",
        ),
        (
            [[0.1] * 8, [0.09] * 8],
            rule(spread=0.0045),
            "is 1.105 times that of main (1.093 to 1.117, 98.6 % interval, 8 pairs of turns; a second pair of processes: 1.094 (1.082 to 1.106, "
            f"8 pairs of turns)), wanted at most 2 % slower{TRY}look at which other metrics",
        ),
        (
            [[0.1] * 8, [0.0] * 8],
            rule(spread=0.0045),
            "a second pair of processes: 1.000 (0.989 to 1.011, 8 pairs of turns)), wanted at most 2 % slower: two pairs of processes disagree; "
            f"a slow-down of 3.89 % would have been found in 9 of 10 cases{TRY}a max_regression further than 1.11 % from what was found; two",
        ),
        (
            [[0.1] * 8],
            rule(),
            "wanted at most 2 % slower: it is suspected, and no second pair of processes ran; a slow-down of 2 % would have",
        ),
        ([[0.1] * 8], rule(), f"in 9 of 10 cases{TRY}run it again"),
        (
            [[0.01] * 8],
            rule(tolerance=0.01, spread=0.0045),
            "wanted at most 1.11 % slower (raised from 1 %: two processes of the same code differ as much); a slow-down of 2.98 % would have",
        ),
        (
            [turns(1.02, 32, sd=0.1)],
            rule(),
            f"cases{TRY}a larger --tfperf-budget, or a quieter machine",
        ),
        (
            [[0.0]],
            rule(),
            "is 1.000 times that of main (1 pair of turns, too few for an interval of 98.6 %), wanted at most 2 % slower"
            f"{TRY}a larger --tfperf-budget, or a quieter machine",
        ),
    ],
)
def test_the_message_says_what_was_found_and_wanted_and_what_to_do(pairs, asked, said):
    found = message(decide(pairs, asked), "step_time", "main")
    assert found.startswith("step_time is ")
    assert said in found

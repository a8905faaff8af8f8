"""How noisy turns are and what can be found in them: hand counts, boundaries, and the stated rates by simulation."""

import json
import math
from dataclasses import asdict
from statistics import NormalDist

import numpy as np
import pytest
from helpers.turns import decide_turns

from pytest_tfperf.results import Verdict
from pytest_tfperf.stats.detectable_change import needed_tolerance, noise_of, resolution
from pytest_tfperf.stats.sequential import StoppingRule

PINNED = 0.0045


def rule(tolerance=0.02, process_sd=PINNED):
    return StoppingRule(tolerance=tolerance, n_tests=1, process_sd=process_sd, n_pairs=2)


def played(log_ratios, step_s=0.005):
    return [(step_s * math.exp(one), step_s, True) for one in log_ratios]


def normal(n, sd, seed=0):
    return np.random.default_rng(seed).normal(0, sd, n).tolist()


def test_turns_counted_by_hand():
    turns = [
        (0.010, 0.010, True),
        (0.011, 0.010, False),
        (0.010, 0.011, True),
        (0.012, 0.012, False),
    ] * 2
    noise = noise_of(turns, 0.8, process_sd=0.0)
    assert (noise.n, noise.trend) == (8, None)
    assert noise.step_s == pytest.approx(0.0105)
    assert noise.pair_s == pytest.approx(0.1)
    assert noise.over_time == pytest.approx((0.0105, 0.011, 0.0105, 0.011))
    step = math.log(1.1)
    assert noise.pair_sd == pytest.approx(math.sqrt(4 * step**2 / 7))
    assert noise.ratio == pytest.approx(1)
    # at either end the 95 % interval leaves out five sets of ranks: none, {1}, {2}, {3} and {1, 2};
    # so its ends are the fourth of the averages: after three of -step comes -step / 2
    error = -step / 2 / NormalDist().inv_cdf(5 / 2**8)
    z = -NormalDist().inv_cdf(0.005)
    assert (noise.low, noise.high) == pytest.approx((math.exp(-z * error), math.exp(z * error)))
    assert noise.error == pytest.approx(error * math.sqrt(8))
    assert noise.holds_one


def test_the_interval_has_the_difference_between_processes():
    z, noise = -NormalDist().inv_cdf(0.005), noise_of(played([0.01] * 20), 2.0, PINNED)
    assert math.log(noise.ratio) == pytest.approx(0.01)
    assert math.log(noise.low) == pytest.approx(0.01 - z * PINNED)
    assert math.log(noise.high) == pytest.approx(0.01 + z * PINNED)
    assert noise.confidence == 0.99


def test_processes_that_differ_too_much_are_reported():
    for shift, holds in [(0.0, True), (0.008, True), (0.02, False), (-0.02, False)]:
        noise = noise_of(played([shift] * 20), 1.0, PINNED)
        assert noise.holds_one is holds, shift


def test_too_few_turns_have_no_interval():
    for n in [1, 2, 5]:
        noise = noise_of(played([0.01] * n), 0.05 * n, PINNED)
        assert noise.ratio == pytest.approx(math.exp(0.01)), n
        assert (noise.error, noise.low, noise.high, noise.holds_one) == (None, None, None, None), n
        assert (noise.pair_sd is None) == (n == 1), n
        assert len(noise.over_time) == min(n, 4), n
        assert resolution(noise, rule(), 30) is needed_tolerance(noise, rule(), 30) is None, n


def test_no_turns_are_an_error():
    with pytest.raises(ValueError, match="no turns"):
        noise_of([], 0.0, PINNED)


def test_a_process_pair_has_half_of_the_budget_up_to_the_last_size():
    for pair_s, budget_s, n in [
        (0.05, 30, 300),
        (0.05, 10, 100),
        (0.02, 30, 512),
        (1.0, 12, 6),
        (1.0, 11.9, None),
        (20, 30, None),
    ]:
        noise = noise_of(played(normal(64, 0.02)), 64 * pair_s, PINNED)
        found = resolution(noise, rule(), budget_s)
        assert (found.n if found else None) == n, (pair_s, budget_s)


def test_the_resolution_by_hand():
    noise = noise_of(played([0.0] * 64), 64 * 0.05, process_sd=0.01)
    asked = rule(0.05, process_sd=0.01)
    found = resolution(noise, asked, 30)
    # turns without noise: all is process_sd, of two pairs
    assert (found.tolerance, found.effective_tolerance, found.n) == (0.05, 0.05, 300)
    assert found.minimum_detectable_change == pytest.approx(
        1.05 * math.exp(0.01 / math.sqrt(2) * (2.6521 + 1.2816)) - 1, rel=1e-3
    )
    assert needed_tolerance(noise, asked, 30) == pytest.approx(
        math.expm1(0.01 / math.sqrt(2) * (asked.passing_z(2) + 1.2816)), rel=1e-4
    )
    raised = resolution(noise, rule(0.01, process_sd=0.01), 30)
    assert (raised.tolerance, raised.effective_tolerance) == (0.01, asked.resolvable_tolerance)


def test_noisier_turns_find_less_and_more_seconds_find_more():
    quiet, noisy = (noise_of(played(normal(100, sd)), 5.0, PINNED) for sd in (0.01, 0.1))
    assert (
        resolution(quiet, rule(), 30).minimum_detectable_change
        < resolution(noisy, rule(), 30).minimum_detectable_change
    )
    assert (
        resolution(noisy, rule(), 30).minimum_detectable_change
        < resolution(noisy, rule(), 5).minimum_detectable_change
    )
    assert needed_tolerance(quiet, rule(), 30) < needed_tolerance(noisy, rule(), 30)


def simulated(random, change, n, sd, heavy):
    """Turns of a fresh process pair."""
    noise = random.standard_t(4, n) * sd if heavy else random.normal(0, sd, n)
    return (math.log1p(change) + random.normal(0, PINNED) + noise).tolist()


@pytest.mark.nightly
@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize(("tolerance", "sd"), [(0.01, 0.03), (0.05, 0.08)])
def test_the_change_is_found_in_nine_of_ten_cases_and_half_of_it_is_not(tolerance, sd, heavy):
    random = np.random.default_rng(17)
    measured = noise_of(played(simulated(random, 0, 1000, sd, heavy)), 1000 * 0.15, PINNED)
    asked = rule(tolerance)
    found = resolution(measured, asked, 30)
    assert (found.n, found.n_pairs) == (100, 2)

    def rate(change):
        pairs = (
            [simulated(random, change, found.n, sd, heavy) for _ in range(2)] for _ in range(400)
        )
        return np.mean(
            [decide_turns(pair, asked, final=True).verdict is Verdict.REGRESSION for pair in pairs]
        )

    assert rate(found.minimum_detectable_change) >= 0.86  # 90 % less 2.5 standard errors
    assert rate((found.minimum_detectable_change + asked.effective_tolerance) / 2) < 0.7


@pytest.mark.parametrize(
    ("sd", "draws"),
    [(0.1, 60), *(pytest.param(sd, 400, marks=pytest.mark.nightly) for sd in (0.02, 0.1))],
)
def test_the_same_code_passes_at_the_tolerance_that_is_needed_in_nine_of_ten_cases(sd, draws):
    random = np.random.default_rng(23)
    measured = noise_of(played(simulated(random, 0, 1000, sd, False)), 1000 * 0.15, PINNED)
    needed = needed_tolerance(measured, rule(), 30)

    def rate(tolerance):
        pairs = ([simulated(random, 0, 100, sd, False) for _ in range(2)] for _ in range(draws))
        return np.mean(
            [
                decide_turns(pair, rule(tolerance), final=True).verdict
                in (Verdict.PASS, Verdict.IMPROVED)
                for pair in pairs
            ]
        )

    # 90 % less 2.5 standard errors
    assert rate(needed) >= 0.9 - 2.5 * math.sqrt(0.9 * 0.1 / draws)
    if needed / 2 > rule().resolvable_tolerance:  # below, the tolerance is raised to the floor
        assert rate(needed / 2) < 0.6


def test_noise_is_plain_json():
    noise = noise_of(played(normal(20, 0.02)), 1.0, PINNED)
    assert json.loads(json.dumps(asdict(noise), allow_nan=False))["n"] == 20

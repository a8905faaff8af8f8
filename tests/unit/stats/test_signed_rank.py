"""The estimate and its interval against hand counts, brute force over all signs, scipy, and what must hold for any samples."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfperf.errors import UnknownMetric
from pytest_tfperf.stats.signed_rank import (
    _rank_sum_distribution,
    estimate,
    needed_pairs,
    ratio_interval,
)

samples = st.lists(st.floats(-3, 3, width=32), min_size=8, max_size=20)


def test_the_estimate_is_the_median_of_the_means_of_all_two_samples():
    # of 0, 1, 5 the six means are 0, 0.5, 1, 2.5, 3, 5
    assert estimate([0, 5, 1]) == pytest.approx(math.exp((1 + 2.5) / 2))
    assert estimate([0.3]) == pytest.approx(math.exp(0.3))


def test_one_outlier_hardly_moves_the_estimate():
    assert estimate([0.0] * 9 + [50.0]) == 1.0


def test_eight_pairs_are_bounded_by_the_extremes():
    logs = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    found = ratio_interval(logs, 0.99)
    assert (found.low, found.high) == pytest.approx((math.exp(0.1), math.exp(0.8)))
    assert found.ratio == pytest.approx(math.exp(0.45))
    assert found.confidence == 1 - 2 / 2**8
    assert found.n == 8


def test_six_pairs_by_hand():
    # rank sums of 0, 1 and 2 have one sign pattern of the 64 each: up to 0 may lie outside 95 % on one side, up to 2 outside 90 %
    logs = [1, 2, 4, 8, 16, 32]  # their means from below 1, 1.5, 2; from above 32, 24, 20
    at_95, at_90 = ratio_interval(logs, 0.95), ratio_interval(logs, 0.90)
    assert (at_95.confidence, at_90.confidence) == (1 - 2 * 1 / 64, 1 - 2 * 3 / 64)
    assert (math.log(at_95.low), math.log(at_95.high)) == pytest.approx((1, 32))
    assert (math.log(at_90.low), math.log(at_90.high)) == pytest.approx((2, 20))


@pytest.mark.parametrize(
    ("confidence", "pairs"),
    [(0.99, 8), (0.9921875, 8), (0.993, 9), (0.95, 6), (0.9, 5), (0.5, 2), (0.4, 2), (0.998, 10)],
)
def test_needed_pairs_grow_with_the_confidence(confidence, pairs):
    assert needed_pairs(confidence) == pairs
    assert ratio_interval([0.1] * pairs, confidence).confidence >= confidence
    with pytest.raises(
        UnknownMetric, match=f"^{pairs - 1} pairs? of turns cannot give .* needs {pairs}$"
    ):
        ratio_interval([0.1] * (pairs - 1), confidence)


@pytest.mark.parametrize("n", range(1, 11))
def test_the_null_distribution_is_that_of_all_sign_patterns(n):
    sums = [
        sum(rank for rank, sign in enumerate(signs, 1) if sign)
        for signs in itertools.product((0, 1), repeat=n)
    ]
    counted = [sum(total <= t for total in sums) / 2**n for t in range(n * (n + 1) // 2 + 1)]
    assert _rank_sum_distribution(n).tolist() == counted


@pytest.mark.parametrize("n", [8, 13, 30, 60, 61, 200])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_the_interval_holds_what_scipy_s_test_does_not_reject(n, confidence):
    logs = np.random.default_rng(n).normal(0.02, 0.05, n)
    found = ratio_interval(logs, confidence)
    method = "exact" if n <= 60 else "asymptotic"

    def p_value(ratio):
        return scipy.stats.wilcoxon(logs - math.log(ratio), method=method, correction=True).pvalue

    inside, outside = 1e-9, -1e-9
    assert (
        min(p_value(found.low * (1 + inside)), p_value(found.high * (1 - inside))) > 1 - confidence
    )
    assert (
        max(p_value(found.low * (1 + outside)), p_value(found.high * (1 - outside)))
        <= 1 - confidence + 1e-12
    )


def test_the_normal_law_takes_over_without_a_jump():
    logs = np.random.default_rng(0).normal(0, 1, 61)
    exact, normal = ratio_interval(logs[:60], 0.99), ratio_interval(logs, 0.99)
    assert 0.99 <= exact.confidence < 0.9905
    assert 0.99 <= normal.confidence < 0.9905
    assert math.log(normal.high / normal.low) == pytest.approx(
        math.log(exact.high / exact.low), rel=0.1
    )


@given(samples)
def test_swapping_the_two_sides_gives_the_reciprocal(logs):
    one, other = ratio_interval(logs, 0.99), ratio_interval([-log for log in logs], 0.99)
    assert (other.ratio, other.low, other.high) == pytest.approx(
        (1 / one.ratio, 1 / one.high, 1 / one.low)
    )


@given(samples, st.floats(-2, 2))
def test_a_side_slower_by_a_factor_multiplies_the_ratio_by_it(logs, shift):
    one, other = ratio_interval(logs, 0.99), ratio_interval([log + shift for log in logs], 0.99)
    factor = math.exp(shift)
    assert (other.ratio, other.low, other.high) == pytest.approx(
        (one.ratio * factor, one.low * factor, one.high * factor)
    )


@given(samples, st.randoms())
def test_the_order_of_the_pairs_does_not_matter_and_the_ratio_is_inside(logs, random):
    shuffled = random.sample(logs, len(logs))
    found = ratio_interval(logs, 0.99)
    assert ratio_interval(shuffled, 0.99) == found
    assert found.low <= found.ratio <= found.high
    assert estimate(logs) == found.ratio


@given(samples)
def test_more_confidence_is_never_narrower(logs):
    narrow, wide = ratio_interval(logs, 0.8), ratio_interval(logs, 0.99)
    assert wide.low <= narrow.low <= narrow.high <= wide.high


@pytest.mark.parametrize(("n", "draws"), [(12, 2_000), (70, 400)])
def test_the_interval_covers_the_truth_for_skewed_times(n, draws):
    confidence = 0.95
    random = np.random.default_rng(20)
    logs = (
        random.exponential(1, (draws, n)) ** 2 - random.exponential(1, (draws, n)) ** 2
    )  # heavy tails, and symmetric as in truth 1
    found = [ratio_interval(row, confidence) for row in logs]
    covered = sum(one.low <= 1 <= one.high for one in found)
    likely = scipy.stats.binom(draws, found[0].confidence).interval(0.9999)
    assert likely[0] <= covered <= likely[1]


@pytest.mark.parametrize("logs", [[], [math.nan] * 9, [math.inf, *[0.0] * 8], [[0.0, 1.0]]])
def test_invalid_ratios_are_refused(logs):
    with pytest.raises(ValueError, match="finite"):
        ratio_interval(logs, 0.99)


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 99, math.nan])
def test_an_invalid_confidence_is_refused(confidence):
    with pytest.raises(ValueError, match="above 0 and below 1"):
        ratio_interval([0.0] * 9, confidence)

"""The estimate and its interval against hand counts, brute force over all signs, SciPy, and what must hold for any samples."""

import itertools
import math

import numpy as np
import pytest
from helpers.binomial import binomial_quantile
from helpers.refusals import refusal
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfperf.errors import UnknownMetric
from pytest_tfperf.stats.signed_rank import (
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


def test_needed_pairs_grow_with_the_confidence():
    for confidence, pairs in [
        (0.99, 8),
        (0.9921875, 8),
        (0.993, 9),
        (0.95, 6),
        (0.9, 5),
        (0.5, 2),
        (0.4, 2),
        (0.998, 10),
    ]:
        assert needed_pairs(confidence) == pairs, confidence
        found = ratio_interval([0.1] * pairs, confidence)
        assert found.confidence >= confidence, confidence
        said = refusal(UnknownMetric, ratio_interval, [0.1] * (pairs - 1), confidence)
        number = f"{pairs - 1} pair" + "s" * (pairs > 2)
        assert said.startswith(f"{number} of turns cannot give "), confidence
        assert said.endswith(f"needs {pairs}"), confidence


def test_the_confidence_is_that_of_all_sign_patterns():
    """Left out at either end are as many of the least rank sums as have a chance of 5 % or less."""
    for n in range(5, 11):
        sums = sorted(
            sum(rank for rank, sign in enumerate(signs, 1) if sign)
            for signs in itertools.product((0, 1), repeat=n)
        )
        tails = [sum(one <= total for one in sums) / 2**n for total in range(n * (n + 1) // 2)]
        outside = max(tail for tail in tails if tail <= 0.05)
        assert ratio_interval(range(n), 0.9).confidence == pytest.approx(1 - 2 * outside), n


# Rank of the first mean of two samples that SciPy 1.17.1 does not reject, at 90, 95 and 99 %:
# scipy.stats.wilcoxon(logs - mean, method="exact" if n <= 60 else "asymptotic", correction=True)
RANKS = {
    8: (5, 3, 0),
    13: (21, 17, 9),
    30: (151, 137, 109),
    60: (690, 648, 567),
    61: (716, 672, 586),
    200: (8701, 8443, 7938),
}


def test_the_interval_holds_what_scipy_s_test_does_not_reject():
    for n, ranks in RANKS.items():
        logs = np.random.default_rng(n).normal(0.02, 0.05, n)
        pairs = itertools.combinations_with_replacement(logs, 2)
        means = sorted((one + other) / 2 for one, other in pairs)
        for confidence, rank in zip((0.9, 0.95, 0.99), ranks, strict=True):
            found = ratio_interval(logs, confidence)
            ends = math.exp(means[rank]), math.exp(means[-1 - rank])
            assert (found.low, found.high) == pytest.approx(ends, rel=1e-12), (n, confidence)


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


@pytest.mark.parametrize(
    ("n", "draws"),
    [
        *((n, 200) for n in (12, 70)),
        *(pytest.param(*one, marks=pytest.mark.nightly) for one in ((12, 2_000), (70, 400))),
    ],
)
def test_the_interval_covers_the_truth_for_skewed_times(n, draws):
    random = np.random.default_rng(20)
    logs = (
        random.exponential(1, (draws, n)) ** 2 - random.exponential(1, (draws, n)) ** 2
    )  # heavy tails, and symmetric as in truth 1
    found = [ratio_interval(row, 0.95) for row in logs]
    covered = sum(one.low <= 1 <= one.high for one in found)
    least, most = (binomial_quantile(one, draws, found[0].confidence) for one in (5e-5, 1 - 5e-5))
    assert least <= covered <= most, n


def test_invalid_ratios_are_refused():
    for logs in [[], [math.nan] * 9, [math.inf, *[0.0] * 8], [[0.0, 1.0]]]:
        assert "finite" in refusal(ValueError, ratio_interval, logs, 0.99), logs


def test_an_invalid_confidence_is_refused():
    for confidence in [0, 1, -0.5, 99, math.nan]:
        said = refusal(ValueError, ratio_interval, [0.0] * 9, confidence)
        assert "above 0 and below 1" in said, confidence

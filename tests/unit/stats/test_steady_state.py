"""Where block times become steady: counted by hand, and by simulation at the rates that the docs give."""

import itertools

import numpy as np
import pytest

from pytest_tfperf.stats.steady_state import _inflation, _ranks, find_trend, slow_start

STEADY = [
    1.04,
    1.01,
    1.03,
    1.02,
    1.06,
    1.05,
    1.00,
]  # lag-1 correlation of the ranks: -9/28, which counts as 0


def test_the_first_blocks_that_are_slower_than_the_rest():
    for times, n_dropped in [
        ([9, 8, 7, *STEADY], 3),  # z = 2.39, needed 2.33
        ([9, 8, *STEADY, 1.07], 0),  # z = 2.09: two of ten may be chance
        ([9, *STEADY, 1.07, 1.02], 0),
        ([*STEADY, 9, 8, 7], 0),  # slow at the end is no slow start
        ([0.7, 0.8, 0.9, *STEADY], 0),  # nor is a fast one
        ([5.0] * 20, 0),
        (STEADY, 0),  # fewer than eight say nothing
        ([], 0),
        ([0.0] * 9, 0),
    ]:
        assert slow_start(times) == n_dropped, times


def test_three_blocks_of_twice_the_time_are_a_slow_start_however_the_rest_moves():
    moving = [0.009, 0.009, 0.008, 0.008, 0.007, 0.007, 0.006, 0.006, 0.007, 0.007, 0.008, 0.008]
    cases = [
        ([0.3] * 5 + moving, 5),
        ([0.0181] * 3 + moving, 3),
        ([0.018] * 3 + moving, 0),  # twice the slowest, and no more
        ([0.3] * 2 + moving, 0),
        ([0.3, 0.009, 0.3, 0.3, *moving], 0),
        ([0.3] * 30 + moving, 30),  # most of the blocks, which have fewer steps than those behind
        ([0.3] * 30 + moving[:8], 30),
        ([0.3] * 30 + moving[:7], 0),  # too few to say that it is over
    ]
    for times, dropped in cases:
        assert slow_start(times) == dropped, times


def test_never_more_than_half_are_dropped_by_their_ranks():
    assert slow_start([9 - i / 10 for i in range(7)] + STEADY) == 7
    assert all(slow_start(np.linspace(2, 1, n)) <= n // 2 for n in range(1, 120))


def test_a_long_series_is_looked_at_in_groups_and_dropped_in_whole_ones():
    noise = np.random.default_rng(3).normal(0, 0.01, 1000)
    slow = np.where(np.arange(1000) < 205, 1.5, 1.0) + noise
    assert slow_start(slow) in (200, 220)  # groups of twenty
    assert slow_start(slow[205:]) == 0


def test_equal_values_share_the_mean_of_their_ranks():
    assert _ranks(np.array([3.0, 1.0, 3.0, 2.0, 3.0])).tolist() == [4, 1, 4, 2, 4]
    assert _ranks(np.array([5.0, 5.0])).tolist() == [1.5, 1.5]


def test_a_trend_is_the_median_of_the_slopes_of_all_two_blocks():
    rng = np.random.default_rng(5)
    for n in (10, 20, 50):
        times = np.linspace(1.5, 1.0, n) + rng.normal(0, 0.01, n)
        pairs = itertools.combinations(enumerate(times), 2)
        slope = np.median([(b - a) / (j - i) for (i, a), (j, b) in pairs])
        trend = find_trend(times)
        assert trend.per_block == pytest.approx(slope / np.median(times)), n
        assert trend.in_all == pytest.approx(slope * (n - 1) / np.median(times)), n


def test_a_trend_is_per_block_also_where_blocks_are_grouped():
    trend = find_trend(np.linspace(2.0, 1.0, 501))
    assert trend.per_block == pytest.approx(-1 / 500 / 1.5, rel=0.02)
    assert trend.in_all == pytest.approx(-1 / 1.5, rel=0.05)


def test_chance_and_small_moves_are_no_trend():
    for times in [
        [1.0] * 30,
        [0.0] * 30,
        np.linspace(1.0, 1.049, 30),  # less than 5 % in all
        [1.0, 2.0, 3.0],
        [],
        [1, 2] * 10,
    ]:
        assert find_trend(times) is None, times


def test_a_trend_that_matters_begins_at_five_percent():
    assert find_trend(np.linspace(1.0, 1.06, 30)).in_all == pytest.approx(0.058, abs=0.001)


def test_blocks_like_their_neighbours_count_for_less():
    # ranks 1 to 8: r = 0.625 of the series itself, and 1/8 more for its shortness
    assert _inflation(np.arange(8.0)) == pytest.approx(1.75 / 0.25)
    assert _inflation(np.array([1.0, 5, 2, 6, 3, 7, 4, 8])) == 1
    assert _inflation(np.ones(5)) == 1


def autocorrelated(rng, n_series, n, r):
    """Series of an AR(1) process, in its stationary state."""
    series = np.empty((n_series, n))
    series[:, 0] = rng.normal(size=n_series)
    for i in range(1, n):
        series[:, i] = r * series[:, i - 1] + np.sqrt(1 - r * r) * rng.normal(size=n_series)
    return 1 + 0.05 * series


def bursts(rng, n_series, n):
    """Blocks that take half as long again while something else runs: 20 % of the time, 2.5 blocks each."""
    on = np.zeros((n_series, n + 20), dtype=bool)
    chance = rng.random(on.shape)
    for i in range(1, n + 20):
        on[:, i] = np.where(on[:, i - 1], chance[:, i] < 0.6, chance[:, i] < 0.1)
    return (1 + 0.02 * rng.normal(size=(n_series, n))) * np.where(on[:, 20:], 1.5, 1.0)


STEADY_SERIES = {
    "normal": (lambda rng, size: 1 + 0.05 * rng.normal(size=size), 0.03),
    "lognormal": (lambda rng, size: np.exp(0.3 * rng.normal(size=size)), 0.03),
    "heavy-tailed": (lambda rng, size: 1 + 0.05 * np.abs(rng.standard_t(2, size=size)), 0.03),
    "bursts": (lambda rng, size: bursts(rng, *size), 0.07),
    "autocorrelated": (lambda rng, size: autocorrelated(rng, *size, 0.5), 0.07),
}
"""Series without a slow start or a trend, and the most of them that may seem to have one."""


@pytest.mark.parametrize("n", [20, *(pytest.param(n, marks=pytest.mark.nightly) for n in (10, 50))])
def test_steady_noise_is_seldom_dropped_or_called_a_trend(n):
    for name, (series, most) in STEADY_SERIES.items():
        drawn = series(np.random.default_rng(11), (300, n))
        assert np.mean([slow_start(times) > 0 for times in drawn]) <= most, name
        assert np.mean([find_trend(times) is not None for times in drawn]) <= most, name


@pytest.mark.parametrize(("n", "found"), [(10, 0.4), (20, 0.5), (50, 0.9)])
def test_a_slow_start_over_three_tenths_is_found_and_the_median_is_nearer_to_the_truth(n, found):
    rng = np.random.default_rng(13)
    drawn = np.where(np.arange(n) < 0.3 * n, 1.25, 1.0) * (1 + 0.05 * rng.normal(size=(300, n)))
    dropped = [slow_start(times) for times in drawn]
    assert np.mean(np.array(dropped) > 0) >= found
    all_blocks = np.mean([np.median(times) for times in drawn])
    steady = np.mean(
        [np.median(times[n_dropped:]) for times, n_dropped in zip(drawn, dropped, strict=True)]
    )
    assert 0.98 < steady < 1 + 0.75 * (all_blocks - 1)

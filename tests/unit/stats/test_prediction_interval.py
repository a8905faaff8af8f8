"""One run against those recorded: hand-counted intervals, SciPy's quantiles, and simulations of what is promised."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from helpers.binomial import binomial_quantile
from helpers.refusals import refusal

from pytest_tfperf.results import Verdict
from pytest_tfperf.stats.prediction_interval import (
    History,
    compare_to_history,
    is_another_level,
    t_quantile,
)
from pytest_tfperf.stats.signed_rank import POWER

MS = 1e-3
QUIET = (10 * MS,) * 10

PROBABILITIES = (0.6, 0.9, 0.995, 0.9975)
QUANTILES = {
    1: (0.324919696233, 3.07768353718, 63.6567411629, 127.321336469),
    2: (0.288675134595, 1.88561808316, 9.92484320092, 14.0890472756),
    3: (0.276670662333, 1.6377443537, 5.84090930973, 7.45331850515),
    4: (0.270722294708, 1.53320627406, 4.60409487135, 5.59756836708),
    5: (0.267180865704, 1.47588404882, 4.03214298356, 4.77334060486),
    6: (0.264834532934, 1.43975574727, 3.70742802132, 4.31682710363),
    7: (0.263166861352, 1.41492392765, 3.49948329735, 4.02933717764),
    8: (0.261921096749, 1.39681530974, 3.35538733133, 3.83251868534),
    9: (0.260955336474, 1.3830287384, 3.24983554159, 3.6896623923),
    10: (0.260184829492, 1.37218364111, 3.16927267262, 3.58140620209),
    11: (0.259555860476, 1.36343031802, 3.10580651554, 3.49661417325),
    12: (0.259032745677, 1.35621733402, 3.05453958939, 3.42844424229),
    30: (0.255605364952, 1.31041502539, 2.74999565357, 3.02979822365),
    31: (0.255532168318, 1.30946354949, 2.74404191929, 3.02211783431),
}
"""Of Student's t for degrees of freedom: scipy.stats.t.ppf(PROBABILITIES, freedom) of SciPy 1.17.1, to twelve digits."""
T_4, T_8, T_9 = (QUANTILES[freedom][-1] for freedom in (4, 8, 9))
T_9_OF_BOTH = 1.81673452276  # scipy.stats.t.ppf(0.9**0.5, 9)


def history(runs, anchor=None, n_anchor=5):
    return History(runs=tuple(runs), anchor=anchor, n_anchor=n_anchor)


def verdict(now, runs, tolerance=0.05, anchor=None):
    return compare_to_history(now, history(runs, anchor), tolerance).verdict.value


def test_quantiles_of_student_s_t_are_scipy_s():
    for freedom, quantiles in QUANTILES.items():
        found = [t_quantile(probability, freedom) for probability in PROBABILITIES]
        assert found == pytest.approx(quantiles, rel=1e-9), freedom
        assert t_quantile(0.5, freedom) == pytest.approx(0, abs=1e-9), freedom


def test_the_interval_is_that_of_one_further_observation():
    logs = np.array([0.0, 0.01, 0.02, 0.03, 0.04])  # mean 0.02, standard deviation 0.01 × √2.5
    found = compare_to_history(math.exp(0.05), history(np.exp(logs)), 0.05)
    half = T_4 * 0.01 * math.sqrt(2.5) * math.sqrt(1 + 1 / 5)
    assert (found.n, found.typical_s, found.ratio) == (
        5,
        pytest.approx(math.exp(0.02)),
        pytest.approx(math.exp(0.03)),
    )
    assert (found.recent.low, found.recent.high) == (
        pytest.approx(math.exp(0.03 - half)),
        pytest.approx(math.exp(0.03 + half)),
    )
    assert found.recent.confidence == pytest.approx(0.995)
    assert found.run_sd == pytest.approx(0.01 * math.sqrt(2.5))


def test_equal_runs_get_the_least_standard_deviation():
    found = compare_to_history(10 * MS, history(QUIET), 0.05)
    half = T_9 * 0.005 * math.sqrt(1.1)
    assert (found.run_sd, found.recent.high) == (0.005, pytest.approx(math.exp(half)))
    assert found.minimum_detectable_change == pytest.approx(
        1.05 * math.exp((T_9 + T_9_OF_BOTH) * 0.005 * math.sqrt(1.1)) - 1
    )


HALF = math.exp(T_9 * 0.005 * math.sqrt(1.1))  # the factor from the ratio to either end, for QUIET


def test_the_verdict_changes_at_the_bounds():
    for ratio, expected in [
        (1.05 * HALF * 1.0001, "REGRESSION"),
        (1.05 * HALF * 0.9999, "INCONCLUSIVE"),
        (1.05 / HALF * 1.0001, "INCONCLUSIVE"),
        (1.05 / HALF * 0.9999, "PASS"),
        (1.0, "PASS"),
        (1 / HALF * 1.0001, "PASS"),
        (1 / HALF * 0.9999, "IMPROVED"),
    ]:
        assert verdict(10 * MS * ratio, QUIET) == expected, ratio


def test_the_ends_of_the_interval_are_inconclusive():
    found = compare_to_history(11 * MS, history(QUIET), 0.05)
    for bound in (found.recent.low, found.recent.high):
        assert (
            compare_to_history(11 * MS, history(QUIET), bound - 1).verdict is Verdict.INCONCLUSIVE
        )


def test_under_five_runs_only_a_doubled_time_is_decided():
    for n in [1, 2, 3, 4]:
        for ratio, expected in [
            (1.0, "INCONCLUSIVE"),
            (0.1, "INCONCLUSIVE"),
            (2.0, "INCONCLUSIVE"),
            (2.001, "REGRESSION"),
        ]:
            found = compare_to_history(10 * MS * ratio, history(QUIET[:n]), 0.05)
            assert (found.verdict.value, found.n) == (expected, n), (n, ratio)
            assert (found.recent, found.minimum_detectable_change) == (None, None), (n, ratio)


def test_few_runs_count_by_their_median():
    assert verdict(21 * MS, [10 * MS, 10 * MS, 90 * MS]) == "REGRESSION"
    assert (
        compare_to_history(21 * MS, history([10 * MS, 10 * MS, 90 * MS]), 0.05).typical_s == 10 * MS
    )


@pytest.mark.parametrize("n", [1, 10])
def test_a_tolerance_above_a_doubling_is_kept(n):
    assert verdict(24 * MS, QUIET[:n], tolerance=1.5) != "REGRESSION"
    assert verdict(27 * MS, QUIET[:n], tolerance=1.5) == "REGRESSION"


def test_a_doubled_time_is_a_regression_also_where_the_runs_differ_too_much_to_decide():
    wild = [7 * MS, 8 * MS, 10 * MS, 12 * MS, 13 * MS]
    assert verdict(26 * MS, wild) == "INCONCLUSIVE"
    assert verdict(26.1 * MS, wild) == "REGRESSION"  # twice the slowest


def test_less_than_20_us_a_step_is_never_slower():
    for now, expected in [
        (100e-6, "PASS"),
        (118e-6, "INCONCLUSIVE"),
        (119e-6, "INCONCLUSIVE"),
        (124e-6, "REGRESSION"),
    ]:
        found = compare_to_history(now, history([100e-6] * 10), 0.05)
        assert (found.verdict.value, found.tolerance, found.requested_tolerance) == (
            expected,
            pytest.approx(0.2),
            0.05,
        ), now


def test_few_short_steps_are_no_regression_within_20_us():
    assert verdict(28e-6, [10e-6]) == "INCONCLUSIVE"
    assert verdict(31e-6, [10e-6]) == "REGRESSION"


def test_a_tolerance_above_20_us_is_not_raised():
    assert compare_to_history(10 * MS, history(QUIET), 0.05).requested_tolerance == 0.05


def test_slow_drift_is_found_by_the_anchor():
    found = compare_to_history(11 * MS, history([11 * MS] * 10, anchor=10 * MS), 0.05)
    assert (found.verdict, found.drift, found.recent.ratio, found.anchor.ratio) == (
        Verdict.REGRESSION,
        True,
        pytest.approx(1),
        pytest.approx(1.1),
    )
    assert found.anchor.low == pytest.approx(1.1 / math.exp(T_9 * 0.005 * math.sqrt(1 + 0.28683)))


def test_a_sudden_slow_down_is_no_drift():
    assert not compare_to_history(11 * MS, history(QUIET, anchor=10 * MS), 0.05).drift


def test_a_faster_step_than_an_old_anchor_is_no_improvement_on_the_latest_runs():
    assert verdict(9 * MS, [9 * MS] * 10, anchor=10 * MS) == "PASS"


def test_nothing_recorded_is_an_error():
    for runs in [(), (0.0, 1.0), (-1.0,)]:
        assert "above zero" in refusal(ValueError, compare_to_history, 1.0, history(runs), 0.05), (
            runs
        )


def test_the_variance_of_a_median_is_that_of_the_normal_distribution():
    """For odd n by the density of the middle order statistic; a middle of two is their mean, so for 2 and 4 by their joint density."""
    x, width = np.linspace(-7, 7, 701, retstep=True)
    density = np.array([NormalDist().pdf(one) for one in x])
    below = np.array([NormalDist().cdf(one) for one in x])
    above = below[::-1]
    for n, variance in [(1, 1.0), (2, 0.5), (3, 0.44867), (4, 0.29825), (5, 0.28683)]:
        k = (n - 1) // 2
        factor = math.factorial(n) / math.factorial(k) ** 2
        if n % 2:
            found = (x**2 * factor * (below * above) ** k * density).sum() * width
        else:  # the lower one along the first axis
            joint = factor * np.outer(below**k * density, above**k * density)
            joint *= (np.sign(x[None, :] - x[:, None]) + 1) / 2
            found = ((np.add.outer(x, x) / 2) ** 2 * joint).sum() * width**2
        past = history([1.0] * 10, anchor=1.0, n_anchor=n)
        anchored = compare_to_history(1.0, past, 0.05).anchor
        assert found == pytest.approx(variance, abs=2e-4), n
        assert math.log(anchored.high) == pytest.approx(T_9 * 0.005 * math.sqrt(1 + variance)), n


def simulated(process_sd, n_runs, n_trials, seed=6):
    """Runs and one more of the same code, log-normal: shape (trials, runs + 1); the last ten are kept and the first five frozen."""
    times = np.exp(
        np.random.default_rng(seed).normal(math.log(10 * MS), process_sd, (n_trials, n_runs + 1))
    )
    return [(history(row[:-1][-10:], float(np.median(row[:5]))), float(row[-1])) for row in times]


def check_false_alarms(process_sd, n_runs, tolerance, draws):
    found = [
        compare_to_history(now, past, tolerance).verdict
        for past, now in simulated(process_sd, n_runs, draws)
    ]
    case = (process_sd, n_runs, tolerance)
    assert found.count(Verdict.REGRESSION) <= binomial_quantile(0.999, draws, 0.005), case


def check_detectable_change(process_sd, n_runs, draws):
    """Two processes show it in nine of ten cases."""
    seconds = np.random.default_rng(7).normal(math.log(10 * MS), process_sd, draws)
    found = 0
    for (past, now), second in zip(
        simulated(process_sd, n_runs, draws), np.exp(seconds), strict=True
    ):
        slower = 1 + compare_to_history(now, past, 0.05).minimum_detectable_change
        found += all(
            compare_to_history(one * slower, past, 0.05).verdict is Verdict.REGRESSION
            for one in (now, second)
        )
    assert found >= binomial_quantile(0.001, draws, POWER), (process_sd, n_runs)


def test_the_same_code_is_seldom_a_false_alarm():
    for n_runs in (5, 12):
        check_false_alarms(0.03, n_runs, 1e-9, draws=500)


@pytest.mark.parametrize(
    "process_sd",
    [
        pytest.param(0.03, marks=pytest.mark.full),
        *(pytest.param(one, marks=pytest.mark.nightly) for one in (0.01, 0.145)),
    ],
)
def test_the_same_code_is_a_false_alarm_in_at_most_1_per_cent(process_sd):
    for n_runs in (5, 12):
        for tolerance in (1e-9, 0.05):
            check_false_alarms(process_sd, n_runs, tolerance, draws=1500)


def test_the_minimum_detectable_change_is_found_by_two_processes_in_9_of_10():
    check_detectable_change(0.01, 5, draws=200)
    check_detectable_change(0.145, 12, draws=200)


@pytest.mark.nightly
@pytest.mark.parametrize("process_sd", [0.01, 0.145])
def test_the_minimum_detectable_change_is_found_in_many_draws(process_sd):
    for n_runs in (5, 12):
        check_detectable_change(process_sd, n_runs, draws=1500)


def test_drift_that_is_recorded_run_by_run_is_found():
    """A fifth of a per cent more with each of 100 recorded runs: none is an outlier beside the latest ten."""
    rng, runs = np.random.default_rng(6), []
    for day in range(100):
        runs.append(10 * MS * 1.002**day * math.exp(rng.normal(0, 0.003)))
        if day >= 10:
            found = compare_to_history(
                runs[-1], history(runs[-11:-1], float(np.median(runs[:5]))), 0.05
            )
            if found.verdict is Verdict.REGRESSION:
                break
    assert (found.verdict, found.drift) == (Verdict.REGRESSION, True)
    assert found.anchor.ratio < 1.15


@pytest.mark.parametrize(("n_runs", "tolerance", "runs_until"), [(12, 0.05, 10), (15, 0.1, 13)])
def test_steep_drift_is_found_despite_the_variance_it_causes(n_runs, tolerance, runs_until):
    """One and a half per cent more with each recorded run: ten of them differ by 4.5 %, of which the noise is 0.5 %."""
    found_at = []
    for noise in np.random.default_rng(6).normal(0, 0.005, (100, n_runs)):
        runs = [10 * MS * 1.015**day * math.exp(one) for day, one in enumerate(noise)]
        pasts = [
            (runs[k], history(runs[max(0, k - 10) : k], float(np.median(runs[:5]))))
            for k in range(5, n_runs)
        ]
        verdicts = [compare_to_history(now, past, tolerance).verdict for now, past in pasts]
        found_at.append(6 + verdicts.index(Verdict.REGRESSION))
    assert np.quantile(found_at, 0.9) <= runs_until


def test_the_deviation_about_a_line_has_one_degree_of_freedom_less():
    logs = 0.015 * np.arange(10) + np.tile([0.01, -0.01], 5)
    line = np.polyval(np.polyfit(np.arange(10), logs, 1), np.arange(10))
    half = T_8 * math.sqrt(((logs - line) ** 2).sum() / 8) * math.sqrt(1 + 0.28683)
    found = compare_to_history(1.2, history(np.exp(logs), anchor=1.0), 0.05).anchor
    assert math.log(found.high / found.ratio) == pytest.approx(half)
    assert math.log(found.ratio / found.low) == pytest.approx(half)


OTHER_LEVELS = [
    ([10 * MS], QUIET, None, False),
    ([10.1 * MS], QUIET, None, False),
    ([10.3 * MS], QUIET, None, True),
    ([9.7 * MS], QUIET, None, True),
    ([10 * MS, 10 * MS, 20 * MS], QUIET, None, False),  # the middle one counts
    ([10 * MS, 20 * MS, 20 * MS], QUIET, None, True),
    ([19 * MS], QUIET[:4], None, False),
    ([21 * MS], QUIET[:4], None, True),
    ([4.9 * MS], QUIET[:1], None, True),
    ([110e-6], [100e-6] * 10, None, False),  # 10 µs
    ([125e-6], [100e-6] * 10, None, True),
    ([11.1 * MS], [11 * MS] * 10, 10 * MS, True),  # drift, which who records it accepts
    ([9 * MS], [9 * MS] * 10, 10 * MS, True),
    (
        [11.8 * MS],
        [10 * MS * 1.015**day for day in range(1, 11)],
        10 * MS,
        True,
    ),  # which the spread of these would hide
    ([10.2 * MS], [10.2 * MS] * 10, 10 * MS, False),
]


def test_runs_outside_the_interval_are_another_level():
    for recorded, past, anchor, another in OTHER_LEVELS:
        assert is_another_level(recorded, history(past, anchor), 0.05) is another, (
            recorded,
            past,
            anchor,
        )


class TestBounds:
    """Runs beside others, whose times alone are known by bounds only."""

    @staticmethod
    def of(runs, least=None, anchor=None, least_anchor=None):
        return History(
            runs=tuple(runs),
            least=tuple(least or runs),
            anchor=anchor,
            least_anchor=least_anchor,
            n_anchor=5,
        )

    def test_a_history_without_bounds_is_one_whose_bounds_are_its_times(self):
        for now in (0.0099, 0.0102, 0.0106, 0.03):
            plain = compare_to_history(now, history(QUIET, 0.0101), 0.05)
            bound = compare_to_history(
                now, self.of(QUIET, QUIET, anchor=0.0101, least_anchor=0.0101), 0.05, now
            )
            assert bound == plain, now

    def test_the_low_end_is_of_what_it_took_at_least_and_the_high_end_of_what_they_did(self):
        runs, least = [0.020] * 5, [0.010] * 5
        found = compare_to_history(0.030, self.of(runs, least), 0.05, 0.024).recent
        quiet = compare_to_history(0.024, history(runs), 0.05).recent
        assert found.low == pytest.approx(quiet.low)
        assert found.high == pytest.approx(
            compare_to_history(0.030, history(least), 0.05).recent.high
        )
        assert found.ratio == pytest.approx(1.5)

    def test_verdicts_hold_whatever_the_times_alone_were(self):
        cases = [
            (0.0200, 0.0150, [0.010] * 5, None, "REGRESSION"),  # at least 1.5 times
            (0.0200, 0.0105, [0.010] * 5, None, "INCONCLUSIVE"),  # at least 5 % more
            (0.0100, 0.0050, [0.010] * 5, [0.010] * 5, "PASS"),
            (0.0100, 0.0050, [0.010] * 5, [0.005] * 5, "INCONCLUSIVE"),  # perhaps twice
            (0.0040, 0.0030, [0.010] * 5, [0.005] * 5, "IMPROVED"),
            (0.0300, 0.0300, [0.010] * 5, [0.001] * 5, "REGRESSION"),
        ]
        for now, lowest, runs, least, expected in cases:
            found = compare_to_history(now, self.of(runs, least), 0.05, lowest).verdict
            assert found.value == expected, (now, lowest, runs, least)

    def test_under_five_runs_only_the_least_may_be_twice_as_long(self):
        for lowest, expected in [(0.0201, "REGRESSION"), (0.0200, "INCONCLUSIVE")]:
            found = compare_to_history(0.09, self.of([0.010]), 0.05, lowest)
            assert found.verdict.value == expected, lowest

    def test_what_would_show_is_larger_by_what_the_bounds_leave_open(self):
        plain = compare_to_history(0.010, history(QUIET), 0.05).minimum_detectable_change
        wide = compare_to_history(0.010, self.of(QUIET, [0.005] * 10), 0.05, 0.008)
        assert 1 + wide.minimum_detectable_change == pytest.approx(2 * 1.25 * (1 + plain))

    def test_a_level_is_another_only_where_the_bounds_are_apart(self):
        cases = [
            ([0.020], [0.020], None, True),
            ([0.020], [0.0101], None, False),
            ([0.008], [0.004], None, True),
            ([0.008], [0.004], [0.004] * 10, False),
        ]
        for new, least, stored, expected in cases:
            past = self.of(QUIET, stored)
            assert is_another_level(new, past, 0.05, least) is expected, (new, least, stored)
        few = self.of([0.010], [0.004])
        for new, least, expected in [
            ([0.030], [0.021], True),
            ([0.030], [0.019], False),
            ([0.001], [0.001], True),
            ([0.003], [0.001], False),
        ]:
            assert is_another_level(new, few, 0.05, least) is expected, (new, least)

"""The message on a decision of a paired run: ratio, tolerance, reason and what to try."""

import math

import numpy as np
import pytest

from pytest_tfperf.paired.decision_message import decision_message
from pytest_tfperf.stats.sequential_test import StoppingRule, decide


def rule(tolerance=0.02, n_tests=1, process_sd=0.0):
    return StoppingRule(tolerance=tolerance, n_tests=n_tests, process_sd=process_sd)


def turns(ratio, n=64, sd=0.005, seed=0):
    """Log ratios around a ratio, mirrored, so that the estimate is the ratio itself."""
    noise = np.abs(np.random.default_rng(seed).normal(0, sd, n // 2))
    return (math.log(ratio) + np.column_stack([noise, -noise]).ravel()).tolist()


TRY = " | "


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
            rule(process_sd=0.0045),
            "is 1.105 times that of main (1.093 to 1.117, 98.6 % interval, 8 pairs of turns; a second pair of processes: 1.094 (1.082 to 1.106, "
            f"8 pairs of turns)), wanted at most 2 % slower{TRY}look at which other metrics",
        ),
        (
            [[0.1] * 8, [0.0] * 8],
            rule(process_sd=0.0045),
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
            rule(tolerance=0.01, process_sd=0.0045),
            "wanted at most 1.11 % slower (raised from 1 %: two processes of the same code differ as much); a slow-down of 2.98 % would have",
        ),
        (
            [turns(1.02, 32, sd=0.1)],
            rule(),
            f"cases{TRY}a larger --tfperf-budget, or a quieter machine",
        ),
        (
            [[math.log(10)], [math.log(9)] * 2],
            rule(),
            "is 10 times that of main (1 pair of turns, decided by it alone: pairs of turns of the same code differ by up to 3 times; a second "
            "pair of processes: 9.000 (2 pairs of turns, decided by each of them alone: pairs of turns of the same code differ by up to 3 "
            f"times)), wanted at most 2 % slower{TRY}look at which other metrics",
        ),
        (
            [[math.log(10)], [0.0]],
            rule(),
            "a second pair of processes: 1.000 (1 pair of turns, too few for an interval of 98.6 %)), wanted at most 2 % slower: two pairs of "
            f"processes disagree{TRY}a larger --tfperf-budget",
        ),
        (
            [[0.0]],
            rule(),
            "is 1.000 times that of main (1 pair of turns, too few for an interval of 98.6 %), wanted at most 2 % slower"
            f"{TRY}a larger --tfperf-budget, or a quieter machine",
        ),
    ],
)
def test_the_message_has_result_tolerance_and_advice(pairs, asked, said):
    found = TRY.join(decision_message(decide(pairs, asked), "step_time", "main"))
    assert found.startswith("step_time is ")
    assert said in found

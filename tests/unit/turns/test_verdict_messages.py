"""The message on a decision of a paired run: change, times, limit, interval and what to try."""

import math

from helpers.turns import decide_turns, turns

from pytest_tfperf.stats.sequential import StoppingRule
from pytest_tfperf.turns.verdicts import judge


def rule(tolerance=0.02, process_sd=0.0):
    return StoppingRule(tolerance=tolerance, n_tests=1, process_sd=process_sd, n_pairs=4)


def test_the_message_has_change_times_limit_and_advice():
    cases = [
        (
            [[0.0] * 8],
            rule(),
            [
                "step_time is 0 % slower than main: 10 ms to 10 ms, limit 2 %",
                "measured: 0 to 0 % slower (99.8 % interval), 8 pairs of turns",
            ],
        ),
        (
            [[-0.2] * 8] * 3,
            rule(),
            [
                "step_time is 18 % faster than main: 10 ms to 8.19 ms",
                "measured: 18 to 18 % faster (99.7 % interval), 24 pairs of turns in 3 pairs of processes (18 % faster, 18 % faster, 18 % faster)",
            ],
        ),
        (
            [[0.4] * 8, [0.39] * 8],
            rule(process_sd=0.0045),
            [
                "step_time is 48 % slower than main: 10 ms to 14.8 ms, limit 2 %",
                "measured: 47 to 50 % slower (99.8 % interval), 16 pairs of turns in 2 pairs of processes (49 % slower, 48 % slower)",
                "try: look at the other metrics that differ",
                "if intended: a larger max_regression",
            ],
        ),
        (
            [[0.1] * 8],
            rule(),
            [
                "step_time is 11 % slower than main: 10 ms to 11.1 ms, limit 2 %; too few pairs of processes show it",
                "measured: 11 to 11 % slower (99.1 % interval), 8 pairs of turns",
                "a slow-down of 2 % would have been found in 9 of 10 cases",
                "try: run it again, so that more pairs of processes can say the same",
            ],
        ),
        (
            [[0.01] * 8] * 2,
            rule(tolerance=0.005, process_sd=0.0045),
            [
                "step_time is 1 % slower than main: 10 ms to 10.1 ms, limit 0.645 %; it may be 0.16 to 1.9 % slower",
                "measured: 0.16 to 1.9 % slower (99.2 % interval), 16 pairs of turns in 2 pairs of processes (1 % slower, 1 % slower)",
                "limit: raised from 0.5 %: two processes of the same code differ too much",
                "a slow-down of 1.91 % would have been found in 9 of 10 cases",
                "try: a quieter machine, or a max_regression further than 0.429 % from what was found",
            ],
        ),
        # half of the interval is 2.614 x 0.45 % / √2 = 0.83 %, 1.44 x it is 1.2 %, and 0.7 % are wanted: 2 x 1.71² = 5.9 pairs of 12 s
        (
            [[math.log(1.02) - 0.007] * 8] * 2,
            rule(process_sd=0.0045),
            [
                "step_time is 1.3 % slower than main: 10 ms to 10.1 ms, limit 2 %; it may be 0.44 to 2.1 % slower",
                "measured: 0.44 to 2.1 % slower (99.2 % interval), 16 pairs of turns in 2 pairs of processes (1.3 % slower, 1.3 % slower)",
                "a slow-down of 3.28 % would have been found in 9 of 10 cases",
                "try: --tfperf-budget 72, or a quieter machine",
            ],
        ),
        (
            [[math.log(10)], [math.log(10)] * 3],
            rule(),
            [
                "step_time is 10 times slower than main: 10 ms to 100 ms, limit 2 %",
                "measured: 4 pairs of turns in 2 pairs of processes (10 times slower, 10 times slower), decided by each of them alone: "
                "pairs of turns of the same code differ by up to 3 times",
                "try: look at the other metrics that differ",
                "if intended: a larger max_regression",
            ],
        ),
        (
            [[0.0]],
            rule(),
            [
                "step_time is 0 % slower than main: 10 ms to 10 ms, limit 2 %; too few pairs of turns for a decision",
                "measured: 1 pair of turns, too few for an interval",
                "try: a larger --tfperf-budget, or a quieter machine",
            ],
        ),
    ]
    for pairs, asked, said in cases:
        decision = decide_turns(pairs, asked, final=True)
        found = judge(decision, "main", 0.010, 12.0)
        details = [f"{label}: {text}" if label else text for label, text in found.details]
        advice = [f"{label}: {text}" for label, text in found.advice]
        assert [found.sentence, *details, *advice] == said, said


def test_a_noisy_pair_may_be_faster_and_slower():
    decision = decide_turns([turns(1.02, 32, sd=0.1)], rule(), final=True)
    found = judge(decision, "main", 0.010, 12.0)
    assert found.sentence.endswith("limit 2 %; it may be 2.3 % faster to 6.4 % slower")
    [(_, advice)] = found.advice
    assert advice.startswith("a quieter machine, or a max_regression further than")

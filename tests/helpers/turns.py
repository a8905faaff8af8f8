"""Turns of process pairs as log ratios, and what is decided of them."""

import math

import numpy as np

from pytest_tfperf.stats.sequential import decide, pair_estimate


def decide_turns(pairs, asked, final=False):
    """The decision on the log ratios of process pairs."""
    return decide([pair_estimate(pair) for pair in pairs], asked, final)


def turns(ratio, n=64, sd=0.005, seed=0):
    """Log ratios around a ratio, mirrored, so that the estimate is the ratio itself."""
    noise = np.abs(np.random.default_rng(seed).normal(0, sd, n // 2))
    return (math.log(ratio) + np.column_stack([noise, -noise]).ravel()).tolist()

"""
Theil–Sen slope of a series, with its interval.

The slope is the median of the slopes of all pairs of points. Up to 29 % of the points may be
anything. The interval comes from the distribution of Kendall's rank correlation. Neither assumes a
normal distribution.

Source: Theil 1950; Sen, Estimates of the Regression Coefficient Based on Kendall's Tau, JASA 63
(1968): 1379–1389.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

FEWEST = 8
"""Points; fewer give no interval at the usual confidence."""
_MOST = 100  # points, at equal distances; all pairs are compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """A slope and its bounds."""

    estimate: float
    """Median of the slopes of all pairs."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""


def slope_with_interval(
    at: Sequence[float], values: Sequence[float], confidence: float
) -> Slope | None:
    """
    Return the slope of values over ascending positions, or None under `FEWEST` points.

    The interval takes the distances from the line as independent.
    """
    if len(at) != len(values):
        raise ValueError(f"{len(values)} values at {len(at)} positions")
    if len(at) < FEWEST:
        return None
    stride = math.ceil(len(at) / _MOST)
    x = np.asarray(at, dtype=np.float64)[::-1][::stride][::-1]
    y = np.asarray(values, dtype=np.float64)[::-1][::stride][::-1]
    n = len(x)
    first, second = np.triu_indices(n, k=1)
    slopes = np.sort((y[second] - y[first]) / (x[second] - x[first]))
    estimate = float(np.median(slopes))
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    below = max(math.floor((len(slopes) - reach) / 2) - 1, 0)
    return Slope(
        estimate=estimate, low=float(slopes[below]), high=float(slopes[len(slopes) - 1 - below])
    )

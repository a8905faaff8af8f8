"""
Critical values of a group sequential test, in standard errors, for each interim analysis.

Analysing as often as one likes finds something in any noise (Armitage, McPherson and Rowe, JRSS A
132, 1969). So each analysis may spend a part of the error (Lan and DeMets, Discrete Sequential
Boundaries for Clinical Trials, Biometrika 70, 1983). The analyses share their data, so the values
come from the joint distribution; splitting the error without it would ask for more than is needed.
"""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

_STEP, _REACH = 0.02, 8.0  # of the grid, in standard deviations of one group and of the sum
_NORMAL = NormalDist()


@functools.cache
def critical_values(errors: tuple[float, ...]) -> tuple[float, ...]:
    """
    Return the critical value of each analysis, in standard errors of its estimate.

    The estimate is the mean of as many equal, independent normal groups as there were analyses.
    A sum that has passed its critical value is not followed further (Armitage, McPherson and Rowe
    1969, by numerical integration).

    Args:
        errors: The chance of passing the value of each analysis and none before, one-sided; 0 for
            an analysis that nothing may pass.

    Raises:
        ValueError: If there is no error, or one is not from 0 to below 0.5.
    """
    if not errors or not all(0 <= error < 0.5 for error in errors):
        raise ValueError(f"errors are one or more shares from 0 to below 0.5, not {errors}")
    reach = _REACH * math.sqrt(len(errors))
    sums = np.arange(-reach, reach + _STEP, _STEP)
    group = _density(np.arange(-_REACH, _REACH + _STEP, _STEP))
    found: list[float] = []
    going_on = _density(sums)
    for n, error in enumerate(errors, start=1):
        if n > 1:
            going_on = np.convolve(going_on, group, mode="same") * _STEP
        bound = _bound(sums, going_on, error) if error else math.inf
        found.append(bound / math.sqrt(n))
        going_on = going_on * np.clip((bound - sums) / _STEP + 0.5, 0, 1)
    return tuple(found)


def _density(at: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    density: npt.NDArray[np.float64] = np.exp(-(at**2) / 2) / math.sqrt(2 * math.pi)
    return density


def _bound(sums: npt.NDArray[np.float64], density: npt.NDArray[np.float64], error: float) -> float:
    """Return the sum beyond which the density holds this chance."""
    beyond = np.cumsum(density[::-1])[::-1] * _STEP
    at = int(np.searchsorted(-beyond, -error))
    # the chance lies between two points of the grid, about linearly
    share = (beyond[at - 1] - error) / (beyond[at - 1] - beyond[at])
    return float(sums[at - 1] + (share - 0.5) * _STEP)

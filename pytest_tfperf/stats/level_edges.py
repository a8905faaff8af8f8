"""The best places of the edges between levels, given roughly where they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_MOST_ROUNDS, _MOST_MOVED = 10, 50  # values, in a round
_FAR = 2.5 * 1.4826  # 2.5 standard deviations of normal values, by their median distance
_ROUNDING = 1e-9


def settled(values: Floats, places: Sequence[int], fewest: int) -> list[int]:
    """
    Move each edge to the best place between the two beside it, until none moves.

    There the losses from the medians of both sides are least. Values that are clipped around one
    median, which serve the test, may leave a large change one run off.

    Args:
        values: The values.
        places: Place of the first value behind each edge, in order.
        fewest: Fewest values between two edges.
    """
    edges = [0, *places, len(values)]
    for _ in range(_MOST_ROUNDS):
        before = list(edges)
        for n in range(1, len(edges) - 1):
            edges[n] = _best_place(values, edges[n - 1], edges[n], edges[n + 1], fewest)
        if edges == before:
            break
    return edges[1:-1]


def _best_place(values: Floats, first: int, place: int, end: int, fewest: int) -> int:
    """
    Return the best place of one edge for the medians that its sides have now.

    Args:
        values: The values.
        first: The edge before.
        place: The edge.
        end: The edge after.
        fewest: Fewest values between two edges.
    """
    left, right = values[first:place], values[place:end]
    level, next_level = float(np.median(left)), float(np.median(right))
    distances = np.abs(np.concatenate([left - level, right - next_level]))
    far = _FAR * float(np.median(distances))
    low, high = max(first + fewest, place - _MOST_MOVED), min(end - fewest, place + _MOST_MOVED)
    moved = values[low:high]
    more = np.concatenate(
        [[0.0], np.cumsum(_losses(moved - level, far) - _losses(moved - next_level, far))]
    )
    # values that are the same make places as good, but for rounding
    good = more <= more.min() + _ROUNDING * np.abs(more).max()
    return place if good[place - low] else low + int(np.argmax(good))


def _losses(residuals: Floats, far: float) -> Floats:
    """
    Return Huber's loss (Annals of Mathematical Statistics 35 (1964): 73–101).

    Args:
        residuals: Distances from the level.
        far: Distance from which it grows as the distance and no more as its square; if it is 0,
            since half of the values or more are the same, it is the distance.
    """
    distances = np.abs(residuals)
    if not far:
        return distances
    near = np.minimum(distances, far)
    losses: Floats = near * (distances - near / 2)
    return losses

"""
Measure how often steady series lose blocks or show a trend, and how often a slow start is found.

    python benchmarks/steady.py

The series are steady by construction, have a slow start, or are parts of the recorded blocks in blocks.json. Those
come from a small step (0.3 ms) and a convolution step (4 ms), 260 blocks of 20 ms in each of 6 processes, on a
shared virtual machine of two cores. The first 60 blocks of a recorded series are its warm-up.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pytest_tfperf.stats.steady_state import find_trend, slow_start

Series = npt.NDArray[np.float64]
N_SERIES, LENGTHS, WARM_UP = 4000, (10, 20, 50), 60
RNG = np.random.default_rng(1)


def autocorrelated(r: float) -> Callable[[int], Series]:
    """An AR(1) process in its stationary state, with a standard deviation of 5 %."""

    def draw(n: int) -> Series:
        noise = RNG.normal(size=(N_SERIES, n))
        for i in range(1, n):
            noise[:, i] = r * noise[:, i - 1] + np.sqrt(1 - r * r) * noise[:, i]
        return 1 + 0.05 * noise

    return draw


def bursts(n: int) -> Series:
    """Bursts of +50 % for 2.5 blocks, a fifth of the time."""
    on, chance = np.zeros((N_SERIES, n + 20), dtype=bool), RNG.random((N_SERIES, n + 20))
    for i in range(1, n + 20):
        on[:, i] = np.where(on[:, i - 1], chance[:, i] < 0.6, chance[:, i] < 0.1)
    return (1 + 0.02 * RNG.normal(size=(N_SERIES, n))) * np.where(on[:, 20:], 1.5, 1.0)


def starting(slow: Callable[[int], Series]) -> Callable[[int], Series]:
    """Independent noise of 5 % on a slow start."""
    return lambda n: slow(n) * (1 + 0.05 * RNG.normal(size=(N_SERIES, n)))


STEADY: dict[str, Callable[[int], Series]] = {
    "normal": autocorrelated(0.0),
    "lognormal": lambda n: np.exp(0.3 * RNG.normal(size=(N_SERIES, n))),
    "heavy-tailed (t, 2 degrees)": lambda n: (
        1 + 0.05 * np.abs(RNG.standard_t(2, size=(N_SERIES, n)))
    ),
    "bursts of +50 %": bursts,
    "r = 0.3": autocorrelated(0.3),
    "r = 0.5": autocorrelated(0.5),
    "r = 0.8": autocorrelated(0.8),
}
SLOW_STARTS: dict[str, Callable[[int], Series]] = {
    "+50 % for 3 blocks": starting(lambda n: np.where(np.arange(n) < 3, 1.5, 1.0)),
    "+10 % for three tenths": starting(lambda n: np.where(np.arange(n) < 0.3 * n, 1.1, 1.0)),
    "+50 % exp(-i/3)": starting(lambda n: 1 + 0.5 * np.exp(-np.arange(n) / 3)),
    "+30 % exp(-i/10)": starting(lambda n: 1 + 0.3 * np.exp(-np.arange(n) / 10)),
}


def recorded(step: str, n: int) -> Series:
    """Parts of the recorded series that begin a quarter of their length apart."""
    series = json.loads((Path(__file__).parent / "blocks.json").read_text("utf-8"))[step]
    return np.array(
        [
            times[at : at + n]
            for times in series
            for at in range(WARM_UP, len(times) - n + 1, max(5, n // 4))
        ]
    )


def rates(drawn: Series) -> str:
    """Shares of series with dropped blocks and with a trend, and the mean medians of all and of the counted blocks."""
    dropped = [slow_start(times) for times in drawn]
    kept = [times[n:] for times, n in zip(drawn, dropped, strict=True)]
    share, trends = (
        np.mean(np.array(dropped) > 0),
        np.mean([find_trend(times) is not None for times in kept]),
    )
    before, after = (
        np.mean([np.median(times) for times in drawn]),
        np.mean([np.median(times) for times in kept]),
    )
    return f"{share:7.1%} {trends:7.1%}   {after / before - 1:+7.2%}"


def lines() -> Iterator[str]:
    """Print the table, kind by kind."""
    yield f"{'':30}{'n':>4} dropped   trend    median"
    for kinds in (STEADY, SLOW_STARTS):
        yield from (
            f"{name:30}{n:4} {rates(draw(n))}" for name, draw in kinds.items() for n in LENGTHS
        )
    yield from (
        f"recorded {step:21}{n:4} {rates(recorded(step, n))}"
        for step in ("small", "convolution")
        for n in LENGTHS
    )


if __name__ == "__main__":
    print(*lines(), sep="\n")

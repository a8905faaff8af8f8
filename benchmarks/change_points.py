"""
Count false change points of stationary histories, and find planted ones.

    python benchmarks/change_points.py           # about five minutes
    python benchmarks/change_points.py --series 200

Histories are generated, or drawn without order from the recorded runs of the same code in data/runs.jsonl.gz. A
planted change is 5 %; it is found if a change point lies within ten runs of its place. Counts are per 1,000 series. The last two lines
are the power of a test that knows place and spread, at 1 % false alarms, and the false alarms of a look after each run, in a fifth of the series.
"""

import argparse
import gzip
import itertools
import json
import statistics
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pytest_tfperf.stats.change_points import FEWEST_AT_A_LEVEL, change_points

Series = npt.NDArray[np.float64]
SPREAD, SHIFT, AFTER, NEAR = 0.03, 0.05, 10, 10
LENGTHS, BEFORE = (11, 20, 50, 100), (10, 30, 90)
RNG = np.random.default_rng(1)


def correlated(r: float) -> Callable[[tuple[int, int]], Series]:
    """Normal noise that depends on the run before: an AR(1) process in its stationary state."""

    def draw(shape: tuple[int, int]) -> Series:
        noise = RNG.normal(size=shape)
        for i in range(1, shape[1]):
            noise[:, i] = r * noise[:, i - 1] + np.sqrt(1 - r * r) * noise[:, i]
        return 1 + SPREAD * noise

    return draw


def heavy_tailed(shape: tuple[int, int]) -> Series:
    """Student's t with 3 degrees of freedom, of the same standard deviation."""
    return np.exp(SPREAD * RNG.standard_t(3, size=shape) / np.sqrt(3))


def disturbed(shape: tuple[int, int]) -> Series:
    """Normal noise; one run in twenty is 20 to 80 % slower for outside reasons."""
    slow = np.where(RNG.random(shape) < 0.05, RNG.uniform(1.2, 1.8, shape), 1.0)
    return (1 + SPREAD * RNG.normal(size=shape)) * slow


def recorded() -> dict[str, Callable[[tuple[int, int]], Series]]:
    """Runs of the same code, drawn without order, with replacement."""
    with gzip.open(
        Path(__file__).parent / "data" / "runs.jsonl.gz", "rt", encoding="utf-8"
    ) as lines:
        runs = [run["ours"] for run in map(json.loads, lines) if run["planted"] == 0]
    return {
        f"recorded, {step}": lambda shape, step=step: RNG.choice([run[step] for run in runs], shape)
        for step in runs[0]
    }


NOISE: dict[str, Callable[[tuple[int, int]], Series]] = {
    "normal, 3 %": correlated(0.0),
    "heavy-tailed, 3 %": heavy_tailed,
    "normal and outliers": disturbed,
    **recorded(),
    "r = 0.3": correlated(0.3),
    "r = 0.5": correlated(0.5),
}


def distance(series: Series, place: int) -> int | None:
    """Return how far the nearest change point is from a place; None if it is more than ten runs."""
    found = [abs(change.index - place) for change in change_points(series.tolist())]
    return min((far for far in found if far <= NEAR), default=None)


def is_found_before(series: Series, place: int) -> bool:
    """Return whether the change is found in any run before the tenth after it."""
    return any(
        distance(series[: place + n_after], place) is not None
        for n_after in range(AFTER - 1, FEWEST_AT_A_LEVEL - 1, -1)
    )


def row(title: str, texts: Iterable[str]) -> str:
    """Return a line of the table."""
    return f"{title:34}" + "".join(f"{text:>9}" for text in texts)


def false_alarms(n_series: int) -> Iterator[str]:
    """Count series with a change point, for each kind of noise and length."""
    yield row("false alarms, per 1,000 series", (f"n = {n}" for n in LENGTHS))
    for name, draw in NOISE.items():
        counts = (
            sum(bool(change_points(series.tolist())) for series in draw((n_series, n)))
            for n in LENGTHS
        )
        yield row(name, (f"{1000 * count / n_series:.0f}" for count in counts))


def false_alarms_of_all_looks(n_series: int) -> str:
    """Count series of normal noise that have a change point at some look, one after each run."""
    least, most = LENGTHS[0], LENGTHS[-1]
    count = sum(
        any(change_points(series[:n].tolist()) for n in range(least, most + 1))
        for series in NOISE["normal, 3 %"]((n_series, most))
    )
    return row(f"normal, looks at {least} to {most} runs", [f"{1000 * count / n_series:.0f}"])


def found(n_series: int) -> Iterator[str]:
    """Measure how often a planted change is found, and how far from its place."""
    yield row("5 % slower, runs before the change", map(str, BEFORE))
    for name in ("normal, 3 %", "heavy-tailed, 3 %", "normal and outliers"):
        ten, soon, near = [], [], []
        for n in BEFORE:
            drawn = NOISE[name]((n_series, n + AFTER))
            drawn[:, n:] *= 1 + SHIFT
            far = [distance(series, n) for series in drawn]
            known = [each for each in far if each is not None]
            ten.append(len(known) / n_series)
            near.append(np.mean([each <= 2 for each in known]))
            soon.append(
                np.mean(
                    [
                        one is not None or is_found_before(series, n)
                        for one, series in zip(far, drawn, strict=True)
                    ]
                )
            )
        yield row(f"{name}: at ten runs", (f"{share:.1%}" for share in ten))
        yield row("  at ten runs or before", (f"{share:.1%}" for share in soon))
        yield row("  of those at ten, within two runs", (f"{share:.1%}" for share in near))


def known_place_and_spread(n_before: int) -> float:
    """Return how often a two-sided test of the difference of means finds the change at a level of 1 %."""
    normal = statistics.NormalDist()
    distance = np.log(1 + SHIFT) / SPREAD / np.sqrt(1 / n_before + 1 / AFTER)
    return normal.cdf(distance - normal.inv_cdf(0.995))


def main() -> None:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0].strip())
    parser.add_argument("--series", type=int, default=1000, metavar="N", help="series of each kind")
    n_series = parser.parse_args().series
    for line in itertools.chain(false_alarms(n_series), [""], found(n_series)):
        print(line, flush=True)
    bounds = (f"{known_place_and_spread(n):.1%}" for n in BEFORE)
    print(row("normal, 3 %: place and spread known", bounds))
    print(false_alarms_of_all_looks(max(n_series // 5, 1)))


if __name__ == "__main__":
    main()

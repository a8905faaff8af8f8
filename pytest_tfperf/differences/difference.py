"""One difference between two profiles, and the texts that all differences share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.quantities import COUNT, SECONDS, format_quantity
from pytest_tfperf.text import and_more, elide

LEAST_SHARE = 0.02
"""Share of the step below which times of unchanged code differ, even on a quiet machine."""
LEAST_RUNS = 0.5
"""Runs a step of an op or stage; below, it runs once an epoch and may miss the window."""
_NO_TIME_S = 1e-9  # the shortest time that is written
_NAMED = 2
_WIDEST_NAME = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that changed, in words."""

    what: str
    """Description of the change."""
    seconds: float | None = None
    """
    Time that the change adds to a step, negative if it saves time; None if the change has no time.

    For a part it is the step's own time, for an op its self time on any thread or device. For an
    input stage it is its self time or the time that it blocks the step, whichever changed more.
    """

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Difference:
        """Read a difference of a run file, in which another version may have more fields."""
        return cls(what=row["what"], seconds=row["seconds"])

    @property
    def line(self) -> str:
        """`+1.2 ms: 3 new Transpose on the host`."""
        if self.seconds is None or abs(self.seconds) < _NO_TIME_S:
            return self.what
        sign = "+" if self.seconds >= 0 else "−"
        return f"{sign}{format_quantity(abs(self.seconds), SECONDS)}: {self.what}"


def most_telling(found: Sequence[Difference], most: int) -> list[Difference]:
    """Choose those with the largest times, and at least two without a time if there are."""
    timed = [one for one in found if one.seconds is not None]
    untimed = [one for one in found if one.seconds is None]
    n_untimed = min(len(untimed), max(2, most - len(timed)))
    return [*timed[: most - n_untimed], *untimed[:n_untimed]]


def added_counts(old: Mapping[str, float], new: Mapping[str, float]) -> dict[str, float]:
    """Return by how much each count rose, of those that did."""
    rises = {name: count - old.get(name, 0) for name, count in new.items()}
    return {name: rise for name, rise in rises.items() if rise > 0}


def short_name(name: str) -> str:
    """Cut the middle of a long name."""
    return elide(name, _WIDEST_NAME)


def few_names(names: Sequence[str], most: int = _NAMED) -> str:
    """Name the first few, and count the others."""
    return and_more(list(map(short_name, names)), most)


def change_of_time(before_s: float, after_s: float) -> str:
    """`10 ms → 12.1 ms`."""
    return f"{format_quantity(before_s, SECONDS)} → {format_quantity(after_s, SECONDS)}"


def shown_count(number: float) -> str:
    """Write a count with at most two decimals."""
    return format_quantity(round(number, 2), COUNT)

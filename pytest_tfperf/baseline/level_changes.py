"""Changes of the level of a history in words: since which run, and how much slower or faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_tfperf.quantities import RATIO, SECONDS, format_quantity
from pytest_tfperf.stats.change_points import FEWEST, MOST_VALUES, ChangePoint, change_points
from pytest_tfperf.text import format_slowdown, plural

_NOT_KNOWN = "Changes of level are not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChanges:
    """Changes of level of a history, or the reason why they are not known."""

    points: tuple[ChangePoint, ...]
    """The changes from old to new."""
    texts: tuple[str, ...]
    """A text for each of them: `since commit abc: 5 % slower`."""
    sentences: tuple[str, ...]
    """Sentences on all of them; one that says so if there are none, or they are not known."""
    first: int = 0
    """Place of the first run that was looked at."""
    is_known: bool = True
    """False if too few runs, or values that have no ratio, tell nothing."""


def level_changes(
    values: Sequence[float], commits: Sequence[str], unit: str = SECONDS
) -> LevelChanges:
    """Find the changes of level of a history."""
    if len(values) < FEWEST:
        return _none(f"{_NOT_KNOWN}: {FEWEST} runs show one, and there are {len(values)}.", False)
    if min(values) <= 0:
        return _none(f"{_NOT_KNOWN}: a value is {format_quantity(min(values), unit)}.", False)
    points = change_points(values)
    runs = looked_at(len(values))
    if not points:
        return _none(f"No change of level in {runs}.", True)
    texts = tuple(
        f"since {_run(point.index, len(values), commits)}: {_change(point.ratio, unit)}"
        for point in points
    )
    sentences = tuple(
        f"{text[0].upper()}{text[1:]}, {format_quantity(point.before, unit)} to "
        f"{format_quantity(point.after, unit)} (p = {point.p:.2g})."
        for text, point in zip(texts, points, strict=True)
    )
    first = max(len(values) - MOST_VALUES, 0)
    if first:
        sentences = (f"Changes of level are those of {runs}.", *sentences)
    return LevelChanges(points=points, texts=texts, sentences=sentences, first=first)


def looked_at(n_runs: int) -> str:
    """Return in words which of some runs are looked at for changes of level."""
    if n_runs > MOST_VALUES:
        return f"the newest {MOST_VALUES:,} of {n_runs:,} runs"
    return plural(n_runs, "run")


def run_name(index: int, commits: Sequence[str]) -> str:
    """Return the commit of a run, or that it is not known."""
    commit = commits[index] if index < len(commits) else ""
    return f"commit {commit}" if commit else "its commit is not known"


def _change(ratio: float, unit: str) -> str:
    if unit == SECONDS:
        return format_slowdown(ratio)
    return f"{format_quantity(abs(ratio - 1), RATIO)} {'more' if ratio > 1 else 'less'}"


def _run(index: int, n_runs: int, commits: Sequence[str]) -> str:
    name = run_name(index, commits)
    return name if name.startswith("commit") else f"run {index + 1} of {n_runs} ({name})"


def _none(sentence: str, is_known: bool) -> LevelChanges:
    return LevelChanges(points=(), texts=(), sentences=(sentence,), is_known=is_known)

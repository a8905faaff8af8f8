"""Totals over the steps of a run, whose number depends on the time that they take."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_tfperf.quantities import COUNT, format_quantity
from pytest_tfperf.results import Profile, Verdict
from pytest_tfperf.values import Value

TOTALS = ("retraces", "xla_compiles")
"""Metrics that count over all steps after the first."""


def counted_steps(profile: Profile) -> int | None:
    """Return the number of steps that the totals of a profile are counted over, if one is known."""
    return next(
        (
            value.detail["n_steps"]
            for value in map(profile.metrics.get, TOTALS)
            if value is not None and value.number is not None and "n_steps" in value.detail
        ),
        None,
    )


@dataclass(frozen=True, slots=True)
class ComparedTotal:
    """A total over other steps than the one it is compared with."""

    now: float
    """The number to compare: that of as many steps, if it is known."""
    verdict: Verdict | None = None
    """The verdict, if the numbers of steps decide it."""
    sentence: str = ""
    """The end of its sentence, or of that on the change."""


def compared(value: Value, before: float, steps_before: int, reference: str) -> ComparedTotal:
    """
    Compare a known total with another one as far as the steps of both go.

    A step of unchanged code that traces now and then does so more often in more steps.

    Args:
        value: The total, over `n_steps` of its detail, and different.
        before: The total that it is compared with.
        steps_before: The steps that this is counted over.
        reference: Name of what it is compared with.
    """
    assert value.number is not None
    now, steps = value.number, int(value.detail["n_steps"])
    over = f"over {_number(steps)} steps"
    theirs = f"{_number(before)} over {_number(steps_before)} in {reference}"
    if steps < steps_before and now < before:
        return ComparedTotal(now, Verdict.PASS, f"{over}, {theirs}: fewer steps ran")
    if steps <= steps_before or now < before:
        return ComparedTotal(now)
    at_steps = value.detail.get("at_steps")
    if at_steps is not None:
        alike = float(sum(step <= steps_before for step in at_steps))
        if alike <= before:
            first = f"{_number(alike)} of them in the first {_number(steps_before)}"
            return ComparedTotal(alike, Verdict.PASS, f"{over}, {first}; {theirs}")
        return ComparedTotal(alike, sentence=f" over the first {_number(steps_before)} steps")
    if before and now * steps_before <= (before + 1) * steps:
        why = "more steps ran, and which of them count is not known"
        return ComparedTotal(now, Verdict.INCONCLUSIVE, f"{over}, {theirs}: {why}")
    return ComparedTotal(now)


def _number(number: float) -> str:
    return format_quantity(number, COUNT)

"""Totals over the steps of a run, whose number depends on the time that they take."""

from __future__ import annotations

from pytest_tfperf.metric_evidence import TOTALS
from pytest_tfperf.quantities import COUNT, format_quantity
from pytest_tfperf.results import Profile
from pytest_tfperf.values import Json

COUNTED_STEPS = "counted_steps"
"""Key of an entry: the number of steps that its totals are counted over."""


def counted_steps(profile: Profile) -> Json:
    """Return the part of an entry that tells over how many steps its totals are counted."""
    for name in TOTALS:
        value = profile.metrics.get(name)
        if value is not None and value.number is not None and "n_steps" in value.detail:
            return {COUNTED_STEPS: int(value.detail["n_steps"])}
    return {}


def why_undecided(
    before: float, steps_before: int, now: float, steps_now: int, reference: str
) -> str:
    """
    Return why a total does not tell whether the step got worse; empty if it does.

    A step of unchanged code that traces now and then does so more often in more steps.
    """
    more = now > before > 0 and steps_now > steps_before
    fewer = now < before and steps_now < steps_before
    is_more_frequent = now * steps_before > (before + 1) * steps_now
    if not (fewer or (more and not is_more_frequent)):
        return ""
    of, theirs, over, over_theirs = (
        format_quantity(number, COUNT) for number in (now, before, steps_now, steps_before)
    )
    return f"{of} over {over} steps, {theirs} over {over_theirs} in {reference}"

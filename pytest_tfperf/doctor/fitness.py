"""The last section of `tfperf doctor`: in one sentence, the checks that this machine is fit for."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_tfperf.doctor.sections import Section
from pytest_tfperf.doctor.turn_sections import SameCodeTurns
from pytest_tfperf.quantities import RATIO, format_quantity
from pytest_tfperf.values import Unknown

_STRUCTURAL = "This machine is fit for limits and structural baselines"


def fitness_section(profiler: Section, kinds: Sequence[SameCodeTurns], budget_s: float) -> Section:
    """
    Return the conclusion of the other sections.

    Args:
        profiler: The section on the profiler.
        kinds: The turns; none if processes cannot be paused here.
        budget_s: Seconds of turns of a test.
    """
    smallest = None if profiler.failed else _smallest_change(kinds)
    sentence = (
        "This machine is not fit to profile: a check of the profiler failed."
        if profiler.failed
        else _sentence(smallest, kinds, budget_s)
    )
    change = None if smallest is None else smallest[0]
    return Section(
        key="fit",
        title=sentence,
        data={"sentence": sentence, "minimum_detectable_change": change},
    )


def _sentence(
    smallest: tuple[float, str] | None, kinds: Sequence[SameCodeTurns], budget_s: float
) -> str:
    if smallest is not None:
        change, label = format_quantity(smallest[0], RATIO), smallest[1]
        return (
            "This machine is fit for limits, baselines and --tfperf-against: a test with "
            f"{budget_s:.0f} s of turns finds slow-downs from {change} on ({label}, 90 % power)."
        )
    if not kinds:
        return f"{_STRUCTURAL}, not for --tfperf-against, which must pause processes."
    unknown = [kind.noise.why for kind in kinds if isinstance(kind.noise, Unknown)]
    if len(unknown) == len(kinds):
        return f"{_STRUCTURAL}, not for --tfperf-against: {unknown[0]}."
    steady = [kind for kind in kinds if _agrees(kind)]
    if not steady:
        return f"{_STRUCTURAL}, not for step times: processes of the same code differ too much."
    needed = [kind.needed for kind in steady if kind.needed is not None]
    if not needed:
        return f"{_STRUCTURAL}; more turns (--seconds) would show how well it compares step times."
    tolerance = format_quantity(min(needed), RATIO)
    return f"{_STRUCTURAL}, and for step times at max_regression={tolerance!r} or more."


def _smallest_change(kinds: Sequence[SameCodeTurns]) -> tuple[float, str] | None:
    """Return the smallest slow-down found at a tolerance that the same code passes, and where."""
    found = [
        (one.minimum_detectable_change, kind.label)
        for kind in kinds
        if _agrees(kind) and kind.needed is not None
        for tolerance, one in kind.resolutions.items()
        if one is not None and kind.needed <= tolerance
    ]
    return min(found, default=None)


def _agrees(kind: SameCodeTurns) -> bool:
    """Return whether the two processes of the same code do not differ noticeably."""
    return not isinstance(kind.noise, Unknown) and kind.noise.holds_one is not False

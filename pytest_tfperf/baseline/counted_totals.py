"""Totals over the steps of a run, whose number depends on the time that they take."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.quantities import COUNT, format_quantity
from pytest_tfperf.results import Profile, Verdict
from pytest_tfperf.values import Json, Value

TOTALS = ("retraces", "xla_compiles")
"""Metrics that count over all steps after the first."""
COUNTED_STEPS, COUNTED_AT = "counted_steps", "counted_at"
"""Keys of an entry: the steps that its totals are counted over, and the first that each counts."""
_MOST_STORED = 50
_STEPS = re.compile(r"[0-9]{1,12}( [0-9]{1,12})*")


@dataclass(frozen=True, slots=True)
class Counted:
    """A total, and what is known of the steps that it is counted over."""

    number: float
    """The total."""
    n_steps: int
    """Steps that it is counted over."""
    steps: Sequence[int] | None = None
    """The first steps that it counts, from 1 on, in order; None if they are unknown."""

    @property
    def known_to(self) -> int:
        """The last step up to which it is known what counts."""
        if self.steps is None:
            return 0
        return self.n_steps if len(self.steps) >= self.number else self.steps[-1]

    def within(self, n_steps: int) -> float:
        """Return the total of the first steps."""
        return float(sum(step <= n_steps for step in self.steps or ()))


@dataclass(frozen=True, slots=True)
class ComparedTotal:
    """A total over other steps than the one it is compared with."""

    before: float
    """The number that it is compared with."""
    now: float
    """The number that is compared: both are of as many steps, if they are known."""
    verdict: Verdict | None = None
    """The verdict, if the numbers of steps decide it."""
    sentence: str = ""
    """The end of its sentence, or of that on the change."""


def counted_steps(profile: Profile) -> Json:
    """Return the parts of an entry that tell what the totals of a profile are counted over."""
    known = {
        name: counted
        for name in TOTALS
        if (value := profile.metrics.get(name)) and (counted := counted_in(value))
    }
    if not known:
        return {}
    at = {
        name: " ".join(map(str, counted.steps[:_MOST_STORED]))
        for name, counted in known.items()
        if counted.steps
    }
    n_steps = next(iter(known.values())).n_steps
    return {COUNTED_STEPS: n_steps, **({COUNTED_AT: at} if at else {})}


def counted_in(value: Value) -> Counted | None:
    """Return the total of a known value, or None if nothing tells its steps."""
    if value.number is None or "n_steps" not in value.detail:
        return None
    steps = value.detail.get("at_steps", None if value.number else ())
    return Counted(value.number, int(value.detail["n_steps"]), steps)


def stored_total(entry: Mapping[str, Any], metric: str, number: float) -> Counted | None:
    """
    Return a total of an entry, None if nothing tells its steps.

    Args:
        entry: The entry, as it is stored.
        metric: Name of the total.
        number: The total.
    """
    if COUNTED_STEPS not in entry:
        return None
    text = entry.get(COUNTED_AT, {}).get(metric, None if number else "")
    steps = None if text is None else list(map(int, text.split()))
    return Counted(number, entry[COUNTED_STEPS], steps)


def tells_steps(entry: Mapping[str, Any]) -> bool:
    """Return whether the parts of `counted_steps` in an entry are sound, if it has them."""
    at = entry.get(COUNTED_AT, {})
    return type(entry.get(COUNTED_STEPS, 0)) is int and (
        isinstance(at, dict) and all(_STEPS.fullmatch(str(text)) for text in at.values())
    )


def compared(before: Counted, now: Counted, reference: str) -> ComparedTotal:
    """
    Compare a total with a different one, as far as it is known what counts in both.

    A step of unchanged code that traces now and then does so more often in more steps.

    Args:
        before: The total that it is compared with.
        now: The total.
        reference: Name of what it is compared with.
    """
    steps = min(before.known_to, now.known_to)
    was, is_now = before.within(steps), now.within(steps)
    if is_now > was:
        return ComparedTotal(was, is_now, sentence=f" over the first {_number(steps)} steps")
    rose, ran_more = now.number > before.number, now.n_steps > before.n_steps
    if now.n_steps == before.n_steps or rose != ran_more:
        return ComparedTotal(before.number, now.number)
    over = f"over {_number(now.n_steps)} steps"
    theirs = f"{_number(before.number)} over {_number(before.n_steps)} in {reference}"
    if steps == min(before.n_steps, now.n_steps):
        first = f"in the first {_number(steps)} they are {_number(is_now)} and {_number(was)}"
        return ComparedTotal(was, is_now, Verdict.PASS, f"{over}, {theirs}; {first}")
    is_rarer = now.number * before.n_steps <= (before.number + 1) * now.n_steps
    if before.number == 0 or (rose and not is_rarer):
        return ComparedTotal(before.number, now.number)
    if steps and is_rarer:
        why = f"no more in the first {_number(steps)}, and no more often later"
        return ComparedTotal(before.number, now.number, Verdict.PASS, f"{over}, {theirs}: {why}")
    why = "other numbers of steps ran, and not all that count are known"
    sentence = f"{over}, {theirs}: {why}"
    return ComparedTotal(before.number, now.number, Verdict.INCONCLUSIVE, sentence)


def _number(number: float) -> str:
    return format_quantity(number, COUNT)

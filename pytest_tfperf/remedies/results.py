"""What remedies gave: speed-ups with intervals, waits for input, outputs, and the best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import cast

from pytest_tfperf.advice.changes import changes_in
from pytest_tfperf.errors import UnknownMetric
from pytest_tfperf.quantities import SECONDS, format_quantity
from pytest_tfperf.report.remedies import (
    COLUMNS,
    HERE,
    RANDOM,
    SAME,
    UNCOMPARED,
    WITHIN,
    RemedyRecord,
    faster,
    is_fair,
    lines_of,
    measured,
)
from pytest_tfperf.values import Advice, Table
from pytest_tfperf.variants.comparison import Ratio

__tracebackhide__ = True

FROZEN = "the same in each run, and random without it"
"""Outputs whose random numbers are drawn once, when the step is traced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One remedy, and what it gave."""

    remedy: str
    """The change."""
    speedup: Ratio | None = None
    """Time of the unchanged step divided by the time with the remedy, None if not measured."""
    step_time: float | None = None
    """Seconds of a step."""
    input_share: float | None = None
    """Share of a step that waits for its data; None without data, or where devices may work."""
    outputs: str = UNCOMPARED
    """`same`, `within tolerance`, `random`, `–`, or how they differ."""
    dropped: str = ""
    """Work of Python in each unchanged step that the remedy leaves out, empty without any."""
    is_bound: bool = False
    """True if nobody can type it: it tells what remedies of its kind give at most."""
    write: str = ""
    """The code to type, with the user's line where it is known."""
    why: str = ""
    """Why it was not tried or measured."""

    @property
    def keeps_outputs(self) -> bool:
        """True if the outputs are the same, or as random as without it."""
        return self.outputs in (SAME, WITHIN, RANDOM)

    @property
    def is_fair(self) -> bool:
        """True if it can be typed, keeps the outputs, and leaves no work of Python out."""
        return is_fair(self.outputs, self.is_bound, self.dropped)

    def is_change(self, named: AbstractSet[str]) -> bool:
        """Return whether it is one change, and one of those that advice names."""
        own = changes_in(self.remedy)
        return len(own) == 1 and own <= named and not self.is_bound

    @property
    def helps(self) -> bool:
        """True if it is fair, and faster for sure."""
        ratio = self.speedup
        is_faster = ratio is not None and ratio.interval is not None and ratio.interval.low > 1
        return is_faster and self.is_fair


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Remedies:
    """
    Remedies that were tried on one step and its data, the fastest first.

    `print(remedies)` shows them. The intervals cover what differs from turn to turn in this
    process, with a confidence of 99 % each.
    """

    tried: tuple[Tried, ...]
    """The remedies, the fastest first; then those that could not be tried or measured."""
    unchanged_s: float | None
    """Seconds of an unchanged step in turns; None if nothing took turns."""
    seconds: float
    """Seconds that all of it took."""
    notes: tuple[str, ...] = ()
    """Remarks on how they were measured."""

    @property
    def best(self) -> Tried:
        """
        The fastest fair remedy: one that can be typed, keeps the outputs and does the same work.

        It may be slower than the unchanged step.

        Raises:
            UnknownMetric: If no such remedy was measured.
        """
        for one in self.tried:
            if one.speedup is not None and one.is_fair:
                return one
        raise UnknownMetric(
            "no remedy was measured that can be typed, keeps the outputs and does the same work"
        )

    def ordered(self, advice: Sequence[Advice]) -> tuple[Advice, ...]:
        """
        Return advice with what it gave: what helps first, then what was not tried, then the rest.

        Args:
            advice: Advice of the profile.
        """
        shown = {record["remedy"]: faster(record) for record in measured(self.table())}
        found = []
        for one in advice:
            known = changes_in(one.what)
            tried = next((own for own in self.tried if own.speedup and own.is_change(known)), None)
            if tried is None or tried.speedup is None:
                found.append((1, 0.0, one))
                continue
            said = "" if tried.is_fair else ", but no remedy"
            because = f"tried here: {shown[tried.remedy]}{said}; {one.because}"
            rank = 0 if tried.helps else 2
            found.append((rank, -tried.speedup.ratio, replace(one, because=because)))
        return tuple(one for *_, one in sorted(found, key=lambda each: each[:2]))

    def records(self) -> list[RemedyRecord]:
        """Return each remedy as a dict with the fields of `RemedyRecord`."""
        return cast("list[RemedyRecord]", self.table().records())

    def table(self) -> Table:
        """Return a table with a row for each remedy."""
        return Table.of("remedies that were tried", COLUMNS, [_row(one) for one in self.tried])

    def lines(self) -> list[str]:
        """Return the table, the code to type and remarks as lines of text."""
        took = f"{HERE}{format_quantity(self.seconds, SECONDS)}:"
        return [took, *lines_of(self.table()), *(f"  {note}" for note in self.notes)]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"<Remedies {'; '.join(map(str.strip, self.lines()))}>"

    def __iter__(self) -> Iterator[Tried]:
        return iter(self.tried)


def _row(one: Tried) -> tuple[str | float | bool | None, ...]:
    ratio = one.speedup
    interval = ratio.interval if ratio else None
    return (
        one.remedy,
        ratio.ratio if ratio else None,
        interval.low if interval else None,
        interval.high if interval else None,
        one.step_time,
        one.input_share,
        one.outputs,
        one.dropped,
        one.is_bound,
        one.write,
        one.why,
    )

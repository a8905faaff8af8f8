"""Values: numbers with their sources, reasons for missing numbers, tables, advice."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, Any, TypedDict, TypeVar

import msgspec
from msgspec import Meta, Struct

from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.quantities import Unit

T = TypeVar("T")

PARTS = (
    "compile",
    "output",
    "input",
    "kernel_launch",
    "host_compute",
    "collective",
    "device_to_device",
    "device_compute",
    "other",
)
"""Parts that the period of a step is divided into."""
OTHER = "other"
"""The part in which nothing else was active."""
PART_TITLES: Mapping[str, str] = {part: part.replace("_", " ") for part in PARTS} | {
    OTHER: "Python and the loop"
}
"""The parts in words."""
UNEXPLAINED = "not explained"
"""Title of the other time of a trace that lacks the evidence of `host_overhead`."""
TIME_CAUSES = "time_causes"
"""Key of the table of what takes the time of a step, and of the first."""
MEMORY_CAUSES = "memory_causes"
"""Key of the table of what lives at the peak of a step's memory."""
COMPARISON = "comparison"
"""Key of the table of compared variants."""
REMEDIES = "remedies"
"""Key of the table of remedies that were tried."""
OF_PLATFORM = "of_platform"
"""Detail of a value of programs that were made for a platform, and which holds there only."""
EXECUTABLES = "executables"
"""Its content where the programs are the executables that XLA made of the step's."""
COUNTED_BY = "counted_by"
"""Detail of a count: how much of it is each function's or op type's."""
LEFT = "left"
"""Detail of a value with a remedy: the number that it leaves, where that is known."""
NOTES = "notes"
"""Detail of a value: sentences on how it was measured, which a reader of the number needs."""
TRACED_BEFORE = "traced_before"
"""Detail of a first_step_time of steps whose functions something else had traced."""
FETCH = "tfperf::next"
"""Name of the trace event around a loop's `next()` on a tf.data iterator."""
FETCH_PYTHON = "IteratorGetNext::python"
"""Same around the `next()` on a Python iterator; XProf takes it for input by its prefix."""
STOOD_NS = "stood_ns"
"""Stat of both: nanoseconds in which the thread of the steps stood still."""
WAITS = "tfperf_synchronise"
"""Name of the function with which tf_profile waits for devices of JAX; no step calls it."""

Json = dict[str, Any]
Number = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]
_OF_PARTS = {
    "properties": {part: {"type": "number", "minimum": 0} for part in PARTS},
    "required": list(PARTS),
    "additionalProperties": False,
}
PartTimes = Annotated[
    Mapping[Annotated[str, Meta(pattern=f"^({'|'.join(PARTS)})$")], Seconds],
    Meta(min_length=len(PARTS), extra_json_schema=_OF_PARTS),
]


def builtin(value: Any) -> Any:
    """Return values and what is in them as plain values, as JSON has them."""
    return msgspec.to_builtins(value, enc_hook=_builtin)


def _builtin(value: Any) -> Any:
    """Return a number of NumPy as one of Python, and findings that wait as a dict."""
    return dict(value) if isinstance(value, Mapping) else value.item()


@dataclass(frozen=True, slots=True)
class Unknown:
    """Answer that could not be found."""

    why: str
    """Reason, for people."""


class Source(str, Enum):
    """Origin of a number."""

    TIMED = "timed"
    TRACE = "trace"
    GRAPH = "graph"
    HLO = "hlo"
    PREDICTED = "predicted"
    CORRECTED = "corrected"
    COUNTED = "counted"
    OWN = "own"


class Value(Struct, frozen=True, kw_only=True, rename={"number": "value"}):
    """A number of a metric, or the reason why it is unknown."""

    number: float | None
    """The number in base units, or None."""
    unit: Unit
    """Its base unit."""
    source: Source | None = None
    """Origin of the number, None if it is unknown."""
    why: str | None = None
    """Reason why there is no number."""
    detail: Mapping[str, Any] = {}
    """
    Facts for messages and reports.

    `low` and `high` are bounds over the steps if these differ. `where` says where the time went,
    `try` what to do. Metrics have further keys of their own.
    """

    @classmethod
    def unknown(cls, metric: str, why: str) -> Value:
        """Make a value without a number."""
        return cls(number=None, unit=METRICS[metric].unit, why=why)

    @classmethod
    def not_asked(cls, metric: str, why: str) -> Value:
        """Make a value that was left out, which comparisons leave out too."""
        return cls(number=None, unit=METRICS[metric].unit, why=why, detail={"asked": False})

    @property
    def is_asked(self) -> bool:
        """False if the value was left out, since nothing asks for it."""
        return self.detail.get("asked") is not False

    @classmethod
    def of(cls, metric: str, number: float, source: Source, **detail: Any) -> Value:
        """Make a value with a number in its metric's unit; one that is not finite is unknown."""
        if not math.isfinite(number):
            return cls.unknown(metric, f"the measurement gave {number}")
        return cls(number=float(number), unit=METRICS[metric].unit, source=source, detail=detail)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on how it was measured, which a reader of the number needs."""
        return tuple(self.detail.get(NOTES, ()))

    def noted(self, notes: Iterable[str]) -> Value:
        """Return the value with further notes; a value without a number has its reason instead."""
        notes = [*self.notes, *notes]
        known = self.number is not None and notes
        return self.changed(detail={**self.detail, NOTES: notes}) if known else self

    def changed(self, **fields: Any) -> Value:
        """Return the value with other fields."""
        return msgspec.structs.replace(self, **fields)

    def low(self) -> float:
        """Return the smallest value over the steps."""
        return float(self.detail.get("low", self.number))

    def high(self) -> float:
        """Return the largest value over the steps."""
        return float(self.detail.get("high", self.number))

    def is_measured_bound(self) -> bool:
        """Return whether the number is a bound that differs between runs of one program."""
        return self.source is Source.TIMED and bool(self.detail.get("bounds"))


class Workload(TypedDict, total=False):
    """What is profiled; two profiles are comparable where it is the same."""

    inputs: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One traced step."""

    name: str
    """Name of the step."""
    period_s: Seconds
    """Seconds to the start of the next step."""
    parts_s: PartTimes
    """Time of each part in `PARTS`."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    key: Annotated[str, Meta(min_length=1)]
    """Name of its cells in a record; titles may change between versions, keys do not."""
    title: str
    """Title for people."""
    unit: str = ""
    """Unit of the numbers, one of `metrics`; empty for text."""


Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows behind the metrics."""

    title: str
    """Title for people."""
    columns: tuple[Column, ...]
    """Columns, in order."""
    rows: tuple[tuple[Cell, ...], ...]
    """Cells in the order of the columns: text, numbers, booleans or None."""
    n_more: Number = 0
    """Number of rows left out."""

    @classmethod
    def of(
        cls,
        title: str,
        columns: Sequence[Column],
        rows: Sequence[Sequence[Any]],
        limit: int = 50,
    ) -> Table:
        """Make a table of the first `limit` rows, with cells of text, numbers, booleans or None."""
        kept = tuple(tuple(row) for row in rows[:limit])
        return cls(title=title, columns=tuple(columns), rows=kept, n_more=len(rows) - len(kept))

    @classmethod
    def of_each(
        cls,
        title: str,
        items: Sequence[T],
        cells: Sequence[tuple[Column, Callable[[T], Any]]],
        limit: int = 50,
    ) -> Table:
        """
        Make a table of the first `limit` items, with a row for each, by a function for each column.
        """
        rows = [[cell(item) for _, cell in cells] for item in items[:limit]]
        found = cls.of(title, [column for column, _ in cells], rows, limit)
        return replace(found, n_more=len(items) - len(rows))

    @classmethod
    def of_records(
        cls,
        title: str,
        columns: Sequence[Column],
        records: Sequence[Mapping[str, Any]],
        limit: int = 50,
    ) -> Table:
        """
        Make a table of the first `limit` records, each with a cell for every key of the columns.
        """
        rows = [[record[column.key] for column in columns] for record in records]
        return cls.of(title, columns, rows, limit)

    def records(self) -> list[dict[str, Any]]:
        """Return each row as a mapping from the keys of the columns to its cells."""
        keys = [column.key for column in self.columns]
        return [dict(zip(keys, row, strict=True)) for row in self.rows]


def titled_columns(columns: Iterable[tuple[str, str]]) -> tuple[Column, ...]:
    """
    Make columns from titles and units, with keys derived from the titles.

    A key that two titles would share gets a number.
    """
    found: dict[str, Column] = {}
    for title, unit in columns:
        words = _NO_KEY.sub("_", title.lower()).strip("_")
        key = first = words or "column"
        number = 1
        while key in found:
            number += 1
            key = f"{first}_{number}"
        found[key] = Column(key, title, unit)
    return tuple(found.values())


_NO_KEY = re.compile(r"\W+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Recommendation for the step."""

    what: str
    """What to do."""
    because: str
    """The number behind it."""
    win_s: Seconds | None
    """Upper bound of the time that a step could save, None if it is unknown."""
    look: str
    """Where to look."""
    read: str = ""
    """Page of a guide of TensorFlow, JAX or Grain, empty without one."""

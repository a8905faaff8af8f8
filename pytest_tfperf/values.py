"""Values: numbers with their source, reasons why there is none, tables, advice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pytest_tfperf.metrics import METRICS

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


FETCH = "tfperf::next"


FETCH_PYTHON = "IteratorGetNext::python"


Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Unknown:
    """The reason why something could not be found out."""

    why: str


class Source(str, Enum):
    """Where a number comes from."""

    TIMED = "timed"
    TRACE = "trace"
    GRAPH = "graph"
    HLO = "hlo"
    PREDICTED = "predicted"
    CORRECTED = "corrected"
    OWN = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """
    A number, or the reason why there is none.

    `detail` holds what a message or report needs besides: `low` and `high` over the steps where they differ, `where`
    the time went, what to `try`, and whatever else belongs to the metric.
    """

    number: float | None
    unit: str
    source: Source | None = None
    why: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def unknown(cls, metric: str, why: str) -> Value:
        """No number, and why."""
        return cls(number=None, unit=METRICS[metric].unit, why=why)

    @classmethod
    def of(cls, metric: str, number: float, source: Source, **detail: Any) -> Value:
        """A number; one that is not finite is unknown."""
        if not math.isfinite(number):
            return cls.unknown(metric, f"the measurement gave {number}")
        return cls(number=float(number), unit=METRICS[metric].unit, source=source, detail=detail)

    def low(self) -> float:
        """The smallest value over the steps."""
        return float(self.detail.get("low", self.number))

    def high(self) -> float:
        """The largest value over the steps."""
        return float(self.detail.get("high", self.number))

    def to_json(self) -> Json:
        """`{"value", "unit", "source", "why", "detail"}`."""
        source = self.source.value if self.source else None
        return {
            "value": self.number,
            "unit": self.unit,
            "source": source,
            "why": self.why,
            "detail": dict(self.detail),
        }

    @classmethod
    def from_json(cls, data: Json) -> Value:
        """The inverse of `to_json`."""
        source, number = Source(data["source"]) if data["source"] else None, data["value"]
        if number is not None and not math.isfinite(number):
            raise ValueError(f"a value of {number}")
        return cls(
            number=number, unit=data["unit"], source=source, why=data["why"], detail=data["detail"]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One traced step: its period and how it divides into the parts of `PARTS`, in seconds."""

    name: str
    period_s: float
    parts_s: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows behind the metrics; `columns` are (title, unit of `metrics`, or "" for text), `n_more` rows were left out."""

    title: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Any, ...], ...]
    n_more: int = 0

    @classmethod
    def of(
        cls,
        title: str,
        columns: Sequence[tuple[str, str]],
        rows: Sequence[Sequence[Any]],
        limit: int = 50,
    ) -> Table:
        """The first `limit` rows; their cells are text, numbers, booleans or None."""
        kept = tuple(tuple(row) for row in rows[:limit])
        return cls(title=title, columns=tuple(columns), rows=kept, n_more=len(rows) - len(kept))

    @classmethod
    def from_json(cls, data: Json) -> Table:
        """The inverse of `asdict`."""
        return cls(
            **{
                **data,
                "columns": tuple(map(tuple, data["columns"])),
                "rows": tuple(map(tuple, data["rows"])),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to do next: `what`, the number behind it, the seconds of a step it could win at most, and where to look."""

    what: str
    because: str
    win_s: float | None
    look: str

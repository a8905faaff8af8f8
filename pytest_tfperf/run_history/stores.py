"""The interface of a history's stores: what they take and give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from pytest_tfperf.run_history.rows import MetricRow, RunRows

FIRST_RUN = "the first run of pytest --tfperf-history makes it"
"""End of the message on a store that is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Rows that are asked for; what is empty or None selects all."""

    project: str = ""
    """Name of the project."""
    machine_class: str = ""
    """Name of the machine class."""
    file: str = ""
    """Test file."""
    metrics: tuple[str, ...] = ()
    """Names of metrics."""
    scope: str = ""
    """Scope of the metrics."""
    branch: str = ""
    """Git branch."""
    since: datetime | None = None
    """Earliest end of a run."""
    usable: bool = False
    """True for rows that later runs may be compared with; each has a value."""

    @property
    def conditions(self) -> tuple[tuple[str, str, Any], ...]:
        """Column, operator and value of each condition; `IN` has a list of values."""
        equal = ("project", "machine_class", "file", "scope", "branch")
        found: list[tuple[str, str, Any]] = [
            (name, "=", getattr(self, name)) for name in equal if getattr(self, name)
        ]
        if self.metrics:
            found.append(("metric", "IN", list(self.metrics)))
        if self.since is not None:
            found.append(("created", ">=", self.since))
        if self.usable:
            found += [("usable", "=", True), ("value", "IS DISTINCT FROM", None)]
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Result of a query in SQL."""

    columns: tuple[str, ...]
    """Names of the columns."""
    rows: tuple[tuple[Any, ...], ...]
    """Cells of each row."""


class HistoryStore(Protocol):
    """A store of runs, which only grows until it is pruned."""

    name: str
    """Name of the store in messages: "history" and its address, without a password."""
    unread: Sequence[str]
    """A sentence for each damaged object that the last query left out."""

    def refuse_missing(self) -> None:
        """
        Check that the store was made, which its first run does.

        Raises:
            StoreError: If it was not, or cannot be read.
        """

    def append(self, run: RunRows) -> bool:
        """
        Store a run, or nothing if it is there already.

        Returns:
            True if it was not there.

        Raises:
            StoreError: If it cannot be stored; no reader sees a part of an object then.
        """

    def rows(self, selection: Selection) -> list[MetricRow]:
        """
        Return the rows of a selection, the latest run last.

        Raises:
            StoreError: If the store cannot be read.
        """

    def sql(self, query: str, project: str) -> Answer:
        """
        Answer a query on the table `runs`, which has a column for each field of `MetricRow`.

        Args:
            query: One SELECT; it can change nothing.
            project: Name of the project whose rows the table has; all if empty.

        Raises:
            StoreError: If the query is wrong, or the store cannot be read.
        """

    def prune(self, project: str, before: datetime, dry: bool) -> int:
        """
        Remove the runs of a project that ended before a time.

        Args:
            project: Name of the project.
            before: The time, in UTC.
            dry: True to remove nothing.

        Returns:
            The number of these runs.

        Raises:
            StoreError: If one cannot be removed.
        """

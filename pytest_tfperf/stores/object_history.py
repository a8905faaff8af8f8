"""
A history in objects of a file system: a folder, s3://, gs:// and whatever else fsspec reaches.

Each run adds new objects and changes none:

    runs/project=P/month=M/TIME-COMMIT-RUN.json                 the run file
    rows-1/project=P/class=C/month=M/TIME-COMMIT-RUN.parquet    its rows of one machine class

TIME is the end of the run in UTC, such as 2026-11-24T101530.000000. The number in `rows-1` is the
format of the rows. A query reads the objects that may have rows for it, and of them no column that
their names tell: to read a column of many small objects takes longer than to parse their names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import duckdb

from pytest_tfperf.errors import StoreError
from pytest_tfperf.stores import MOST_ROWS
from pytest_tfperf.stores.objects import Objects
from pytest_tfperf.stores.rows import (
    FIRST_RUN,
    ROW_COLUMNS,
    ROW_FORMAT,
    Answer,
    MetricRow,
    RunRows,
    Selection,
    time_in_name,
)
from pytest_tfperf.stores.tables import (
    TableOfFiles,
    columns_of,
    first_line,
    lock,
    rows_as_parquet,
)

T = TypeVar("T")
_ROWS, _RUNS = f"rows-{ROW_FORMAT}", "runs"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d{6}\.\d{6}(?=-)")
_PLACE = re.compile(
    r"project=(?P<project>[^/]*)/"
    r"(class=(?P<machine_class>[^/]*)/month=[^/]*/"
    rf"(?P<created>{_TIME.pattern})-(?P<commit>none|[0-9a-f]+\+?)-(?P<run>[0-9a-f]+)\.parquet$)?"
)
"""Columns that the path of an object names: the project, and the others in those of `append`."""
_TYPES = dict.fromkeys(ROW_COLUMNS, "VARCHAR") | {
    "created": "TIMESTAMP",
    "value": "DOUBLE",
    "ratio": "DOUBLE",
    "ratio_low": "DOUBLE",
    "ratio_high": "DOUBLE",
    "usable": "BOOLEAN",
}
"""Types of the columns in SQL."""


class ObjectStore:
    """A history in objects below a folder or a URL of fsspec."""

    def __init__(self, address: str) -> None:
        self._objects = Objects(address, "history")
        self.name = self._objects.name
        self.unread: Sequence[str] = ()

    def refuse_missing(self) -> None:
        """Check that a local folder is there: see `HistoryStore`."""
        self._objects.refuse_missing(FIRST_RUN)

    def append(self, run: RunRows) -> bool:
        """Store a run: see `HistoryStore`."""
        project = f"project={quote(run.project, safe='')}"
        month = f"month={run.month}"
        with self._objects.blaming("cannot be written"):
            # first what nobody counts, so that the rows of a run have its file
            file = f"{_RUNS}/{project}/{month}/{run.name}.json"
            is_new = not self._objects.has(file)
            if is_new:
                self._objects.put(file, run.text.encode())
            for machine_class, rows in run.rows.items():
                table = f"{_ROWS}/{project}/class={machine_class}/{month}/{run.name}.parquet"
                if is_new or not self._objects.has(table):
                    content = rows_as_parquet([asdict(row) for row in rows], _TYPES)
                    self._objects.put(table, content)
                    is_new = True
        return is_new

    def rows(self, selection: Selection) -> list[MetricRow]:
        """Return the rows of a selection: see `HistoryStore`."""
        return self._ask(selection, _read_rows, {"created", "run", *selection.columns})

    def sql(self, query: str, project: str) -> Answer:
        """Answer a query: see `HistoryStore`."""
        with _blaming_sql():
            statements = duckdb.extract_statements(query)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise StoreError("SQL: give one SELECT; a history is only read")
            columns = columns_of(query, _TYPES)
        return self._ask(Selection(project=project), lambda base: _select(base, query), columns)

    def prune(self, project: str, before: datetime, dry: bool) -> int:
        """Remove runs, by the times in the names of their objects: see `HistoryStore`."""
        with self._objects.blaming("cannot be pruned"):
            old = [
                path
                for kind in (_ROWS, _RUNS)  # a run is gone when its rows are
                for path in self._objects.below(
                    f"{kind}/project={quote(project, safe='')}", (".parquet", ".json")
                )
                if _ended(path) < time_in_name(before)
            ]
            for path in () if dry else old:
                self._objects.remove(path)
        return len({PurePosixPath(path).stem for path in old})

    def _ask(
        self,
        selection: Selection,
        query: Callable[[duckdb.DuckDBPyConnection], T],
        columns: Collection[str],
    ) -> T:
        with self._objects.blaming("cannot be read"):
            self._objects.refuse_newer(("rows",), ROW_FORMAT)
            paths = self._find(selection)
            files = self._objects.local(paths)
            named = {path: self._named(path) for path in files}
            conditions = [one for one in selection.conditions if one[0] != "project"]  # a folder
            asked = {*columns, *(column for column, _, _ in conditions)}
            table = TableOfFiles(files, _TYPES, _condition(conditions), named, asked)
            with closing(table):
                self.unread = tuple(table.unread.values())
                self._objects.forget(table.unread)
                return query(table.base)

    def _find(self, selection: Selection) -> list[str]:
        """List the objects that may have rows of a selection."""
        folder = _ROWS
        if selection.project:
            folder += f"/project={quote(selection.project, safe='')}"
            folder += f"/class={selection.machine_class}" if selection.machine_class else ""
        of_class = f"/class={selection.machine_class}/" if selection.machine_class else ""
        since = "" if selection.since is None else f"{selection.since:%Y-%m}"
        paths = self._objects.below(folder, (".parquet",))
        return [path for path in paths if of_class in path and _month(path) >= since]

    def _named(self, path: str) -> dict[str, str]:
        """Return the columns that a path names."""
        found = _PLACE.match(path.removeprefix(f"{self._objects.root}/{_ROWS}/"))
        if found is None:
            return {}
        named = {name: value for name, value in found.groupdict().items() if value is not None}
        named["project"] = unquote(named["project"])
        if "created" in named:
            date, _, time = named["created"].partition("T")
            named["created"] = f"{date} {time[:2]}:{time[2:4]}:{time[4:]}"
            named["commit"] = named["commit"].removeprefix("none")
        return named


def _month(path: str) -> str:
    return PurePosixPath(path).parent.name.removeprefix("month=")


def _ended(path: str) -> str:
    """Return the time in an object's name; of others than this package's, the end of its month."""
    found = _TIME.match(PurePosixPath(path).name)
    return found[0] if found else f"{_month(path)}-99"


def _condition(conditions: Sequence[tuple[str, str, Any]]) -> tuple[str, dict[str, Any]]:
    """Return the conditions of a selection in SQL, and their values."""
    terms, values = [], {}
    for number, (column, operator, value) in enumerate(conditions):
        is_list = operator == "IN"
        one = f"{column} {operator} $v{number}"
        terms.append(f"list_contains($v{number}, {column})" if is_list else one)
        values[f"v{number}"] = value
    return f" WHERE {' AND '.join(terms)}" if terms else "", values


def _read_rows(base: duckdb.DuckDBPyConnection) -> list[MetricRow]:
    """Return all rows of a table, the latest run last."""
    query = f"SELECT {', '.join(ROW_COLUMNS)} FROM runs ORDER BY created, run LIMIT {MOST_ROWS + 1}"  # noqa: S608  # our own names
    found = base.execute(query).fetchall()
    if len(found) > MOST_ROWS:
        raise StoreError(f"more than {MOST_ROWS:,} rows; ask for fewer with --since")
    return [MetricRow(**dict(zip(ROW_COLUMNS, row, strict=True))) for row in found]


def _select(base: duckdb.DuckDBPyConnection, query: str) -> Answer:
    """Answer one SELECT; the database can then reach no file that it has not open."""
    with _blaming_sql():
        lock(base)
        answer = base.execute(query)
        columns = tuple(item[0] for item in answer.description or ())
        rows = answer.fetchmany(MOST_ROWS)
    return Answer(columns=columns, rows=tuple(map(tuple, rows)))


@contextmanager
def _blaming_sql() -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise StoreError(f"SQL: {first_line(error)}") from error

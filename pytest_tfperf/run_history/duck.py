"""
Parquet files of rows, written and read by DuckDB.

The files may come from another person. They are read with bounded memory, and without extensions
from the network.
"""

from __future__ import annotations

import functools
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from pytest_tfperf.run_history.rows import ROW_COLUMNS, MetricRow
from pytest_tfperf.run_history.stores import MOST_ROWS, Answer, HistoryError, Selection

T = TypeVar("T")
_TYPES = {
    "created": "TIMESTAMP",
    "value": "DOUBLE",
    "ratio": "DOUBLE",
    "ratio_low": "DOUBLE",
    "ratio_high": "DOUBLE",
    "usable": "BOOLEAN",
}
"""Types of columns; the others are text."""
_OPTIONAL = {"value", "ratio", "ratio_low", "ratio_high"}
_PATTERN = re.compile(r"[*?\[]")
MEMORY_MB = 1000
"""Memory that a database takes at most."""


def rows_as_parquet(
    rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str] | None = None
) -> bytes:
    """
    Return rows as the content of a Parquet file.

    Args:
        rows: The rows.
        columns: Type of each column in SQL; those of a `MetricRow` by default.
    """
    columns = dict(columns or {name: column_type(name) for name in ROW_COLUMNS})
    with tempfile.TemporaryDirectory(prefix="tfperf-") as folder, closing(_cursor()) as base:
        source, target = Path(folder) / "rows.json", Path(folder) / "rows.parquet"
        lines = (json.dumps(row, default=datetime.isoformat, allow_nan=False) for row in rows)
        source.write_text("\n".join(lines), "utf-8")
        table = f"read_json($source, format='newline_delimited', columns={columns!r})"
        base.execute(
            f"COPY (SELECT * FROM {table}) TO $target (FORMAT parquet, COMPRESSION zstd)",  # noqa: S608  # our own names
            {"source": str(source), "target": str(target)},
        )
        return target.read_bytes()


def read_rows(base: duckdb.DuckDBPyConnection, selection: Selection) -> list[MetricRow]:
    """
    Return the rows of a selection from the table `runs`, the latest run last.

    Args:
        base: The database.
        selection: What is asked for.

    Raises:
        HistoryError: If there are too many rows.
    """
    terms, values = [], {}
    for number, (column, operator, value) in enumerate(selection.conditions):
        is_list = operator == "IN"
        one = f"{column} {operator} $v{number}"
        terms.append(f"list_contains($v{number}, {column})" if is_list else one)
        values[f"v{number}"] = value
    where = f" WHERE {' AND '.join(terms)}" if terms else ""
    query = (
        f"SELECT {', '.join(ROW_COLUMNS)} FROM runs{where} "  # noqa: S608  # our own names
        f"ORDER BY created, run LIMIT {MOST_ROWS + 1}"
    )
    found = base.execute(query, values).fetchall()
    if len(found) > MOST_ROWS:
        raise HistoryError(f"more than {MOST_ROWS:,} rows; ask for fewer with --since")
    return [MetricRow(**dict(zip(ROW_COLUMNS, row, strict=True))) for row in found]


def select_from(base: duckdb.DuckDBPyConnection, query: str) -> Answer:
    """
    Answer one SELECT on the table `runs`; the database can then reach no file that it has not open.

    Args:
        base: The database.
        query: The SELECT.

    Raises:
        HistoryError: If it is not one SELECT, is wrong, or changes something.
    """
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise HistoryError(f"SQL: {first_line(error)}") from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise HistoryError("SQL: give one SELECT; a history is only read")
    base.execute("SET enable_external_access = false")
    base.execute("SET lock_configuration = true")
    try:
        answer = base.execute(query)
        columns = tuple(item[0] for item in answer.description or ())
        rows = answer.fetchmany(MOST_ROWS)
    except duckdb.Error as error:
        raise HistoryError(f"SQL: {first_line(error)}") from error
    return Answer(columns=columns, rows=tuple(map(tuple, rows)))


def without_damaged(
    paths: Sequence[str], read: Callable[[Sequence[str]], Sequence[T]]
) -> tuple[list[T], tuple[str, ...]]:
    """
    Read files together; if that fails, each half of them, until a single one is left out.

    So files that are too large together are read too.

    Args:
        paths: The files.
        read: Reads some of them.

    Returns:
        What it read, and a sentence for each file that is left out.
    """
    if not paths:
        return [], ()
    try:
        return list(read(paths)), ()
    except duckdb.Error as error:
        if len(paths) == 1:
            return [], (f"{paths[0]} is left out: {first_line(error)}",)
    middle = len(paths) // 2
    first, first_unread = without_damaged(paths[:middle], read)
    second, second_unread = without_damaged(paths[middle:], read)
    return first + second, first_unread + second_unread


def sound_column(name: str) -> str:
    """Return the SQL of a column of a file as its own type; None is for unknown numbers only."""
    if name in _OPTIONAL:
        return name
    absent = {"TIMESTAMP": "TIMESTAMP 'epoch'", "BOOLEAN": "false"}.get(column_type(name), "''")
    return f"coalesce({name}, {absent}) AS {name}"


def column_type(name: str) -> str:
    """Return the type of a column in SQL."""
    return _TYPES.get(name, "VARCHAR")


def connect() -> duckdb.DuckDBPyConnection:
    """Open a database of this process, with bounded memory and without extensions of others."""
    base = duckdb.connect(
        config={
            "memory_limit": f"{MEMORY_MB}MB",
            "temp_directory": "",  # nothing is written beside the user's files
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
    )
    return _quiet(base)


def _cursor() -> duckdb.DuckDBPyConnection:
    """Connect to a database that this process keeps, since to make one takes 10 ms."""
    return _quiet(_database(os.getpid()).cursor())


@functools.cache
def _database(process: int) -> duckdb.DuckDBPyConnection:  # noqa: ARG001  # its key
    """Return the database of a process; a fork of it cannot use its parent's."""
    return connect()


def _quiet(base: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    base.execute("SET enable_progress_bar = false")  # it would write to standard output
    return base


def literal(paths: Iterable[str]) -> list[str]:
    """Return paths in which no character stands for others."""
    return [_PATTERN.sub(r"[\g<0>]", path) for path in paths]


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().splitlines()[0]

"""
Parquet files of rows, written and read by DuckDB.

The files may come from another person. They are read with bounded memory, without extensions from
the network, and each column as the type that it should have.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
_NOT_BRIEF = frozenset({"why", "outcome", "machine", "platform", "setting", "scope"}) | {
    *("usable", "ratio", "ratio_low", "ratio_high"),
}
"""Columns that are left out of brief rows; each column of each object takes a read of its own."""
_PATTERN = re.compile(r"[*?\[]")
_MEMORY = "1GB"


def rows_as_parquet(
    rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str] | None = None
) -> bytes:
    """
    Return rows as the content of a Parquet file.

    Args:
        rows: The rows.
        columns: Type of each column in SQL; those of a `MetricRow` by default.
    """
    columns = dict(columns or {name: _type(name) for name in ROW_COLUMNS})
    with tempfile.TemporaryDirectory(prefix="tfperf-") as folder, closing(connect()) as base:
        source, target = Path(folder) / "rows.json", Path(folder) / "rows.parquet"
        lines = (json.dumps(row, default=datetime.isoformat, allow_nan=False) for row in rows)
        source.write_text("\n".join(lines), "utf-8")
        table = f"read_json($source, format='newline_delimited', columns={columns!r})"
        base.execute(
            f"COPY (SELECT * FROM {table}) TO $target (FORMAT parquet, COMPRESSION zstd)",  # noqa: S608  # our own names
            {"source": str(source), "target": str(target)},
        )
        return target.read_bytes()


def read_rows(
    paths: Sequence[str], selection: Selection
) -> tuple[list[MetricRow], tuple[str, ...]]:
    """
    Return the rows of a selection, the latest run last, and sentences on damaged files.

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

    def read(base: duckdb.DuckDBPyConnection, sound: Sequence[str]) -> list[MetricRow]:
        columns = _columns(_NOT_BRIEF if selection.brief else ())
        query = f"{columns}{where} ORDER BY created, run LIMIT {MOST_ROWS + 1}"
        found = base.execute(query, {"paths": literal(sound), **values}).fetchall()
        return [MetricRow(**dict(zip(ROW_COLUMNS, row, strict=True))) for row in found]

    none: list[MetricRow] = []
    rows, unread = without_damaged(paths, read, none)
    if len(rows) > MOST_ROWS:
        raise HistoryError(f"more than {MOST_ROWS:,} rows; ask for fewer with --since")
    return rows, unread


def select_from(paths: Sequence[str], query: str) -> tuple[Answer, tuple[str, ...]]:
    """
    Answer one SELECT on the table `runs`, and return sentences on damaged files.

    Raises:
        HistoryError: If it is not one SELECT, is wrong, or changes something.
    """
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise HistoryError(f"SQL: {_first_line(error)}") from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise HistoryError("SQL: give one SELECT; a history is only read")

    def copy(base: duckdb.DuckDBPyConnection, sound: Sequence[str]) -> None:
        base.execute(f"CREATE OR REPLACE TABLE runs AS {_columns()}", {"paths": literal(sound)})

    with closing(connect()) as base:
        _, unread = without_damaged(paths, copy, None, base)
        if not paths:
            typed = ", ".join(f"{name} {_type(name)}" for name in ROW_COLUMNS)
            base.execute(f"CREATE TABLE runs ({typed})")
        # from here on nothing outside of the table can be read or written
        base.execute("SET enable_external_access = false")
        base.execute("SET lock_configuration = true")
        try:
            answer = base.execute(query)
            columns = tuple(item[0] for item in answer.description or ())
            rows = answer.fetchmany(MOST_ROWS)
        except duckdb.Error as error:
            raise HistoryError(f"SQL: {_first_line(error)}") from error
    return Answer(columns=columns, rows=tuple(map(tuple, rows))), unread


def without_damaged(
    paths: Sequence[str],
    read: Callable[[duckdb.DuckDBPyConnection, Sequence[str]], T],
    nothing: T,
    base: duckdb.DuckDBPyConnection | None = None,
) -> tuple[T, tuple[str, ...]]:
    """
    Read files together; if that fails, find those that cannot be read, and read the others.

    Args:
        paths: The files.
        read: Reads some of them.
        nothing: Its result for no file.
        base: The database to use; a new one by default.
    """
    own = base or connect()
    try:
        if not paths:
            return nothing, ()
        try:
            return read(own, paths), ()
        except duckdb.Error:
            unread = {path: why for path in paths if (why := _damage(own, path, read))}
        sound = [path for path in paths if path not in unread]
        if not unread:
            return read(own, sound), ()
        sentences = [f"{path} is left out: {why}" for path, why in unread.items()]
        return (read(own, sound) if sound else nothing), tuple(sentences)
    finally:
        if base is None:
            own.close()


def _damage(
    base: duckdb.DuckDBPyConnection,
    path: str,
    read: Callable[[duckdb.DuckDBPyConnection, Sequence[str]], object],
) -> str:
    """
    Return the reason why a file cannot be read; empty if it can.

    Args:
        base: The database.
        path: The file.
        read: Reads files.
    """
    try:
        read(base, [path])
    except duckdb.Error as error:
        return _first_line(error)
    return ""


def _columns(unread: Collection[str] = ()) -> str:
    """
    Return the query for all columns, each with its type; None is for unknown numbers only.

    Args:
        unread: Columns that are empty instead of read.
    """
    shown = ", ".join(_column(name, name in unread) for name in ROW_COLUMNS)
    return f"SELECT {shown} FROM read_parquet($paths)"  # noqa: S608  # our own names


def _column(name: str, is_unread: bool) -> str:
    empty = "NULL" if name in _OPTIONAL else _absent(name)
    read = empty if is_unread else f"coalesce(CAST({name} AS {_type(name)}), {empty})"
    return f"{read} AS {name}"


def _absent(name: str) -> str:
    return {"TIMESTAMP": "TIMESTAMP 'epoch'", "BOOLEAN": "false"}.get(_type(name), "''")


def _type(name: str) -> str:
    return _TYPES.get(name, "VARCHAR")


def connect() -> duckdb.DuckDBPyConnection:
    """Open a database of this process, with bounded memory and without extensions of others."""
    base = duckdb.connect(
        config={
            "memory_limit": _MEMORY,
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
    )
    base.execute("SET enable_progress_bar = false")  # it would write to standard output
    return base


def literal(paths: Iterable[str]) -> list[str]:
    """Return paths in which no character stands for others."""
    return [_PATTERN.sub(r"[\g<0>]", path) for path in paths]


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]

"""
Tables as Parquet files, written and read by DuckDB.

The files may come from another person. They are read with bounded memory, and without extensions
from the network.
"""

from __future__ import annotations

import functools
import json
import os
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb

from pytest_tfperf.errors import StoreError
from pytest_tfperf.stores import MOST_ROWS
from pytest_tfperf.temporary import TemporaryFolder
from pytest_tfperf.text import plain

_OPTIONAL = {"value", "ratio", "ratio_low", "ratio_high", "modified", "step_skew"}
"""Columns that may be empty."""
_ABSENT = {"VARCHAR": "''", "TIMESTAMP": "TIMESTAMP 'epoch'", "BOOLEAN": "false"}
"""What is in the place of a value that is missing, by type; 0 for numbers."""
_PATTERN = re.compile(r"[*?\[]")
MEMORY_MB = 1000
"""Memory that a database takes at most."""
_AT_A_TIME = 2048
"""Files in one query, which costs as much as reading some hundred of them."""


def rows_as_parquet(rows: Iterable[Mapping[str, Any]], types: Mapping[str, str]) -> bytes:
    """Return rows as the content of a Parquet file, whose columns have these types of SQL."""
    with tempfile.TemporaryDirectory(prefix="tfperf-") as folder, closing(_cursor()) as base:
        source, target = Path(folder) / "rows.json", Path(folder) / "rows.parquet"
        lines = (json.dumps(row, default=datetime.isoformat, allow_nan=False) for row in rows)
        source.write_text("\n".join(lines), "utf-8")
        table = f"read_json($source, format='newline_delimited', columns={dict(types)!r})"
        base.execute(
            f"COPY (SELECT * FROM {table}) TO $target (FORMAT parquet, COMPRESSION zstd)",  # noqa: S608  # our own names
            {"source": str(source), "target": str(target)},
        )
        return target.read_bytes()


class TableOfFiles:
    """
    A database that has the rows of files in its table `runs`, until it is closed.

    The rows are in a temporary file, so that memory does not grow with their number. A damaged file
    is left out, and so is an object that another process has removed. Values by column that the
    names of objects tell are not read. Columns that are not asked for are empty.
    """

    base: duckdb.DuckDBPyConnection
    unread: dict[str, str]
    """A sentence for each damaged object, which is left out."""

    def __init__(
        self,
        files: Mapping[str, str],
        types: Mapping[str, str],
        where: tuple[str, Mapping[str, Any]],
        named: Mapping[str, Mapping[str, str]] | None = None,
        columns: Collection[str] | None = None,
    ) -> None:
        self._files, self._types, self._where, self._named = files, types, where, named or {}
        self._asked = types.keys() if columns is None else columns
        self._folder = TemporaryFolder()
        self._first = str(self._folder.path / "types.parquet")
        self.base = _connect()
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the temporary file."""
        self.base.close()
        self._folder.close()

    def _load(self) -> None:
        typed = ", ".join(f"{name} {kind}" for name, kind in self._types.items())
        quoted = str(self._folder.path / "rows.duckdb").replace("'", "''")
        with _blaming_disk():
            self.base.execute(f"ATTACH '{quoted}' AS stored (TYPE duckdb)")
            self.base.execute(f"CREATE TABLE stored.runs ({typed})")
            # the first file gives all others its types: else one of integers would round values
            self.base.execute("COPY stored.runs TO $first (FORMAT parquet)", {"first": self._first})
            self._add([])  # so that no object is blamed for what this program does
        self.unread, alike = {}, dict[tuple[str, ...], list[str]]()
        for path in self._files:
            alike.setdefault(tuple(self._named.get(path, ())), []).append(path)
        for paths in alike.values():
            for first in range(0, len(paths), _AT_A_TIME):
                self._add_sound(paths[first : first + _AT_A_TIME])
        self.base.execute("DROP TABLE IF EXISTS new_rows")
        self.base.execute("USE stored")

    def _add_sound(self, paths: Sequence[str]) -> None:
        """
        Add objects together; if that fails, each half of them, until a single one is left out.

        So files that are too large together are read too.
        """
        try:
            self._add(paths)
        except duckdb.Error as error:
            left = [path for path in paths if not self._is_removed(path)]
            if len(left) < len(paths):
                self._add_sound(left)
                return
            if len(paths) == 1:
                self.unread[paths[0]] = f"{paths[0]} is left out: {first_line(error)}"
                return
            middle = len(paths) // 2
            self._add_sound(paths[:middle])
            self._add_sound(paths[middle:])

    def _is_removed(self, path: str) -> bool:
        """Return whether a local object is gone; a copy of a remote one is not the object."""
        try:
            os.lstat(path)
        except OSError as error:  # other ones do not tell, as of a folder closed for reading
            return isinstance(error, FileNotFoundError) and self._files[path] == path
        return False

    def _add(self, paths: Sequence[str]) -> None:
        """Add objects, whose names tell the same columns, or none if one cannot be read."""
        try:
            self._read(paths)
        except duckdb.OutOfMemoryException:
            with _blaming_disk():  # rows that are not in the file yet take memory too
                self.base.execute("CHECKPOINT stored")
            self._read(paths)
        with _blaming_disk():
            self.base.execute("INSERT INTO stored.runs FROM new_rows")

    def _read(self, paths: Sequence[str]) -> None:
        """
        Read files into a table in memory, which is bounded: small files can claim many rows.

        The other half of the memory is left to what writes them. Rows in any order take half the
        time.
        """
        where, values = self._where
        values = {**values, "files": _literal([self._first, *map(self._files.__getitem__, paths)])}
        named = self._named.get(paths[0], {}) if paths else {}
        told = [name for name in named if name in self._asked]
        # a large number of rows, so that a join keeps the few names in memory
        options = f"hive_partitioning = false, explicit_cardinality = {MOST_ROWS}"
        source = f"read_parquet($files, {options}) AS read"
        if told:
            values |= {name: [self._named[path][name] for path in paths] for name in told}
            columns = (f"unnest(${name}::{self._types[name]}[]) AS {name}" for name in told)
            places = f"SELECT unnest(range(1, len($files))) AS place, {', '.join(columns)}"
            source += f" JOIN ({places}) AS told ON read.file_index::BIGINT = told.place"
        shown = ", ".join(self._column(*one, one[0] in told) for one in self._types.items())
        self.base.execute("DROP TABLE IF EXISTS new_rows")
        self.base.execute(f"SET memory_limit = '{MEMORY_MB // 2}MB'")
        self.base.execute("SET preserve_insertion_order = false")
        try:
            self.base.execute(
                f"CREATE TEMP TABLE new_rows AS SELECT * FROM (SELECT {shown} "  # noqa: S608  # our own names
                f"FROM {source}){where}",
                values,
            )
        finally:
            self.base.execute("SET preserve_insertion_order = true")
            self.base.execute(f"SET memory_limit = '{MEMORY_MB}MB'")

    def _column(self, name: str, kind: str, is_told: bool) -> str:
        """Return the SQL of a column; only some may be empty."""
        absent = f"NULL::{kind}" if name in _OPTIONAL else _ABSENT.get(kind, "0")
        found = f"read.{name}" if name in _OPTIONAL else f"coalesce(read.{name}, {absent})"
        if is_told:
            found = f"told.{name}"
        return f"{found if name in self._asked else absent} AS {name}"


def columns_of(query: str, types: Mapping[str, str]) -> Collection[str]:
    """Return the columns of `runs` that a SELECT needs; a wrong one raises duckdb.Error."""
    with closing(_connect()) as base:
        typed = ", ".join(f"{name} {kind}" for name, kind in types.items())
        base.execute(f"CREATE TABLE runs ({typed})")
        # else the plan has conditions apart from columns, and drops what an empty table answers
        base.execute("SET disabled_optimizers = 'filter_pushdown,statistics_propagation'")
        lock(base)
        (_, plan), *_ = base.execute(f"EXPLAIN (FORMAT json) {query}").fetchall()
    found: set[str] = set()
    waiting = list(json.loads(plan))
    while waiting:
        step = waiting.pop()
        waiting += step["children"]
        about = step["extra_info"]
        if str(about.get("Table", "")).rpartition(".")[2] == "runs":
            columns = about.get("Projections")  # a single one is no list
            found |= {columns} if isinstance(columns, str) else set(columns or types)
    return found - {""} if found - {""} <= types.keys() else types.keys()


def lock(base: duckdb.DuckDBPyConnection) -> None:
    """Let queries reach no file that the database has not open."""
    base.execute("SET enable_external_access = false")
    base.execute("SET lock_configuration = true")


def rows_of_files(
    files: Mapping[str, str], types: Mapping[str, str], where: tuple[str, Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return rows of a `TableOfFiles`, whose texts control no terminal, and what is left out."""
    text = functools.cache(plain)  # most rows repeat the texts of others
    with closing(TableOfFiles(files, types, where)) as table:
        rows = table.base.execute(f"SELECT * FROM runs LIMIT {MOST_ROWS + 1}").fetchall()  # noqa: S608  # our own names
    if len(rows) > MOST_ROWS:
        raise StoreError(f"more than {MOST_ROWS:,} rows in {len(files)} tables")
    cells = ([text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return [dict(zip(types, row, strict=True)) for row in cells], table.unread


@contextmanager
def _blaming_disk() -> Iterator[None]:
    """Tell errors of the temporary file from those of the objects."""
    try:
        yield
    except duckdb.Error as error:
        raise StoreError(f"a temporary file cannot be written: {first_line(error)}") from error


def _connect() -> duckdb.DuckDBPyConnection:
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
    return _connect()


def _quiet(base: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    base.execute("SET enable_progress_bar = false")  # it would write to standard output
    return base


def _literal(paths: Iterable[str]) -> list[str]:
    """Return paths in which no character stands for others."""
    return [_PATTERN.sub(r"[\g<0>]", path) for path in paths]


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().splitlines()[0]

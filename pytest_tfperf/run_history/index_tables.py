"""
Tables of a local index: the rows of a store's objects, in one DuckDB file.

    objects   id and path of each object that was read
    rows      its rows, each with its id

An object that cannot be read is in no table.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from pytest_tfperf.run_history import duck
from pytest_tfperf.run_history.duck import (
    column_type,
    connect,
    first_line,
    literal,
    sound_column,
    without_damaged,
)
from pytest_tfperf.run_history.rows import ROW_COLUMNS
from pytest_tfperf.run_history.stores import HistoryError

T = TypeVar("T")
Fetch = Callable[[Sequence[str]], Mapping[str, bytes]]
"""Gives the content of objects by path."""
Query = Callable[[duckdb.DuckDBPyConnection], T]
"""Asks the table `runs` of a database."""
_UNUSABLE = "its local index cannot be used"
_TABLES = {
    "objects": {"id": "INTEGER", "path": "VARCHAR"},
    "rows": {"object": "INTEGER", **{name: column_type(name) for name in ROW_COLUMNS}},
}
"""Columns of each table, and their types."""
_READ_COLUMNS = ", ".join(
    (
        "$last + file_index AS object",
        # the folder names the project, also after it was renamed
        "coalesce(($projects::VARCHAR[])[file_index::BIGINT], project, '') AS project",
        *(sound_column(name) for name in ROW_COLUMNS if name != "project"),
    )
)
"""Columns of new rows; each file of a query has its place in it as `file_index`."""
_AT_A_TIME = 2048
"""Objects in one query, which costs as much as reading some hundred of them."""
_IN_A_REQUEST = 256
"""Objects in one request to the file system, which fetches them beside each other."""


class UnusableIndexError(HistoryError):
    """An index that is damaged, that another program wrote, or that cannot be written."""


class OpenIndex:
    """
    An index that is open until it is closed.

    Args:
        file: The DuckDB file.
        writes: True to change it; a file that is not there is made.

    Raises:
        UnusableIndexError: If it has other tables, or cannot be opened.
    """

    def __init__(self, file: Path, *, writes: bool = False) -> None:
        is_new = writes and not file.exists()
        self._base = connect()
        try:
            with blaming_index():
                quoted = str(file).replace("'", "''")
                mode = "" if writes else ", READ_ONLY"
                self._base.execute(f"ATTACH '{quoted}' AS stored (TYPE duckdb{mode})")
                if is_new:
                    self._make_tables()
                self._refuse_others()
                found = self._base.execute("SELECT path, id FROM stored.objects").fetchall()
                self.objects: dict[str, int] = dict(found)
        except BaseException:
            self._base.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def save(self) -> None:
        """
        Write all changes into the file itself.

        Raises:
            UnusableIndexError: If that fails.
        """
        with blaming_index():
            self._base.execute("CHECKPOINT stored")

    def drop(self, paths: Iterable[str]) -> None:
        """
        Remove objects.

        Raises:
            UnusableIndexError: If that fails.
        """
        ids = [self.objects.pop(path) for path in paths]
        with blaming_index():
            for table, column in (("rows", "object"), ("objects", "id")):
                self._base.execute(
                    f"DELETE FROM stored.{table} WHERE {column} IN (SELECT unnest($ids))",  # noqa: S608  # our own names
                    {"ids": ids},
                )

    def add(
        self, projects: Mapping[str, str | None], folder: Path, fetch: Fetch | None
    ) -> tuple[str, ...]:
        """
        Read objects.

        Args:
            projects: Project of each object by its path; None if the path names none.
            folder: Folder for temporary files.
            fetch: Fetches objects; None for those that are local files.

        Returns:
            A sentence for each object that is damaged and left out.

        Raises:
            UnusableIndexError: If the index cannot be written.
        """
        # the first file gives all others its types: else one of integers would round their values
        types = str(folder / "types.parquet")
        with blaming_index():
            self._base.execute(
                f"COPY (SELECT {', '.join(ROW_COLUMNS)} FROM stored.rows LIMIT 0) TO $types"  # noqa: S608  # our own names
                " (FORMAT parquet)",
                {"types": types},
            )
            self._add([], [types], [])  # so that no object is blamed for what this program does
        paths, unread = list(projects), list[str]()
        for first in range(0, len(paths), _AT_A_TIME):
            part = paths[first : first + _AT_A_TIME]
            with _local_files(part, folder, fetch) as files:

                def read(some: Sequence[str], files: Mapping[str, str] = files) -> list[str]:
                    sources = [types, *(files[path] for path in some)]
                    self._add(some, sources, [projects[path] for path in some])
                    return []

                unread += without_damaged(part, read)[1]
        return tuple(unread)

    def ask(self, paths: Iterable[str], query: Query[T]) -> T:
        """
        Answer a query on the rows of objects.

        Args:
            paths: The objects; those that are not in the index have no rows.
            query: The query.

        Raises:
            UnusableIndexError: If the index is damaged.
        """
        ids = [self.objects[path] for path in paths if path in self.objects]
        shown = ", ".join(ROW_COLUMNS)
        with blaming_index():
            self._base.execute(
                "CREATE TEMP TABLE wanted AS SELECT unnest($ids) AS object", {"ids": ids}
            )
            self._base.execute(
                f"CREATE TEMP VIEW runs AS SELECT {shown} FROM stored.rows "  # noqa: S608  # our own names
                "WHERE object IN (SELECT object FROM wanted)"
            )
        try:
            return query(self._base)
        except (duckdb.Error, HistoryError):
            self.verify()  # else an error of the index would pass for one of the query
            raise

    def verify(self) -> None:
        """
        Read the whole index.

        Raises:
            UnusableIndexError: If it is damaged.
        """
        with blaming_index():
            self._base.execute("SELECT bit_xor(hash(row)) FROM stored.rows AS row").fetchall()

    def _make_tables(self) -> None:
        for table, columns in _TABLES.items():
            typed = ", ".join(f"{name} {kind}" for name, kind in columns.items())
            self._base.execute(f"CREATE TABLE stored.{table} ({typed})")

    def _refuse_others(self) -> None:
        found = self._base.execute(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() JOIN duckdb_tables() "
            "USING (database_name, schema_name, table_name) WHERE database_name = 'stored'"
        ).fetchall()
        own = [(table, *column) for table, columns in _TABLES.items() for column in columns.items()]
        if sorted(found) != sorted(own):
            raise UnusableIndexError(f"{_UNUSABLE}: it has other tables")

    def _add(
        self, paths: Sequence[str], files: Sequence[str], projects: Sequence[str | None]
    ) -> None:
        """
        Add objects, or none of them if one cannot be read.

        Args:
            paths: The objects.
            files: The file that gives the types, and the local file of each object.
            projects: Project of each object.

        Raises:
            duckdb.Error: If one cannot be read.
        """
        last = max(self.objects.values(), default=0)
        asked = {"last": last, "files": literal(files), "projects": list(projects)}
        try:
            self._read(asked)
        except duckdb.OutOfMemoryException:
            self.save()  # rows that are not in the file yet take memory too
            self._read(asked)
        new = {path: last + number for number, path in enumerate(paths, 1)}
        with blaming_index():
            self._base.execute("INSERT INTO stored.rows BY NAME FROM new_rows")
            self._base.execute(
                "INSERT INTO stored.objects SELECT unnest($ids), unnest($paths)",
                {"ids": list(new.values()), "paths": list(new)},
            )
        self.objects.update(new)

    def _read(self, asked: Mapping[str, Any]) -> None:
        """
        Read files into a table in memory, which is bounded: small files can claim many rows.

        The other half of the memory is left to what writes them. Rows in any order take half the
        time.
        """
        self._base.execute("DROP TABLE IF EXISTS new_rows")
        self._base.execute(f"SET memory_limit = '{duck.MEMORY_MB // 2}MB'")
        self._base.execute("SET preserve_insertion_order = false")
        try:
            self._base.execute(
                f"CREATE TEMP TABLE new_rows AS SELECT {_READ_COLUMNS} "  # noqa: S608  # our own names
                "FROM read_parquet($files, hive_partitioning = false)",
                asked,
            )
        finally:
            self._base.execute("SET preserve_insertion_order = true")
            self._base.execute(f"SET memory_limit = '{duck.MEMORY_MB}MB'")


@contextmanager
def blaming_index() -> Iterator[None]:
    """
    Tell errors of the index from those of the objects and of the query.

    Raises:
        UnusableIndexError: In their place.
    """
    try:
        yield
    except duckdb.Error as error:
        raise UnusableIndexError(f"{_UNUSABLE}: {first_line(error)}") from error
    except OSError as error:
        raise UnusableIndexError(f"{_UNUSABLE}: {error.strerror or error}") from error


@contextmanager
def _local_files(
    paths: Sequence[str], folder: Path, fetch: Fetch | None
) -> Iterator[Mapping[str, str]]:
    """
    Give the local file of each object, which lasts as long as the context.

    Args:
        paths: The objects.
        folder: Folder for copies.
        fetch: Fetches objects; None for those that are local files.
    """
    if fetch is None:
        yield {path: path for path in paths}
        return
    with tempfile.TemporaryDirectory(dir=folder) as copies:
        files = {path: Path(copies) / f"{number}.parquet" for number, path in enumerate(paths)}
        for first in range(0, len(paths), _IN_A_REQUEST):
            contents = fetch(paths[first : first + _IN_A_REQUEST])
            with blaming_index():
                for path, content in contents.items():
                    files[path].write_bytes(content)
        yield {path: str(file) for path, file in files.items()}

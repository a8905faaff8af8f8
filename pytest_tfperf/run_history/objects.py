"""
A history in objects of a file system: a folder, s3://, gs:// and whatever else fsspec reaches.

Each run adds new objects and changes none, so writers need no lock:

    runs/project=P/month=M/COMMIT-RUN.json                      the run file
    rows-1/project=P/class=C/month=M/COMMIT-RUN.parquet         its rows of one machine class

The number in `rows-1` is the format of the rows. Queries ask a local index of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TypeVar
from urllib.parse import quote, unquote

import fsspec

from pytest_tfperf.files import replacing
from pytest_tfperf.run_history.duck import read_rows, rows_as_parquet, select_from
from pytest_tfperf.run_history.index_tables import Query
from pytest_tfperf.run_history.row_index import Listing, RowIndex
from pytest_tfperf.run_history.rows import ROW_FORMAT, MetricRow, RunRows
from pytest_tfperf.run_history.stores import FIRST_RUN, Answer, HistoryError, Selection

T = TypeVar("T")
_ROWS, _RUNS = f"rows-{ROW_FORMAT}", "runs"
_ENDINGS = (".parquet", ".json")
_NEWER = re.compile(r"rows-(\d{1,6})")
_SECRET = re.compile(r"(?<=://)[^/@]*@")


class ObjectStore:
    """
    A history in objects below one folder.

    Args:
        address: A folder, or a URL of fsspec.

    Raises:
        HistoryError: If fsspec does not know the scheme, or its package is missing.
    """

    def __init__(self, address: str) -> None:
        self.unread: Sequence[str] = ()
        self.name = _SECRET.sub("", address)
        try:
            self._files, self._root = fsspec.core.url_to_fs(address)
        except (ImportError, ValueError, OSError) as error:
            raise HistoryError(f"history {self.name}: {error}") from error
        self._is_local = "file" in _protocols(self._files)
        self._index = (
            RowIndex(self._root, None) if self._is_local else RowIndex(address, self._fetch)
        )

    def refuse_missing(self) -> None:
        """Check that a local folder is there: see `HistoryStore`; buckets have no folders."""
        if not self._is_local or self._files.isdir(self._root):
            return
        if self._files.exists(self._root):
            raise HistoryError(f"history {self.name}: it is no folder")
        raise HistoryError(f"history {self.name}: there is no such folder{FIRST_RUN}")

    def append(self, run: RunRows) -> bool:
        """Store a run: see `HistoryStore`."""
        project = f"project={quote(run.project, safe='')}"
        month = f"month={run.month}"
        with self._blaming("cannot be written"):
            # first what nobody counts, so that the rows of a run have its file
            new = self._put(f"{_RUNS}/{project}/{month}/{run.name}.json", run.text.encode())
            for machine_class, rows in run.rows.items():
                content = rows_as_parquet(asdict(row) for row in rows)
                folder = f"{_ROWS}/{project}/class={machine_class}/{month}"
                new |= self._put(f"{folder}/{run.name}.parquet", content)
        return new

    def rows(self, selection: Selection) -> list[MetricRow]:
        """Return the rows of a selection: see `HistoryStore`."""
        return self._ask(selection, lambda base: read_rows(base, selection))

    def sql(self, query: str, project: str) -> Answer:
        """Answer a query: see `HistoryStore`."""
        return self._ask(Selection(project=project), lambda base: select_from(base, query))

    def prune(self, project: str, before: datetime, dry: bool) -> int:
        """
        Remove the runs of whole months: see `HistoryStore`.

        Args:
            project: Name of the project.
            before: The time; its month stays.
            dry: True to remove nothing.
        """
        with self._blaming("cannot be pruned"):
            old = [
                path
                for kind in (_ROWS, _RUNS)  # a run is gone when its rows are
                for path in self._below(f"{kind}/project={quote(project, safe='')}")
                if _month(path) < f"{before:%Y-%m}"
            ]
            for path in () if dry else old:
                self._files.rm_file(path)
        return len({PurePosixPath(path).stem for path in old})

    def _put(self, name: str, content: bytes) -> bool:
        """Write an object unless it is there; others see all of it, or nothing."""
        path = f"{self._root}/{name}"
        if self._files.exists(path):
            return False
        if self._is_local:
            with replacing(Path(path)) as file:
                file.write(content)
        else:
            self._files.pipe_file(path, content)  # one request, which stores all or nothing
        return True

    def _ask(self, selection: Selection, query: Query[T]) -> T:
        with self._blaming("cannot be read"):
            answer, self.unread = self._index.ask(self._find(selection), query)
        return answer

    def _find(self, selection: Selection) -> Listing:
        """List the objects that may have rows of a selection."""
        self._refuse_newer()
        folder = _ROWS
        if selection.project:
            folder += f"/project={quote(selection.project, safe='')}"
            folder += f"/class={selection.machine_class}" if selection.machine_class else ""
        paths = self._below(folder)
        of_class = f"/class={selection.machine_class}/" if selection.machine_class else ""
        since = "" if selection.since is None else f"{selection.since:%Y-%m}"
        return Listing(
            folder=f"{self._root}/{folder}/",
            paths=frozenset(paths),
            projects={
                path: self._project(path)
                for path in paths
                if of_class in path and _month(path) >= since
            },
        )

    def _project(self, path: str) -> str | None:
        """Return the project that a path names, if it does."""
        first = path.removeprefix(f"{self._root}/{_ROWS}/").partition("/")[0]
        return unquote(first.removeprefix("project=")) if first.startswith("project=") else None

    def _refuse_newer(self) -> None:
        for path in self._listed(self._root):
            found = _NEWER.fullmatch(PurePosixPath(path).name)
            if found and int(found[1]) > ROW_FORMAT:
                raise HistoryError(
                    f"history {self.name}: it has rows of format {found[1]}, and this version "
                    f"reads up to {ROW_FORMAT}; upgrade pytest-tfperf"
                )

    def _listed(self, folder: str) -> list[str]:
        try:
            return list(self._files.ls(folder, detail=False))
        except FileNotFoundError:
            return []

    def _below(self, folder: str) -> list[str]:
        try:
            found = self._files.find(f"{self._root}/{folder}")
        except FileNotFoundError:
            return []
        # what another run writes at this moment has another ending
        return sorted(path for path in found if path.endswith(_ENDINGS))

    def _fetch(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        return dict(self._files.cat(list(paths), recursive=False))

    @contextmanager
    def _blaming(self, what: str) -> Iterator[None]:
        """Turn errors of file systems, which have no common class, into one sentence."""
        self._files.invalidate_cache()
        try:
            yield
        except HistoryError as error:
            if str(error).startswith("history "):
                raise
            raise HistoryError(f"history {self.name}: {error}") from error
        except Exception as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise HistoryError(f"history {self.name} {what}: {why}") from error


def _protocols(files: fsspec.AbstractFileSystem) -> tuple[str, ...]:
    names = files.protocol
    return (names,) if isinstance(names, str) else tuple(names)


def _month(path: str) -> str:
    return PurePosixPath(path).parent.name.removeprefix("month=")

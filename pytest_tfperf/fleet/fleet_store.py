"""
The results of traces, as objects below one folder of any file system.

Others see all of an object or nothing, so writers need no lock. An object never changes, but for
errors of traces that could not be read, which the next run tries again:

    metrics-1/SHA256.parquet         a row for each metric of a trace of this content
    steps-1/SHA256.parquet           a row for each of its steps
    errors-1/SHA256.parquet          the row of a trace of this content that is damaged
    errors-1/FINGERPRINT.parquet     the row of a trace that could not be read
    seen-1/FINGERPRINT-SHA256.json   the content of a trace whose file system told this fingerprint
    runs-1/KEY.parquet               the skew between the hosts of a run

The number is the format of the rows. A file system may tell no fingerprint, as some web servers do.
Then such names have a hash of the trace's address, and its error is emptied once it could be read.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec

from pytest_tfperf.errors import FleetError
from pytest_tfperf.files import open_regular, replacing
from pytest_tfperf.fleet.result_tables import read_tables
from pytest_tfperf.fleet.trace_files import TraceFile, blaming, is_of, without_secret
from pytest_tfperf.fleet.trace_rows import (
    METRIC_COLUMNS,
    RUN_COLUMNS,
    STEP_COLUMNS,
    error_row,
)
from pytest_tfperf.json_file import plain_strings
from pytest_tfperf.run_history.duck import rows_as_parquet
from pytest_tfperf.run_history.object_cache import LocalCopies
from pytest_tfperf.values import Json

FORMAT = 1
"""Version of the rows; an older version of this package refuses a newer store unread."""
METRICS, STEPS, ERRORS, RUNS = "metrics", "steps", "errors", "runs"
"""Kinds of tables."""
_COLUMNS = {
    METRICS: METRIC_COLUMNS,
    STEPS: STEP_COLUMNS,
    ERRORS: METRIC_COLUMNS,
    RUNS: RUN_COLUMNS,
}
_SEEN = "seen"
_KIND = re.compile(rf"(?:{METRICS}|{STEPS}|{ERRORS}|{RUNS}|{_SEEN})-(\d{{1,6}})")
_SEEN_NAME = re.compile(r"([0-9a-f]{32})-([0-9a-f]{64})\.json")
_MOST_SEEN_BYTES = 100_000
_AT_A_TIME = 2_000
"""Tables in one query, so that memory does not grow with the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTrace:
    """A trace that a store has a result of."""

    name: str
    """Address of the trace."""
    key: str
    """Name of its tables: the hash of its content, or the fingerprint if it was not read."""
    modified: float
    """Time of its last change, or when it was looked at if that is unknown."""
    why: str = ""
    """The reason if it could not be read, else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreIndex:
    """Names of the objects of a store, at the time of the listing."""

    seen: Mapping[str, str]
    """Content by fingerprint."""
    analysed: frozenset[str]
    """Contents with metrics."""
    errors: frozenset[str]
    """Contents that are damaged, and fingerprints of traces that could not be read."""

    def content_of(self, trace: TraceFile) -> str:
        """Return the hash of a trace whose result is stored; empty for one that must be read."""
        sha256 = self.seen.get(trace.fingerprint, "")
        return sha256 if sha256 in self.analysed or sha256 in self.errors else ""

    def key_of(self, trace: TraceFile) -> str:
        """Return the name of a trace's tables, be they an error's; empty without any."""
        unread = trace.fingerprint if trace.fingerprint in self.errors else ""
        return self.content_of(trace) or unread


class FleetStore:
    """
    A store of results; workers get it by its address.

    Args:
        address: A folder, or a URL of fsspec.

    Raises:
        FleetError: If fsspec does not know the scheme, or its package is missing.
    """

    def __init__(self, address: str) -> None:
        self._address, self.name = address, f"store {without_secret(address)}"
        with blaming(self.name):
            self.files, self._root = fsspec.core.url_to_fs(address)
        self._is_local = is_of(self.files, "file")
        self._copies = None if self._is_local else LocalCopies(self.files, address)

    def __reduce__(self) -> tuple[type[FleetStore], tuple[str]]:
        return FleetStore, (self._address,)

    def index(self) -> StoreIndex:
        """
        List the store.

        Raises:
            FleetError: If it cannot be listed, or a newer version wrote it.
        """
        with blaming(f"{self.name} cannot be read"):
            self.files.invalidate_cache()
            self._refuse_newer()
            found = (_SEEN_NAME.fullmatch(name) for name in self._names(_SEEN))
            return StoreIndex(
                seen={one[1]: one[2] for one in found if one},
                analysed=self._keys(METRICS),
                errors=self._keys(ERRORS),
            )

    def has(self, kind: str, key: str) -> bool:
        """Return whether a table is stored."""
        with blaming(f"{self.name} cannot be read"):
            self.files.invalidate_cache()
            return bool(self.files.exists(self._path(kind, f"{key}.parquet")))

    def add_table(self, kind: str, key: str, rows: Sequence[Json]) -> None:
        """
        Store a table.

        Args:
            kind: Kind of the table.
            key: Its name.
            rows: Its rows.

        Raises:
            FleetError: If it cannot be stored; no reader sees a part of it then.
        """
        if not self.has(kind, key):
            self._put(self._path(kind, f"{key}.parquet"), rows_as_parquet(rows, _COLUMNS[kind]))

    def add_seen(self, trace: TraceFile, sha256: str) -> None:
        """Store that a trace has this content; its result must be stored before."""
        content = {"trace": trace.name, "modified": _changed(trace)}
        key = f"{trace.fingerprint or _key(trace.name, sha256)}-{sha256}"
        self._put(self._path(_SEEN, f"{key}.json"), json.dumps(content).encode())
        if not trace.fingerprint and self.has(ERRORS, _key(trace.name)):
            self._put_error(_key(trace.name), [])

    def add_unread(self, trace: TraceFile, why: str) -> None:
        """Store the reason why a trace could not be read; later runs try it again."""
        row = {**error_row(trace, "", why), "modified": _changed(trace)}
        self._put_error(trace.fingerprint or _key(trace.name), [row])

    def seen(self) -> tuple[list[SeenTrace], tuple[str, ...]]:
        """
        Return the newest state of each trace, by name, and sentences on damaged objects.

        Raises:
            FleetError: If the store has no result, or cannot be read.
        """
        index = self.index()
        if not index.analysed and not index.errors:
            raise FleetError(
                f"{self.name} has no result of a trace: tfperf analyze URL --into STORE writes some"
            )
        unread: list[str] = []
        newest: dict[str, SeenTrace] = {}
        for one in (*self._read_seen(unread), *self._failures(index, unread)):
            if one.name not in newest or one.modified >= newest[one.name].modified:
                newest[one.name] = one
        return [newest[name] for name in sorted(newest)], tuple(unread)

    def rows(
        self,
        kind: str,
        keys: Iterable[str],
        *,
        metrics: Sequence[str] = (),
        columns: Sequence[str] = (),
        anew: bool = False,
    ) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
        """
        Return rows of tables, and sentences on damaged ones.

        Args:
            kind: Kind of the tables.
            keys: Their names.
            metrics: Only rows of these metrics; all if empty.
            columns: Only these columns; all if empty.
            anew: True for tables that may have changed.

        Raises:
            FleetError: If the store cannot be read.
        """
        found: list[dict[str, Any]] = []
        unread: list[str] = []
        types = _COLUMNS[kind]
        shown = {name: types[name] for name in columns or types}
        with blaming(f"{self.name} cannot be read"):
            paths = [self._path(kind, f"{key}.parquet") for key in keys]
            paths = paths if self._copies is None else self._copies.of(paths, anew)
            for first in range(0, len(paths), _AT_A_TIME):
                some, sentences = read_tables(paths[first : first + _AT_A_TIME], shown, metrics)
                found += some
                unread += sentences
        return found, tuple(unread)

    def _failures(self, index: StoreIndex, unread: list[str]) -> list[SeenTrace]:
        """Return the traces that could not be read, and not since."""
        keys = sorted(key for key in index.errors if len(key) == 32 and key not in index.seen)
        rows, sentences = self.rows(ERRORS, keys, anew=True)
        unread += sentences
        return [
            SeenTrace(
                name=str(row["trace"]),
                key="",
                modified=row["modified"] or 0.0,
                why=str(row["why"]),
            )
            for row in rows
        ]

    def _read_seen(self, unread: list[str]) -> list[SeenTrace]:
        found = []
        with blaming(f"{self.name} cannot be read"):
            paths = [self._path(_SEEN, name) for name in self._names(_SEEN)]
            local = paths if self._copies is None else self._copies.of(paths)
        for path in local:
            name = _SEEN_NAME.fullmatch(Path(path).name)
            try:
                with open_regular(Path(path)) as file:
                    content = plain_strings(json.loads(file.read(_MOST_SEEN_BYTES)))
                changed = float(content["modified"] or 0.0)
                if name is not None:
                    trace = str(content["trace"])
                    found.append(SeenTrace(name=trace, key=name[2], modified=changed))
            except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
                unread.append(f"{path} is left out: {error}")
        return found

    def _put_error(self, key: str, rows: Sequence[Json]) -> None:
        path = self._path(ERRORS, f"{key}.parquet")
        self._put(path, rows_as_parquet(rows, _COLUMNS[ERRORS]))

    def _put(self, path: str, content: bytes) -> None:
        with blaming(f"{self.name} cannot be written"):
            if self._is_local:
                with replacing(Path(path)) as file:
                    file.write(content)
            else:
                self.files.pipe_file(path, content)  # one request, which stores all or nothing

    def _refuse_newer(self) -> None:
        try:
            listed = self.files.ls(self._root, detail=False)
        except FileNotFoundError:
            return
        found = (_KIND.fullmatch(PurePosixPath(path.rstrip("/")).name) for path in listed)
        newest = max((int(one[1]) for one in found if one), default=FORMAT)
        if newest > FORMAT:
            raise FleetError(
                f"{self.name} has rows of format {newest}, and this version reads up to {FORMAT}; "
                "upgrade pytest-tfperf"
            )

    def _path(self, kind: str, name: str) -> str:
        return f"{self._root}/{kind}-{FORMAT}/{name}"

    def _names(self, kind: str) -> list[str]:
        try:
            found = self.files.find(f"{self._root}/{kind}-{FORMAT}", maxdepth=1)
        except FileNotFoundError:
            return []
        return [PurePosixPath(path).name for path in found]

    def _keys(self, kind: str) -> frozenset[str]:
        ending = ".parquet"
        names = self._names(kind)
        return frozenset(name.removesuffix(ending) for name in names if name.endswith(ending))


def _changed(trace: TraceFile) -> float:
    """Return the time of the last change of a trace, which is before now if it is unknown."""
    return time.time() if trace.modified is None else trace.modified


def _key(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

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

from pytest_tfperf.errors import StoreError
from pytest_tfperf.files import open_regular
from pytest_tfperf.fleet.trace_files import TraceFile
from pytest_tfperf.fleet.trace_rows import (
    METRIC_COLUMNS,
    RUN_COLUMNS,
    STEP_COLUMNS,
    error_row,
)
from pytest_tfperf.json_file import plain_strings
from pytest_tfperf.stores.objects import Objects
from pytest_tfperf.stores.tables import rows_as_parquet, rows_of_files
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
_SEEN_NAME = re.compile(r"([0-9a-f]{32})-([0-9a-f]{64})\.json")
_MOST_SEEN_BYTES = 100_000


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
        StoreError: If fsspec does not know the scheme, or its package is missing.
    """

    def __init__(self, address: str) -> None:
        self._objects = Objects(address, "store")
        self.name = self._objects.name

    def __reduce__(self) -> tuple[type[FleetStore], tuple[str]]:
        return FleetStore, (self._objects.address,)

    @property
    def is_of_process(self) -> bool:
        """True if other processes do not see it."""
        return self._objects.is_of_process

    def index(self) -> StoreIndex:
        """
        List the store.

        Raises:
            StoreError: If it cannot be listed, or a newer version wrote it.
        """
        with self._objects.blaming("cannot be read"):
            self._objects.refuse_newer((*_COLUMNS, _SEEN), FORMAT)
            names = self._objects.below(f"{_SEEN}-{FORMAT}", (".json",))
            found = (_SEEN_NAME.fullmatch(PurePosixPath(name).name) for name in names)
            return StoreIndex(
                seen={one[1]: one[2] for one in found if one},
                analysed=self._keys(METRICS),
                errors=self._keys(ERRORS),
            )

    def has(self, kind: str, key: str) -> bool:
        """Return whether a table is stored."""
        with self._objects.blaming("cannot be read"):
            return self._objects.has(_name(kind, key))

    def add_table(self, kind: str, key: str, rows: Sequence[Json]) -> None:
        """
        Store a table.

        Args:
            kind: Kind of the table.
            key: Its name.
            rows: Its rows.

        Raises:
            StoreError: If it cannot be stored; no reader sees a part of it then.
        """
        if not self.has(kind, key):
            self._put(_name(kind, key), rows_as_parquet(rows, _COLUMNS[kind]))

    def add_seen(self, trace: TraceFile, sha256: str) -> None:
        """Store that a trace has this content; its result must be stored before."""
        content = {"trace": trace.name, "modified": _changed(trace)}
        key = f"{trace.fingerprint or _key(trace.name, sha256)}-{sha256}"
        self._put(f"{_SEEN}-{FORMAT}/{key}.json", json.dumps(content).encode())
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
            StoreError: If the store has no result, or cannot be read.
        """
        index = self.index()
        if not index.analysed and not index.errors:
            raise StoreError(
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
            StoreError: If the store cannot be read.
        """
        types = _COLUMNS[kind]
        shown = {name: types[name] for name in columns or types}
        where = (" WHERE list_contains($metrics, metric)", {"metrics": list(metrics)})
        with self._objects.blaming("cannot be read"):
            paths = [f"{self._objects.root}/{_name(kind, key)}" for key in keys]
            self._objects.forget(paths if anew else ())
            files = self._objects.local(paths)
            found, unread = rows_of_files(files, shown, where if metrics else ("", {}))
            self._objects.forget(unread)
        return found, tuple(unread.values())

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
        with self._objects.blaming("cannot be read"):
            paths = self._objects.below(f"{_SEEN}-{FORMAT}", (".json",))
            local = self._objects.local(paths)
        for path in local.values():
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
        self._put(_name(ERRORS, key), rows_as_parquet(rows, _COLUMNS[ERRORS]))

    def _put(self, name: str, content: bytes) -> None:
        with self._objects.blaming("cannot be written"):
            self._objects.put(name, content)

    def _keys(self, kind: str) -> frozenset[str]:
        found = self._objects.below(f"{kind}-{FORMAT}", (".parquet",))
        return frozenset(PurePosixPath(path).stem for path in found)


def _name(kind: str, key: str) -> str:
    """Return the name of a table."""
    return f"{kind}-{FORMAT}/{key}.parquet"


def _changed(trace: TraceFile) -> float:
    """Return the time of the last change of a trace, which is before now if it is unknown."""
    return time.time() if trace.modified is None else trace.modified


def _key(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

"""
The results of traces, as objects below one folder of any file system.

An object never changes, but for the row of a trace that failed, which the next run tries again:

    metrics-1/SHA256.parquet               a row for each metric of a trace of this content
    steps-1/SHA256.parquet                 a row for each of its steps
    traces-1/FINGERPRINT-SHA256.parquet    the row of a trace that has this content
    traces-1/FINGERPRINT-damaged.parquet   that of one that is damaged
    traces-1/FINGERPRINT-failed.parquet    that of one that could not be read, or whose worker died
    runs-1/KEY.parquet                     the skew between the hosts of a run

The number is the format of the rows.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import msgspec

from pytest_tfperf import __version__
from pytest_tfperf.errors import StoreError
from pytest_tfperf.json_file import plain_strings
from pytest_tfperf.metric_registry import METRICS as REGISTRY
from pytest_tfperf.metrics.multi_host import AnalysedTrace
from pytest_tfperf.report.run_details import Detail
from pytest_tfperf.stores.objects import Objects
from pytest_tfperf.stores.tables import rows_as_parquet, rows_of_files
from pytest_tfperf.stores.trace_files import TraceFile, run_and_host
from pytest_tfperf.values import PARTS, Json, Value

FORMAT = 1
"""Version of the rows; an older version of this package refuses a newer store unread."""
TRACES, METRICS, STEPS, RUNS = "traces", "metrics", "steps", "runs"
"""Kinds of tables."""
DAMAGED, FAILED = "damaged", "failed"
"""In place of the hash of a trace that was not analysed; one that failed is tried again."""
_OF_TRACE = {
    "trace": "VARCHAR",
    "sha256": "VARCHAR",
    "run": "VARCHAR",
    "host": "VARCHAR",
    "modified": "DOUBLE",
    "tfperf": "VARCHAR",
}
_COLUMNS = {
    TRACES: {**_OF_TRACE, "why": "VARCHAR"},
    METRICS: {
        **_OF_TRACE,
        "metric": "VARCHAR",
        "scope": "VARCHAR",
        "unit": "VARCHAR",
        "value": "DOUBLE",
        "source": "VARCHAR",
        "why": "VARCHAR",
        "detail": "VARCHAR",
    },
    STEPS: {
        **_OF_TRACE,
        "step": "INTEGER",
        "name": "VARCHAR",
        "start_ns": "BIGINT",
        "period_ns": "BIGINT",
        **{f"{part}_ns": "BIGINT" for part in PARTS},
    },
    RUNS: {
        "run": "VARCHAR",
        "n_hosts": "INTEGER",
        "n_unread": "INTEGER",
        "n_steps": "INTEGER",
        "step_skew": "DOUBLE",
        "slowest": "VARCHAR",
        "why": "VARCHAR",
    },
}
"""Type of each column in SQL."""
_KEY_OF_TRACE = re.compile(rf"([0-9a-f]{{32}})-([0-9a-f]{{64}}|{DAMAGED}|{FAILED})")
# what checks of limits show of a value, and what of it must be a number
_KEPT = ("low", "high", "n_steps", "bounds", "where", "try", "corrected", "tpu", "padding")
_NS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreIndex:
    """Names of the objects of a store, at the time of the listing."""

    contents: Mapping[str, str]
    """Content by fingerprint; `DAMAGED` or `FAILED` for one that was not analysed."""
    analysed: frozenset[str]
    """Contents with metrics."""
    runs: frozenset[str]
    """Names of the alignments of runs."""

    def content_of(self, trace: TraceFile) -> str:
        """Return the hash of a trace, `DAMAGED` or `FAILED`; empty without a result."""
        content = self.contents.get(trace.fingerprint, "")
        return content if content in self.analysed or content in (DAMAGED, FAILED) else ""


class TraceResults:
    """A store of results; workers get it by its address, a folder or a URL of fsspec."""

    def __init__(self, address: str) -> None:
        self._objects = Objects(address, "store")
        self.is_of_process = self._objects.is_of_process
        """True if other processes do not see it."""

    def __reduce__(self) -> tuple[type[TraceResults], tuple[str]]:
        return TraceResults, (self._objects.address,)

    def index(self) -> StoreIndex:
        """List the store, or raise StoreError if a newer version wrote it."""
        with self._objects.blaming("cannot be read"):
            self._objects.refuse_newer(_COLUMNS, FORMAT)
            found = [one for key in self._keys(TRACES) if (one := _KEY_OF_TRACE.fullmatch(key))]
            found.sort(key=lambda one: (one[2] != FAILED, one[2] != DAMAGED))  # the last one counts
            return StoreIndex(
                contents={one[1]: one[2] for one in found},
                analysed=frozenset(self._keys(METRICS)),
                runs=frozenset(self._keys(RUNS)),
            )

    def has_metrics(self, sha256: str) -> bool:
        """Return whether a trace of this content was analysed."""
        with self._objects.blaming("cannot be read"):
            return self._objects.has(_name(METRICS, sha256))

    def add(self, kind: str, key: str, rows: Sequence[Json]) -> None:
        """Store a table whole, or raise StoreError."""
        with self._objects.blaming("cannot be written"):
            self._objects.put(_name(kind, key), rows_as_parquet(rows, _COLUMNS[kind]))

    def add_analysed(self, trace: TraceFile, sha256: str, analysed: AnalysedTrace) -> None:
        """Store metrics and steps of a content; times are those of the traced steps."""
        shared = _of(trace, sha256)
        self.add(STEPS, sha256, list(_step_rows(shared, analysed)))
        # last, since a trace counts as analysed with its metrics
        self.add(METRICS, sha256, list(_metric_rows(shared, analysed)))

    def add_trace(self, trace: TraceFile, content: str, sha256: str = "", why: str = "") -> None:
        """Store the row of a trace of a content, or `DAMAGED` or `FAILED`, after its result."""
        row = {**_of(trace, sha256), "why": plain_strings(why)}
        self.add(TRACES, f"{trace.fingerprint}-{content}", [row])

    def traces(self, index: StoreIndex) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
        """Return the newest row of each trace, by name, and sentences on damaged objects."""
        if not index.contents:
            raise StoreError(
                f"{self._objects.name} has no result of a trace: tfperf analyze URL --into STORE "
                "writes some"
            )
        keys = [f"{fingerprint}-{content}" for fingerprint, content in index.contents.items()]
        rows, unread = self.rows(TRACES, keys)
        rows.sort(key=lambda row: row["modified"] or 0.0)
        newest = {row["trace"]: row for row in rows}
        return [newest[name] for name in sorted(newest)], unread

    def rows(
        self,
        kind: str,
        keys: Iterable[str],
        *,
        metrics: Sequence[str] = (),
        columns: Sequence[str] = (),
    ) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
        """Return rows of tables, by metrics and columns if some are given, and what is left out."""
        types = _COLUMNS[kind]
        shown = {name: types[name] for name in columns or types}
        where = (" WHERE list_contains($metrics, metric)", {"metrics": list(metrics)})
        with self._objects.blaming("cannot be read"):
            paths = [f"{self._objects.root}/{_name(kind, key)}" for key in keys]
            self._objects.forget(path for path in paths if path.endswith(f"-{FAILED}.parquet"))
            files = self._objects.local(paths)
            found, unread = rows_of_files(files, shown, where if metrics else ("", {}))
            self._objects.forget(unread)
        return found, tuple(unread.values())

    def _keys(self, kind: str) -> list[str]:
        """Return the names of the tables of a kind, in order."""
        found = self._objects.below(f"{kind}-{FORMAT}", (".parquet",))
        return [PurePosixPath(path).stem for path in found]


def value_of(row: Mapping[str, Any]) -> Value:
    """Return the value of a metric's row, which others may have written, or raise ValueError."""
    known = row["value"] is not None
    if known and not math.isfinite(row["value"]):
        raise ValueError(f"a value of {row['value']}")
    try:
        detail = msgspec.json.decode(row["detail"], type=dict[str, Any])
        msgspec.convert(detail, Detail)
        return msgspec.convert(
            {
                "value": row["value"],
                "unit": REGISTRY[row["metric"]].unit,
                "source": row["source"] if known else None,
                "why": None if known else row["why"] or "the store does not tell why",
                "detail": {"padding": "", **detail} if "tpu" in detail else detail,
            },
            Value,
        )
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error


def _name(kind: str, key: str) -> str:
    return f"{kind}-{FORMAT}/{key}.parquet"


def _of(trace: TraceFile, sha256: str) -> Json:
    run, host = run_and_host(trace.name)
    return {
        "trace": plain_strings(trace.name),
        "sha256": sha256,
        "run": plain_strings(run),
        "host": plain_strings(host),
        "modified": trace.modified,
        "tfperf": __version__,
    }


def _metric_rows(shared: Json, analysed: AnalysedTrace) -> Iterable[Json]:
    for name, value in analysed.with_traced_times().metrics.items():
        detail = {key: value.detail[key] for key in _KEPT if key in value.detail}
        yield {
            **shared,
            "metric": name,
            "scope": REGISTRY[name].scope,
            "unit": value.unit,
            "value": value.number,
            "source": value.source.value if value.source else "",
            "why": plain_strings(value.why or ""),
            "detail": json.dumps(plain_strings(detail)),
        }


def _step_rows(shared: Json, analysed: AnalysedTrace) -> Iterable[Json]:
    pairs = zip(analysed.profile.steps, analysed.starts_ns, strict=True)
    for number, (step, start_ns) in enumerate(pairs):
        yield {
            **shared,
            "step": number,
            "name": plain_strings(step.name),
            "start_ns": start_ns,
            "period_ns": round(step.period_s * _NS),
            **{f"{part}_ns": round(step.parts_s[part] * _NS) for part in PARTS},
        }

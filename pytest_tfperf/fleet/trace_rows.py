"""Rows of a store of traces: one a metric, one a step, one a run; and values from such rows."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from pytest_tfperf import __version__
from pytest_tfperf.fleet.trace_files import TraceFile, run_and_host
from pytest_tfperf.json_file import plain_strings
from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.metrics.multi_host import AnalysedTrace
from pytest_tfperf.report.run_details import Detail
from pytest_tfperf.values import PARTS, Json, Value

_OF_TRACE = {
    "trace": "VARCHAR",
    "sha256": "VARCHAR",
    "run": "VARCHAR",
    "host": "VARCHAR",
    "modified": "DOUBLE",
    "tfperf": "VARCHAR",
}
METRIC_COLUMNS = {
    **_OF_TRACE,
    "metric": "VARCHAR",
    "scope": "VARCHAR",
    "unit": "VARCHAR",
    "value": "DOUBLE",
    "source": "VARCHAR",
    "why": "VARCHAR",
    "detail": "VARCHAR",
}
"""Columns of metrics and of errors; an error is a row without a metric, whose `why` says it."""
STEP_COLUMNS = {
    **_OF_TRACE,
    "step": "INTEGER",
    "name": "VARCHAR",
    "start_ns": "BIGINT",
    "period_ns": "BIGINT",
    **{f"{part}_ns": "BIGINT" for part in PARTS},
}
"""Columns of steps."""
RUN_COLUMNS = {
    "run": "VARCHAR",
    "n_hosts": "INTEGER",
    "n_unread": "INTEGER",
    "n_steps": "INTEGER",
    "step_skew": "DOUBLE",
    "slowest": "VARCHAR",
    "why": "VARCHAR",
}
"""Columns of runs with several hosts."""
# what checks of limits show of a value, and what of it must be a number
_KEPT = ("low", "high", "n_steps", "bounds", "where", "try", "corrected", "tpu", "padding")
_NS = 1e9


def metric_rows(trace: TraceFile, sha256: str, analysed: AnalysedTrace) -> list[Json]:
    """
    Return a row for each metric; times are those of the traced steps.

    Args:
        trace: The trace.
        sha256: Hash of its content.
        analysed: Its analysis.
    """
    metrics = analysed.with_traced_times().metrics
    return [
        {
            **_of(trace, sha256),
            "metric": name,
            "scope": METRICS[name].scope,
            "unit": value.unit,
            "value": value.number,
            "source": value.source.value if value.source else "",
            "why": plain_strings(value.why or ""),
            "detail": json.dumps(
                plain_strings({key: value.detail[key] for key in _KEPT if key in value.detail})
            ),
        }
        for name, value in metrics.items()
    ]


def step_rows(trace: TraceFile, sha256: str, analysed: AnalysedTrace) -> list[Json]:
    """
    Return a row for each step: number, start, period and parts.

    Args:
        trace: The trace.
        sha256: Hash of its content.
        analysed: Its analysis.
    """
    shared = _of(trace, sha256)
    pairs = zip(analysed.profile.steps, analysed.starts_ns, strict=True)
    return [
        {
            **shared,
            "step": number,
            "name": plain_strings(step.name),
            "start_ns": start_ns,
            "period_ns": round(step.period_s * _NS),
            **{f"{part}_ns": round(step.parts_s[part] * _NS) for part in PARTS},
        }
        for number, (step, start_ns) in enumerate(pairs)
    ]


def error_row(trace: TraceFile, sha256: str, why: str) -> Json:
    """
    Return the row of a trace that could not be analysed.

    Args:
        trace: The trace.
        sha256: Hash of its content; empty if it was not read.
        why: The reason.
    """
    absent = dict.fromkeys(("metric", "scope", "unit", "source"), "")
    of_trace = _of(trace, sha256)
    return {**of_trace, **absent, "value": None, "why": plain_strings(why), "detail": "{}"}


def value_of(row: Mapping[str, Any]) -> Value:
    """
    Return the value of a metric's row, which others may have written.

    Raises:
        ValueError: If it is no value.
    """
    known = row["value"] is not None
    if known and not math.isfinite(row["value"]):
        raise ValueError(f"a value of {row['value']}")
    try:
        detail = msgspec.json.decode(row["detail"], type=dict[str, Any])
        msgspec.convert(detail, Detail)
        return msgspec.convert(
            {
                "value": row["value"],
                "unit": METRICS[row["metric"]].unit,
                "source": row["source"] if known else None,
                "why": None if known else row["why"] or "the store does not tell why",
                "detail": {"padding": "", **detail} if "tpu" in detail else detail,
            },
            Value,
        )
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error


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

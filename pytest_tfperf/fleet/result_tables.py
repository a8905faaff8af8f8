"""Tables of results that others may have written, read with bounded memory."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from pytest_tfperf.errors import FleetError
from pytest_tfperf.fleet.trace_rows import OPTIONAL
from pytest_tfperf.run_history.duck import connect, literal, without_damaged
from pytest_tfperf.run_history.stores import MOST_ROWS
from pytest_tfperf.text import plain


def read_tables(
    paths: Sequence[str], columns: Mapping[str, str], metrics: Sequence[str]
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """
    Return rows of local files, which others may have written, and sentences on damaged ones.

    Args:
        paths: The files.
        columns: Type of each column in SQL; rows have no others, and no absent text or number.
        metrics: Only rows of these metrics; all if empty.
    """
    shown = ", ".join(_column(name, kind) for name, kind in columns.items())
    where = " WHERE list_contains($metrics, metric)" if metrics else ""
    asked = {"metrics": list(metrics)} if metrics else {}
    query = (
        f"SELECT * FROM (SELECT {shown} FROM read_parquet($paths, hive_partitioning = false))"  # noqa: S608  # our own names
        f"{where} LIMIT {MOST_ROWS + 1}"
    )

    text = functools.cache(plain)  # most rows repeat the texts of others

    with closing(connect()) as base:

        def read(some: Sequence[str]) -> list[dict[str, Any]]:
            found = base.execute(query, {"paths": literal(some), **asked}).fetchall()
            cells = (
                [text(cell) if isinstance(cell, str) else cell for cell in row] for row in found
            )
            return [dict(zip(columns, row, strict=True)) for row in cells]

        rows, unread = without_damaged(paths, read)
    if len(rows) > MOST_ROWS:
        raise FleetError(f"more than {MOST_ROWS:,} rows in {len(paths)} tables")
    return rows, tuple(unread.values())


def _column(name: str, kind: str) -> str:
    cast = f"CAST({name} AS {kind})"
    absent = "''" if kind == "VARCHAR" else "0"
    return f"{cast if name in OPTIONAL else f'coalesce({cast}, {absent})'} AS {name}"

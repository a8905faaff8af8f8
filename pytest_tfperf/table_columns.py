"""
Columns that comparisons read, and their types.

A run file may come from another version, another person or another program. There, a table without
one of these columns is left out, and one with a cell of another type is damaged. Columns that may
be empty may be missing too.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_tfperf.values import Table

TEXT, NUMBER, MAYBE_TEXT, MAYBE_NUMBER = "text", "number", "text or nothing", "number or nothing"
_OPS = {"where": TEXT, "op": TEXT, "type": TEXT, "occurrences": NUMBER, "self_s": NUMBER}
_READ: Mapping[str, Mapping[str, str]] = {
    "host_ops": _OPS,
    "device_ops": _OPS,
    "python_calls": {"function": TEXT, "calls": NUMBER, "self_s": MAYBE_NUMBER},
    "pipeline": {"stage": TEXT},
    "stages": {
        "stage": TEXT,
        "name": TEXT,
        "calls": NUMBER,
        "self_s": NUMBER,
        "blocking_s": NUMBER,
        "parallelism": MAYBE_NUMBER,
        "buffer_limit": MAYBE_NUMBER,
    },
    "executables": {
        "executable": TEXT,
        "runs": NUMBER,
        "ops": NUMBER,
        "fusions": NUMBER,
        "hlo": MAYBE_TEXT,
    },
    "op_work": {
        "type": TEXT,
        "key": TEXT,
        "place": TEXT,
        "dtype": TEXT,
        "ops": NUMBER,
        "flops": NUMBER,
    },
    "graph": {"type": TEXT, "after": NUMBER},
    "outside_xla": {"type": TEXT, "why": TEXT},
}


def readable_tables(tables: Mapping[str, Table]) -> dict[str, Table]:
    """
    Return the tables of a run file that this version can read.

    Raises:
        ValueError: If a cell that comparisons read has another type, or a quantity is text.
    """
    return {key: table for key, table in tables.items() if _is_readable(key, table)}


def _is_readable(key: str, table: Table) -> bool:
    columns = {column.key for column in table.columns}
    wanted = _READ.get(key, {})
    if any(kind in (TEXT, NUMBER) and name not in columns for name, kind in wanted.items()):
        return False
    kinds = {column.key: MAYBE_NUMBER for column in table.columns if column.unit}
    kinds |= {name: kind for name, kind in wanted.items() if name in columns}
    for record in table.records():
        for name, kind in kinds.items():
            if not _fits(record[name], kind):
                raise ValueError(f"{record[name]!r} in the column {name!r} of table {key!r}")
    return True


def _fits(cell: object, kind: str) -> bool:
    if cell is None:
        return kind in (MAYBE_TEXT, MAYBE_NUMBER)
    if kind in (TEXT, MAYBE_TEXT):
        return isinstance(cell, str)
    return isinstance(cell, (int, float)) and not isinstance(cell, bool)

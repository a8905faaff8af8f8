"""Differences in the FLOPs of a step's ops, and in their types of numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pytest_tfperf.differences.difference import Difference, added_counts, shown_count
from pytest_tfperf.metrics.op_work import CASTS
from pytest_tfperf.quantities import FLOP, format_change
from pytest_tfperf.text import and_more
from pytest_tfperf.values import Table

_NAMED, _PLACES, _LEAST = 4, 2, 0.05


class _Op(NamedTuple):
    """Ops that are alike, wherever they stand in a function or layer."""

    op_type: str
    dtype: str
    flops: str
    key: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> _Op:
        each = round(row["flops"] / row["ops"]) if row["ops"] else 0
        return cls(row["type"], row["dtype"], str(each), row["key"])


@dataclass(slots=True)
class _Change:
    """The ops of one type in one function or layer that came and went."""

    come: Counter[_Op] = field(default_factory=Counter)
    gone: Counter[_Op] = field(default_factory=Counter)


def op_counts(table: Table | None) -> dict[str, float] | None:
    """
    Return the ops a step by `type dtype FLOPs function`, which stay the same as lines move.

    Returns:
        None if the table is missing or cut.
    """
    if table is None or table.n_more:
        return None
    found: Counter[str] = Counter()
    for row in table.records():
        found[" ".join(_Op.of(row))] += row["ops"]
    return dict(found)


def work_differences(old: Mapping[str, float] | None, now: Table | None) -> list[Difference]:
    """Name the ops of another type, then those with more FLOPs: see `flop_differences`."""
    return [*dtype_differences(old, now), *flop_differences(old, now)]


def flop_differences(old: Mapping[str, float] | None, now: Table | None) -> list[Difference]:
    """
    Name the ops with more FLOPs than before, with their lines of now, the largest rise first.

    Args:
        old: The ops before, as `op_counts` gives them.
        now: The table of the ops now; nothing is returned if one of both is missing.
    """
    rises = []
    for change in _changes(old, now):
        more, less = _flops(change.come), _flops(change.gone)
        rows = [row for row in now.records() if _Op.of(row) in change.come] if now else []
        if more > less:
            after = sum(row["flops"] for row in rows)
            before = max(0.0, after - more + less)
            shown = format_change(before, after, FLOP).replace(" to ", " → ")
            text = f"{_title(rows)}: {shown}{'' if before else ' (new)'}"
            rises.append((more - less, text))
    least = _LEAST * sum(rise for rise, _ in rises)
    rises = sorted((rise for rise in rises if rise[0] >= least), key=lambda rise: -rise[0])
    return [Difference(what=text) for _, text in rises[:_NAMED]]


def dtype_differences(old: Mapping[str, float] | None, now: Table | None) -> list[Difference]:
    """Name the ops that compute in another type, and new casts: see `flop_differences`."""
    casts: Counter[str] = Counter()
    found = []
    for change in _changes(old, now):
        rows = [row for row in now.records() if _Op.of(row) in change.come] if now else []
        come, gone = (_dtypes(ops) for ops in (change.come, change.gone))
        for dtype, n_ops in (come - gone).items():
            rows_in = [row for row in rows if row["dtype"] == dtype]
            if rows_in and rows_in[0]["type"] in CASTS:
                casts[f"{rows_in[0]['type']} to {dtype} {_places(rows_in)}".rstrip()] += n_ops
            elif gone - come:
                text = f"{_title(rows_in)}: {', '.join(gone - come)} → {dtype}"
                found.append((-sum(row["flops"] for row in rows_in), text))
    texts = [f"{shown_count(n)} {text}" for text, n in casts.most_common()]
    texts += [text for _, text in sorted(found)]
    texts.sort(key=lambda text: not text.endswith("64") and " float64 " not in text)
    return [Difference(what=text) for text in texts[:_NAMED]]


def _changes(old: Mapping[str, float] | None, now: Table | None) -> Iterator[_Change]:
    """Yield the changes by type and place; ops whose place is new come for those that are lost."""
    new = op_counts(now)
    if old is None or new is None:
        return
    before, after = ({_read(text).key for text in ops} for ops in (old, new))
    changes: dict[tuple[str, str], _Change] = {}
    for side, counts in (("come", added_counts(old, new)), ("gone", added_counts(new, old))):
        for text, n_ops in counts.items():
            op = _read(text)
            key = op.key if op.key in before & after else ""
            change = changes.setdefault((op.op_type, key), _Change())
            getattr(change, side)[op] += n_ops
    yield from changes.values()


def _read(text: str) -> _Op:
    """Return the op of a text, which a file may hold that somebody edited."""
    return _Op(*[*text.split(" ", 3), "", "", ""][:4])


def _flops(ops: Counter[_Op]) -> float:
    return sum(float(op.flops) * n_ops for op, n_ops in ops.items() if op.flops.isdecimal())


def _dtypes(ops: Counter[_Op]) -> Counter[str]:
    found: Counter[str] = Counter()
    for op, n_ops in ops.items():
        found[op.dtype] += n_ops
    return found


def _title(rows: list[dict[str, Any]]) -> str:
    return f"{rows[0]['type'] if rows else ''} {_places(rows)}".strip()


def _places(rows: list[dict[str, Any]]) -> str:
    return and_more(list(dict.fromkeys(row["place"] for row in rows if row["place"])), _PLACES)

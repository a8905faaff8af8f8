"""Ops by type inside and outside XLA: those that XLA compiled once, and that run outside it now."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_tfperf.checks.limits import explanation
from pytest_tfperf.results import Profile
from pytest_tfperf.text import Labelled, and_more
from pytest_tfperf.values import Json, Table, Value

IN_XLA, OUTSIDE_XLA = "in_xla", "outside_xla"
"""Lists of an entry, which it has for platforms on which XLA compiles a part of the step."""
_NAMED, _LINES = 5, 2


def xla_ops(coverage: Value | None) -> dict[str, dict[str, int]]:
    """Return the lists to store; none if XLA compiles nothing, or if that is not known."""
    inside, outside = _told(coverage)
    return {IN_XLA: dict(inside), OUTSIDE_XLA: dict(outside or {})} if inside else {}


def moved_out(entry: Json, platform: str, coverage: Value | None) -> dict[str, int] | None:
    """
    Return the ops by type that XLA compiled before, and that run outside it now.

    Args:
        entry: The entry of the profile before.
        platform: Platform of both.
        coverage: The `xla_coverage` of now.

    Returns:
        Their numbers; None if the entry or the value does not tell.
    """
    inside, outside = _told(coverage)
    if outside is not None and not outside:
        return {}
    before: Mapping[str, int] | None = entry.get(IN_XLA, {}).get(platform)
    if outside is None or before is None:
        return None
    others = entry.get(OUTSIDE_XLA, {}).get(platform, {})
    moved = {
        op_type: min(
            count - (inside or {}).get(op_type, 0),
            outside.get(op_type, 0) - others.get(op_type, 0),
        )
        for op_type, count in before.items()
    }
    return {op_type: count for op_type, count in moved.items() if count > 0}


def no_longer_compiled(moved: Mapping[str, int], tables: Mapping[str, Table]) -> str:
    """
    Return `XLA no longer compiles MatMul ×2, Relu (train.py:12)`, the most frequent first.

    Args:
        moved: The ops that moved out, by type.
        tables: Tables of the profile now, which know the lines of most types.
    """
    most = sorted(moved.items(), key=lambda one: (-one[1], one[0]))
    named = and_more([name if n == 1 else f"{name} ×{n}" for name, n in most], _NAMED)
    outside = tables.get("outside_xla")
    lines = [
        row["line"]
        for row in (outside.records() if outside else ())
        if row["line"] and any(op_type in row["type"] for op_type in moved)  # _FusedMatMul too
    ]
    at = f" ({and_more(list(dict.fromkeys(lines)), _LINES)})" if lines else ""
    return f"XLA no longer compiles {named}{at}"


def lost_compilation(
    entry: Json, platform: str, profile: Profile
) -> tuple[tuple[Labelled, ...], tuple[Labelled, ...]]:
    """
    Return what XLA no longer compiles and the remedy, as lines of a slower step; none if nothing.

    Args:
        entry: The entry of the profile before.
        platform: Platform of both.
        profile: The profile now.
    """
    coverage = profile.metrics.get("xla_coverage")
    moved = moved_out(entry, platform, coverage)
    if not moved or coverage is None:
        return (), ()
    _, advice = explanation(coverage)
    return (("", no_longer_compiled(moved, profile.tables)),), advice


def _told(
    coverage: Value | None,
) -> tuple[Mapping[str, int] | None, Mapping[str, int] | None]:
    """Return the ops by type inside and outside XLA, each None if it is not known."""
    detail = coverage.detail if coverage is not None else {}
    return detail.get("inside"), detail.get("outside")

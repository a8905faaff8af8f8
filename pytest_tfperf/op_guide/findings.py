"""The op guide's findings on a step: the number that counts, and all that are shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from pytest_tfperf.op_guide.rules import ALL, INFO, OFF, ON, SUPPRESSED, Finding
from pytest_tfperf.text import and_more
from pytest_tfperf.values import Column, Source, Table, Unknown, Value

METRIC, TABLE = "op_guide_findings", "op_guide"
_SHOWN = 3
_NOT_SEEN = "no step was run for the graphs"
_RANK = {ON: 0, INFO: 1, SUPPRESSED: 2}


def shown_findings(
    found: Iterable[Finding], counted: Collection[str] = (), ignored: Collection[str] = ()
) -> list[Finding]:
    """
    Return the findings to show, those that count first.

    `counted` names codes that count as well, "all" every code. `ignored` suppresses codes in any
    case.
    """
    leveled = [replace(one, level=_level(one, counted, ignored)) for one in found]
    return sorted((one for one in leveled if one.level != OFF), key=lambda one: _RANK[one.level])


def value(found: Sequence[Finding], unseen: Unknown | None = None, n_ops: int = 0) -> Value:
    """
    Return op_guide_findings: the number of findings that count.

    Args:
        found: The findings to show.
        unseen: The reason why other rules are not checked; without a finding, nothing is known.
        n_ops: The number of ops of the step, each of which may break them.
    """
    counted = [one for one in found if one.level == ON]
    if unseen is not None and not counted:
        return Value.unknown(METRIC, unseen.why or _NOT_SEEN)
    detail = {"where": _where(counted), "try": counted[0].rewrite} if counted else {}
    n = len(counted)
    bounds = {} if unseen is None else {"low": n, "high": n + n_ops, "bounds": unseen.why}
    return Value.of(METRIC, n, Source.GRAPH, **bounds, **detail)


def table(found: Sequence[Finding]) -> dict[str, Table]:
    """Return the table of all findings that are shown, by its key; empty if there are none."""
    if not found:
        return {}
    made = Table.of_each(
        "op guide",
        found,
        [
            (Column("code", "code"), lambda one: one.code),
            (Column("level", "level"), lambda one: one.level),
            (Column("op", "op"), lambda one: one.op),
            (Column("type", "type"), lambda one: one.op_type),
            (Column("line", "line"), lambda one: one.line),
            (Column("what", "what"), lambda one: one.what),
            (Column("why", "why"), lambda one: one.why),
            (Column("rewrite", "rewrite"), lambda one: one.rewrite),
        ],
    )
    return {TABLE: made}


def notes(found: Sequence[Finding], ignored: Collection[str]) -> tuple[str, ...]:
    """Return a note on suppressed codes that the step does not break."""
    idle = sorted(set(ignored) - {one.code for one in found if one.level == SUPPRESSED})
    return (
        (f"ignore_findings names {', '.join(idle)}, and the step has no such finding",)
        if idle
        else ()
    )


def _level(one: Finding, wanted: Collection[str], ignored: Collection[str]) -> str:
    if one.code in ignored:
        return SUPPRESSED
    return ON if one.code in wanted or ALL in wanted else one.level


def _where(counted: Sequence[Finding]) -> str:
    shown = [f"{one.code} at {one.line or one.op}: {one.op_type}, {one.what}" for one in counted]
    return and_more(shown, _SHOWN, "; ")

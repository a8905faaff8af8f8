"""
Compare the HLO of two runs op by op: added and lost ops, fusions, changed shapes and types.

An instruction is identified by its opcode and its framework op, never by its own name and id, which
XLA counts up. Numbers that a framework counts up in op names (`dense_3/MatMul`) are matched in
order if both runs have as many.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from pytest_tfperf.facts.executions import Program
from pytest_tfperf.hlo.layout import shape_text
from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule
from pytest_tfperf.quantities import COUNT
from pytest_tfperf.text import and_more
from pytest_tfperf.values import Column, Table

_PLUMBING = frozenset(["parameter", "constant", "tuple", "get-tuple-element", "bitcast"])
_NUMBERED = re.compile(r"(.*)_([0-9]{1,18})", re.DOTALL)
_NOTHING = 1e-9  # of counts that are means over steps
_SHOWN = 3  # op names or shapes in a cell

_Key = TypeVar("_Key")
Renames = Mapping[tuple[str, int], int]
"""The number that stands for another one behind a word in op names: ("dense", 3) → 0."""


class _Op(NamedTuple):
    """The identity of an instruction."""

    opcode: str
    op_type: str
    op_name: str


@dataclass(frozen=True, slots=True)
class _Counts:
    """
    Counts of one run, per step: instructions by op, fusions by covered op names, and shapes by op.
    """

    ops: Mapping[_Op, float]
    fusions: Mapping[frozenset[str], float]
    shapes: Mapping[_Op, Mapping[str, float]]


def hlo_diff(before: Sequence[Program], after: Sequence[Program]) -> dict[str, Table]:
    """
    Return tables `ops`, `fusions` and `shapes` of the differences between two runs; they may be
    empty.

    Counts are per step: instructions of all computations × runs of the executable (1 if no step is
    known). The content of a loop counts once. Parameters, constants, tuples and bitcasts do not
    count. The largest differences come first.
    """
    old, new = _counts(before, {}), _counts(after, _renames(_names(before), _names(after)))
    return {
        "ops": _op_table(old, new),
        "fusions": _fusion_table(old, new),
        "shapes": _shape_table(old, new),
    }


def _op_table(old: _Counts, new: _Counts) -> Table:
    columns = [
        Column("opcode", "opcode"),
        Column("op_type", "op type"),
        Column("op", "op"),
        Column("before", "before", COUNT),
        Column("after", "after", COUNT),
        Column("difference", "difference", COUNT),
    ]
    rows = [(*op, n_old, n_new, n_new - n_old) for op, n_old, n_new in _changed(old.ops, new.ops)]
    return Table.of("instructions that differ, by op", columns, rows)


def _fusion_table(old: _Counts, new: _Counts) -> Table:
    columns = [
        Column("fusions", "fusions"),
        Column("covers", "covers", COUNT),
        Column("ops", "ops"),
        Column("before", "before", COUNT),
        Column("after", "after", COUNT),
    ]
    rows = [
        ("gained" if n_new > n_old else "lost", len(names), _few(sorted(names)), n_old, n_new)
        for names, n_old, n_new in _changed(old.fusions, new.fusions)
    ]
    return Table.of("fusions lost and gained, by the ops that they cover", columns, rows)


def _shape_table(old: _Counts, new: _Counts) -> Table:
    columns = [
        Column("opcode", "opcode"),
        Column("op_type", "op type"),
        Column("op", "op"),
        Column("before", "before"),
        Column("after", "after"),
    ]
    rows = []
    for op in sorted(set(old.shapes) & set(new.shapes)):
        changed = list(_changed(old.shapes[op], new.shapes[op]))
        gone, come = (
            sorted(shape for shape, n_old, n_new in changed if (n_old > n_new) == lost)
            for lost in (True, False)
        )
        if gone and come:
            rows.append((*op, _few(gone), _few(come)))
    return Table.of("instructions whose shape or type changed", columns, rows)


def _changed(
    old: Mapping[_Key, float], new: Mapping[_Key, float]
) -> list[tuple[_Key, float, float]]:
    """
    Return keys whose counts differ, with both counts; the largest differences first, then by key.
    """
    changes = {key: abs(new.get(key, 0.0) - old.get(key, 0.0)) for key in {**old, **new}}
    keys = sorted(
        (key for key, change in changes.items() if change > _NOTHING),
        key=lambda key: (-changes[key], sorted(key) if isinstance(key, frozenset) else key),
    )
    return [(key, old.get(key, 0.0), new.get(key, 0.0)) for key in keys]


def _counts(programs: Iterable[Program], renames: Renames) -> _Counts:
    """Count the ops of a run, with op names renumbered as in the other run."""
    ops: dict[_Op, float] = defaultdict(float)
    fusions: dict[frozenset[str], float] = defaultdict(float)
    shapes: dict[_Op, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for program in programs:
        runs = 1.0 if program.runs is None else program.runs
        for op in _instructions(program.module.computations.values()):
            key = _Op(op.opcode, op.op_type, _renamed(op.op_name, renames))
            ops[key] += runs
            shapes[key][shape_text(op.shape)] += runs
            if op.opcode == "fusion":
                fusions[_covered(program.module, op, renames)] += runs
    return _Counts(ops, fusions, shapes)


def _instructions(parts: Iterable[HloComputation]) -> Iterator[HloInstruction]:
    return (op for part in parts for op in part.instructions.values() if op.opcode not in _PLUMBING)


def _covered(module: HloModule, fusion: HloInstruction, renames: Renames) -> frozenset[str]:
    """Return the op names in a fusion; an instruction without one counts by its opcode."""
    inside = _instructions(module.computations[key] for key in fusion.called)
    return frozenset(_renamed(op.op_name, renames) or op.opcode for op in inside)


def _names(programs: Iterable[Program]) -> set[str]:
    return {
        op.op_name
        for program in programs
        for part in program.module.computations.values()
        for op in part.instructions.values()
    }


def _renames(before: Iterable[str], after: Iterable[str]) -> Renames:
    """
    Return, for each word that both runs number equally often but differently, old numbers by new
    number.
    """
    old, new = _numbers(before), _numbers(after)
    alike = [word for word in new if len(new[word]) == len(old.get(word, ()))]
    return {
        (word, now): was
        for word in alike
        for now, was in zip(sorted(new[word]), sorted(old[word]), strict=True)
        if now != was
    }


def _numbers(names: Iterable[str]) -> dict[str, set[int]]:
    """
    Return the numbers behind each word of op names, -1 without one: `a/dense_3` → a: {-1}, dense:
    {3}.
    """
    found: dict[str, set[int]] = defaultdict(set)
    for word, number in map(_numbered, {part for name in names for part in name.split("/")}):
        found[word].add(number)
    return found


def _numbered(part: str) -> tuple[str, int]:
    match = _NUMBERED.fullmatch(part)
    return (match[1], int(match[2])) if match else (part, -1)


def _renamed(name: str, renames: Renames) -> str:
    if not renames:
        return name
    return "/".join(_with_number(part, renames) for part in name.split("/"))


def _with_number(part: str, renames: Renames) -> str:
    number = renames.get(_numbered(part))
    return part if number is None else _numbered(part)[0] + (f"_{number}" if number >= 0 else "")


def _few(texts: Sequence[str]) -> str:
    return and_more(texts, _SHOWN)

"""Differences between the input pipelines of two profiles, stage by stage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from pytest_tfperf.differences.difference import (
    LEAST_RUNS,
    Difference,
    change_of_time,
    short_name,
    shown_count,
)
from pytest_tfperf.values import Table


@dataclass(slots=True)
class _StageTimes:
    """One place in the tree of input stages, in a step."""

    label: str
    """Type of the stage, and the name that the user gave it."""
    parallelism: float | None
    buffer_limit: float | None
    calls: float = 0.0
    self_s: float = 0.0
    blocking_s: float = 0.0


def stage_differences(
    before: Mapping[str, Table], after: Mapping[str, Table], least_s: float
) -> Iterator[Difference]:
    """
    Compare the stages from the step down; stages of one type and name are matched in order.

    Args:
        before: Tables of the profile before.
        after: Tables of the profile after.
        least_s: Shortest change of a stage's time that is a difference.
    """
    old, new = _stages(before.get("stages")), _stages(after.get("stages"))
    matcher = SequenceMatcher(
        a=[stage.label for stage in old], b=[stage.label for stage in new], autojunk=False
    )
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if tag == "equal":
            pairs = zip(old[old_start:old_end], new[new_start:new_end], strict=True)
            yield from _changed(pairs, least_s)
        else:
            yield from _came_or_went(old[old_start:old_end], "lost", -1)
            yield from _came_or_went(new[new_start:new_end], "new", 1)


def pipeline_labels(pipeline: Table | None) -> list[str] | None:
    """Return the stages that the data define, as `Map` or `Map: py_function`; None if unknown."""
    if pipeline is None or pipeline.n_more:
        return None
    return [_python_label(row) for row in pipeline.records()]


def pipeline_differences(old: Sequence[str], pipeline: Table | None) -> Iterator[Difference]:
    """
    Compare the stages that the data define: first those that run Python now, then the others.

    Args:
        old: The stages before, as `pipeline_labels` gives them.
        pipeline: Table of the stages now; nothing is yielded if it is missing or cut.
    """
    new = pipeline_labels(pipeline)
    if pipeline is None or new is None:
        return
    rows = pipeline.records()
    come, gone = [], list[str]()
    matcher = SequenceMatcher(a=list(old), b=new, autojunk=False)
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if tag != "equal":
            gone += old[old_start:old_end]
            come += rows[new_start:new_end]
    others = []
    for row in come:
        was_plain = row["stage"] in gone
        if was_plain:
            gone.remove(row["stage"])
        if row.get("python"):
            word = "runs Python now" if was_plain else "is new, and runs Python"
            where = f" at {row.get('line')}" if row.get("line") else ""
            yield Difference(what=f"input stage {row['stage']} {word}: {row.get('python')}{where}")
        else:
            others.append(f"input stage {row['stage']} new")
    others += [f"input stage {label} lost" for label in gone]
    yield from (Difference(what=what) for what in others)


def python_differences(
    before: Mapping[str, Table], after: Mapping[str, Table]
) -> Iterator[Difference]:
    """Name the stages that run Python now and did not before."""
    old = pipeline_labels(before.get("pipeline"))
    if old is not None:
        found = pipeline_differences(old, after.get("pipeline"))
        yield from (one for one in found if "Python" in one.what)


def _python_label(row: Mapping[str, Any]) -> str:
    return f"{row['stage']}: {row.get('python')}" if row.get("python") else str(row["stage"])


def _changed(
    pairs: Iterable[tuple[_StageTimes, _StageTimes]], least_s: float
) -> Iterator[Difference]:
    for old, new in pairs:
        change_s = max(new.self_s - old.self_s, new.blocking_s - old.blocking_s, key=abs)
        if abs(change_s) >= least_s:
            yield Difference(what=_described(old, new, least_s), seconds=change_s)


def _came_or_went(stages: Iterable[_StageTimes], word: str, sign: int) -> Iterator[Difference]:
    for stage in stages:
        if stage.calls >= LEAST_RUNS:
            yield Difference(what=f"input stage {stage.label} {word}", seconds=sign * stage.self_s)


def _stages(table: Table | None) -> list[_StageTimes]:
    """Merge the rows of one place in the tree: a repeated pipeline has one for each epoch."""
    found: dict[tuple[str, ...], _StageTimes] = {}
    path: tuple[str, ...] = ()
    for row in table.records() if table else ():
        label = _label(row)
        path = (*path[: _depth(row)], label)
        stage = found.setdefault(
            path, _StageTimes(label, row.get("parallelism"), row.get("buffer_limit"))
        )
        stage.calls += row["calls"]
        stage.self_s += row["self_s"]
        stage.blocking_s += row["blocking_s"]
    return list(found.values())


def _label(row: Mapping[str, Any]) -> str:
    return f"{row['stage'].strip()} {short_name(row['name'])}".strip()


def _depth(row: Mapping[str, Any]) -> int:
    """Depth in the tree, which the table shows by two spaces a level."""
    return (len(row["stage"]) - len(row["stage"].lstrip())) // 2


def _described(old: _StageTimes, new: _StageTimes, least_s: float) -> str:
    changes = [f"self time {change_of_time(old.self_s, new.self_s)}"]
    if abs(new.blocking_s - old.blocking_s) >= least_s:
        changes.append(f"blocks the step {change_of_time(old.blocking_s, new.blocking_s)}")
    changes += _changed_setting("parallelism", old.parallelism, new.parallelism)
    changes += _changed_setting("buffer", old.buffer_limit, new.buffer_limit)
    return f"input stage {new.label}: {', '.join(changes)}"


def _changed_setting(title: str, old: float | None, new: float | None) -> list[str]:
    if old is None or new is None or old == new:
        return []
    return [f"{title} {shown_count(old)} → {shown_count(new)}"]

"""Read the tree of tf.data iterators: paths, properties and owners of functions."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.event_columns import distinct_values
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.nesting import enclosing

ASYNC = frozenset(
    {
        "Prefetch",
        "ParallelMap",
        "MapAndBatch",
        "ParallelInterleave",
        "ParallelBatch",
        "ParseExample",
        "DataService",
    }
)


_SUFFIX = re.compile(r"(V\d+)?(\[\d+\])?\Z")


_CYCLE = re.compile(
    r"((?:Interleave|FlatMap|Repeat)(?:V\d+)?)\[\d+\]"
)  # one iterator for each file, element or epoch: all one stage


_INDEX = re.compile(r"\[\d+\]\Z")


_SAMPLE = 64  # iterator events of a stage whose stats are read


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProperties:
    """Properties of a stage that TensorFlow reports."""

    name: str = ""
    """Name of the iterator."""
    parallelism: int = 1
    """Number of threads or calls that share its work."""
    buffer_limit: int = 0
    """Largest number of elements in its buffer, 0 without one."""
    buffered: float = 0.0
    """Mean number of elements in its buffer."""
    batch_size: int = 0
    """Elements of a batch that it makes, 0 if it makes none."""
    threads: int = 0
    """Threads of the pipeline for its functions, 0 if unknown."""
    cores: int = 0
    """Cores that the pipeline may use, 0 if unknown."""
    ordered: bool = False
    """True if parallel results wait for those before them."""


def stage_type(name: str) -> str:
    """
    Return the stage's type: the last part of an iterator's long name, without version and input
    index.
    """
    return _SUFFIX.sub("", name.rpartition("::")[2])


def first_input(producers: Events, iterators: Events) -> Ints:
    """
    Return, for each producer event, the outermost iterator event in it (its stage's input), or -1.
    """
    inside = enclosing(producers, iterators)
    first = np.full(len(producers), -1)
    late_first = np.argsort(-iterators.start, kind="stable")
    late_first = late_first[inside[late_first] >= 0]
    first[inside[late_first]] = late_first
    return first


def stage_groups(iterators: Events) -> tuple[list[str], Ints]:
    """
    Return the paths of the stages, and the stage of each event.

    A stage without events counts if one of its inputs has events.
    """
    used = distinct_values(iterators.plane.name_index[iterators.rows])
    keys = [_path(iterators.plane.names[place]) for place in used.tolist()]
    paths = list(
        dict.fromkeys([*keys, *(stage_above(key) for key in keys if stage_above(key).count("::"))])
    )
    group = np.zeros(len(iterators.plane.names), np.int64)
    places = {path: place for place, path in enumerate(paths)}
    group[used] = [places[key] for key in keys]
    return paths, group[iterators.plane.name_index[iterators.rows]]


def _path(name: str) -> str:
    return _CYCLE.sub(r"\1", name)


def stage_above(path: str) -> str:
    """Return the path of the next stage towards the step."""
    return _INDEX.sub("", path.rpartition("::")[0])


def properties_of(iterators: Events, group: Ints, n_groups: int) -> list[NodeProperties]:
    """
    Read the properties of each stage from a sample of its events.

    Args:
        iterators: The events of iterators.
        group: The stage of each event.
        n_groups: Number of stages.
    """
    order = np.argsort(group, kind="stable")
    first = np.searchsorted(group[order], np.arange(n_groups + 1)).tolist()
    return [
        _node(Events(iterators.plane, iterators.rows[order[begin:end]]))
        for begin, end in pairwise(first)
    ]


def _node(events: Events) -> NodeProperties:
    if not len(events):
        return NodeProperties()
    picked = distinct_values(
        np.linspace(0, len(events) - 1, min(_SAMPLE, len(events))).astype(np.int64)
    )
    some = Events(events.plane, events.rows[picked])
    largest = {
        stat: int(some.integers(stat).max())
        for stat in ("parallelism", "buffer_limit", "batch_size", "threadpool_size", "cpu_budget")
    }
    return NodeProperties(
        name=some.texts("name")[-1],
        parallelism=max(largest["parallelism"], 1),
        buffer_limit=largest["buffer_limit"],
        buffered=float(some.integers("buffered_elements").mean()),
        batch_size=largest["batch_size"],
        threads=largest["threadpool_size"],
        cores=largest["cpu_budget"],
        ordered="true" in some.texts("deterministic"),
    )


def given_name(node: str) -> str:
    """Return the names that the user passed as `name=`, empty for TensorFlow's own names."""
    parts = node.removeprefix("fused(").removesuffix(")").split(",")
    return ", ".join(
        part
        for part in parts
        if not re.search(r"Dataset\w*:\d+\Z", part) and not part.startswith("inject/")
    )


def asynchronous_above(path: str) -> str:
    """Return the path of the next stage above that has threads of its own, empty without one."""
    return nearest_above(path, ASYNC)


def nearest_above(path: str, types: Collection[str]) -> str:
    """Return the path of the next stage of some types towards the step, empty without one."""
    parts = path.split("::")
    for n in range(len(parts) - 1, 0, -1):
        if stage_type(parts[n - 1]) in types:
            return _INDEX.sub("", "::".join(parts[:n]))
    return ""


def owners(
    host: Events, iterators: Events, runs: Events, group: Ints, paths: Sequence[str]
) -> Ints:
    """
    Return the stage that ran each function, or -1.

    It is the stage of the iterator around the function, else of the producer around it.

    Args:
        host: All events of the host.
        iterators: The events of iterators.
        runs: The runs of functions.
        group: The stage of each iterator event.
        paths: The paths of the stages.
    """
    places = {path: place for place, path in enumerate(paths)}
    above = np.array([places.get(stage_above(path), -1) for path in paths])
    producers = host.named(lambda name: name.endswith("Produce"))
    first = first_input(producers, iterators)
    stage_of = np.r_[
        np.where(first >= 0, above[group[first]], -1), -1
    ]  # the last entry answers for -1
    around = enclosing(iterators, runs)
    return np.where(around >= 0, group[around], stage_of[enclosing(producers, runs)])

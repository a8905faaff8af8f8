"""
The tf.data pipelines behind the steps: the tree of iterators, and the cost of each stage.

Names and stats of the events are those of TensorFlow 2.18 to 2.22 (tensorflow/core/data,
`Iterator::…` TraceMes).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile

import numpy as np

from pytest_tfperf.facts.host_activity import op_type
from pytest_tfperf.op_types import KEEPS_BATCHES, PYTHON_OPS
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.events import Events, enclosing, parents
from pytest_tfperf.trace.host_events import DATA_RUNS, data_runs, process_ids
from pytest_tfperf.trace.intervals import EMPTY, Spans, covered, distinct_values, intersect, merge
from pytest_tfperf.trace.xspace import HOST, Trace

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
_READERS = frozenset(
    {"TFRecord", "TextLine", "FixedLengthRecord", "SSTable", "RecordIO", "ArrayRecord", "LMDB"}
)
_DECODES = "Decode"
"""Start of types of ops that decode (tensorflow/core/ops/image_ops.cc, parsing_ops.cc)."""
_DEVICE_END = "::Prefetch::Generator"
"""What a device's own prefetch takes from: the time in it is waiting for the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProperties:
    """Properties of a stage that TensorFlow reports."""

    name: str = ""
    parallelism: int = 1
    """Threads or calls that share its work."""
    buffer_limit: int = 0
    """Most elements in its buffer, 0 without one."""
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
    """Return the last part of an iterator's long name, without version and input index."""
    return _SUFFIX.sub("", name.rpartition("::")[2])


def first_input(producers: Events, iterators: Events) -> Ints:
    """Return the outermost iterator event in each producer event, its stage's input, or -1."""
    inside = enclosing(producers, iterators)
    first = np.full(len(producers), -1)
    late_first = np.argsort(-iterators.start, kind="stable")
    late_first = late_first[inside[late_first] >= 0]
    first[inside[late_first]] = late_first
    return first


def stage_groups(iterators: Events) -> tuple[list[str], Ints]:
    """Return the paths of stages with events in them or their inputs, and each event's stage."""
    used = distinct_values(iterators.plane.name_index[iterators.rows])
    keys = [_CYCLE.sub(r"\1", iterators.plane.names[place]) for place in used.tolist()]
    paths = list(
        dict.fromkeys([*keys, *(stage_above(key) for key in keys if stage_above(key).count("::"))])
    )
    group = np.zeros(len(iterators.plane.names), np.int64)
    places = {path: place for place, path in enumerate(paths)}
    group[used] = [places[key] for key in keys]
    return paths, group[iterators.plane.name_index[iterators.rows]]


def stage_above(path: str) -> str:
    """Return the path of the next stage towards the step."""
    return _INDEX.sub("", path.rpartition("::")[0])


def properties_of(iterators: Events, group: Ints, n_groups: int) -> list[NodeProperties]:
    """Read each stage's properties from a sample of its events; `group` has each event's stage."""
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
    """Return the stage that ran each function, by the iterator or producer around it, or -1."""
    places = {path: place for place, path in enumerate(paths)}
    above = np.array([places.get(stage_above(path), -1) for path in paths])
    producers = host.named(lambda name: name.endswith("Produce"))
    first = first_input(producers, iterators)
    stage_of = np.r_[
        np.where(first >= 0, above[group[first]], -1), -1
    ]  # the last entry answers for -1
    around = enclosing(iterators, runs)
    return np.where(around >= 0, group[around], stage_of[enclosing(producers, runs)])


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRuns:
    """The runs of a stage's functions."""

    n: int = 0
    mean_s: float = 0.0
    longest_s: float = 0.0
    decoding_s: float = 0.0
    """Seconds of ops that decode, of all runs together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of the pipeline, all its iterators together."""

    path: str
    """Place in the tree, from the step's side."""
    name: str
    """Name that the user gave, or the stage's type."""
    node: str = ""
    """Long name of the iterator."""
    calls: int = 0
    self_s: float = 0.0
    """Seconds spent in it without its inputs; of parallel functions their sum."""
    cost_s: float = 0.0
    """Seconds for one element of the pipeline's end."""
    per_element: float = 1.0
    """Calls, or runs of its functions, for such an element."""
    pool_s: float = 0.0
    """Seconds of its functions for one element ÷ the threads that all functions share."""
    blocking_s: float = 0.0
    """Seconds that it worked while a step waited."""
    parallelism: int = 1
    """Number of threads or calls that share its work."""
    python: bool = False
    injected: bool = False
    """True if TensorFlow added it."""
    buffer_limit: int = 0
    """Most elements in its buffer, 0 without one."""
    buffered: float = 0.0
    """Mean number of elements in its buffer."""
    batch_size: int = 0
    """Elements of a batch that it makes, 0 if it makes none."""
    runs: FunctionRuns = FunctionRuns()
    parallel_calls: int = 1
    """Number of threads or calls that it may use, however many threads there are."""
    threads: int = 0
    """Threads of the pipeline for functions, 0 if unknown."""
    cores: int = 0
    """Cores that the pipeline may use, 0 if unknown."""
    ordered: bool = False
    """True if parallel results wait for those before them."""

    @property
    def depth(self) -> int:
        """Number of stages between it and the step."""
        return self.path.count("::")

    @property
    def busy_s(self) -> float:
        """Seconds that the stage needed if its parallel workers were busy all the time."""
        return self.self_s / max(self.parallelism, 1)

    @property
    def reads_files(self) -> bool:
        """True if it reads a storage format."""
        return self.name in _READERS

    @property
    def title(self) -> str:
        """Its name, with the long name of its iterator."""
        return self.name + (f" {self.node!r}" if self.node else "")

    @property
    def on_device(self) -> bool:
        """True if it ends a pipeline on the accelerator, which takes the host's elements."""
        return self.path.endswith(_DEVICE_END)


@dataclass(frozen=True, slots=True)
class _Work:
    """Own work of a stage: calls or runs of functions, and how long a step waited for it."""

    n: int = 0
    self_ps: int = 0
    blocking_ps: int = 0
    python: bool = False
    longest_ps: int = 0
    decoding_ps: int = 0

    @property
    def runs(self) -> FunctionRuns:
        """These as runs of functions, in seconds."""
        return FunctionRuns(
            n=self.n,
            mean_s=self.self_ps * 1e-12 / max(self.n, 1),
            longest_s=self.longest_ps * 1e-12,
            decoding_s=self.decoding_ps * 1e-12,
        )


def find_stages(trace: Trace, waits: Spans = EMPTY) -> tuple[Stage, ...]:
    """Find the stages of all pipelines that ran, dearest first; steps waited in merged `waits`."""
    host = Events.of(trace.plane(HOST))
    iterators = host.named(lambda name: name.startswith("Iterator::"))
    if not len(iterators):
        return ()
    paths, group = stage_groups(iterators)
    functions = _functions_of(host, iterators, group, paths, waits)
    calls = dict(zip(paths, np.bincount(group, minlength=len(paths)).tolist(), strict=True))
    nodes = dict(zip(paths, properties_of(iterators, group, len(paths)), strict=True))
    own = _own_work(iterators, group, paths, waits)
    pool = max(node.threads for node in nodes.values())
    threads, cores = pool or 1 << 30, max(node.cores for node in nodes.values())
    per_element = _calls_per_element(nodes, calls)
    stages = []
    for path, node in nodes.items():
        if stage_type(path) in ASYNC:
            work, runs = (
                functions.get(path, _Work()),
                per_element[path] * _runs_per_call(path, node, calls, functions),
            )
            parallel_calls = node.parallelism
        else:
            work, runs = own.get(path, _Work()), per_element[path]
            parallel_calls = _shared_by(path, nodes)
        parallelism = min(parallel_calls, threads)
        stage = _stage(
            path,
            node,
            calls.get(path, 0),
            work,
            runs,
            parallelism,
            python=path in functions and functions[path].python,
        )
        stage = replace(stage, parallel_calls=parallel_calls, threads=pool, cores=cores)
        stages.append(
            replace(
                stage,
                pool_s=stage.cost_s * parallelism / threads,
                runs=functions[path].runs,
            )
            if path in functions
            else stage
        )
    return tuple(
        sorted((stage for stage in stages if stage.name != "Root"), key=lambda stage: -stage.busy_s)
    )


def slowest_thread(stages: Sequence[Stage]) -> tuple[float, list[Stage]]:
    """
    Return the seconds of the slowest thread for an element, and its stages: those down to the next
    with threads of its own; functions on the pipeline's threads share these.
    """
    threads: dict[str, list[Stage]] = {}
    for stage in stages:
        threads.setdefault(_thread(stage), []).append(stage)
    costs = [(sum(stage.cost_s for stage in group), group) for group in threads.values()]
    pool = [stage for stage in stages if stage.pool_s]
    costs.append((sum(stage.pool_s for stage in pool), pool))
    return max(costs, key=lambda cost: cost[0])


def _thread(stage: Stage) -> str:
    """Return a stage's thread: its functions' own, that of the next stage above, or the step's."""
    return f"functions of {stage.path}" if stage.name in ASYNC else asynchronous_above(stage.path)


def _stage(
    path: str,
    node: NodeProperties,
    n_calls: int,
    work: _Work,
    runs_per_element: float,
    parallelism: int,
    python: bool,
) -> Stage:
    return Stage(
        path=path,
        name=stage_type(path),
        node=given_name(node.name),
        calls=n_calls,
        self_s=work.self_ps * 1e-12,
        cost_s=0.0
        if path.endswith(_DEVICE_END)
        else work.self_ps * 1e-12 / max(work.n, 1) * runs_per_element / parallelism,
        per_element=runs_per_element,
        blocking_s=work.blocking_ps * 1e-12,
        parallelism=parallelism,
        python=python,
        injected=node.name.startswith("inject/"),
        buffer_limit=node.buffer_limit,
        buffered=node.buffered,
        batch_size=node.batch_size,
        ordered=node.ordered,
    )


def _own_work(
    iterators: Events, group: Ints, paths: Sequence[str], waits: Spans
) -> dict[str, _Work]:
    """Measure the work of each stage on its callers' threads, without its inputs there."""
    parent = parents(iterators)
    columns = []
    for values in (iterators.end - iterators.start, covered(waits, iterators.start, iterators.end)):
        own = values.copy()
        np.subtract.at(own, parent[parent >= 0], values[parent >= 0])
        columns.append(np.bincount(group, own, len(paths)))
    n = np.bincount(group, minlength=len(paths))
    return {
        path: _Work(int(n[i]), int(columns[0][i]), int(columns[1][i]))
        for i, path in enumerate(paths)
    }


def _runs_per_call(
    path: str, node: NodeProperties, calls: Mapping[str, int], functions: Mapping[str, _Work]
) -> float:
    """Return the function runs of an asynchronous stage per element."""
    if stage_type(path) == "MapAndBatch":
        return max(node.batch_size, 1)
    if stage_type(path) == "ParallelInterleave" and path in functions and calls.get(path):
        return functions[path].n / calls[path]
    return 1.0


def _shared_by(path: str, nodes: Mapping[str, NodeProperties]) -> int:
    """Return how many threads call a stage: those of the parallel interleave above, else one."""
    above = asynchronous_above(path)
    return (
        nodes[above].parallelism
        if above in nodes and stage_type(above) == "ParallelInterleave"
        else 1
    )


def _calls_per_element(
    nodes: Mapping[str, NodeProperties], calls: Mapping[str, int]
) -> dict[str, float]:
    """Return the calls of each stage per element of the pipeline's end."""
    per_end: dict[str, float] = {}
    for path in sorted(nodes, key=lambda path: path.count("::")):
        above = stage_above(path)
        if above not in per_end:
            per_end[path] = 1.0
            continue
        kind = stage_type(above)
        if kind in ("Prefetch", "ParallelMap"):
            ratio = 1.0
        elif kind in ("MapAndBatch", "ParallelBatch", "Batch") and nodes[above].batch_size:
            ratio = float(nodes[above].batch_size)
        else:
            ratio = calls.get(path, 0) / max(calls.get(above, 0), 1)
        per_end[path] = ratio * per_end[above]
    return per_end


def _functions_of(
    host: Events, iterators: Events, group: Ints, paths: Sequence[str], waits: Spans
) -> dict[str, _Work]:
    """Measure the functions of each stage, by the stage's path."""
    runs = host.named(lambda name: name.startswith(DATA_RUNS))
    process = host.called("ExecutorState::Process")
    owner = owners(host, iterators, runs, group, paths)
    run = process_ids(host.plane)
    stage = np.r_[owner, -1][data_runs(host.plane)]  # the last entry answers for -1
    python_ops = host.named(lambda name: op_type(name) in PYTHON_OPS)
    inside = enclosing(process, python_ops)
    with_python = set(stage[inside[inside >= 0]].tolist())
    decoding = _decoding(host, process)
    found = {}
    for place in distinct_values(stage[stage >= 0]).tolist():
        mine = process.where(stage == place)
        blocking = intersect(merge(mine.spans), waits)
        _, of_run = np.unique(run[stage == place], return_inverse=True)
        found[paths[place]] = _Work(
            n=int((owner == place).sum()),
            self_ps=int((mine.end - mine.start).sum()),
            blocking_ps=int((blocking[1] - blocking[0]).sum()),
            python=place in with_python,
            longest_ps=int(np.bincount(of_run, mine.end - mine.start).max()),
            decoding_ps=int(decoding[stage == place].sum()),
        )
    return found


def _decoding(host: Events, process: Events) -> Ints:
    """Return the picoseconds of ops that decode in each run of the executor, shape (n,)."""
    ops = host.named(lambda name: (op_type(name) or "").startswith(_DECODES))
    inside = enclosing(process, ops)
    spent = np.zeros(len(process), np.int64)
    np.add.at(spent, inside[inside >= 0], (ops.end - ops.start)[inside >= 0])
    return spent


def batch_of(stages: Sequence[Stage]) -> int | None:
    """Return the batch of the last batching stage; None if a later stage may change the batches."""
    by_depth = sorted(stages, key=lambda stage: stage.depth)
    behind = list(takewhile(lambda stage: not stage.batch_size, by_depth))
    batch = next((stage.batch_size for stage in by_depth if stage.batch_size), None)
    return None if any(stage.name not in KEEPS_BATCHES for stage in behind) else batch

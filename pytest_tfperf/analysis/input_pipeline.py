"""
The tf.data pipeline behind the steps: how long they wait for it, which stage is slow, and whether its buffers drain.

Names and stats of the events are those of TensorFlow 2.16 to 2.21 (tensorflow/core/data, `Iterator::…` TraceMes).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.analysis.ops import PYTHON_OPS, op_type
from pytest_tfperf.analysis.steps import HOST, Steps
from pytest_tfperf.results import FETCH
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.intervals import Spans
from pytest_tfperf.trace.nesting import enclosing, parents
from pytest_tfperf.trace.wire import Ints
from pytest_tfperf.trace.xspace import Trace

_SUFFIX = re.compile(r"(V\d+)?(\[\d+\])?\Z")
_ASYNC = frozenset({"Prefetch", "ParallelMap", "MapAndBatch", "ParallelInterleave", "ParallelBatch", "ParseExample", "DataService"})
_TRANSPARENT = frozenset({"Root"})
_MIN_PRODUCED = 4  # fewer produced elements give no rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """
    One stage of the pipeline, all its iterators together.

    `self_s` is the time spent in it during the trace without its inputs, of functions that ran in parallel their sum;
    `parallelism` what shares that work; `depth` counts the stages between it and the step.
    """

    name: str
    depth: int
    node: str
    calls: int
    self_s: float
    parallelism: int
    python: bool
    injected: bool
    buffer_limit: int
    batch_size: int

    @property
    def busy_s(self) -> float:
        """The time that the stage costs the pipeline."""
        return self.self_s / max(self.parallelism, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """
    How far the pipeline's buffers hide it.

    `kept` is the product over the buffering stages of elements produced ÷ consumed, 1 where nothing drains; `capacity`
    the elements (of the pipeline's end) that full buffers hold; `halves` the waiting shares of both halves of the steps.
    """

    kept: float
    capacity: float
    halves: tuple[float, float]

    def corrected(self, share: float) -> float:
        """The share that would wait if the buffers were empty: the steps then last as long as the elements take."""
        return 1 - (1 - share) * self.kept

    def stationary(self, tolerance: float = 0.05) -> bool:
        """Whether at most that share of the elements came out of the buffers, and both halves wait alike."""
        return 1 - self.kept <= tolerance and abs(self.halves[0] - self.halves[1]) <= tolerance


def input_waits(trace: Trace) -> Spans:
    """
    When a step waited for its next element; not merged.

    In a loop of Python's the way to the iterator takes time too. Where the element then was not there, the step had
    waited since it asked; where it was, the way is no wait. So it counts if the waiting took longer than the way.
    """
    host = Events.of(trace.plane(HOST))
    waits = host.named(_is_wait)
    fetches = host.called(FETCH)
    fetch = enclosing(fetches, waits)
    asked = np.where(fetch >= 0, fetches.start[fetch] if len(fetches) else 0, waits.start)
    start = np.where(waits.end - waits.start > waits.start - asked, asked, waits.start)
    return start, waits.end


def find_stages(trace: Trace) -> tuple[Stage, ...]:
    """The stages of all pipelines that ran, the one that costs the pipeline most first."""
    host = Events.of(trace.plane(HOST))
    iterators = host.named(lambda name: name.startswith("Iterator::"))
    if not len(iterators):
        return ()
    parent = parents(iterators)
    self_ps = (iterators.end - iterators.start).copy()
    np.subtract.at(self_ps, parent[parent >= 0], (iterators.end - iterators.start)[parent >= 0])
    work, python = _function_work(host, iterators)
    groups: dict[str, list[int]] = {}
    for row, name in enumerate(iterators.names):
        groups.setdefault(re.sub(r"\[\d+\]", "", name), []).append(row)
    for key in work:  # functions whose stage made no event of its own in this trace
        groups.setdefault(key, [])
    stages = [_stage(name, rows, iterators, self_ps, work.get(name, 0), name in python) for name, rows in groups.items()]
    return tuple(sorted((stage for stage in stages if stage.name not in _TRANSPARENT), key=lambda stage: -stage.busy_s))


def find_drain(trace: Trace, steps: Steps, waiting_ps: Ints) -> Drain:
    """
    Whether the buffers drained during the steps; `waiting_ps` is the exposed wait of each, shape (n_steps,).

    Over several epochs nothing drains for good: every epoch starts its buffers anew, and so do those that follow.
    """
    half = len(steps) // 2
    shares = [
        float(w.sum() / max(p.sum(), 1)) for w, p in zip(np.split(waiting_ps, [half]), np.split(steps.period_ps, [half]), strict=True)
    ]
    halves = (shares[0] if half else shares[1], shares[1])
    if steps.n_epochs > 1:
        return Drain(kept=1.0, capacity=0.0, halves=halves)
    host = Events.of(trace.plane(HOST)).within(int(steps.start_ps[0]), int(steps.end_ps[-1]))
    iterators = host.named(lambda name: name.startswith("Iterator::"))
    roots = max(len(iterators.called("Iterator::Root")), 1)
    kept, capacity = 1.0, 0.0
    for name in sorted(set(iterators.names)):
        if _short(name) not in _ASYNC:
            continue
        stage = iterators.called(name)
        kept *= min(1.0, _produced_share(host, iterators, stage))
        capacity += int(stage.integers("buffer_limit").max(initial=0)) * roots / max(len(stage), 1)
    return Drain(kept=kept, capacity=capacity, halves=halves)


def _is_wait(name: str) -> bool:
    """`IteratorGetNextOp::DoCompute` and its siblings, and in older TensorFlow the op event `IteratorGetNext:IteratorGetNext`."""
    return name.startswith("IteratorGetNext")


def _short(name: str) -> str:
    """The stage's type: the last part of an iterator's long name, without version and input index."""
    return _SUFFIX.sub("", name.rpartition("::")[2])


def _stage(name: str, rows: list[int], iterators: Events, self_ps: Ints, work_ps: int, python: bool) -> Stage:
    events = iterators.where(np.isin(np.arange(len(iterators)), rows))
    short = _short(name)
    asynchronous = short in _ASYNC
    nodes = events.texts("name")
    node = nodes[-1] if nodes else ""
    own = work_ps if asynchronous else int(self_ps[rows].sum())
    return Stage(
        name=short,
        depth=name.count("::"),
        node=_given_name(node),
        calls=len(rows),
        self_s=own * 1e-12,
        parallelism=max(1, int(events.integers("parallelism").max(initial=1))),
        python=python,
        injected=node.startswith("inject/"),
        buffer_limit=int(events.integers("buffer_limit").max(initial=0)),
        batch_size=int(events.integers("batch_size").max(initial=0)),
    )


def _given_name(node: str) -> str:
    """What the user named a stage by `name=`, empty where TensorFlow did; of fused stages the names that were given."""
    parts = node.removeprefix("fused(").removesuffix(")").split(",")
    return ", ".join(part for part in parts if not re.search(r"Dataset\w*:\d+\Z", part) and not part.startswith("inject/"))


def _function_work(host: Events, iterators: Events) -> tuple[dict[str, int], set[str]]:
    """Picoseconds that the functions of each stage ran, by the stage's long name, and the stages that run Python."""
    runs = host.named(lambda name: name.startswith("InstantiatedCapturedFunction::Run"))
    process = host.called("ExecutorState::Process")
    owner = dict(zip(runs.integers("id").tolist(), _owners(host, iterators, runs), strict=True))
    ids = process.integers("id")
    work: dict[str, int] = {}
    for key, spent in zip(ids.tolist(), (process.end - process.start).tolist(), strict=True):
        if owner.get(key):
            work[owner[key]] = work.get(owner[key], 0) + spent
    python_ops = host.named(lambda name: op_type(name) in PYTHON_OPS)
    inside = enclosing(process, python_ops)
    python = {owner[key] for key in ids[inside[inside >= 0]].tolist() if owner.get(key)}
    return work, python


def _owners(host: Events, iterators: Events, runs: Events) -> list[str]:
    """The long name of the stage that made each function run: the iterator around it, or whose producer is around it."""
    around = enclosing(iterators, runs)
    producers = host.named(lambda name: name.endswith("Produce"))
    producer = enclosing(producers, runs)
    names = iterators.names
    first = _first_input(producers, iterators)
    stage_of = {place: names[row].rpartition("::")[0] for place, row in enumerate(first.tolist()) if row >= 0}
    found = [names[a] if a >= 0 else stage_of.get(p, "") for a, p in zip(around.tolist(), producer.tolist(), strict=True)]
    return [re.sub(r"\[\d+\]", "", name) for name in found]


def _first_input(producers: Events, iterators: Events) -> Ints:
    """For each producer event the index of the outermost iterator event in it, which is its stage's input; -1 where none."""
    inside = enclosing(producers, iterators)
    first = np.full(len(producers), -1)
    late_first = np.argsort(-iterators.start, kind="stable")
    late_first = late_first[inside[late_first] >= 0]
    first[inside[late_first]] = late_first
    return first


def _produced_share(host: Events, iterators: Events, stage: Events) -> float:
    """
    Elements produced ÷ elements consumed by a buffering stage, from the rates of both.

    Rates are taken between the first and the last event, so that no whole element is lost at the window's edges.
    """
    short = _short(stage.names[0])
    produced = host.called(f"{short}Produce")
    consumed = host.called(f"{short}Consume")
    first = _first_input(produced, iterators)
    parents_of = np.where(first >= 0, iterators.integers("parent_id")[first] if len(iterators) else 0, 0)
    produced = produced.where(np.isin(parents_of, stage.integers("id")))
    consumed = consumed.where(enclosing(stage, consumed) >= 0)
    if len(produced) < _MIN_PRODUCED or len(consumed) < _MIN_PRODUCED:
        return 1.0
    batch = int(stage.integers("batch_size").max(initial=0)) if short == "MapAndBatch" else 1
    return _rate(produced.end) / (_rate(consumed.end) * max(batch, 1))


def _rate(times_ps: Ints) -> float:
    return float((times_ps.size - 1) / max(int(times_ps.max() - times_ps.min()), 1))

"""
Measure how long the steps wait for input, and whether the pipeline's buffers drain meanwhile.

Names and stats of the events are those of TensorFlow 2.18 to 2.22 (tensorflow/core/data,
`Iterator::…` TraceMes).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.analysis.input.iterators import ASYNC, first_input, stage_type
from pytest_tfperf.analysis.steps.detect import Steps
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.devices import tpus
from pytest_tfperf.trace.event_columns import distinct_values
from pytest_tfperf.trace.events import Events, metadata_texts
from pytest_tfperf.trace.intervals import Spans, covered, merge
from pytest_tfperf.trace.nesting import enclosing, parents
from pytest_tfperf.trace.stat_columns import Mask
from pytest_tfperf.trace.xspace import HOST, Trace
from pytest_tfperf.values import FETCH, FETCH_PYTHON

_ITERATOR, _IN_GRAPH = "Iterator::", "ReduceIterator::"
_INFEED, _CATEGORY = "infeed", "hlo_category"
_STAGE = "_ipl_stage_name"
# the type of an op event, `node:InfeedEnqueue…`; the name of a copy in traces of old CUPTI
_PUSH = re.compile(r":InfeedEnqueue\w*\Z|\A(?i:MEMCPYHtoD)")
_NO_PIPELINE = (
    "the trace shows no input pipeline: Python code that makes the input counts as host_overhead"
)
_NO_WAITS = "the trace shows an input pipeline, and no waiting for its elements (IteratorGetNext)"
_MIN_PRODUCED = 4  # fewer produced elements give no rate
DRAINED = 0.95
"""Elements produced ÷ consumed by a stage whose buffer drains, at most."""
_LEFT = 2  # elements of a buffer that is as good as empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """The degree to which full buffers mask a slow pipeline."""

    kept: float
    """Product over the buffering stages of elements produced ÷ consumed; 1 if nothing drains."""
    capacity: float
    """Elements of the pipeline's end that full buffers hold."""
    halves: tuple[float, float]
    """Waiting shares of the two halves of the steps."""
    buffered: bool = False
    """True if there are buffering stages, in steps of one epoch."""
    held: bool = False
    """True if a draining stage still held elements after the last timed `next()`."""

    def corrected(self, share: float) -> float:
        """
        Return the share that would wait with empty buffers: the steps then last as long as the
        elements take.
        """
        return 1 - (1 - share) * self.kept

    def stationary(self, tolerance: float = 0.05) -> bool:
        """
        Return whether at most `tolerance` of the elements came from buffers, and both halves wait
        alike.
        """
        return 1 - self.kept <= tolerance and abs(self.halves[0] - self.halves[1]) <= tolerance


def loops_in_graph(trace: Trace) -> bool:
    """
    Return whether a graph loops over a dataset, so that the step's work runs in its pipeline.

    The prefix is that of ReduceDataset (tensorflow/core/kernels/data/reduce_dataset_op.cc), of
    which AutoGraph makes such a loop.
    """
    host = Events.of(trace.plane(HOST))
    return bool(len(host.named(lambda name: name.startswith(_IN_GRAPH))))


def input_waits(trace: Trace) -> Spans:
    """
    Return the unmerged spans in which a step waited for its next element.

    In a Python loop `next()` takes time also where the element is ready, which is not a wait. If it
    was not ready, the step would have waited for as much longer. So a `next()` counts whole if it
    waits for more than a third of its time; with a ready element it is a fifth.
    """
    waits = Events.of(trace.plane(HOST)).named(_is_wait)
    fetches, fetch, waited = waited_in(trace)
    if not len(fetches):
        return waits.spans
    whole = (fetch >= 0) & (3 * waited > fetches.end - fetches.start)[fetch]
    return (
        np.where(whole, fetches.start[fetch], waits.start),
        np.where(whole, fetches.end[fetch], waits.end),
    )


def waited_in(trace: Trace) -> tuple[Events, Ints, Ints]:
    """
    Return each `next()` on a tf.data iterator, and how long it waited.

    Returns:
        The n events of `next()`; for each wait of the trace the index of its `next()`, -1 without
        one; the picoseconds of waits in each `next()`, shape (n,).
    """
    host = Events.of(trace.plane(HOST))
    fetches, waits = host.called(FETCH), host.named(_is_wait)
    fetch = enclosing(fetches, waits)
    inside = merge(waits.where(fetch >= 0).spans)
    return fetches, fetch, covered(inside, fetches.start, fetches.end)


def why_waits_hidden(trace: Trace, has_data: bool) -> str | None:
    """
    Return why a trace would not show waits for input, or None if it does.

    Each element of a tf.data pipeline that a step takes has an event of waiting, however short.
    Copies that a GPU shows prove no pipeline, since any code may copy.

    Args:
        trace: The trace of the steps.
        has_data: True unless the steps are known to take no input.
    """
    host = Events.of(trace.plane(HOST))
    if len(host.named(lambda name: _is_wait(name) or name == FETCH_PYTHON)):
        return None
    infeeds = (metadata_texts(plane, _CATEGORY).values() for plane in tpus(trace))
    if pushed_input(trace)[0].size or any(_INFEED in values for values in infeeds):
        return None
    if len(host.named(lambda name: name == FETCH or name.startswith(_ITERATOR))):
        return _NO_WAITS
    return _NO_PIPELINE if has_data else None


def pushed_input(trace: Trace) -> Spans:
    """
    Return the unmerged spans in which the host gives input other than by tf.data's iterators.

    These are the ops InfeedEnqueue*, copies named MEMCPYHtoD, and the root stages of pipelines that
    mark their stages with `_ipl_stage_name`. A stage is a root without a stage around it, if no
    event that is itself produced by another caused it. The rules are those of XProf
    (openxla/xprof, event classification of the host's plane).
    """
    host = Events.of(trace.plane(HOST))
    pushes = host.named(lambda name: _PUSH.search(name) is not None)
    stages = host.having(_STAGE)
    if len(stages):
        stages = stages.where((parents(stages) < 0) & ~_caused(host, stages))
    return np.r_[pushes.start, stages.start], np.r_[pushes.end, stages.end]


def _caused(host: Events, stages: Events) -> Mask:
    """Return a mask of the stages that a produced event caused, shape (n,)."""
    producers = host.having("_p").having("_pt")
    made = set(zip(producers.integers("_pt"), producers.integers("_p"), strict=True))
    known = stages.stats.present("_c") & stages.stats.present("_ct")
    keys = zip(stages.integers("_ct"), stages.integers("_c"), strict=True)
    caused: Mask = known & np.array([key in made for key in keys], bool)
    return caused


def find_drain(trace: Trace, steps: Steps, waiting_ps: Ints, last_ns: int = 0) -> Drain:
    """
    Measure whether the buffers drained during the steps.

    Over several epochs nothing drains for good: every epoch refills its buffers.

    Args:
        trace: The trace of the steps.
        steps: The steps.
        waiting_ps: Exposed wait of each step in picoseconds, shape (n_steps,).
        last_ns: Nanoseconds since 1970 at the end of the last timed `next()`; 0 if none was timed.
    """
    half = len(steps) // 2
    shares = [
        float(w.sum() / max(p.sum(), 1))
        for w, p in zip(
            np.split(waiting_ps, [half]), np.split(steps.period_ps, [half]), strict=True
        )
    ]
    halves = (shares[0] if half else shares[1], shares[1])
    if steps.n_epochs > 1:
        return Drain(kept=1.0, capacity=0.0, halves=halves)
    begin, end = int(steps.start_ps[0]), int(steps.end_ps[-1])
    host = Events.of(trace.plane(HOST))
    iterators = host.named(lambda name: name.startswith(_ITERATOR)).within(begin, end)
    roots = max(len(iterators.called("Iterator::Root")), 1)
    kept, capacity, buffered, held = 1.0, 0.0, False, False
    for name in _distinct_names(iterators):
        if stage_type(name) not in ASYNC:
            continue
        stage, buffered = iterators.called(name), True
        made, used = (
            host.called(f"{stage_type(name)}{side}").within(begin, end)
            for side in ("Produce", "Consume")
        )
        used = used.where(enclosing(stage, used) >= 0)
        share = min(1.0, _produced_share(made, used, iterators, stage))
        kept *= share
        held |= share < DRAINED and _n_left(used, stage, last_ns) > _LEFT
        capacity += int(stage.integers("buffer_limit").max(initial=0)) * roots / max(len(stage), 1)
    return Drain(kept=kept, capacity=capacity, halves=halves, buffered=buffered, held=held)


def _n_left(consumed: Events, stage: Events, last_ns: int) -> int:
    """
    Return how many consumed elements a stage had made before a time.

    An element's number is the time in nanoseconds at which the stage began to make it (`uid` in
    TensorFlow's prefetch_dataset_op.cc and parallel_map_dataset_op.cc). As many as the stage makes
    in parallel were not ready.
    """
    numbered = consumed.having("element_id")
    n_begun = int((numbered.integers("element_id") < last_ns).sum())
    return n_begun - max(int(stage.integers("parallelism").max(initial=1)), 1)


def _distinct_names(events: Events) -> list[str]:
    """Return the names of some events, each once, sorted."""
    used = distinct_values(events.plane.name_index[events.rows]).tolist()
    return sorted({events.plane.names[index] for index in used})


def _is_wait(name: str) -> bool:
    """
    Return whether a name is a wait: `IteratorGetNextOp::DoCompute` and its siblings.

    Older TensorFlow has the op event `IteratorGetNext:IteratorGetNext`.
    """
    return name.startswith("IteratorGetNext")


def _produced_share(produced: Events, consumed: Events, iterators: Events, stage: Events) -> float:
    """
    Return elements produced ÷ consumed by a buffering stage, from the rates of both.

    Rates are taken between the first and the last event, so that no whole element is lost at the
    window's edges.

    Args:
        produced: Elements that stages of its type made.
        consumed: Elements that were taken from the stage.
        iterators: Calls of all stages.
        stage: Calls of the stage.
    """
    first = first_input(produced, iterators)
    has_input, parents_of = first >= 0, np.zeros(len(produced), np.int64)
    inputs = Events(iterators.plane, iterators.rows[first[has_input]])
    parents_of[has_input] = inputs.integers("parent_id")
    produced = produced.where(np.isin(parents_of, stage.integers("id")))
    if len(produced) < _MIN_PRODUCED or len(consumed) < _MIN_PRODUCED:
        return 1.0
    batches = stage_type(stage.names[0]) == "MapAndBatch"
    batch = int(stage.integers("batch_size").max(initial=0)) if batches else 1
    return _rate(produced.end) / (_rate(consumed.end) * max(batch, 1))


def _rate(times_ps: Ints) -> float:
    return float((times_ps.size - 1) / max(int(times_ps.max() - times_ps.min()), 1))

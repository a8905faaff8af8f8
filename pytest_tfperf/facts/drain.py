"""
Measure whether the buffers of the input pipeline drain while the steps run.

Names and stats of the events are those of TensorFlow 2.18 to 2.22 (tensorflow/core/data,
`Iterator::…` TraceMes).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pytest_tfperf.facts.iterators import ASYNC, first_input, stage_type
from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.event_columns import distinct_values
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.nesting import enclosing
from pytest_tfperf.trace.xspace import HOST, Trace

_ITERATOR = "Iterator::"
_MIN_PRODUCED = 4  # fewer produced elements give no rate
DRAINED = 0.95
"""Elements produced ÷ consumed by a stage whose buffer drains, at most."""
_LEFT = 2  # elements of a buffer that is as good as empty
_OLDEST_NS = 3_600_000_000_000  # an hour: what is older, such as -1, is not the time of an element


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
    while_timed: bool = False
    """True if such a stage drained while the steps were timed, without the profiler."""

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


def find_drain(trace: Trace, steps: Steps, waiting_ps: Ints, taken_ns: Ints) -> Drain:
    """
    Measure whether the buffers drained during the steps.

    Over several epochs nothing drains for good: every epoch refills its buffers.

    A buffer that held elements behind the timed steps tells how fast they were made meanwhile. That
    counts, since the profiler slows pipelines down.

    Args:
        trace: The trace of the steps.
        steps: The steps.
        waiting_ps: Exposed wait of each step in picoseconds, shape (n_steps,).
        taken_ns: When the timed steps took their elements, in nanoseconds since 1970, ascending,
            shape (n_timed,); n_timed may be 0.
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
    kept, capacity, buffered, held, while_timed = 1.0, 0.0, False, False, False
    for name in _distinct_names(iterators):
        if stage_type(name) not in ASYNC:
            continue
        stage, buffered = iterators.called(name), True
        made, used = (
            host.called(f"{stage_type(name)}{side}").within(begin, end)
            for side in ("Produce", "Consume")
        )
        used = used.where(enclosing(stage, used) >= 0)
        left_ns = _left_ns(used, stage, taken_ns)
        timed = _kept_while_timed(left_ns, taken_ns, len(used) / len(steps))
        share = _produced_share(made, used, iterators, stage) if timed is None else timed
        kept *= min(1.0, share)
        held |= share < DRAINED and left_ns.size > 0
        while_timed |= share < DRAINED and timed is not None
        capacity += int(stage.integers("buffer_limit").max(initial=0)) * roots / max(len(stage), 1)
    return Drain(
        kept=kept,
        capacity=capacity,
        halves=halves,
        buffered=buffered,
        held=held,
        while_timed=while_timed,
    )


def _left_ns(consumed: Events, stage: Events, taken_ns: Ints) -> Ints:
    """
    Return when the elements were made that a stage held behind the last timed `next()`.

    An element's number is the time in nanoseconds at which the stage began to make it (`uid` in
    TensorFlow's prefetch_dataset_op.cc and parallel_map_dataset_op.cc); interleave gives all -1. As
    many as the stage makes in parallel were not ready.

    Args:
        consumed: Elements that the traced steps took from the stage.
        stage: Calls of the stage.
        taken_ns: When the timed steps took theirs.
    """
    if not taken_ns.size:
        return taken_ns
    numbers = np.sort(consumed.having("element_id").integers("element_id"))
    left_ns: Ints = numbers[(numbers < taken_ns[-1]) & (numbers > taken_ns[-1] - _OLDEST_NS)]
    n_parallel = max(int(stage.integers("parallelism").max(initial=1)), 1)
    return left_ns if left_ns.size - n_parallel > _LEFT else left_ns[:0]


def _kept_while_timed(left_ns: Ints, taken_ns: Ints, per_step: float) -> float | None:
    """
    Return elements made ÷ taken while the timed steps ran, or None if too few were made then.

    It is 1 if the buffer lost less than two elements, which chance moves on a busy machine.

    Args:
        left_ns: When the elements were made that were left behind the steps, ascending.
        taken_ns: When the steps took theirs.
        per_step: Elements that a step takes.
    """
    left_ns = left_ns[left_ns >= taken_ns[0]] if left_ns.size else left_ns
    if left_ns.size < _MIN_PRODUCED:
        return None
    first, last = np.interp(left_ns[[0, -1]], taken_ns, np.arange(taken_ns.size))
    taken, made = float(last - first) * per_step, left_ns.size - 1
    if taken <= 0:
        return None
    return made / taken if taken - made >= _LEFT else max(made / taken, 1.0)


def _distinct_names(events: Events) -> list[str]:
    """Return the names of some events, each once, sorted."""
    used = distinct_values(events.plane.name_index[events.rows]).tolist()
    return sorted({events.plane.names[index] for index in used})


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

"""
Waits for input: in the trace, in the timed window without the profiler, and behind full buffers.

Names and stats of the events are those of TensorFlow 2.18 to 2.22 (tensorflow/core/data,
`Iterator::…` TraceMes). The profiler slows pipelines down that run many small ops, so the timed
window tells more where `tf_profile` calls `next()` itself.

A `next()` waits while its thread stands still, and while its thread runs stages of the pipeline.
The rest is what a `next()` costs with a ready element: 0.3 ms of Python and of an op's call on the
machine of these tests, and 1.5 times as much when other code has filled the caches. So no share of
a fast step's waits can come from a comparison of its `next()` with a fixed time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.facts.stages import ASYNC, first_input, stage_type
from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.recording import Fetches
from pytest_tfperf.trace.devices import tpus
from pytest_tfperf.trace.events import Events, enclosing, metadata_texts, parents
from pytest_tfperf.trace.intervals import Spans, covered, distinct_values, merge, subtract
from pytest_tfperf.trace.stats import Mask
from pytest_tfperf.trace.xspace import HOST, Trace
from pytest_tfperf.values import FETCH, FETCH_PYTHON, STOOD_NS

_GET_NEXT = "IteratorGetNext"
_ITERATOR, _IN_GRAPH = "Iterator::", "ReduceIterator::"
_BELOW_ROOT = "Iterator::Root::"
_INFEED, _CATEGORY = "infeed", "hlo_category"
_STAGE = "_ipl_stage_name"
# the type of an op event, `node:InfeedEnqueue…`; the name of a copy in traces of old CUPTI
_PUSH = re.compile(r":InfeedEnqueue\w*\Z|\A(?i:MEMCPYHtoD)")
_NO_PIPELINE = (
    "the trace shows no input pipeline: Python code that makes the input counts as host_overhead"
)
_NO_WAITS = "the trace shows an input pipeline, and no waiting for its elements (IteratorGetNext)"
_SMALL = 0.05  # a share, or a difference of shares, that says nothing of the buffers
_RARE_SHARE, _RARE_TIMES = 0.25, 4.0  # of all calls, and of their median `next()`
_LATE = 0.02  # of a step, that a `next()` waits at least whose element was not ready
_MIN_PRODUCED = 4  # fewer produced elements give no rate
DRAINED = 0.95
"""Elements produced ÷ consumed by a stage whose buffer drains, at most."""
_LEFT = 2  # elements of a buffer that is as good as empty
_OLDEST_NS = 3_600_000_000_000  # an hour: what is older, such as -1, is not the time of an element


def loops_in_graph(trace: Trace) -> bool:
    """
    Return whether a graph loops over a dataset as AutoGraph makes it, by the prefix of
    ReduceDataset (tensorflow/core/kernels/data/reduce_dataset_op.cc): its pipeline then runs the
    step's work.
    """
    host = Events.of(trace.plane(HOST))
    return bool(len(host.named(lambda name: name.startswith(_IN_GRAPH))))


def input_waits(trace: Trace) -> Spans:
    """
    Return the unmerged spans in which a step waited for its next element, as long as the thread of
    a `next()` waited where that is known: taking a ready element is no wait.
    """
    waits = Events.of(trace.plane(HOST)).named(_is_wait)
    calls = next_calls(trace)
    fetch = enclosing(calls.events, waits)
    inside = merge(waits.where(fetch >= 0).spans)
    total = covered(inside, calls.events.start, calls.events.end)
    share = np.minimum((calls.stood_ps + calls.in_stages_ps) / np.maximum(total, 1), 1.0)
    share = np.r_[np.where(calls.are_known, share, 1.0), 1.0]  # the last is of waits elsewhere
    return waits.start, waits.start + np.rint(waits.duration * share[fetch]).astype(np.int64)


def elements_taken(trace: Trace) -> Events:
    """Return an event for each element that a step took, or waited for."""
    waits = Events.of(trace.plane(HOST)).named(lambda name: name.startswith(_GET_NEXT))
    kernels = waits.named(lambda name: name.endswith("::DoCompute"))  # older ones have a second
    return kernels if len(kernels) else waits


@dataclass(frozen=True, slots=True, eq=False)
class NextCalls:
    """The calls of `next()` on tf.data iterators in a trace."""

    events: Events
    are_known: Mask
    """Whether the following is known of each, shape (n,); older versions did not note it."""
    stood_ps: Ints
    """Picoseconds in which their threads stood still, shape (n,)."""
    in_stages_ps: Ints
    """Picoseconds besides in which their threads ran stages of the pipeline, shape (n,)."""


def next_calls(trace: Trace) -> NextCalls:
    """Return the calls of `next()` on tf.data iterators, less work of stages with own threads."""
    host = Events.of(trace.plane(HOST))
    calls, stages = host.called(FETCH), host.named(lambda name: name.startswith(_BELOW_ROOT))
    stages = stages.where(enclosing(calls, stages) >= 0)
    at_work = subtract(merge(stages.spans), merge(stages.named(has_threads).spans))
    stood = 1000 * calls.integers(STOOD_NS)
    in_stages = covered(at_work, calls.start, calls.end)
    known = calls.stats.present(STOOD_NS)
    return NextCalls(calls, known, stood, np.maximum(in_stages - stood, 0))


def has_threads(name: str) -> bool:
    """Return whether a name is of an iterator that makes elements in threads of its own."""
    return name.startswith(_BELOW_ROOT) and stage_type(name) in ASYNC


def why_waits_hidden(trace: Trace, has_data: bool) -> str | None:
    """
    Return why a trace would not show waits for input, of which each element of tf.data has an
    event, or None; `has_data` unless the steps take no input. Copies to a GPU prove no pipeline.
    """
    host = Events.of(trace.plane(HOST))
    if len(host.named(_is_wait)):
        return None
    infeeds = (metadata_texts(plane, _CATEGORY).values() for plane in tpus(trace))
    if pushed_input(trace)[0].size or any(_INFEED in values for values in infeeds):
        return None
    if len(host.named(lambda name: name == FETCH or name.startswith(_ITERATOR))):
        return _NO_WAITS
    return _NO_PIPELINE if has_data else None


def pushed_input(trace: Trace) -> Spans:
    """
    Return the unmerged spans in which the host gives input other than by tf.data's iterators: the
    ops InfeedEnqueue*, copies MEMCPYHtoD, and root stages marked by `_ipl_stage_name`, which no
    stage is around and no produced event caused (openxla/xprof, event classification of the host's
    plane).
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


def _is_wait(name: str) -> bool:
    """Return whether it is `IteratorGetNextOp::DoCompute`, a sibling, or older TensorFlow's op."""
    return name.startswith(_GET_NEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedWaits:
    """Shares of the timed window that waited in `next()`."""

    share: float
    halves: tuple[float, float]

    @property
    def emptied(self) -> bool:
        """True if the buffers ran empty: steps of the second half waited."""
        return self.halves[1] > _SMALL

    def draining(self, most: float) -> bool:
        """
        Return whether the second half waited more than the first, since the buffers ran empty. They
        cannot make halves differ by more than `most`, the elements of full buffers ÷ steps of a
        half.
        """
        return min(self.halves[1] - self.halves[0], most) > _SMALL


@dataclass(frozen=True, slots=True, kw_only=True)
class RareWaits:
    """A few calls that hold most of the wait in `next()`."""

    n: int
    n_calls: int
    longest_s: float
    """Of a `next()`."""
    usual_s: float
    """Median of the `next()` of the others."""
    begin_epochs: bool
    first: bool


def rare_waits(
    fetches: Fetches, epoch_starts: Sequence[int], n_dropped: int = 0
) -> RareWaits | None:
    """
    Return the calls that hold most of the wait, if these are at most a quarter of all; the first
    `n_dropped` blocks do not count.
    """
    block = np.cumsum(np.array(fetches.pause_s) > 0)
    counted = block >= block[0] + n_dropped
    next_s = np.array(fetches.next_s)[counted]
    begins = np.isin(np.flatnonzero(counted), epoch_starts)
    long = next_s > _RARE_TIMES * np.median(next_s)
    for rare, begin_epochs in ((begins, True), (long, False)):
        is_few = 0 < rare.sum() <= _RARE_SHARE * len(rare)
        if is_few and 2 * next_s[rare].sum() > next_s.sum():
            return RareWaits(
                n=int(rare.sum()),
                n_calls=len(rare),
                longest_s=float(next_s[rare].max()),
                usual_s=float(np.median(next_s[~rare])),
                begin_epochs=begin_epochs,
                first=bool(np.flatnonzero(rare)[-1] < len(rare) // 2 and rare[0]),
            )
    return None


def shows_fetches(trace: Trace) -> bool:
    """Return whether the trace shows the `next()` of the steps."""
    return bool(len(Events.of(trace.plane(HOST)).called(FETCH, FETCH_PYTHON)))


def taken_ns(fetches: Fetches | None) -> Ints:
    """
    Return when the timed calls took their elements, in nanoseconds since 1970, ascending, shape
    (n_calls,), empty without fetches.
    """
    if fetches is None:
        return np.zeros(0, np.int64)
    next_s, call_s, pause_s = map(np.array, (fetches.next_s, fetches.call_s, fetches.pause_s))
    passed_s = np.r_[0.0, np.cumsum(call_s[:-1] + pause_s[1:])] + next_s
    before_ns: Ints = np.rint(1e9 * (passed_s[-1] - passed_s)).astype(np.int64)
    return fetches.last_ns - before_ns


def pipeline_share(trace: Trace) -> float:
    """Return the share of a traced `next()`'s own work that stages do, 1 without any."""
    calls = next_calls(trace)
    if not len(calls.events):
        return 1.0
    ran = np.maximum(calls.events.duration - calls.stood_ps, 1)
    return min(float(calls.in_stages_ps.sum() / ran.sum()), 1.0)


def runs_on(trace: Trace) -> bool:
    """Return whether stages make elements in threads of their own, also between steps."""
    return bool(len(Events.of(trace.plane(HOST)).named(has_threads)))


def timed_waits(
    fetches: Fetches,
    pipeline: float = 0.0,
    *,
    visible: float = 1.0,
    runs_on: bool = True,
    n_dropped: int = 0,
    epoch_calls: int | None = None,
) -> TimedWaits:
    """
    Measure the waits in `next()` of all but `n_dropped` blocks, over whole epochs of `epoch_calls`.
    `pipeline` is the share of its own work that stages do, and `visible` that in which nothing else
    runs. Where a block waits to its end, the pause before it counts too if the pipeline `runs_on`
    meanwhile: the steps would have waited for as much longer.
    """
    paused = np.array(fetches.pause_s)
    block = np.cumsum(paused > 0)
    counted = block >= block[0] + n_dropped
    block, paused = block[counted], paused[counted]
    fetched, stood, period = (
        np.array(seconds)[counted] for seconds in (fetches.next_s, fetches.stood_s, fetches.call_s)
    )
    waited = stood + pipeline * (fetched - stood)
    late = np.bincount(block, stood > _LATE * period) > np.bincount(block) / 2
    paused = np.where(runs_on & late[block], paused, 0.0)
    waited, period = visible * (waited + paused), period + paused
    n_calls = len(fetched)
    in_epochs = n_calls // epoch_calls * epoch_calls if epoch_calls else 0

    def share(part: slice) -> float:
        return float(waited[part].sum() / max(period[part].sum(), 1e-12))

    halves = share(slice(n_calls // 2)), share(slice(n_calls // 2, None))
    return TimedWaits(share=share(slice(-(in_epochs or n_calls), None)), halves=halves)


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
        """Return the share that would wait with empty buffers: steps last as elements take."""
        return 1 - (1 - share) * self.kept

    def stationary(self, tolerance: float = 0.05) -> bool:
        """Return whether at most `tolerance` of elements are from buffers, and halves are alike."""
        return 1 - self.kept <= tolerance and abs(self.halves[0] - self.halves[1]) <= tolerance


def find_drain(trace: Trace, steps: Steps, waiting_ps: Ints, taken_ns: Ints) -> Drain:
    """
    Measure whether the buffers drained during the steps; of several epochs, each refills them. A
    buffer that held elements behind the timed steps tells the rate without the profiler.
    `waiting_ps` is the exposed wait of each step, and `taken_ns` (`taken_ns`) may be empty.
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
    Return when the elements were made that a stage held, ready, behind the last timed `next()`: the
    element's number in nanoseconds (`uid` in TensorFlow's prefetch_dataset_op.cc and
    parallel_map_dataset_op.cc); interleave gives all -1.
    """
    if not taken_ns.size:
        return taken_ns
    numbers = np.sort(consumed.having("element_id").integers("element_id"))
    left_ns: Ints = numbers[(numbers < taken_ns[-1]) & (numbers > taken_ns[-1] - _OLDEST_NS)]
    n_parallel = max(int(stage.integers("parallelism").max(initial=1)), 1)
    return left_ns if left_ns.size - n_parallel > _LEFT else left_ns[:0]


def _kept_while_timed(left_ns: Ints, taken_ns: Ints, per_step: float) -> float | None:
    """
    Return elements made ÷ taken while timed, None if too few were made; 1 if the buffer lost less
    than two, which chance moves on a busy machine.
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
    Return elements produced ÷ consumed by a buffering stage, from rates between the first and last
    event of each, which lose no element at the window's edges.
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

"""
Measure how long the steps wait for input, and whether the pipeline's buffers drain meanwhile.

Names and stats of the events are those of TensorFlow 2.18 to 2.22 (tensorflow/core/data,
`Iterator::…` TraceMes).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.facts.iterators import ASYNC, stage_type
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.devices import tpus
from pytest_tfperf.trace.events import Events, metadata_texts
from pytest_tfperf.trace.intervals import Spans, covered, merge, subtract
from pytest_tfperf.trace.nesting import enclosing, parents
from pytest_tfperf.trace.stat_columns import Mask
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

    Where it is known how long the thread of a `next()` waited, its spans are that long together:
    taking an element that is ready is no wait.
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
    """Their n events."""
    are_known: Mask
    """Whether the following is known of each, shape (n,); older versions did not note it."""
    stood_ps: Ints
    """Picoseconds in which their threads stood still, shape (n,)."""
    in_stages_ps: Ints
    """Picoseconds besides in which their threads ran stages of the pipeline, shape (n,)."""


def next_calls(trace: Trace) -> NextCalls:
    """
    Return the calls of `next()` on tf.data iterators.

    Stages with own threads work there, and hand over an element in the thread of the steps.
    """
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


def _is_wait(name: str) -> bool:
    """
    Return whether a name is a wait: `IteratorGetNextOp::DoCompute` and its siblings.

    Older TensorFlow has the op event `IteratorGetNext:IteratorGetNext`.
    """
    return name.startswith(_GET_NEXT)

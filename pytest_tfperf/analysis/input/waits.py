"""
Measure how long the steps wait for input, and whether the pipeline's buffers drain meanwhile.

Names and stats of the events are those of TensorFlow 2.18 to 2.22 (tensorflow/core/data,
`Iterator::…` TraceMes).
"""

from __future__ import annotations

import re

import numpy as np

from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.devices import tpus
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


def _is_wait(name: str) -> bool:
    """
    Return whether a name is a wait: `IteratorGetNextOp::DoCompute` and its siblings.

    Older TensorFlow has the op event `IteratorGetNext:IteratorGetNext`.
    """
    return name.startswith("IteratorGetNext")

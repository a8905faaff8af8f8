"""
Find what threads of the user's other than the step's did meanwhile.

A thread that a step starts works for the step. One that lived before may serve others, and a trace
does not tell whose work it does.
"""

from __future__ import annotations

import numpy as np

from pytest_tfperf.facts.steps import MARKED
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.function_calls import called_function, jax_calls

_OF_FRAMEWORKS = "tf_"
"""Start of the names of the threads of TensorFlow and XLA (tensorflow::Env::StartThread)."""
_TF_CALL = "tf_function_call"
"""The stat of calls of a tf.function."""


def elsewhere(evidence: Evidence, events: Events) -> Events:
    """
    Return the events of the host on other threads than the steps', if these lived before.

    Those between marked steps count too: XLA runs behind the calls. Threads of the frameworks
    themselves work for the step or its input, as where it calls Python back.
    """
    if not len(events) or not (evidence.recording.bare or evidence.recording.other_threads):
        return events.where(np.zeros(len(events), bool))
    own = _threads(evidence, Events.of(events.plane))
    if evidence.launched.source != MARKED:  # the plugin waits at the end of an unmarked trace
        events = events.where(evidence.launched.of(events.start) >= 0)
    lines = events.plane.lines
    of_frameworks = [n for n, line in enumerate(lines) if line.name.startswith(_OF_FRAMEWORKS)]
    return events.where(~np.isin(events.line, own + of_frameworks) & bool(own))


def _threads(evidence: Evidence, host: Events) -> list[int]:
    """
    Return the lines of the threads of the steps, none where the steps are of no thread.

    Steps that are calls of one function may take turns on several. If these calls overlap, their
    work does too, and the steps are those of the thread with most of them.
    """
    steps = evidence.launched
    if steps.source == MARKED or (steps.source == "step_num" and evidence.in_process):
        marks, ours = host.having("step_num"), host.having("step_num").having("tfperf")
        return list((ours if len(ours) else marks).line.tolist())
    function = steps.names[0].rpartition(" ")[0]
    calls = (jax_calls(host), host.having(_TF_CALL))
    made = [one.named(lambda name: called_function(name) == function).sorted() for one in calls]
    own = max(made, key=len)
    if steps.source != "function" or not len(own):
        return []
    if (own.start[1:] >= np.maximum.accumulate(own.end)[:-1]).all():
        return list(own.line.tolist())
    return [int(np.bincount(own.line).argmax())]

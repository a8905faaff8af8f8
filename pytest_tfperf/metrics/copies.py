"""Find steps that mostly wait for copies between the host and a device, and name the remedy."""

from __future__ import annotations

from pytest_tfperf.facts.host_activity import JAX
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.trace.devices import gpus
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.intervals import EMPTY, covered, merge, subtract
from pytest_tfperf.trace.xspace import HOST, Trace

_BY_HOST = ("H2D Dispatch", "D2H Copy From Staging Buffer", "np.asarray(jax.Array)")
"""Events in which the host works on copies to and from a GPU, or waits for them (JAX 0.11)."""
_COPY_AHEAD = {
    True: "jax.device_put the next element before the step that works on this one",
    False: "copy ahead: tf.data.experimental.prefetch_to_device as the last stage",
}
"""The remedy for JAX, and for TensorFlow."""


def copies_for_input(evidence: Evidence) -> dict[str, str]:
    """
    Return `where` and `try` if most of the waiting for input is that for copies to GPUs.

    The result is empty otherwise. A TPU's infeed waits for the host, and does not tell copies.
    """
    if evidence.trace is None or not gpus(evidence.trace):
        return {}
    steps, breakdown = evidence.steps, evidence.breakdown
    spans = breakdown.device.spans
    others = merge(EMPTY, *(found for kind, found in spans.items() if kind != "input"))
    copies = subtract(spans.get("input", EMPTY), others)
    copied_ps = covered(copies, steps.start_ps, steps.end_ps).sum()
    if 2 * copied_ps <= breakdown.parts_ps["input"].sum():
        return {}
    return {
        "where": "copies of the elements from the host to the device, which nothing hides",
        "try": f"{_COPY_AHEAD[evidence.framework == JAX]}; or send fewer bytes, as uint8 images "
        "that the model casts",
    }


def copies_by_host(evidence: Evidence, trace: Trace) -> dict[str, str]:
    """
    Return `where` and `try` if the host copied arrays of JAX in most of the time of no other part.

    The result is empty otherwise.
    """
    steps, breakdown = evidence.steps, evidence.breakdown
    copies = Events.of(trace.plane(HOST)).called(*_BY_HOST)
    if not len(copies):
        return {}
    idle = subtract(merge(copies.spans), breakdown.device.busy)
    if 2 * covered(idle, steps.start_ps, steps.end_ps).sum() < breakdown.parts_ps["other"].sum():
        return {}
    return {
        "where": "the host's part of copies between NumPy arrays and the device, while it waits",
        "try": f"{_COPY_AHEAD[True]}; read results after the loop, or once in many steps",
    }

"""Steps without an op of TensorFlow: an error where another framework runs, else unknown counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_tfperf.analysis.evidence import UNTRACED, Evidence
from pytest_tfperf.analysis.host.activity import runs_jax, runs_ops
from pytest_tfperf.analysis.host.shown import JAX, PYTORCH
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.metric_evidence import ANYWHERE, KNOWN_ON
from pytest_tfperf.values import Source, Value

__tracebackhide__ = True

_NO_OP = "the step ran no TensorFlow op"
_NO_JAX = "the step called no function of JAX"
_NO_OWN_OP = "the step ran no TensorFlow op but those of its input"
_LOADED = "; {} loaded, and tfperf measures TensorFlow and JAX only"
_BESIDE = "the step ran {} beside {}, and a trace shows one of them"
_NOT_OF_OPS = (None, Source.TIMED, Source.COUNTED)
_OF_INPUT = frozenset(
    {"input_bound", "input_wait", "input_capacity", "input_bound_at_target", "batch_padding"}
)
"""Metrics from tf_profile's own marks around `next()`, and from the batches."""


def refuse_other_frameworks(evidence: Evidence) -> None:
    """
    Refuse a step of another framework.

    Raises:
        CaptureError: If the step ran no TensorFlow op, while another framework is loaded.
    """
    any_op, _ = _ops(evidence)
    if not any_op and evidence.recording.frameworks:
        raise CaptureError(_nothing(evidence) + _loaded(evidence))


def why_absent(evidence: Evidence) -> str | None:
    """
    Return why the step's counts are unknown, or None where the trace shows ops of the step.

    A step that only fetches its input is what it seems, unless another framework may compute in it.
    """
    if evidence.recording.beside:
        return _BESIDE.format(" and ".join(evidence.recording.beside), evidence.framework)
    any_op, own_op = _ops(evidence)
    if own_op or (any_op and not evidence.recording.frameworks):
        return None
    return (_NO_OWN_OP if any_op else _nothing(evidence)) + _loaded(evidence)


def _nothing(evidence: Evidence) -> str:
    return _NO_JAX if evidence.framework == JAX else _NO_OP


def _ops(evidence: Evidence) -> tuple[bool, bool]:
    """
    Return whether the steps ran any op, and one that is not for their input.

    Traces without an inspection were not made by a test, and say for themselves what they show.
    """
    if evidence.trace is None or evidence.inspection is None:
        return True, True
    if evidence.framework == JAX:
        ran = runs_jax(evidence.trace, evidence.launched)
        return ran, ran
    return runs_ops(evidence.trace, evidence.launched)


def _loaded(evidence: Evidence) -> str:
    """Name the other frameworks, if there are any."""
    others = evidence.recording.frameworks
    verb = "are" if len(others) > 1 else "is"
    return _LOADED.format(f"{' and '.join(others)} {verb}") if others else ""


def without_traced(values: Mapping[str, Value], framework: str) -> dict[str, Value]:
    """
    Give the metrics that a trace would show one reason, where a framework writes none.

    Args:
        values: Values by metric.
        framework: The framework that ran the steps.
    """
    return {
        name: replace(value, why=UNTRACED)
        if framework == PYTORCH
        and value.number is None
        and value.is_asked
        and KNOWN_ON[PYTORCH].get(name) != ANYWHERE
        else value
        for name, value in values.items()
    }


def without_absent(values: Mapping[str, Value], why: str | None) -> dict[str, Value]:
    """
    Make values unknown that ops would have shown.

    Args:
        values: Values by metric.
        why: The reason from `why_absent`; with None all values stay.
    """
    return {
        name: value
        if why is None or value.source in _NOT_OF_OPS or name in _OF_INPUT
        else replace(value, number=None, source=None, why=why, detail={})
        for name, value in values.items()
    }

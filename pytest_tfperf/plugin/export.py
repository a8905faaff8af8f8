"""Files of one profile for other viewers: its timeline, and the HLO of its step by stage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pytest_tfperf.capture.inspection import StepInspection
from pytest_tfperf.capture.sessions import read_session
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.export.formats import export_hlo, export_traces, shows_hlo
from pytest_tfperf.facts.executions import programs_of
from pytest_tfperf.frameworks.framework import JAX, TENSORFLOW
from pytest_tfperf.hlo.module import HloModule
from pytest_tfperf.metric_registry import nearest
from pytest_tfperf.plugin.profiles import evidence_of
from pytest_tfperf.recording import Recording
from pytest_tfperf.values import Unknown

__tracebackhide__ = True

OPTIMIZED = "optimized"
_COMPILES = {
    TENSORFLOW: "jit_compile=True makes one of a tf.function, and stage='unoptimized' shows the "
    "input of XLA",
    JAX: "call a jax.jit function in it",
}
_CALLS_NOTHING = ("it calls no tf.function that computes", "it calls no jax.jit function")


def export_profile(recording: Recording, inspection: StepInspection, out: Path, stage: str) -> str:
    """
    Write a profile's timeline, or its HLO at a stage, and return which it is; raises CaptureError
    if there is no such trace, stage or HLO, or ExportError if the file cannot be written so.
    """
    if stage not in _STAGES:
        raise CaptureError(f"HLO has no stage {stage!r}; {nearest(stage, _STAGES)}")
    if shows_hlo(out):
        export_hlo(_STAGES[stage](recording, inspection), out)
        return f"HLO, {stage}"
    export_traces([_trace(recording)], out)
    return "timeline"


def _trace(recording: Recording) -> Path:
    if recording.trace is None:
        raise CaptureError(
            f"there is no trace to export: {recording.ended or 'nothing was traced'}"
        )
    return recording.trace


def _optimized(recording: Recording, _: StepInspection) -> list[HloModule]:
    programs = [program for program in programs_of(read_session(_trace(recording))) if program.runs]
    if not programs:
        raise CaptureError(f"the step ran no XLA executable; {_COMPILES[recording.framework]}")
    return [program.module for program in programs]


def _unoptimized(recording: Recording, inspection: StepInspection) -> list[HloModule]:
    is_jax = recording.framework == JAX
    lowered = evidence_of(recording, inspection).lowered if is_jax else inspection.lowered
    if isinstance(lowered, Unknown) or not lowered:
        why = lowered.why if isinstance(lowered, Unknown) else ""
        raise CaptureError(f"the step has no HLO: {why or _CALLS_NOTHING[is_jax]}")
    return sorted(
        (module for module, _ in lowered),
        key=lambda module: -sum(len(part.instructions) for part in module.computations.values()),
    )


_STAGES: dict[str, Callable[[Recording, StepInspection], list[HloModule]]] = {
    "unoptimized": _unoptimized,
    "before_fusion": lambda _, inspection: [one.before_module for one in inspection.fusion],
    "after_fusion": lambda _, inspection: [one.after_module for one in inspection.fusion],
    OPTIMIZED: _optimized,
}

"""
Leave out the values that do not hold, whichever analysis they are from and when it ran.

A trace may be incomplete, may show no op of the step, may lack what other processes ran for it, or
may show what other threads ran meanwhile. `KIND` tells which metrics that is part of. A thread that
a step starts works for the step. One that lived before may serve others, and a trace does not tell
whose work it does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.facts.host_activity import JAX, PYTORCH, TF_CALL, runs_jax, runs_ops
from pytest_tfperf.facts.steps import MARKED
from pytest_tfperf.metric_evidence import (
    ANYWHERE,
    BATCHES,
    CLOCK,
    CODE,
    COMPILERS,
    KIND,
    KNOWN_ON,
    MEMORY,
    OF_PERIODS,
    PARTS,
    PYTHON,
    STAGES,
    STEPS,
    TOTALS,
    WAITS,
)
from pytest_tfperf.metrics.evidence import UNTRACED, Evidence
from pytest_tfperf.recording import UNSEEN
from pytest_tfperf.text import and_more
from pytest_tfperf.trace.events import Events, plane_stats
from pytest_tfperf.trace.host_events import called_function, eager_calls, eager_types, jax_calls
from pytest_tfperf.trace.xspace import HOST, Trace
from pytest_tfperf.values import Source, Value

_OF_FRAMEWORKS = "tf_"
"""Start of the names of the threads of TensorFlow and XLA (tensorflow::Env::StartThread)."""
__tracebackhide__ = True
_FROM_TRACE = (Source.TRACE, Source.CORRECTED, Source.PREDICTED)
_OF_GRAPH = ("flops", "half_precision")
_MEASURED_IN = {"warm-up": Source.TIMED, "timed": Source.TIMED, "traced": Source.TRACE}
"""Origin of the values that a window touches."""
_OF_INPUT = ("input_bound", "input_wait")
"""Values that a wait for the lock touches: input buffers fill meanwhile."""
_N_NAMED = 3
_NO_OP = "the step ran no TensorFlow op"
_NO_JAX = "the step called no function of JAX"
_NO_OWN_OP = "the step ran no TensorFlow op but those of its input"
_LOADED = "; {} loaded, and tfperf measures TensorFlow and JAX only"
_BESIDE = "the step ran {} beside {}, and a trace shows one of them"
_NAME = re.compile(r"__inference_(.+)_\d+\Z")
_REMOTE = (
    "other processes ran functions of the step ({}), and the trace shows the work of this one only"
)
_REMOTE_NOTE = (
    "{}: trace them too (tfperf capture HOST:PORT of their profiler servers), or profile the step "
    "where it runs"
)
_HOLD_WITH_REMOTE = (STEPS, CLOCK, MEMORY, BATCHES, PYTHON, CODE)
"""What Python does here, and the functions that it calls, wherever they run."""
_WAIT = "IteratorGetNext"
_CALLED = (
    "another thread called {} while the steps ran, and the trace does not tell which work is the "
    "step's"
)
_RAN = "another thread ran {} eagerly while the steps ran, and the trace does not tell whose it is"
_FED = (
    "another thread took elements of a dataset while the steps ran, and the trace does not tell "
    "which waits are the step's"
)
_MADE = "another thread traced or compiled {} while a step ran"
_HOLD_BESIDE_THREADS = (*(STEPS, CLOCK, MEMORY, BATCHES, PYTHON, WAITS, STAGES, PARTS, COMPILERS),)
"""Times with all that ran in them, and what is told by thread."""
_DROPPED = "dropped_traces"  # xla/tsl/profiler/utils/xplane_schema.h, StatType::kDroppedTraces
_GPU_DROPPED = "Detected GPU events dropped"
"""Start of the warning of a full buffer of CUPTI (openxla/xla, cupti_collector.cc)."""


def elsewhere(evidence: Evidence, events: Events) -> Events:
    """
    Return the host's events on threads that lived before, other than the steps' and frameworks'
    own. Those between marked steps count too: XLA runs behind the calls.
    """
    if not len(events) or not (evidence.recording.bare or evidence.recording.other_threads):
        return events.where(np.zeros(len(events), bool))
    own = evidence.own_threads
    if evidence.launched.source != MARKED:  # the plugin waits at the end of an unmarked trace
        events = events.where(evidence.launched.of(events.start) >= 0)
    lines = events.plane.lines
    of_frameworks = [n for n, line in enumerate(lines) if line.name.startswith(_OF_FRAMEWORKS)]
    return events.where(~np.isin(events.line, own + of_frameworks) & bool(own))


def valid(values: Mapping[str, Value], evidence: Evidence) -> dict[str, Value]:
    """Return the values, unknown where the evidence refutes them, with notes on short windows."""
    found = dict(values)
    for reasons in (_untraced, _untimed, _incomplete, _absent, _remote, _elsewhere):
        for name, why in reasons(found, evidence).items():
            found[name] = found[name].changed(number=None, source=None, why=why, detail={})
    return {
        name: value.noted(_window_notes(name, value, evidence)) for name, value in found.items()
    }


def _window_notes(name: str, value: Value, evidence: Evidence) -> Iterator[str]:
    if name != "first_step_time":  # it is of no window
        for window, note in evidence.recording.window_notes.items():
            of_input = window == "lock" and name in _OF_INPUT
            if of_input or value.source is _MEASURED_IN.get(window):
                yield note


def _untraced(values: Mapping[str, Value], evidence: Evidence) -> dict[str, str]:
    """Give the metrics that a trace would show one reason, where a framework writes none."""
    if evidence.framework != PYTORCH:
        return {}
    return {
        name: UNTRACED
        for name, value in values.items()
        if value.number is None and value.is_asked and KNOWN_ON[PYTORCH].get(name) != ANYWHERE
    }


def _untimed(values: Mapping[str, Value], evidence: Evidence) -> dict[str, str]:
    """Find values of the periods of steps, where the trace does not tell when their work ended."""
    why = evidence.steps.why_untimed if evidence.trace else ""
    of_periods = {name: value for name, value in values.items() if name in OF_PERIODS}
    return _of_trace(of_periods, why)


def _incomplete(values: Mapping[str, Value], evidence: Evidence) -> dict[str, str]:
    found = faults(evidence.trace) if evidence.trace else ()
    why = f"the trace is not complete: {'; '.join(found)}" if found else ""
    # which programs ran, and how often, a trace tells; a step of TensorFlow has its graph besides
    is_in_graph = evidence.framework != JAX and not evidence.recording.bare
    of_graph = _OF_GRAPH if is_in_graph else ()
    of_programs = (name for name, value in values.items() if value.source is Source.HLO)
    return _of_trace(values, why) | {
        name: why for name in of_programs if why and name not in of_graph
    }


def _of_trace(values: Mapping[str, Value], why: str) -> dict[str, str]:
    return {name: why for name, value in values.items() if why and value.source in _FROM_TRACE}


def refuse_other_frameworks(evidence: Evidence) -> None:
    """Raise CaptureError if the step ran no op of TensorFlow, while another framework is loaded."""
    any_op, _ = _ops(evidence)
    if not any_op and evidence.recording.frameworks:
        raise CaptureError(_nothing(evidence) + _loaded(evidence))


def why_absent(evidence: Evidence) -> str | None:
    """
    Return why the step's counts are unknown, None where ops show; a step that only fetches its
    input is what it seems, unless another framework may compute in it.
    """
    if evidence.recording.beside:
        return _BESIDE.format(" and ".join(evidence.recording.beside), evidence.framework)
    any_op, own_op = _ops(evidence)
    if own_op or (any_op and not evidence.recording.frameworks):
        return None
    return (_NO_OWN_OP if any_op else _nothing(evidence)) + _loaded(evidence)


def _absent(values: Mapping[str, Value], evidence: Evidence) -> dict[str, str]:
    """Find values that ops would have shown; waits and batches show without them."""
    why, of_others = why_absent(evidence), (None, Source.TIMED, Source.COUNTED)
    return {
        name: why
        for name, value in values.items()
        if why and value.source not in of_others and KIND.get(name) not in (WAITS, BATCHES)
    }


def _nothing(evidence: Evidence) -> str:
    return _NO_JAX if evidence.framework == JAX else _NO_OP


def _ops(evidence: Evidence) -> tuple[bool, bool]:
    """Return whether the steps ran any op, and one not for input; both without an inspection."""
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


def why_remote(evidence: Evidence) -> str | None:
    """Return why the trace lacks work of the steps, or None if this process ran all functions."""
    if evidence.trace is None:
        return None
    named = Counter(_NAME.sub(r"\1", name) for name in evidence.remote_functions.elements())
    return _REMOTE.format(and_more(list(named), _N_NAMED)) if named else None


def remote_notes(evidence: Evidence) -> tuple[str, ...]:
    """Return a note if other processes ran functions of the steps."""
    why = why_remote(evidence)
    return (_REMOTE_NOTE.format(why),) if why else ()


def _remote(values: Mapping[str, Value], evidence: Evidence) -> dict[str, str]:
    """Find values that hold for this process only; a pipeline is the step's own if it has data."""
    why, recording = why_remote(evidence), evidence.recording
    has_data = not recording.bare and recording.pipeline != UNSEEN
    held = (*_HOLD_WITH_REMOTE, *((WAITS, STAGES) if has_data else ()))
    return {name: why for name in values if why and KIND.get(name) not in held}


def _elsewhere(values: Mapping[str, Value], evidence: Evidence) -> dict[str, str]:
    """Find values that work of other threads is part of."""
    host = Events.of(evidence.trace.plane(HOST) if evidence.trace else None)
    functions = _named(evidence, jax_calls(host), host.having(TF_CALL), name=_functions)
    ops = _named(evidence, eager_calls(host), name=eager_types)
    waits = _named(evidence, host.named(lambda name: name.startswith(_WAIT)), name=_functions)
    made = and_more(list(evidence.recording.made_elsewhere), _N_NAMED)
    called = functions and _CALLED.format(functions)
    of_one = {
        "eager_ops": called or (ops and _RAN.format(ops)),
        **dict.fromkeys(TOTALS, made and _MADE.format(made)),
    }

    def why(name: str) -> str:
        kind = KIND.get(name)
        of_kind = _FED if waits and kind == WAITS else ""
        return of_one.get(name, of_kind if kind in _HOLD_BESIDE_THREADS else called)

    of_thread = (None, Source.COUNTED, Source.TIMED)
    unknown = {name: why(name) for name, value in values.items() if value.source not in of_thread}
    return {name: reason for name, reason in unknown.items() if reason}


def _named(evidence: Evidence, *picked: Events, name: Callable[[Events], list[str]]) -> str:
    """Return the names of those of the events that lie elsewhere, each once; "" for none."""
    found = dict.fromkeys(one for events in picked for one in name(elsewhere(evidence, events)))
    return and_more([one for one in found if one], _N_NAMED)


def _functions(calls: Events) -> list[str]:
    return [called_function(name) for name in calls.names]


def faults(trace: Trace) -> tuple[str, ...]:
    """Return why the trace is incomplete, in the profiler's words; empty without a report."""
    reported = [
        f"the profiler reports an error: {' '.join(text.split())}"
        for text in dict.fromkeys(trace.errors)
    ] + [
        f"the profiler warns: {' '.join(text.split())}"
        for text in dict.fromkeys(trace.warnings)
        if text.startswith(_GPU_DROPPED)
    ]
    dropped = sum(_dropped(trace))
    return tuple([*reported, f"the profiler dropped {dropped:,} events"] if dropped else reported)


def remarks(trace: Trace) -> tuple[str, ...]:
    """Return the profiler's warnings, without those that `faults` has."""
    return tuple(
        f"the profiler warns: {' '.join(text.split())}"
        for text in dict.fromkeys(trace.warnings)
        if not text.startswith(_GPU_DROPPED)
    )


def _dropped(trace: Trace) -> list[int]:
    """Return the numbers of dropped events, of whole planes and of single events."""
    planes = [plane for plane in trace.planes if _DROPPED in plane.stat_names.values()]
    of_planes = [plane_stats(plane).get(_DROPPED, 0) for plane in planes]
    of_events = [
        int(Events.of(plane).having(_DROPPED).integers(_DROPPED).clip(0).sum()) for plane in planes
    ]
    return [
        max(int(number), 0) for number in of_planes if isinstance(number, (int, float))
    ] + of_events

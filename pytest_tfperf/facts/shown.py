"""Tell what a trace would show: without such evidence a count of zero means nothing."""

from __future__ import annotations

import numpy as np

from pytest_tfperf.facts.host_activity import op_type, shows_host, shows_runtime
from pytest_tfperf.text import plural
from pytest_tfperf.trace.devices import accelerators, tpus
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.function_calls import eager_calls, eager_types
from pytest_tfperf.trace.hlo_modules import live_modules
from pytest_tfperf.trace.xla_events import xla_runs
from pytest_tfperf.trace.xspace import HOST, Trace

JAX, TENSORFLOW, PYTORCH = "JAX", "TensorFlow", "PyTorch"
NO_RUNTIME = "the trace has no event of TensorFlow's runtime, which would show it"
_JAX = ("PjitFunction(", "jit_", "$pjit.py")
"""Starts of names of events of JAX: its calls, its programs, and its Python code."""


def framework(trace: Trace) -> str:
    """Return the framework whose steps a trace shows; TensorFlow where nothing says JAX."""
    host = Events.of(trace.plane(HOST))
    if shows_runtime(trace):
        return TENSORFLOW
    programs = [Events.of(plane).on_lines("XLA Modules") for plane in tpus(trace)]
    named = [events.named(lambda name: name.startswith(_JAX)) for events in (host, *programs)]
    return JAX if any(map(len, named)) else TENSORFLOW


def shows_eager(trace: Trace) -> bool:
    """
    Return whether the trace has events of eager execution, each of which tells an op or a function.

    Every call of a function is one.
    """
    calls = eager_calls(Events.of(trace.plane(HOST)))
    told = calls.integers("is_func", -1) >= 0
    return len(calls) > 0 and bool((told | np.array(eager_types(calls), bool)).all())


def shows_work(trace: Trace) -> bool:
    """Return whether the trace has events of what runs a step: TensorFlow or an accelerator."""
    return shows_runtime(trace) or bool(accelerators(trace))


def why_executions_hidden(trace: Trace, in_process: bool) -> str | None:
    """
    Return why a trace without executions in its steps may have lost them, or None if it shows all.

    TensorFlow before 2.18 marks no execution on a CPU. Its traces hold the modules of loaded
    executables all the same, run or not.

    Args:
        trace: The trace of the steps.
        in_process: True if this process made it, whose TensorFlow marks executions.
    """
    programs = [Events.of(plane).on_lines("XLA Modules") for plane in tpus(trace)]
    if any(map(len, programs)) or len(xla_runs(Events.of(trace.plane(HOST)))):
        return None
    if not shows_host(trace):
        return "the trace has no event of the host"
    if not shows_runtime(trace):
        return f"the trace has no event of an XLA execution, as {framework(trace)} may leave out"
    if not in_process and (ops := _xla_ops(trace)):
        return f"the trace has no event of an XLA execution, and {ops[0]} ran"
    if not in_process and (n := len(live_modules(trace))):
        held = plural(n, "loaded executable")
        on_cpu = "TensorFlow before 2.18 marks no execution on a CPU"
        return (
            f"the trace has no event of an XLA execution and holds {held}: "
            f"{'nothing says that one ran' if accelerators(trace) else on_cpu}"
        )
    return None


def _xla_ops(trace: Trace) -> list[str]:
    """Return the types of ops in a trace that run executables (tensorflow/compiler/jit/ops)."""
    host = trace.plane(HOST)
    types = {op_type(name) or "" for name in (host.names if host else ())}
    return sorted(types & {"_XlaRun", "XlaLaunch", "XlaLaunchV2"})


def why_compilations_hidden(trace: Trace, in_process: bool) -> str | None:
    """
    Return why a trace may not show what XLA compiled, or None if it does.

    The compilers for CPUs and GPUs have events on the host. That for TPUs has others.

    Args:
        trace: The trace of the steps.
        in_process: True if this process made it, whose TensorFlow marks executions.
    """
    if not shows_host(trace):
        return "the trace has no event of the host, which would show it"
    if shows_runtime(trace) or len(xla_runs(Events.of(trace.plane(HOST)))):
        return why_executions_hidden(trace, in_process)
    return "the trace has no event of XLA on the host, which would show it"

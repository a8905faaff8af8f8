"""How long XLA compiled: in the first step, and for each executable."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.analysis.device import accelerators
from pytest_tfperf.analysis.ops import CPU_COMPILER, GPU_COMPILER, compilations, compiled_modules, xla_executions
from pytest_tfperf.analysis.steps import HOST
from pytest_tfperf.analysis.xla import full_names, short_module
from pytest_tfperf.metrics import format_quantity
from pytest_tfperf.recording import Recording
from pytest_tfperf.results import Source, Value
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.hlo import live_modules
from pytest_tfperf.trace.intervals import merge
from pytest_tfperf.trace.nesting import enclosing
from pytest_tfperf.trace.wire import Ints
from pytest_tfperf.trace.xspace import Trace

# xla/service/cpu/cpu_compiler.cc: the pipelines before the backend, and the backend
_CPU = frozenset({"HLO passes through layout assignment", "HLO passes after layout assignment", CPU_COMPILER})
# the op that calls a function of XLA's: `node:Op`, `__inference_f_1:__inference_f_1` of an eager call; and any asynchronous op
_OP = re.compile(r"[\w.][\w.\\/>-]*:[A-Za-z_]\w*\Z")
_ASYNC_OP = "ExecutorState::ProcessAsync::Start"
_NO_COLD_TRACE = "only steps that tf_profile drives have a first step under a session of its own"


@dataclass(frozen=True, slots=True, eq=False)
class _Compiling:
    """Ops in which XLA compiled, shape (n,), with the first execution in each or its end; and the compiler's events in no op."""

    ops: Events
    end: Ints
    alone: Events


def compile_time(cold: Trace | None, recording: Recording) -> Value:
    """xla_compile_time: how long XLA compiled in the first step, whose trace this is; what compiles at once counts once."""
    if cold is None:
        return Value.unknown("xla_compile_time", (None if recording.bare else recording.ended) or _NO_COLD_TRACE)
    host = Events.of(cold.plane(HOST))
    ran = len(xla_executions(host)) > 0
    if ran and recording.first_step_why:
        return Value.unknown("xla_compile_time", f"{recording.first_step_why}; executables may have been compiled before")
    found = _find_compiling(host)
    start, end = merge((found.ops.start, found.end), found.alone.spans)
    if not start.size and ran and accelerators(cold):
        return Value.unknown("xla_compile_time", "the trace has no event of the device's compiler, and may not show what it compiled")
    return Value.of("xla_compile_time", float((end - start).sum()) * 1e-12, Source.TRACE, **_where(compile_seconds(cold)))


def compile_seconds(trace: Trace) -> dict[str, float]:
    """How long XLA compiled each executable that was compiled in a trace, by its name in the metadata; where that is known."""
    host = Events.of(trace.plane(HOST))
    compiled, found = compilations(host), _find_compiling(host)
    owner = enclosing(found.ops, compiled).tolist()
    names, n_in, seconds = (
        full_names(compiled_modules(compiled), live_modules(trace)),
        Counter(owner),
        (found.end - found.ops.start) * 1e-12,
    )
    return {name: float(seconds[op]) for name, op in zip(names, owner, strict=True) if name and op >= 0 and n_in[op] == 1}


def _find_compiling(host: Events) -> _Compiling:
    """The innermost ops around the compiler's events; they hold the translation to HLO too, which has no event."""
    parts = host.named(lambda name: name in _CPU or name.startswith(GPU_COMPILER))
    ops = host.named(lambda name: name == _ASYNC_OP or _OP.match(name) is not None) if len(parts) else parts
    owner = enclosing(ops, parts)
    inside = owner >= 0
    used, place = np.unique(owner[inside], return_inverse=True)
    ops = Events(ops.plane, ops.rows[used])
    end, compiled_until = ops.end, np.zeros(len(ops), np.int64)
    np.maximum.at(compiled_until, place, parts.end[inside])
    runs = xla_executions(host)
    runs = runs.where((caller := enclosing(ops, runs)) >= 0)
    caller = caller[caller >= 0]
    behind = runs.start >= compiled_until[caller]
    np.minimum.at(end, caller[behind], runs.start[behind])
    return _Compiling(ops, end, parts.where(~inside))


def _where(seconds: dict[str, float]) -> dict[str, str]:
    """`where` for executables compiled in so many seconds: those that took longest."""
    longest = sorted(seconds.items(), key=lambda item: -item[1])
    shown = [f"{short_module(name)} {format_quantity(length, 's')}" for name, length in longest[:3]]
    more = f", and {len(longest) - 3} more" if len(longest) > 3 else ""
    return {"where": "compiled: " + ", ".join(shown) + more} if shown else {}

"""The XLA executables of a step: fusions, resources and the time to compile them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

import numpy as np

from pytest_tfperf.facts.executions import XlaUse, full_names, short_module
from pytest_tfperf.facts.host_activity import why_compilations_hidden
from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.hlo.cost import Costs
from pytest_tfperf.hlo.module import HloModule
from pytest_tfperf.hlo.walk import bodies, hlo_hash
from pytest_tfperf.metrics.counts import per_step
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.metrics.flops import work_values
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.quantities import BYTES, COUNT, FLOP, SECONDS, format_quantity
from pytest_tfperf.recording import Recording
from pytest_tfperf.text import and_more
from pytest_tfperf.trace.devices import accelerators
from pytest_tfperf.trace.events import Events, enclosing
from pytest_tfperf.trace.hlo_modules import buffer_sizes, live_modules
from pytest_tfperf.trace.host_events import (
    COMPILES_FOR_JAX,
    CPU_COMPILERS,
    GPU_COMPILER,
    compilations,
    compiled_modules,
    thunks,
    xla_executions,
    xla_runs,
)
from pytest_tfperf.trace.intervals import Spans, merge
from pytest_tfperf.trace.xspace import HOST, Trace
from pytest_tfperf.values import Column, Source, Table, Unknown, Value

# xla/service/cpu/cpu_compiler.cc: the pipelines before the backend, and the backend
_CPU = CPU_COMPILERS | {
    "HLO passes through layout assignment",
    "HLO passes after layout assignment",
}
# the op that calls a function of XLA's: `node:Op`, `__inference_f_1:__inference_f_1` of an eager
# call; any asynchronous op; and a compilation for JAX
_OP = re.compile(r"[\w.][\w.\\/>-]*:[A-Za-z_]\w*\Z")
_AROUND = frozenset({"ExecutorState::ProcessAsync::Start", COMPILES_FOR_JAX})
# around what a thread of a pool is given to do
# (xla/tsl/profiler/backends/cpu/threadpool_listener.cc)
_REGION_START, _REGION_STOP = "ThreadpoolListener::StartRegion", "ThreadpoolListener::StopRegion"
_NO_COLD_TRACE = "only steps that tf_profile drives have a first step under a session of its own"
_NO_OPS = frozenset(
    {"tuple", "get-tuple-element", "bitcast"}
)  # with parameters and constants, of which `Costs` has none


def analyse_compile_time(evidence: Evidence) -> Findings:
    """Find how long XLA compiled in the first step."""
    value = compile_time(evidence.first_step_trace, evidence.recording)
    return Findings(values={"xla_compile_time": value})


def compile_time(cold: Trace | None, recording: Recording) -> Value:
    """Return xla_compile_time of the first step; simultaneous compilations count once."""
    if cold is None:
        return Value.unknown(
            "xla_compile_time", (None if recording.bare else recording.ended) or _NO_COLD_TRACE
        )
    host = Events.of(cold.plane(HOST))
    ran = len(xla_runs(host)) > 0
    if ran and isinstance(recording.first_step_s, Unknown):
        return Value.unknown(
            "xla_compile_time",
            f"{recording.first_step_s.why}; executables may have been compiled before",
        )
    start, end = merge(
        _stretches(host, host.named(lambda name: name in _CPU or name.startswith(GPU_COMPILER)))
    )
    if not start.size and ran and accelerators(cold):
        return Value.unknown(
            "xla_compile_time",
            "the trace has no event of the device's compiler, and may not show what it compiled",
        )
    if not start.size and recording.xla_shown and recording.xla_shown.compilations:
        return Value.unknown("xla_compile_time", recording.xla_shown.compilations)
    if not start.size and (why := why_compilations_hidden(cold, in_process=True)):
        return Value.unknown("xla_compile_time", why)
    return Value.of(
        "xla_compile_time",
        float((end - start).sum()) * 1e-12,
        Source.TRACE,
        **_where(compile_seconds(cold)),
    )


def compile_seconds(trace: Trace) -> dict[str, float]:
    """Return the compile seconds of each executable, by its name in the metadata, where known."""
    host = Events.of(trace.plane(HOST))
    compiled = compilations(host)
    since, until = _stretches(host, compiled)
    names, n_since = (
        full_names(compiled_modules(compiled), live_modules(trace)),
        Counter(since.tolist()),
    )
    whole = (since < compiled.start).tolist()  # with its translation to HLO
    found = zip(names, since.tolist(), until.tolist(), whole, strict=True)
    return {
        name: (end - start) * 1e-12
        for name, start, end, sure in found
        if name and sure and n_since[start] == 1
    }


def _stretches(host: Events, parts: Events) -> Spans:
    """
    Return the compilation's span around each event of XLA's compiler: from the innermost op around
    it, or the work of its thread if that op was lost, to the first execution or the op's end.
    """
    ops = (
        host.named(lambda name: name in _AROUND or _OP.match(name) is not None)
        if len(parts)
        else parts
    )
    owner = enclosing(ops, parts)
    inside = owner >= 0
    used, place = np.unique(owner[inside], return_inverse=True)
    around = Events(ops.plane, ops.rows[used])
    since, until = parts.start.copy(), parts.end.copy()
    since[~inside] = _given(host, ops, parts.where(~inside))
    since[inside], until[inside] = (
        around.start[place],
        _first_execution(host, around, place, parts.end[inside])[place],
    )
    return since, until


def _first_execution(host: Events, ops: Events, place: Ints, compiled_until: Ints) -> Ints:
    """
    Return each op's first execution after its compilation, else its end; op `place[i]` compiled
    until `compiled_until[i]`.
    """
    end, compiled = ops.end.copy(), np.zeros(len(ops), np.int64)
    np.maximum.at(compiled, place, compiled_until)
    runs = xla_executions(host)
    if not len(runs):
        return _first_thunk(host, end, compiled)
    caller = enclosing(ops, runs)
    start, caller = runs.start[caller >= 0], caller[caller >= 0]
    behind = start >= compiled[caller]
    np.minimum.at(end, caller[behind], start[behind])
    return end


def _first_thunk(host: Events, end: Ints, compiled: Ints) -> Ints:
    """Return each compilation's first later thunk, on any thread, or its op's end if earlier."""
    start = np.append(np.sort(thunks(host).start), np.iinfo(np.int64).max)
    first: Ints = start[np.searchsorted(start, compiled)]
    return np.minimum(end, first)


def _given(host: Events, ops: Events, parts: Events) -> Ints:
    """Return when each event's thread got work, or ended an op in it, else the event's start."""
    regions = host.called(_REGION_START, _REGION_STOP)
    starts = np.array([name == _REGION_START for name in regions.names], bool)
    since = parts.start.copy()
    for place, (line, begin) in enumerate(
        zip(parts.line.tolist(), parts.start.tolist(), strict=True)
    ):
        before = np.flatnonzero((regions.line == line) & (regions.start <= begin))
        last = before[np.argmax(regions.start[before])] if before.size else -1
        if last >= 0 and starts[last]:
            ended = ops.end[(ops.line == line) & (ops.end <= begin)]
            since[place] = max(regions.start[last], ended.max(initial=0))
    return since


def _where(seconds: dict[str, float]) -> dict[str, str]:
    """Return `where`: the executables that took longest to compile."""
    longest = sorted(seconds.items(), key=lambda item: -item[1])
    shown = [f"{short_module(name)} {format_quantity(length, 's')}" for name, length in longest]
    return {"where": f"compiled: {and_more(shown, 3)}"} if shown else {}


def analyse(evidence: Evidence) -> Findings:
    """Find the fusions of the executables that ran, and the executables themselves."""
    trace = evidence.trace
    if trace is None:
        return evidence.untraced("fusions")
    use, found = evidence.xla, evidence.executables
    tables = {}
    if found:
        tables["executables"] = executable_table(
            trace, use, found, evidence.costs, _compiled_s(evidence, trace)
        )
    why = evidence.why_xla_unknown
    value = (
        Value.unknown("fusions", why) if why else fusions(evidence.steps, use, evidence.executables)
    )
    return Findings(values={"fusions": value}, tables=tables)


def _compiled_s(evidence: Evidence, trace: Trace) -> dict[str, float]:
    """Return the compile seconds of each executable, in the first step or later."""
    first = evidence.first_step_trace
    return compile_seconds(trace) | (compile_seconds(first) if first else {})


def fusions(steps: Steps, use: XlaUse, executables: Mapping[str, HloModule]) -> Value:
    """Return the metric fusions of a step's distinct executables, each counted once."""
    if len(executables) < len(use.modules):
        return Value.unknown(
            "fusions",
            f"the trace holds the HLO of {len(executables)} of the {len(use.modules)} executables "
            "that ran",
        )
    counts = np.zeros(len(steps), np.int64)
    for name, ran_in in use.steps_in_metadata(executables).items():
        counts[ran_in] += count_fusions(executables[name])
    return per_step("fusions", counts, None).changed(source=Source.HLO)


def count_fusions(module: HloModule) -> int:
    """Count the fusion instructions in all computations of a module."""
    return sum(
        op.opcode == "fusion"
        for part in module.computations.values()
        for op in part.instructions.values()
    )


def executable_table(
    trace: Trace,
    use: XlaUse,
    executables: Mapping[str, HloModule],
    costs: Mapping[str, Costs],
    compiled_s: Mapping[str, float],
) -> Table:
    """
    Tabulate the steps' executables, by FLOPs of one run, which are unknown where a loop's length
    is; `ops` leaves out those inside of fusions, and `HLO` is the fingerprint.
    """
    buffers = buffer_sizes(trace)
    runs = use.in_metadata(executables)

    def size(name: str, kind: str) -> int | None:
        found: int | None = getattr(buffers.get(name), kind, None)
        return found

    flops = {name: work_values([(costs[name], 1.0)])["flops"].number for name in executables}
    return Table.of_each(
        "XLA executables",
        sorted(executables, key=lambda name: (-(flops[name] or 0), short_module(name))),
        [
            (Column("executable", "executable"), short_module),
            (Column("runs", "runs", COUNT), lambda name: runs[name]),
            (
                Column("ops", "ops", COUNT),
                lambda name: sum(op.opcode not in _NO_OPS for op in costs[name].ops),
            ),
            (Column("fusions", "fusions", COUNT), lambda name: count_fusions(executables[name])),
            (Column("flops", "FLOPs", FLOP), lambda name: flops[name]),
            (
                Column("accessed", "accessed", BYTES),
                lambda name: _accessed(executables[name], costs[name]),
            ),
            (Column("arguments", "arguments", BYTES), lambda name: size(name, "arguments")),
            (Column("outputs", "outputs", BYTES), lambda name: size(name, "outputs")),
            (Column("temporaries", "temporaries", BYTES), lambda name: size(name, "temporaries")),
            (Column("compile_s", "compiled in", SECONDS), compiled_s.get),
            (Column("hlo", "HLO"), lambda name: hlo_hash(executables[name])),
        ],
    )


def _accessed(module: HloModule, costs: Costs) -> int | None:
    """Return the bytes that one run reads and writes, None for a loop of unknown length."""
    ops = (op for part in bodies(module) for op in part.instructions.values())
    if any(op.opcode == "while" and op.trip_count is None for op in ops):
        return None
    return sum(op.bytes * op.runs for op in costs.ops)

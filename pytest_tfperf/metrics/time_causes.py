"""
Name what takes the time of a step, and of the first step, with the remedy of each cause.

A cause is looked for within each part of the traced step, and its seconds are its share of that
part. What no evidence names stays unexplained.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pytest_tfperf.advice.by_framework import OF_PARTS, text_for
from pytest_tfperf.advice.step_remedies import (
    DENSE,
    OUTSIDE_LAYERS,
    WIDE,
    op_remedy,
    python_remedy,
)
from pytest_tfperf.facts.device_ops import kind_of_op
from pytest_tfperf.facts.host_activity import JAX
from pytest_tfperf.facts.op_times import OpTime, host_ops
from pytest_tfperf.facts.parts import NOT_EXECUTING
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.graphs import CALL
from pytest_tfperf.hlo.module import source_line
from pytest_tfperf.metrics.calls import (
    NATIVE,
    called_from,
    described_python,
    enough,
    python_time,
    retraces,
    timed,
)
from pytest_tfperf.metrics.counts import compiles
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.metrics.executables import compile_time
from pytest_tfperf.metrics.graph_ops import Made, fused_in, line_of_fit, made_of, scope_of
from pytest_tfperf.metrics.shares import host_values
from pytest_tfperf.op_types import DATA_SIDE
from pytest_tfperf.quantities import COUNT, SECONDS, SHARE, format_quantity
from pytest_tfperf.recording import StackTime
from pytest_tfperf.text import and_more
from pytest_tfperf.trace.xspace import Trace
from pytest_tfperf.values import PARTS, TIME_CAUSES, Column, Table

STEP, FIRST_STEP = "step_time", "first_step_time"
_COLUMNS = (
    Column("metric", "time"),
    Column("part", "part"),
    Column("seconds", "seconds", SECONDS),
    Column("share", "of the step", SHARE),
    Column("where", "where"),
    Column("try", "try"),
)
_LOOP = re.compile(
    r"(?:.*/body/_\d+/|(?:StatefulPartitionedCall/)*)(.*?)/body/_\d+/(?!.*/(body|cond)/_\d+/)"
)
"""The innermost loop that an op is in (tensorflow/core/common_runtime/lower_while_op.cc)."""
_RUN_BY = re.compile(r"(?:called|traced again:.*?|Keras callback \S+|^Python) at ([\w.]+\.py:\d+)")
"""The line of Python that runs what is named."""
_OF_THE_USER = re.compile(r"\.py:\d|Keras callback")
_COMPILE_LESS = "fewer ops or functions to compile, or a persistent compilation cache"
_TRACE_LESS = "trace less: fewer ops, or fewer functions in the step"
_LARGE = 0.3
"""Least share of a part that is named as its cause alone."""
_LEAST = 0.03
"""Least share of the step of a cause that is listed."""
_SHOWS = 0.5
"""Least share of a part that ops must cover to explain it."""
_NAMED = 3
_VANISH = 90
"""Least calls of which some may be missing in a trace."""

Cause = tuple[str, float, str, str]
"""Part, seconds, where, try."""


def analyse(evidence: Evidence) -> Findings:
    """Find the causes of the time of a step and of the first step, the largest first."""
    rows = []
    if evidence.trace is not None and not evidence.steps.why_untimed and len(evidence.steps):
        period_s = float(evidence.breakdown.period_ps.mean()) * 1e-12
        causes = _by_line(_of_the_step(evidence, period_s))
        rows += [(STEP, cause, period_s) for cause in causes]
    first_s = evidence.recording.first_step_s
    if isinstance(first_s, float):
        rows += [(FIRST_STEP, cause, first_s) for cause in _of_the_first_step(evidence)]
    cells = [
        (metric, part, seconds, min(seconds / whole_s, 1.0), where, remedy)
        for metric, (part, seconds, where, remedy), whole_s in rows
        if whole_s > 0 and seconds >= _LEAST * whole_s
    ]
    cells.sort(key=lambda row: (row[0] != STEP, -row[2]))
    table = Table.of("What takes the time", _COLUMNS, cells)
    return Findings(tables={TIME_CAUSES: table} if cells else {})


def _by_line(causes: Iterable[Cause]) -> Iterator[Cause]:
    """Join what one line of Python runs in several parts of the step, the largest first."""
    groups: dict[object, list[Cause]] = {}
    for cause in sorted(causes, key=lambda one: -one[1]):
        found = _RUN_BY.search(cause[2])
        groups.setdefault(found[1] if found else cause, []).append(cause)
    for group in groups.values():
        shown = [one for one in group if one[1] >= _LARGE * group[0][1]][:_NAMED]
        where = "; ".join(cause[2] for cause in shown)
        remedies = dict.fromkeys(cause[3] for cause in shown if cause[3])
        yield group[0][0], sum(cause[1] for cause in group), where, "; ".join(remedies)


def _of_the_step(evidence: Evidence, period_s: float) -> Iterator[Cause]:
    assert evidence.trace is not None
    for part in PARTS:
        seconds = period_s * evidence.breakdown.share(part)
        if seconds < _LEAST * period_s:
            continue
        if part == "host_compute":
            yield from _ops(evidence, seconds)
        elif part == "other":
            yield from _python(evidence.recording.stacks, evidence, seconds)
        elif part == "device_compute":
            # copies, collectives and waits that something else hides take none of this time
            ops = [op for op in evidence.device_ops if op.kind not in NOT_EXECUTING]
            ops = [op for op in ops if kind_of_op(op) == part]
            yield from _named(ops, evidence, seconds, part)
        elif part in OF_PARTS:
            remedy = text_for(OF_PARTS[part], evidence.framework)
            yield part, seconds, part.replace("_", " "), remedy
        elif part == "input":
            detail = host_values(evidence, evidence.trace)["input_bound"].detail
            if detail.get("where"):
                yield part, seconds, detail["where"], str(detail.get("try", ""))
        elif part == "compile":
            cause = _compilation(evidence)
            stacks = [one for one in evidence.recording.stacks if one.line]
            if "where" in cause:
                yield part, seconds, cause["where"], cause.get("try", "")
            elif enough(stacks):
                yield from _python(stacks, evidence, seconds, part)


def _compilation(evidence: Evidence) -> Mapping[str, Any]:
    """Return the cause of what is traced or compiled after the first step, empty if nothing is."""
    traced = retraces(evidence, evidence.functions).detail
    return traced if "where" in traced else compiles(evidence).detail


def _ops(evidence: Evidence, seconds: float) -> Iterator[Cause]:
    """
    Name the ops that the host computes, by scope or type, else the first step's loop of small ops,
    which vanish after some 100 calls (tensorflow/core/framework/op_kernel.h, `IsExpensive`).
    """
    ops = [op for op in evidence.host_ops if op.side != DATA_SIDE]
    n_steps = evidence.launched.n_steps
    shown_s = sum(op.self_s for op in ops) / n_steps
    cold = evidence.first_step_trace
    loops = _loops(cold) if cold is not None and evidence.framework != JAX else Counter()
    if shown_s < _SHOWS * seconds:
        if loops:
            (name, n_runs), *_ = loops.most_common(1)
            runs = f"{n_runs} iterations{'' if n_runs < _VANISH else ' or more'} a step"
            line = _made(evidence, name).at
            short = name.removesuffix("/while").rpartition("/")[2]
            layer = f" of {scope_of(name)}" if scope_of(name) not in ("", short) else ""
            where = f"the loop {short}{layer}{line} runs small ops one by one ({runs})"
            yield "host_compute", seconds, where, op_remedy("While", name, [])
        return
    yield from _named(ops, evidence, seconds, "host_compute")


def _named(ops: Sequence[OpTime], evidence: Evidence, seconds: float, part: str) -> Iterator[Cause]:
    """Divide the seconds of a part among groups of its ops, by their self times."""
    total_s = sum(op.self_s for op in ops)
    for group in _grouped(ops, evidence) if total_s else ():
        self_s = sum(op.self_s for op in group)
        made = _made(evidence, group[0].name)
        where = _described(group, made, evidence)
        kinds = [op.kind for op in group]
        kind = made.inside[0] if made.inside else kinds[0]
        remedy = op_remedy(kind, _scope(group[0], evidence), kinds, made.dtype)
        if remedy == DENSE:
            where += ", on a sparse gradient that is made dense (UnsortedSegmentSum)"
        if sum(op.eager_s for op in group) > _SHOWS * self_s:
            where += called_from(evidence.recording.stacks)
        yield part, seconds * self_s / total_s, where, remedy


def _grouped(ops: Sequence[OpTime], evidence: Evidence) -> list[list[OpTime]]:
    """Return ops by the type or the scope (layer, optimizer) that takes most, the largest first."""
    total = sum(op.self_s for op in ops)
    groups: dict[str, list[OpTime]] = {}
    for op in sorted(ops, key=lambda one: -one.self_s):
        scope = _scope(op, evidence)
        if op.self_s >= _LARGE * total and scope != OUTSIDE_LAYERS:
            groups[op.name] = [op]
        else:
            key = f"scope {scope}" if scope else f"type {op.kind}"
            groups.setdefault(key, []).append(op)
    sums = {key: sum(op.self_s for op in group) for key, group in groups.items()}
    return [groups[key] for key in sorted(groups, key=lambda key: -sums[key])]


def _scope(op: OpTime, evidence: Evidence) -> str:
    """Return the layer or optimizer of an op; Keras' other ops in a compiled step are outside."""
    is_outside = evidence.launched.in_keras and evidence.framework != JAX and not op.eager_s
    return scope_of(op.name) or (OUTSIDE_LAYERS if is_outside else "")


class _Made(NamedTuple):
    """What a program says of an op."""

    at: str = ""
    """As in ` at model.py:12`: the user's line."""
    dtype: str = ""
    """Of its result."""
    inside: tuple[str, ...] = ()
    """The kinds of op in a fusion of XLA, the dearest first."""


def _described(group: list[OpTime], made: _Made, evidence: Evidence) -> str:
    first, scope, n_steps = group[0], _scope(group[0], evidence), evidence.launched.n_steps
    kinds = Counter[str]()
    for op in group:
        kinds[op.kind] += op.self_s  # type: ignore[assignment]
    named = and_more([kind for kind, _ in kinds.most_common()], _NAMED)
    wide = f" of {made.dtype}" if made.dtype in WIDE else ""
    inside = f" ({and_more(list(made.inside), _NAMED)})" if made.inside else ""
    if len(group) == 1:
        times = f" ×{_count(first.count / n_steps)}" if first.count > n_steps else ""
        node = f" {first.name!r}" if first.name != first.kind else ""
        return f"op {first.kind}{times}{wide}{node}{inside}{made.at}"
    return f"ops of {scope} ({named}){wide}{made.at}" if scope else f"ops {named}{wide}{made.at}"


def _count(number: float) -> str:
    return format_quantity(round(number, 1 if number < _NAMED else 0), COUNT)


def _made(evidence: Evidence, name: str) -> _Made:
    """Return what the step's programs say of an op."""
    if evidence.framework == JAX:
        ops = (
            (module, op)
            for module in evidence.executables.values()
            for computation in module.computations.values()
            for op in computation.instructions.values()
            if op.name == name
        )
        module, found = next(ops, (None, None))
        if module is None or found is None:
            return _Made()
        line = source_line(found)
        at = f" at {line}" if line else ""
        return _Made(at, found.shape.dtype, fused_in(found, module))
    short = name.removeprefix(CALL)
    nodes = {op.name.removeprefix(CALL): op for op in evidence.code.ops}
    node = nodes.get(short) or next(
        (op for one, op in nodes.items() if op.line and one.startswith(f"{short}/")), None
    )
    if node is None:
        return _Made()
    is_told = node.line and not (
        evidence.launched.in_keras and node.line == line_of_fit(op.line for op in evidence.code.ops)
    )
    at = f" at {node.line}" if is_told else ""
    return _Made(at, node.outputs[0].dtype if node.outputs else "")


def _loops(cold: Trace) -> Counter[str]:
    """Return the loops of the graph in a first step's trace, with the iterations that it shows."""
    steps = find_steps(cold)
    runs: Counter[str] = Counter()
    for op in host_ops(cold, steps):
        match = _LOOP.match(op.name)
        if match and op.side != DATA_SIDE and op.count > 1:
            runs[match[1]] = max(runs[match[1]], op.count)
    return runs


def _python(
    stacks: Sequence[StackTime], evidence: Evidence, seconds: float, part: str = "other"
) -> Iterator[Cause]:
    """Divide the seconds of a part among the user's lines, or else the functions of Python."""
    for share, where, remedy in python_time(stacks, evidence):
        # what a framework itself calls in each step is a cause only where it takes much
        named = part if _OF_THE_USER.search(where) else "calls"
        yield named, seconds * share, where, remedy


def _of_the_first_step(evidence: Evidence) -> Iterator[Cause]:
    """Name tracing, compilation and imports of the first step, by the user's line or module."""
    recording = evidence.recording
    compiled = compile_time(evidence.first_step_trace, recording)
    made: list[Cause] = []
    if compiled.number:
        where = f"XLA {compiled.detail.get('where', 'compiles')}"
        made.append(("compile", compiled.number, where, _COMPILE_LESS))
    if (start_s := _start(evidence, compiled.number or 0.0)) > 0:
        where = "TensorFlow starts the graph (placement, Grappler, copies)"
        made.append(("start", start_s, where, _TRACE_LESS))
    groups: dict[tuple[str, str], list[StackTime]] = {}
    for one in timed(recording.first_stacks):
        if one.phase != "compiling":
            groups.setdefault((one.phase, one.line), []).append(one)
    for (phase, line), group in groups.items():
        seconds = sum(one.seconds for one in group)
        at = f" at {line}" if line else f" in {group[0].function}"
        if phase in ("tracing", "lowering"):
            made.append((phase, seconds, f"{phase}{at}", _TRACE_LESS))
        elif phase == "importing":
            yield phase, seconds, f"imports{at}", "import it before the step"
        else:
            where = described_python(group, evidence)
            yield "other", seconds, where, python_remedy(group)
    of, remedy = made_of(evidence) if made else Made()
    largest = max(made, key=lambda cause: cause[1], default=None)
    for part, seconds, where, less in made:
        is_largest = largest is not None and where == largest[2]
        yield part, seconds, f"{where}{of if is_largest else ''}", remedy or less


def _start(evidence: Evidence, compile_s: float) -> float:
    """Return the seconds in which TensorFlow places, optimises and copies a graph."""
    trace = evidence.first_step_trace
    if trace is None or evidence.framework == JAX:
        return 0.0
    stacks = evidence.recording.first_stacks
    native = (one.seconds for one in stacks if not one.phase and NATIVE.match(one.function))
    ops_s = sum(op.self_s for op in host_ops(trace, find_steps(trace)))
    start_s = sum(native) - compile_s - ops_s
    return start_s if start_s > ops_s else 0.0  # ops may run on several threads

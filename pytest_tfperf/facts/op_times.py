"""
The total time and the self time of each op on the host and on devices, and of each tf.function.

XProf's counterpart is its framework op statistics (openxla/xprof, op_metrics_db_utils.cc). In
contrast to it, copies, collectives and kernels without annotation are rows of their own, not idle
time. Eager ops count on the host too.

TensorFlow marks a call with `tf_function_call` (eager, concrete, traced-xla, traced-nonXla,
notTraced-xla or notTraced-nonXla) and the `tracing_count` so far
(tensorflow/python/eager/polymorphic_function/polymorphic_function.py). XProf's counterpart:
openxla/xprof, xplane_to_tf_functions.cc.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pytest_tfperf.facts.host_activity import eager_executions, op_type
from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.op_types import DATA_SIDE, HOST_SIDE
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.quantities import COUNT, SECONDS, SHARE
from pytest_tfperf.trace.devices import accelerators
from pytest_tfperf.trace.events import Events, enclosing, labels, self_times
from pytest_tfperf.trace.host_events import EAGER, is_for_data, without_waits
from pytest_tfperf.trace.intervals import distinct, distinct_values
from pytest_tfperf.trace.stats import Mask
from pytest_tfperf.trace.xspace import HOST, Trace
from pytest_tfperf.values import Column, Table

MODES = ("traced", "notTraced", "eager", "concrete")
_NUMBERED = re.compile(r"([._]\d+)+\Z")
HLO_OP = "hlo_op"
_NO_ID = -1
_SOURCES = (
    "annotation",
    "tf_op",
    HLO_OP,
)  # the last that is there holds; before TensorFlow 2.5 the op is in the annotation


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTime:
    """One op over all steps and devices."""

    side: str
    """Host, tf.data, or the device where it ran."""
    name: str
    kind: str
    """Op type or HLO category."""
    module: str = ""
    """XLA module, empty without one."""
    count: int
    """On a GPU that of its kernels."""
    kernels: int = 1
    """Different ones of one occurrence."""
    total_s: float
    """Seconds with the ops inside it."""
    self_s: float
    """Seconds without the ops inside it."""
    eager_s: float = 0.0
    """Part of `self_s` that ran eagerly."""
    flops: float | None = None
    """Of all occurrences."""
    bytes: float | None = None
    """Of all occurrences."""


def host_ops(trace: Trace, steps: Steps, ran: Steps | None = None) -> list[OpTime]:
    """
    Measure the TensorFlow ops that host threads started in the steps, an eager op and its kernel as
    one, and, on a CPU, XLA instructions; those of the input pipeline have the side `tf.data`.
    """
    host = Events.of(trace.plane(HOST))
    ops = host.named(lambda name: op_type(name) is not None and "Iterator::" not in name)
    eager = eager_executions(host)
    ops = ops.where(enclosing(eager, ops) < 0)
    events = Events(host.plane, np.sort(np.r_[ops.rows, eager.rows]))
    code, eager_names = labels(eager, "eager_op")
    names = [*(name.removeprefix(f"{EAGER}: ") for name in host.plane.names), *eager_names]
    at = np.searchsorted(events.rows, eager.rows)
    name, run_eagerly = host.plane.name_index[events.rows], np.zeros(len(events), bool)
    name[at] = np.where(code > 0, len(host.plane.names) + code, name[at])
    run_eagerly[at] = True
    key = name * 2 + is_for_data(host.plane)[events.rows]

    def op(key: int) -> OpTime:
        name = names[key // 2]
        node, _, kind = name.rpartition(":")
        return new_op(DATA_SIDE if key % 2 else HOST_SIDE, node or name, kind or name)

    return [
        *summed(events, events, key, run_eagerly, steps, op),
        *([] if accelerators(trace) else _xla_ops(host, ran or steps)),
    ]


def _xla_ops(host: Events, steps: Steps) -> list[OpTime]:
    """Measure the XLA instructions that the host's threads ran, if there is no accelerator."""
    events = host.named(lambda name: ":" not in name)
    events = without_waits(events.having("hlo_op"))
    code, found = launchers(events)
    module, modules = labels(events, "hlo_module")

    def op(key: int) -> OpTime:
        launcher = found[key // len(modules)]
        return new_op(HOST_SIDE, launcher.name, launcher.kind, modules[key % len(modules)])

    return summed(
        events, events, code * len(modules) + module, np.zeros(len(events), bool), steps, op
    )


def op_table(ops: Sequence[OpTime], n_steps: int) -> Table:
    """Tabulate ops by self time; times and counts are per step, shares of a side's self time."""
    sides: dict[str, float] = {}
    for op in ops:
        sides[op.side] = sides.get(op.side, 0.0) + op.self_s
    return Table.of_each(
        "ops",
        sorted(ops, key=lambda op: -op.self_s),
        [
            (Column("where", "where"), lambda op: op.side),
            (Column("op", "op"), lambda op: op.name),
            (Column("type", "type"), lambda op: op.kind),
            (Column("occurrences", "occurrences", COUNT), lambda op: op.count / n_steps),
            (Column("total_s", "total", SECONDS), lambda op: op.total_s / n_steps),
            (Column("self_s", "self", SECONDS), lambda op: op.self_s / n_steps),
            (Column("share", "of its side", SHARE), lambda op: _part(op.self_s, sides[op.side])),
            (Column("eager", "eager", SHARE), lambda op: _part(op.eager_s, op.self_s)),
        ],
    )


def eager_share(ops: Iterable[OpTime]) -> float | None:
    """Return the share of the ops' self time that ran eagerly, or None without time."""
    found = list(ops)
    return _part(sum(op.eager_s for op in found), sum(op.self_s for op in found))


def _part(some: float, of_all: float) -> float | None:
    return min(some / of_all, 1.0) if of_all > 0 else None


def new_op(side: str, name: str, kind: str, module: str = "") -> OpTime:
    """Return an op without any time."""
    return OpTime(side=side, name=name, kind=kind, module=module, count=0, total_s=0.0, self_s=0.0)


def summed(
    events: Events, timed: Events, key: Ints, eager: Mask, steps: Steps, op: Callable[[int], OpTime]
) -> list[OpTime]:
    """
    Sum the times in the steps by `key` of each event, of `timed`, the events on their own clock;
    `op` makes the op of a key.
    """
    inside = steps.of(events.start) >= 0
    keys, group = distinct(key[inside])

    def total(column: Ints) -> list[float]:
        return [float(time) for time in np.bincount(group, column, keys.size) * 1e-12]

    self_ps, duration = self_times(timed)[inside], (timed.end - timed.start)[inside]
    columns = (
        np.bincount(group, minlength=keys.size).tolist(),
        total(duration),
        total(self_ps),
        total(self_ps * eager[inside]),
    )
    return [
        replace(op(key), count=count, total_s=total_s, self_s=self_s, eager_s=eager_s)
        for key, count, total_s, self_s, eager_s in zip(keys.tolist(), *columns, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionUse:
    """One tf.function over all steps."""

    name: str
    calls: dict[str, int]
    """By mode."""
    xla: int
    """Calls that XLA compiled."""
    traces: int
    """So far."""
    self_s: float
    """Seconds without the functions that it calls."""
    expensive_s: float
    """Seconds of the calls that traced it or ran it eagerly."""


def function_uses(trace: Trace, steps: Steps) -> list[FunctionUse]:
    """Measure the tf.functions that were called in the steps."""
    host = Events.of(trace.plane(HOST))
    calls = host.named(lambda name: ":" not in name).having(
        "tf_function_call"
    )  # neither ops nor what Python's tracer saw
    self_s = self_times(calls) * 1e-12
    inside = steps.of(calls.start) >= 0
    calls, self_s = calls.where(inside), self_s[inside]
    code, texts = labels(calls, "tf_function_call")
    mode = np.array([_mode(text) for text in texts], np.int64)[code]
    xla = np.array([text.endswith("-xla") for text in texts], bool)[code]
    traces, name = calls.integers("tracing_count"), calls.plane.name_index[calls.rows]

    def use(key: int) -> FunctionUse:
        mine = name == key
        expensive = mine & np.isin(mode, (0, 2))
        return FunctionUse(
            name=calls.plane.names[key],
            calls=dict(
                zip(MODES, np.bincount(mode[mine], minlength=len(MODES)).tolist(), strict=True)
            ),
            xla=int(xla[mine].sum()),
            traces=int(traces[mine].max()),
            self_s=float(self_s[mine].sum()),
            expensive_s=float(self_s[expensive].sum()),
        )

    return [use(key) for key in distinct_values(name).tolist()]


def _mode(text: str) -> int:
    """Return the place in `MODES` of a `tf_function_call`, an unknown one as concrete."""
    mode = text.partition("-")[0]
    return MODES.index(mode) if mode in MODES else MODES.index("concrete")


def function_table(uses: list[FunctionUse], steps: Steps) -> Table:
    """Tabulate functions by self time, per step, and its share in tracing or eager calls."""
    period, n_steps = float(steps.period_ps.sum()) * 1e-12, steps.n_steps
    return Table.of_each(
        "functions",
        sorted(uses, key=lambda use: -use.self_s),
        [
            (Column("function", "function"), lambda use: use.name),
            (Column("calls", "calls", COUNT), lambda use: sum(use.calls.values()) / n_steps),
            (Column("traced", "traced", COUNT), lambda use: use.calls["traced"] / n_steps),
            (Column("eager", "eager", COUNT), lambda use: use.calls["eager"] / n_steps),
            (Column("concrete", "concrete", COUNT), lambda use: use.calls["concrete"] / n_steps),
            (Column("with_xla", "with XLA", COUNT), lambda use: use.xla / n_steps),
            (Column("traces_so_far", "traces so far", COUNT), lambda use: use.traces),
            (Column("self_s", "self", SECONDS), lambda use: use.self_s / n_steps),
            (Column("share", "share", SHARE), lambda use: _part(use.self_s, period)),
            (
                Column("traced_or_eager", "traced or eager", SHARE),
                lambda use: use.expensive_s / use.self_s if use.self_s else None,
            ),
        ],
    )


class Launcher(NamedTuple):
    """The instruction or op that launched a kernel."""

    name: str
    kind: str
    """Opcode or op type."""
    source: str
    """Stat that names it; empty if `name` is the event's own."""


def launchers(events: Events) -> tuple[Ints, list[Launcher]]:
    """Return the launcher index of each event, shape (n,), and all launchers."""
    code, found = (
        events.plane.name_index[events.rows],
        [Launcher(name, "", "") for name in events.plane.names],
    )
    for stat in _SOURCES:
        which, texts = labels(events, stat)
        named = np.array([_names_an_op(text) for text in texts], bool)
        code = np.where(named[which], which + len(found), code)
        found += [_launcher(text, stat) for text in texts]
    return code, found


def programs_of(events: Events) -> tuple[Ints, list[str]]:
    """
    Return each event's index, shape (n,), into the names of programs: `module(program id)`, or
    `module` where the trace has no id, empty outside of XLA.
    """
    module, modules = labels(events, "hlo_module")
    ids, which = distinct(np.where(module > 0, events.integers("program_id", _NO_ID), _NO_ID))
    pairs, code = distinct(module * ids.size + which)
    names = [(modules[pair // ids.size], int(ids[pair % ids.size])) for pair in pairs.tolist()]
    return code, [name if number == _NO_ID else f"{name}({number})" for name, number in names]


def _names_an_op(text: str) -> bool:
    """Return whether a text names an op, unlike `XlaModule:` and CUDA graphs' `command_buffer`."""
    return bool(text.partition("#")[0]) and not text.startswith(("XlaModule:", "command_buffer"))


def _launcher(text: str, source: str) -> Launcher:
    """Parse `node:Type#shape=…#` or JAX's `jit(f)/dot_general:`; an HLO kind has no numbers."""
    if source == HLO_OP:
        return Launcher(text, _NUMBERED.sub("", text), source)
    name, _, kind = text.partition("#")[0].partition("::")[0].rpartition(":")
    name = name or kind
    return Launcher(name, kind or _NUMBERED.sub("", name.rpartition("/")[2]), source)

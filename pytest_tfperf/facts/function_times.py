"""
Count the calls and traces of each tf.function, and measure its time.

TensorFlow marks a call with `tf_function_call` (eager, concrete, traced-xla, traced-nonXla,
notTraced-xla or notTraced-nonXla) and the `tracing_count` so far
(tensorflow/python/eager/polymorphic_function/polymorphic_function.py). XProf's counterpart:
openxla/xprof, xplane_to_tf_functions.cc.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.quantities import COUNT, SECONDS, SHARE
from pytest_tfperf.trace.event_columns import distinct_values
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.nesting import self_times
from pytest_tfperf.trace.stats import labels
from pytest_tfperf.trace.xspace import HOST, Trace
from pytest_tfperf.values import Column, Table

MODES = ("traced", "notTraced", "eager", "concrete")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionUse:
    """One tf.function over all steps."""

    name: str
    """Name of the function."""
    calls: dict[str, int]
    """Number of calls by mode."""
    xla: int
    """Number of calls that XLA compiled."""
    traces: int
    """Number of traces so far."""
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
    """
    Return the place in `MODES` of a `tf_function_call`; an unknown mode counts as concrete, which
    costs nothing.
    """
    mode = text.partition("-")[0]
    return MODES.index(mode) if mode in MODES else MODES.index("concrete")


def function_table(uses: list[FunctionUse], steps: Steps) -> Table:
    """
    Tabulate the functions by self time: calls and seconds per step, and share of the steps.

    A last column has the share of that time in tracing or eager calls.
    """
    columns = [
        Column("function", "function"),
        Column("calls", "calls", COUNT),
        Column("traced", "traced", COUNT),
        Column("eager", "eager", COUNT),
        Column("concrete", "concrete", COUNT),
        Column("with_xla", "with XLA", COUNT),
        Column("traces_so_far", "traces so far", COUNT),
        Column("self_s", "self", SECONDS),
        Column("share", "share", SHARE),
        Column("traced_or_eager", "traced or eager", SHARE),
    ]
    period, n_steps = float(steps.period_ps.sum()) * 1e-12, steps.n_steps
    rows = [
        (
            use.name,
            sum(use.calls.values()) / n_steps,
            use.calls["traced"] / n_steps,
            use.calls["eager"] / n_steps,
            use.calls["concrete"] / n_steps,
            use.xla / n_steps,
            use.traces,
            use.self_s / n_steps,
            min(use.self_s / period, 1.0) if period else None,
            use.expensive_s / use.self_s if use.self_s else None,
        )
        for use in sorted(uses, key=lambda use: -use.self_s)
    ]
    return Table.of("functions", columns, rows)

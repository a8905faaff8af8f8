"""
The probe: one step after all others that is watched for what Python runs in it: functions, single ops, Sessions.

The functions' graphs are then had without running anything (instances.py). Nothing is traced or compiled again, and the step
is an ordinary one; but it is watched, so nothing of it is timed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from pytest_tfperf.compiler.lowering import Calls, calls_recorded
from pytest_tfperf.compiler.session_runs import SessionRun, session_runs_recorded
from pytest_tfperf.compiler.source_lines import in_python_op, user_line_now

NO_PROBE = "no step was run for the graphs (the probe)"


@dataclass(slots=True)
class Probe:
    """
    What Python ran in one step: the functions that it called, its runs of a Session, and single ops.

    `eager` counts ops by type and the user's source line; a function's type is its name. `why` says why nothing is known.
    """

    calls: Calls = field(default_factory=Calls)
    eager: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    sessions: Sequence[SessionRun] = ()
    why: str | None = NO_PROBE


@contextmanager
def probed(in_step: Callable[[], bool] = lambda: True) -> Iterator[Probe]:
    """Within the context, note what Python runs while `in_step` says so; all is there when it has ended."""
    # private: what sees every op and function that Python runs
    try:
        from tensorflow.python.framework import op_callbacks
    except ImportError:
        yield Probe(why="this version of TensorFlow does not show what a step runs")
        return
    probe = Probe()

    def ran(op_type: str | bytes, *_: Any, graph: Any = None, **__: Any) -> None:
        if graph is None and in_step() and not in_python_op():
            name = (
                op_type.decode() if isinstance(op_type, bytes) else op_type
            )  # bytes: from the slow path, as for Keras variables
            probe.eager[name, user_line_now()] += 1

    with ExitStack() as stack:
        stack.callback(op_callbacks.remove_op_callback, ran)
        op_callbacks.add_op_callback(ran)
        probe.calls = stack.enter_context(calls_recorded(lambda: in_step() and not in_python_op()))
        probe.sessions = stack.enter_context(session_runs_recorded(in_step))
        yield probe
        probe.calls.end_step()
        probe.why = None

"""
The probe: one step after all others in which TensorFlow instantiates its functions anew and shows their graphs.

Nothing is traced or compiled by XLA again where the user asked for it (jit_compile); auto-clusters are. So its times are
no step's, and nothing of it is counted but graphs and the ops that Python ran.
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
    What one step showed: its graphs as RunMetadata's FunctionGraphs, the functions that Python called, the ops that it ran, and its
    runs of a Session.

    `eager` counts ops by type and the user's source line; `why` says why there are no graphs.
    """

    graphs: Sequence[Any] = ()
    calls: Calls = field(default_factory=Calls)
    eager: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    sessions: Sequence[SessionRun] = ()
    why: str | None = NO_PROBE


@contextmanager
def probed(in_step: Callable[[], bool] = lambda: True) -> Iterator[Probe]:
    """
    Within the context graphs are recorded, and what Python runs while `in_step` says so; all is there when it has ended.

    Clears the kernel cache: functions that were called before show their graphs only when they are instantiated anew.
    """
    # private: the one way to see graphs as Grappler leaves them
    try:
        from tensorflow.python.eager import context
        from tensorflow.python.framework import op_callbacks

        context.context().clear_kernel_cache()
        context.enable_run_metadata()
    except (ImportError, AttributeError):
        yield Probe(why="this version of TensorFlow does not show the graphs of its functions")
        return
    probe = Probe()

    def ran(op_type: str, *_: Any, graph: Any = None, **__: Any) -> None:
        if graph is None and in_step() and not in_python_op():
            probe.eager[op_type, user_line_now()] += 1

    with ExitStack() as stack:
        stack.callback(context.disable_run_metadata)
        stack.callback(op_callbacks.remove_op_callback, ran)
        op_callbacks.add_op_callback(ran)
        probe.calls = stack.enter_context(calls_recorded(lambda: in_step() and not in_python_op()))
        probe.sessions = stack.enter_context(session_runs_recorded(in_step))
        yield probe
        probe.graphs = list(context.export_run_metadata().function_graphs)
        probe.calls.end_step()
        probe.why = None

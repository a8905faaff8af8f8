"""
The probe: one step after all others in which functions, single ops and Session runs are recorded.

Their graphs are then available without running anything (instances.py). Nothing is traced or
compiled again. Recording slows the step down, so it is not timed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from pytest_tfperf.compiler.source_lines import in_python_op, keras_callback_now, user_line_now
from pytest_tfperf.compiler.step_calls import NOT_LOADED, Calls, calls_recorded
from pytest_tfperf.frameworks.tensorflow import loaded_tensorflow
from pytest_tfperf.graphs import reached
from pytest_tfperf.replaced import replaced

__tracebackhide__ = True

NO_PROBE = "no step was run for the graphs (the probe)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRun:
    """One run of a `tf.compat.v1.Session`."""

    graph: Any
    """Graph of the Session."""
    ops: tuple[Any, ...]
    """Ops that the run needed, without those whose results were fed."""
    partitions: tuple[Any, ...]
    """GraphDefs that ran, one for each device."""


@dataclass(slots=True)
class Probe:
    """Python's actions in one step."""

    calls: Calls = field(default_factory=Calls)
    """Functions that it called."""
    eager: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    """Count of ops by type and the user's source line; the type of a function is its name."""
    callbacks: dict[str, str] = field(default_factory=dict)
    """The method of a Keras callback in which such a line is."""
    sessions: Sequence[SessionRun] = ()
    """Runs of Sessions."""
    why: str | None = NO_PROBE
    """Reason why nothing is known."""


def why_not_probed() -> str | None:
    """Return why nothing of a step would be recorded, or None."""
    if loaded_tensorflow() is None:
        return NOT_LOADED
    # private: callbacks for every op and function that Python runs
    try:
        import tensorflow.python.framework.op_callbacks  # noqa: F401
    except ImportError:
        return "this version of TensorFlow does not show what a step runs"
    return None


@contextmanager
def probed(in_step: Callable[[], bool] = lambda: True) -> Iterator[Probe]:
    """
    Record Python's actions while `in_step` returns True; complete when the context has ended.

    It can be recorded where `why_not_probed` returns None.
    """
    from tensorflow.python.framework import op_callbacks

    probe = Probe()

    def ran(op_type: str | bytes, *_: Any, graph: Any = None, **__: Any) -> None:
        if graph is None and in_step() and not in_python_op():
            # The slow path passes bytes, for example for Keras variables.
            name = op_type.decode() if isinstance(op_type, bytes) else op_type
            line = user_line_now()
            probe.eager[name, line] += 1
            if (
                line is not None
                and line not in probe.callbacks
                and (method := keras_callback_now())
            ):
                probe.callbacks[line] = method

    with ExitStack() as stack:
        stack.callback(op_callbacks.remove_op_callback, ran)
        op_callbacks.add_op_callback(ran)
        probe.calls = stack.enter_context(calls_recorded(lambda: in_step() and not in_python_op()))
        probe.sessions = stack.enter_context(session_runs_recorded(in_step))
        yield probe
        probe.calls.end_step()
        probe.why = None


@contextmanager
def session_runs_recorded(in_step: Callable[[], bool]) -> Iterator[list[SessionRun]]:
    """
    Record each run of a Session while `in_step` returns True.

    Runs for which the user asks for metadata are not recorded.
    """
    import tensorflow as tf
    from tensorflow.python.client import session  # private: the base of all kinds of sessions

    runs: list[SessionRun] = []
    original = session.BaseSession.run

    def running(
        self: Any,
        fetches: Any,
        feed_dict: Any = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        if options is not None or run_metadata is not None or not in_step():
            return original(self, fetches, feed_dict, options, run_metadata)
        metadata = tf.compat.v1.RunMetadata()
        with_graphs = tf.compat.v1.RunOptions(output_partition_graphs=True)
        result = original(self, fetches, feed_dict, with_graphs, metadata)
        runs.append(
            SessionRun(
                graph=self.graph,
                ops=_needed(self.graph, fetches, feed_dict),
                partitions=tuple(metadata.partition_graphs),
            )
        )
        return result

    with replaced(session.BaseSession, "run", running):
        yield runs


def _needed(graph: Any, fetches: Any, feed_dict: Any) -> tuple[Any, ...]:
    """Return the ops that a run needs, in the order of the graph."""
    import tensorflow as tf

    fed = {_element(graph, key).ref() for key in tf.nest.flatten(list(feed_dict or ()))}
    fetched = [_element(graph, fetch) for fetch in tf.nest.flatten(fetches)]
    needed = reached(
        [getattr(element, "op", element) for element in fetched],
        lambda op: [
            *(tensor.op for tensor in op.inputs if tensor.ref() not in fed),
            *op.control_inputs,
        ],
    )
    return tuple(op for op in graph.get_operations() if op in needed)


def _element(graph: Any, name: Any) -> Any:
    """Return the op or dense tensor of a fetch or feed; the values of a sparse tensor."""
    return graph.as_graph_element(
        getattr(name, "values", name) if not isinstance(name, str) else name
    )

"""
Record the concrete functions that Python calls in each step, and in the probe all that it runs.

The probe is one step after all others in which functions, single ops and Session runs are recorded.
Their graphs are then available without running anything (`runtime_graphs`). Nothing is traced or
compiled again. Recording slows the step down, so it is not timed.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_tfperf.compiler.compilable_parts import has_segments
from pytest_tfperf.compiler.functions import Function, spec
from pytest_tfperf.compiler.source_lines import in_python_op, keras_callback_now, user_line_now
from pytest_tfperf.frameworks.tensorflow import loaded_tensorflow
from pytest_tfperf.function_traces import Change, FunctionTrace
from pytest_tfperf.graphs import reached
from pytest_tfperf.replaced import replaced

__tracebackhide__ = True
_OTHER_GRAPHS = (
    "{} of {} traced steps call other functions than the step whose graphs were analysed; "
    "graph_ops, graph_reduction and xla_coverage describe that step"
)
NOT_LOADED = "TensorFlow is not loaded, so the steps ran none of its functions"
_OF_THE_STEP = "WorkerClosureProcessingLoop"
"""Threads in which a ClusterCoordinator runs what a step schedules (cluster_coordinator.py)."""
StepCalls = tuple[int, frozenset[tuple[Any, int]]]
"""Number of steps that Python ran at once, and (key, count) of the functions called in them."""
NO_PROBE = "no step was run for the graphs (the probe)"


@dataclass(slots=True)
class Calls:
    """The functions that Python called in each step."""

    n_steps: int = 0
    """Number of steps that have ended."""
    why: str | None = None
    """Reason why the calls are not known."""
    functions: dict[Any, Function] = field(default_factory=dict)
    """Each called function with the shapes of its call, by a key of both."""
    steps: Counter[StepCalls] = field(default_factory=Counter)
    """Number of occurrences of each kind of step."""
    traced: list[FunctionTrace] = field(default_factory=list)
    """Each trace meanwhile, as if in step 0, if they are watched."""
    _of_step: list[tuple[Any, tuple[Any, ...]]] = field(default_factory=list)
    _has_segments: dict[Any, bool] = field(default_factory=dict)

    def add(self, function: Any, tensors: Any, captured: Any) -> None:
        """Add one call; keep its resources, and the specifications of its other tensors."""
        args = (*tensors, *captured)
        key = (id(function), *(tuple(tensor.shape) for tensor in tensors))
        if key not in self.functions:
            self.functions[key] = Function(
                name=function.name.decode(), args=tuple(map(spec, args)), keep=function
            )
        integers = (one if one.dtype.is_integer or one.dtype.is_bool else None for one in args)
        self._of_step.append((key, tuple(integers)))

    def add_elsewhere(self, function: Any) -> None:
        """Add a call of a thread that was there before: its work may be the step's or not."""
        title = Function(name=function.name.decode(), args=(), keep=None).title
        self.why = self.why or f"another thread called {title} while the step ran"

    def add_trace(self, function: str, changes: Sequence[Change]) -> None:
        """Add a trace of a function after changes."""
        self.traced.append(FunctionTrace(function, 0, tuple(changes), user_line_now()))

    def end_step(self, size: int = 1) -> None:
        """Assign the calls since the last step to a step that stands for `size` steps."""
        self._end(size, self._keys())
        self._of_step.clear()

    def abort_step(self) -> None:
        """Discard the calls since the last step."""
        self._of_step.clear()

    def each_is_step(self) -> None:
        """Take each call as a step where no steps were marked, if there is only one function."""
        if len({self.functions[key].title for key, _ in self._of_step}) > 1:
            self.why = "it calls several functions, and which of them is the step is not known"
        for key in self._keys():
            self._end(1, [key])
        self._of_step.clear()

    def typical(self) -> StepCalls:
        """Return the most common kind of step; among equals the one with the largest calls."""
        return max(self.steps, key=lambda step: (self.steps[step], *self._amount(step)))

    def like(self, others: Calls) -> bool:
        """Return whether a step here calls the most common functions of `others`, if any."""
        common = others.by_functions()
        most = max(common.values(), default=0)
        return any(common[functions] == most for functions in self.by_functions())

    def notes(self, others: Calls) -> tuple[str, ...]:
        """Return a note if steps of `others` call something else than these."""
        called, common = self.by_functions(), others.by_functions()
        different = sum(count for functions, count in common.items() if functions not in called)
        if not called or not different:
            return ()
        return (_OTHER_GRAPHS.format(different, common.total()),)

    def by_functions(self) -> Counter[frozenset[tuple[int, int]]]:
        """Count the steps by the functions that they call; a graph has one form for all shapes."""
        found: Counter[frozenset[tuple[int, int]]] = Counter()
        for (_, called), n_steps in self.steps.items():
            calls: Counter[int] = Counter()
            for (function, *_), n in called:
                calls[function] += n
            found[frozenset(calls.items())] += n_steps
        return found

    def _keys(self) -> list[Any]:
        """
        Return the keys of the calls since the last step.

        Calls whose integers decide sizes have keys and functions of their own, with the integers.
        """
        keys = []
        for key, integers in self._of_step:
            function, name = self.functions[key], self.functions[key].name
            if name not in self._has_segments:
                self._has_segments[name] = has_segments(name)
            if self._has_segments[name]:
                key = (*key, len(self.functions))
                self.functions[key] = replace(function, integers=integers)
            keys.append(key)
        return keys

    def _end(self, size: int, keys: list[Any]) -> None:
        self.n_steps += size
        self.steps[size, frozenset(Counter(keys).items())] += 1

    def _amount(self, step: StepCalls) -> tuple[Any, ...]:
        """Return a sort key: number of calls, then elements, steps, and the functions."""
        size, called = step
        functions = sorted(
            (
                self.functions[key].n_elements,
                self.functions[key].title,
                self.functions[key].n_nodes,
                count,
            )
            for key, count in called
        )
        return (
            sum(count for *_, count in functions),
            sum(elements * count for elements, *_, count in functions),
            size,
            functions,
        )


def other_threads() -> frozenset[int | None]:
    """
    Return the threads of Python that live now, apart from this one, by their `ident`.

    Nothing tells whether what they do later is a step's work. Threads that a step starts work for
    it, and so do those of a ClusterCoordinator.
    """
    alive = (one for one in threading.enumerate() if not one.name.startswith(_OF_THE_STEP))
    return frozenset(one.ident for one in alive) - {threading.get_ident()}


@contextmanager
def calls_recorded(in_step: Callable[[], bool] = lambda: True) -> Iterator[Calls]:
    """
    Record, within the context, each call of a concrete function while `in_step` returns True.

    Calls of threads that live already are not known to be the step's, so they make the calls
    unknown. Those of threads that a step starts are its own. The result holds only a reason if
    TensorFlow's private function differs from 2.18 to 2.22.
    """
    if loaded_tensorflow() is None:
        yield Calls(why=NOT_LOADED)
        return
    # private: every call of a tf.function, and of its gradient, passes through here
    try:
        from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

        original = ConcreteFunction._call_flat
    except (ImportError, AttributeError):
        yield Calls(why="this version of TensorFlow does not show which functions a step calls")
        return
    import tensorflow as tf

    calls = Calls()
    others = other_threads()

    def recording(self: Any, tensor_inputs: Any, captured_inputs: Any) -> Any:
        result = original(self, tensor_inputs, captured_inputs)
        if tf.executing_eagerly() and in_step():
            if threading.get_ident() in others:
                calls.add_elsewhere(self)
            else:
                calls.add(self, tensor_inputs, captured_inputs)
        return result

    with replaced(ConcreteFunction, "_call_flat", recording):
        yield calls


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRun:
    """One run of a `tf.compat.v1.Session`."""

    graph: Any
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

"""Record the concrete functions that Python calls in each step."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_tfperf.compiler.compilable_parts import has_segments
from pytest_tfperf.compiler.functions import Function, spec
from pytest_tfperf.compiler.source_lines import user_line_now
from pytest_tfperf.frameworks.tensorflow import loaded_tensorflow
from pytest_tfperf.function_traces import Change, FunctionTrace
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
        """
        Add one call; keep its resources, and the specifications of its other tensors.

        Args:
            function: The concrete function.
            tensors: Its arguments.
            captured: The tensors that it captures.
        """
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

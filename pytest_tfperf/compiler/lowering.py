"""
A step's functions as XLA HLO before any optimisation: their operations with true dtypes and static shapes, on any machine.

While steps run, the concrete functions that Python calls are noted; afterwards each is lowered as it was traced. Nothing is
run, no Python function is traced again, and no variable is read: XLA asks for their shapes only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from pytest_tfperf.compiler.compilable_parts import (
    Cannot,
    Function,
    check_arguments,
    check_arrays,
    in_order,
    is_resource,
    parts_of,
    spec,
)
from pytest_tfperf.compiler.functions import reached_from
from pytest_tfperf.compiler.unused_hlo import without_unused
from pytest_tfperf.text import elide

_CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
_LONGEST_WHY = 300
_LARGE = "the step has {:,} operations, which takes long to lower to HLO; a limit on flops or half_precision (max_flops=) asks for it"
_NO_FUNCTION = "the steps called no tf.function, and XLA lowers nothing else"
_OTHERS = "{} of {} traced steps call other functions or shapes than the most common step; flops and half_precision are those of that one"
_OTHER_GRAPHS = (
    "{} of {} traced steps call other functions or shapes than the step whose graphs were looked at; graph_ops, graph_reduction and "
    "xla_coverage are those of that one"
)
UNASKED_NODES = 1_000
"""Operations in a step that are lowered to HLO within about a second: 0.4 ms each in Keras models, 2 ms in chains of elementwise ops."""

Modules = tuple[tuple[bytes, float], ...]
"""Serialised HloModuleProtos, and how often each runs in a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """The modules of a step, or None and `why` they cannot all be had; `notes` say what they leave out."""

    modules: Modules | None = None
    why: str | None = None
    notes: tuple[str, ...] = ()


StepCalls = tuple[int, frozenset[tuple[Any, int]]]
"""How many steps Python drove at once, and the keys of the functions called in them, each with how often."""


@dataclass(slots=True)
class Calls:
    """The functions that Python called in each step, with the shapes they were called with, or `why` they are not known."""

    n_steps: int = 0
    why: str | None = None
    functions: dict[Any, Function] = field(default_factory=dict)
    steps: Counter[StepCalls] = field(default_factory=Counter)
    _of_step: list[Any] = field(default_factory=list)

    def add(self, function: Any, tensors: Any, captured: Any) -> None:
        """One call. Of its tensors only resources are kept, of the others what they look like."""
        key = (id(function), *(tuple(tensor.shape) for tensor in tensors))
        if key not in self.functions:
            args = (*tensors, *captured)
            self.functions[key] = Function(
                name=function.name.decode(), args=tuple(map(spec, args)), keep=function
            )
        self._of_step.append(key)

    def end_step(self, size: int = 1) -> None:
        """What was called since the last step belongs to one that held so many."""
        self._end(size, self._of_step)
        self._of_step.clear()

    def abort_step(self) -> None:
        """What was called since the last step belongs to none."""
        self._of_step.clear()

    def each_is_step(self) -> None:
        """Nobody marked steps: each call of a function is one, if there is only one function."""
        if len({self.functions[key].title for key in self._of_step}) > 1:
            self.why = "it calls several functions, and which of them is the step is not known"
        for key in self._of_step:
            self._end(1, [key])
        self._of_step.clear()

    def typical(self) -> StepCalls:
        """What most steps call; of equally common ones what calls most, and then what is given most, whichever came first."""
        return max(self.steps, key=lambda step: (self.steps[step], *self._amount(step)))

    def like(self, others: Calls) -> bool:
        """Whether a step of these calls what the typical step of the others does; any does where that is not known."""
        _, typical = others.typical() if others.steps else (0, None)
        return any(typical is None or called == typical for _, called in self.steps)

    def notes(self, others: Calls) -> tuple[str, ...]:
        """That steps of the others call something else than these, if so."""
        called = {functions for _, functions in self.steps}
        different = sum(
            count for (_, functions), count in others.steps.items() if functions not in called
        )
        return (
            (_OTHER_GRAPHS.format(different, others.steps.total()),) if called and different else ()
        )

    def _end(self, size: int, keys: list[Any]) -> None:
        self.n_steps += size
        self.steps[size, frozenset(Counter(keys).items())] += 1

    def _amount(self, step: StepCalls) -> tuple[Any, ...]:
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


@contextmanager
def calls_recorded(in_step: Callable[[], bool] = lambda: True) -> Iterator[Calls]:
    """
    Within the context, note each call of a concrete function from Python while `in_step` says so.

    Where TensorFlow's private function for that is not what it was in 2.16 to 2.21, only the reason is there.
    """
    # private: every call of a tf.function, and of its gradient, passes here
    try:
        from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

        original = ConcreteFunction._call_flat
    except (ImportError, AttributeError):
        yield Calls(why="this version of TensorFlow does not show which functions a step calls")
        return
    import tensorflow as tf

    calls = Calls()

    def recording(self: Any, tensor_inputs: Any, captured_inputs: Any) -> Any:
        result = original(self, tensor_inputs, captured_inputs)
        if tf.executing_eagerly() and in_step():
            calls.add(self, tensor_inputs, captured_inputs)
        return result

    ConcreteFunction._call_flat = recording
    try:
        yield calls
    finally:
        ConcreteFunction._call_flat = original


def lower(
    calls: Calls, workload: Mapping[str, Any], max_seconds: float, max_nodes: int | None = None
) -> Lowered:
    """
    The modules of the typical step: where steps differ in what they call, of those that call what most do.

    The workload's batch is the size that elements have where the input pipeline leaves it open. A function that holds what
    XLA cannot compile is lowered without it where that computes nothing: fetching from an iterator, text, and printing.
    A step whose functions hold more operations than `max_nodes` is not lowered.
    """
    if calls.why or not calls.steps:
        return Lowered(why=calls.why or _NO_FUNCTION)
    typical = calls.typical()
    others, n_traced = calls.steps.total() - calls.steps[typical], calls.steps.total()
    functions = typical_functions(calls)
    if not functions:
        return Lowered(
            why=_NO_FUNCTION
            if not others
            else f"{n_traced - others} of {n_traced} traced steps call no tf.function"
        )
    if (
        max_nodes is not None
        and (
            n_nodes := sum(len(one.node_def) for one in reached_from(f.name for f, _ in functions))
        )
        > max_nodes
    ):
        return Lowered(why=_LARGE.format(n_nodes))
    result = _lower(functions, replica_batch(workload), max_seconds)
    return (
        replace(result, notes=(_OTHERS.format(others, n_traced),))
        if others and result.modules is not None
        else result
    )


def typical_functions(calls: Calls) -> list[tuple[Function, float]]:
    """The functions that the typical step calls, each with how often."""
    size, called = calls.typical()
    counts = dict(called)
    return [
        (function, counts[key] / size) for key, function in calls.functions.items() if key in counts
    ]


def replica_batch(workload: Mapping[str, Any]) -> int | None:
    """The examples in a step of one replica, None where that is not known."""
    return workload.get("batch") and workload["batch"] // workload.get("replicas", 1)


def _lower(
    functions: Iterable[tuple[Function, float]], batch: int | None, max_seconds: float
) -> Lowered:
    """The modules of functions, each with how often it runs in a step."""
    deadline = perf_counter() + max_seconds
    modules: dict[Any, bytes] = {}
    runs: dict[Any, float] = {}
    for function, per_step in functions:
        try:
            check_arrays(function)
            for part, per_call in parts_of(function, batch, 1 / per_step):
                if perf_counter() > deadline:
                    return Lowered(
                        why=f"lowering its functions to HLO takes longer than {max_seconds:g} s (tfperf_max_seconds)"
                    )
                modules[part.key] = modules.get(part.key) or _hlo(part)
                runs[part.key] = runs.get(part.key, 0.0) + per_call * per_step
        except Cannot as error:
            return Lowered(why=str(error))
        except (
            Exception
        ) as error:  # whatever TensorFlow's compiler says must not end the user's test
            return Lowered(why=f"{function.title} cannot be lowered to HLO: {short_message(error)}")
    return Lowered(modules=tuple((module, runs[key]) for key, module in modules.items()))


def _hlo(function: Function) -> bytes:
    """The HloModuleProto that XLA starts from, without what its result does not need, as bytes."""
    from tensorflow.python.eager import context

    runtime = context.context()
    function = in_order(function)
    check_arguments(function)
    specs = [arg for arg in function.args if not is_resource(arg)]
    if function.definition is not None:
        runtime.add_function_def(function.definition)
    try:
        module: bytes = runtime.get_compiler_ir(
            device_name=device_of(function),
            platform_name=None,
            function_name=function.name,
            flat_args=specs,
            captured_inputs=list(function.args[len(specs) :]),
            stage="hlo_serialized",
        )
    finally:
        if function.definition is not None:
            runtime.remove_function(function.name)
    return without_unused(module)


def device_of(function: Function) -> str:
    """Where its variables are; without any the CPU, whose HLO is the same before optimisation."""
    return next((str(arg.device) for arg in function.args if getattr(arg, "device", None)), _CPU)


def short_message(error: Exception) -> str:
    """The first sentences of TensorFlow's message, without where in Python the operations were made."""
    text = " ".join(
        re.split(r"\s*Stack trace", str(error).removeprefix("Failed getting HLO text: '"))[
            0
        ].split()
    )
    return elide(text, _LONGEST_WHY)

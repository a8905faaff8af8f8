"""
A step's functions as XLA HLO before any optimisation: their operations with true dtypes and static shapes, on any machine.

While steps run, the concrete functions that Python calls are noted; afterwards each is lowered as it was traced. Nothing is
run, no Python function is traced again, and no variable is read: XLA asks for their shapes only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from pytest_tfperf.compiler.dead_code import without_dead_code
from pytest_tfperf.compiler.partition import Cannot, Function, check_arguments, in_order, is_resource, parts_of, spec

_CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
_LONGEST_WHY = 300

Modules = tuple[tuple[bytes, float], ...]
"""Serialised HloModuleProtos, and how often each runs in a step."""


@dataclass(slots=True)
class Calls:
    """The functions that Python called in so many steps, each with the shapes it was called with, or `why` they are not known."""

    n_steps: int = 0
    why: str | None = None
    counts: Counter[Any] = field(default_factory=Counter)
    functions: dict[Any, Function] = field(default_factory=dict)
    _of_step: list[Any] = field(default_factory=list)

    def add(self, function: Any, tensors: Any, captured: Any) -> None:
        """One call. Of its tensors only resources are kept, of the others what they look like."""
        key = (id(function), *(tuple(tensor.shape) for tensor in tensors))
        if key not in self.functions:
            args = (*tensors, *captured)
            self.functions[key] = Function(name=function.name.decode(), args=tuple(map(spec, args)), keep=function)
        self._of_step.append(key)

    def end_step(self, size: int = 1) -> None:
        """What was called since the last step belongs to one that held so many."""
        self.n_steps += size
        self.counts.update(self._of_step)
        self._of_step.clear()

    def abort_step(self) -> None:
        """What was called since the last step belongs to none."""
        self._of_step.clear()

    def each_is_step(self) -> None:
        """Nobody marked steps: each call of a function is one, if there is only one function."""
        if len({self.functions[key].title for key in self._of_step}) > 1:
            self.why = "it calls several functions, and which of them is the step is not known"
        self.end_step(len(self._of_step))


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


def lower(calls: Calls, workload: Mapping[str, Any], max_seconds: float) -> tuple[Modules | None, str | None]:
    """
    The modules of a step, or None and the reason why they cannot all be had.

    The workload's batch is the size that elements have where the input pipeline leaves it open. A function that holds what
    XLA cannot compile is lowered without it where that computes nothing: fetching from an iterator, text, and printing.
    """
    if calls.why or not calls.counts:
        return None, calls.why or "the steps called no tf.function, and XLA lowers nothing else"
    batch = workload.get("batch") and workload["batch"] // workload.get("replicas", 1)
    deadline = perf_counter() + max_seconds
    modules: dict[Any, bytes] = {}
    runs: dict[Any, float] = {}
    function = next(iter(calls.functions.values()))
    try:
        for key, count in calls.counts.items():
            function, per_step = calls.functions[key], count / calls.n_steps
            for part, per_call in parts_of(function, batch, 1 / per_step):
                if perf_counter() > deadline:
                    return None, f"lowering its functions to HLO takes longer than {max_seconds:g} s (tfperf_max_seconds)"
                modules[part.key] = modules.get(part.key) or _hlo(part)
                runs[part.key] = runs.get(part.key, 0.0) + per_call * per_step
    except Cannot as error:
        return None, str(error)
    except Exception as error:  # whatever TensorFlow's compiler says must not end the user's test
        return None, f"{function.title} cannot be lowered to HLO: {_short(error)}"
    return tuple((module, runs[key]) for key, module in modules.items()), None


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
            device_name=_device(function),
            platform_name=None,
            function_name=function.name,
            flat_args=specs,
            captured_inputs=list(function.args[len(specs) :]),
            stage="hlo_serialized",
        )
    finally:
        if function.definition is not None:
            runtime.remove_function(function.name)
    return without_dead_code(module)


def _device(function: Function) -> str:
    """Where its variables are; without any the CPU, whose HLO is the same before optimisation."""
    return next((str(arg.device) for arg in function.args if getattr(arg, "device", None)), _CPU)


def _short(error: Exception) -> str:
    """The first sentences of TensorFlow's message, without where in Python the operations were made."""
    text = " ".join(re.split(r"\s*Stack trace", str(error).removeprefix("Failed getting HLO text: '"))[0].split())
    return text if len(text) <= _LONGEST_WHY else text[:_LONGEST_WHY] + "…"

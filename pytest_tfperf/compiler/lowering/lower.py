"""
A step's functions as unoptimised XLA HLO: operations with true dtypes and static shapes.

Each function is lowered as it was traced, on any machine. No Python function is traced again, no
variable is read, since XLA asks for their shapes only, and nothing runs but ops before the ids of
segments.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from pytest_tfperf.compiler.functions import (
    Function,
    Unsupported,
    check_arguments,
    check_arrays,
    in_order,
    is_resource,
)
from pytest_tfperf.compiler.lowering.compilable_parts import parts_of
from pytest_tfperf.compiler.lowering.lowerable import Lowerable, lowerable
from pytest_tfperf.compiler.lowering.replicas import own_cpu
from pytest_tfperf.compiler.lowering.segments import segments_of, with_segments
from pytest_tfperf.compiler.step_calls import Calls, StepCalls
from pytest_tfperf.hlo.decode import decode_module
from pytest_tfperf.hlo.module import HloModule
from pytest_tfperf.hlo.traversal import without_dead_code
from pytest_tfperf.hlo.trip_counts import with_trip_counts
from pytest_tfperf.recording import Modules, StepKinds
from pytest_tfperf.text import elide
from pytest_tfperf.values import Unknown

_LONGEST_WHY = 300
_NO_FUNCTION = "the steps called no tf.function, and XLA lowers nothing else"
_OTHERS = (
    "{} of {} traced steps call other functions or shapes than the most common step; "
    "half_precision describes that step"
)
_OPEN_LOOP = (
    "the step has the gradient of a loop, and the program does not say how often its loops run: "
    "loops within loops, or bounds that are not constants"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """The HLO modules of a step."""

    modules: Modules
    """The modules, and how often each runs in a step."""
    kinds: StepKinds | Unknown = ()
    """If steps differ, the modules of each kind of step, and the number of such steps."""
    notes: tuple[str, ...] = ()
    """Notes on what the modules leave out."""


def lower(calls: Calls, workload: Mapping[str, Any], max_seconds: float) -> Lowered | Unknown:
    """
    Lower the typical step, the most common of those that call different functions, and the others.

    A function that XLA cannot compile is lowered without the operations in the way, where these
    compute nothing: fetching from an iterator, handling text, and printing. An operation takes 0.4
    to 3 ms, once or twice as long as tracing it took. The time limit ends it between functions.

    Args:
        calls: Functions called in the steps.
        workload: Its batch size stands in where the input pipeline leaves it open.
        max_seconds: Time limit.
    """
    if calls.why or not calls.steps:
        return Unknown(calls.why or _NO_FUNCTION)
    lowering = _Lowering(replica_batch(workload), max_seconds)
    calls = lowering.by_segments(calls)
    typical, n_traced = calls.typical(), calls.steps.total()
    n_others = n_traced - calls.steps[typical]
    others = [kind for kind in calls.steps if kind != typical]
    functions = {kind: _functions_of(calls, kind) for kind in (typical, *others)}
    if not functions[typical] and n_others:
        return Unknown(f"{n_traced - n_others} of {n_traced} traced steps call no tf.function")
    if not functions[typical]:
        return Unknown(_NO_FUNCTION)
    modules = lowering.modules_of(functions[typical])
    if isinstance(modules, Unknown) or not others:
        return modules if isinstance(modules, Unknown) else Lowered(modules=modules)
    kinds = [(modules, typical[0] * calls.steps[typical])]
    for kind in others:
        found = lowering.modules_of(functions[kind])
        if isinstance(found, Unknown):
            why = f"{n_others} of {n_traced} traced steps call other functions: {found.why}"
            return Lowered(modules=modules, kinds=Unknown(why))
        kinds.append((found, kind[0] * calls.steps[kind]))
    notes = (_OTHERS.format(n_others, n_traced),)
    return Lowered(modules=modules, kinds=tuple(kinds), notes=notes)


def typical_functions(calls: Calls) -> list[tuple[Function, float]]:
    """Return the functions that the typical step calls, and the calls of each per step."""
    return _functions_of(calls, calls.typical())


def _functions_of(calls: Calls, kind: StepCalls) -> list[tuple[Function, float]]:
    size, called = kind
    counts = dict(called)
    return [
        (function, counts[key] / size) for key, function in calls.functions.items() if key in counts
    ]


def replica_batch(workload: Mapping[str, Any]) -> int | None:
    """Return the number of examples in a step of one replica, None if unknown."""
    return workload.get("batch") and workload["batch"] // workload.get("replicas", 1)


class _Lowering:
    """Lowers the functions of steps, each function once, until a time limit."""

    def __init__(self, batch: int | None, max_seconds: float) -> None:
        self._batch, self._max_seconds = batch, max_seconds
        self._deadline = perf_counter() + max_seconds
        self._modules: dict[Any, HloModule] = {}

    def by_segments(self, calls: Calls) -> Calls:
        """Return calls of one kind for each number of segments, where these are known."""
        functions: dict[Any, Function] = {}
        keys = {}
        for key, function in calls.functions.items():
            keys[key] = key
            if function.integers:
                found = segments_of(function) if perf_counter() < self._deadline else None
                keys[key], function = (*key[:-1], found), replace(function, segments=found)
            functions.setdefault(keys[key], function)
        steps: Counter[StepCalls] = Counter()
        for (size, called), n_steps in calls.steps.items():
            merged: Counter[Any] = Counter()
            for key, n in called:
                merged[keys[key]] += n
            steps[size, frozenset(merged.items())] += n_steps
        return replace(calls, functions=functions, steps=steps)

    def modules_of(self, functions: Iterable[tuple[Function, float]]) -> Modules | Unknown:
        """Lower the functions of one kind of step, each with how often it runs in one."""
        runs: dict[Any, float] = {}
        for function, per_step in functions:
            try:
                check_arrays(function)
                sized = with_segments(function)
                for part, per_call in parts_of(sized, self._batch, 1 / per_step):
                    if perf_counter() > self._deadline:
                        return Unknown(
                            "lowering its functions to HLO takes longer than "
                            f"{self._max_seconds:g} s (tfperf_max_seconds)"
                        )
                    if part.key not in self._modules:
                        self._modules[part.key] = _hlo(part)
                    runs[part.key] = runs.get(part.key, 0.0) + per_call * per_step
            except Unsupported as error:
                return Unknown(str(error))
            except Exception as error:  # an error of TensorFlow's compiler must not end the test
                return Unknown(f"{function.title} cannot be lowered to HLO: {short_message(error)}")
        return tuple((self._modules[key], n) for key, n in runs.items())


def _hlo(function: Function) -> HloModule:
    """Return the module that XLA starts from, without unused instructions."""
    function = in_order(function)
    check_arguments(function)
    shown = lowerable(function)
    module = _compiler_ir(shown)
    if not shown.is_sized:
        return module
    return _compiler_ir(lowerable(function, _most_iterations(module)))


def _compiler_ir(shown: Lowerable) -> HloModule:
    """
    Return the module of a function, which stays unknown to the runtime.

    TensorFlow's tapes add gradients of the input, for example. Its runtime prunes them, and XLA's
    input still has them.
    """
    from tensorflow.python.eager import context

    runtime, function = context.context(), shown.function
    specs = [arg for arg in function.args if not is_resource(arg)]
    own = [one for one in (function.definition, *shown.callees) if one is not None]
    for definition in own:
        runtime.add_function_def(definition)
    try:
        raw: bytes = runtime.get_compiler_ir(
            device_name=device_of(function),
            platform_name=None,
            function_name=function.name,
            flat_args=specs,
            captured_inputs=list(function.args[len(specs) :]),
            stage="hlo_serialized",
        )
    finally:
        for definition in own:
            runtime.remove_function(definition.signature.name)
    return without_dead_code(decode_module(raw, function.title))


def _most_iterations(module: HloModule) -> int:
    """
    Return the largest number of iterations of the loops in a module: the size of their lists.

    Raises:
        Unsupported: If a loop runs an unknown number of times.
    """
    computations = with_trip_counts(module).computations.values()
    counts = [
        op.trip_count
        for one in computations
        for op in one.instructions.values()
        if op.opcode == "while"
    ]
    known = [count for count in counts if count is not None]
    if not known or len(known) < len(counts):
        raise Unsupported(_OPEN_LOOP)
    return max(known)


def device_of(function: Function) -> str:
    """Return the device of its variables, or else the CPU: unoptimised HLO is the same on all."""
    devices = (str(arg.device) for arg in function.args if getattr(arg, "device", None))
    return next(devices, None) or own_cpu()


def short_message(error: Exception) -> str:
    """Return the first sentences of TensorFlow's message, without Python's stack traces."""
    message = str(error).removeprefix("Failed getting HLO text: '")
    text = " ".join(re.split(r"\s*Stack trace", message)[0].split())
    return elide(text, _LONGEST_WHY)

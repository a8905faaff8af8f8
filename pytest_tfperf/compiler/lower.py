"""
A step's functions as unoptimised XLA HLO: operations with true dtypes and static shapes.

Each function is lowered as it was traced, on any machine. No Python function is traced again, no
variable is read, since XLA asks for their shapes only, and nothing runs but ops before the ids of
segments.

Outside of XLA, TensorFlow makes gradients of loops that XLA refuses (while_v2.py and list_ops.py
in tensorflow/python/ops). Lists of intermediate values have no size. The gradient of a list has
the size that the forward loop pushed to such a list. Both are changed in copies of FunctionDefs.

XLA lowers a function for one device of this process. So variables of other devices, and those of
parameter servers, get stand-ins on the CPU, which have their shapes and no values. Reductions
between replicas hand on their input.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from pytest_tfperf.compiler.compilable_parts import parts_of, segments_of, with_segments
from pytest_tfperf.compiler.functions import (
    Function,
    Unsupported,
    called_by,
    check_arguments,
    check_arrays,
    copied,
    in_order,
    is_resource,
    reached_from,
    redirect,
)
from pytest_tfperf.compiler.step_calls import Calls, StepCalls
from pytest_tfperf.hlo.decode import decode_module
from pytest_tfperf.hlo.module import HloModule
from pytest_tfperf.hlo.trip_counts import with_trip_counts
from pytest_tfperf.hlo.walk import without_dead_code
from pytest_tfperf.recording import Modules, StepKinds
from pytest_tfperf.text import elide
from pytest_tfperf.values import Unknown

_INTERMEDIATES = re.compile(r"/accumulator(_\d+)?\Z")  # while_v2._build_accumulator_name
_ANY_SIZE = -1
_REDUCTION = "CollectiveReduceV2"  # one input of data, one result (collective_ops.cc)
_SUFFIX = "_lowerable"
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


def size_lists(definition: Any, size: int) -> int:
    """Give lists of intermediate values a size where they have none; return their number."""
    from tensorflow.python.framework import tensor_util

    nodes = {node.name: node for node in definition.node_def}
    n_sized = 0
    for node in list(definition.node_def):
        if node.op != "EmptyTensorList" or not _INTERMEDIATES.search(node.name):
            continue
        given = _source(nodes, node.input[1])
        if given is None or given.op != "Const":
            continue
        if tensor_util.MakeNdarray(given.attr["value"].tensor) == _ANY_SIZE:
            own = definition.node_def.add()
            own.CopyFrom(given)
            own.name = f"{node.name}/size"
            own.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(size, "int32"))
            node.input[1] = f"{own.name}:output:0"
            n_sized += 1
    return n_sized


def set_items(definition: Any) -> int:
    """
    Let gradients of single items be set in the list that they are added to; return their number.

    TensorFlow adds a list with one item, which needs a size. Its runtime adds nothing to items
    that were never set, so the arithmetic is the same.
    """
    nodes = {node.name: node for node in definition.node_def}
    unused = set()
    for node in definition.node_def:
        if node.op != "AddN":
            continue
        added = [ref for ref in node.input if not ref.startswith("^")]
        items = {ref: made for ref in added if (made := _single_item(nodes, ref))}
        others = [ref for ref in added if ref not in items]
        if not items or len(others) != 1:
            continue
        whole = others[0]
        for ref, (setter, empty) in items.items():
            setter.input[0], whole = whole, ref
            unused.add(empty.name)
        controls = [ref for ref in node.input if ref.startswith("^")]
        del node.input[:]
        node.input.extend([whole, *controls])
        node.attr["N"].i = 1
    kept = [node for node in definition.node_def if node.name not in unused]
    del definition.node_def[:]
    definition.node_def.extend(kept)
    return len(unused)


def _single_item(nodes: Mapping[str, Any], ref: str) -> tuple[Any, Any] | None:
    """Return the nodes that set one item, and made its list with a size that was pushed."""
    setter = _source(nodes, ref)
    if setter is None or setter.op != "TensorListSetItem":
        return None
    empty = _source(nodes, setter.input[0])
    if empty is None or empty.op != "TensorListReserve":
        return None
    size = _source(nodes, empty.input[1])
    return (setter, empty) if size is not None and size.op == "TensorListPopBack" else None


def _source(nodes: Mapping[str, Any], ref: str) -> Any:
    """Return the node that makes a tensor, None for an argument of the function."""
    return nodes.get(ref.partition(":")[0])


def on_one_device(function: Function) -> Function:
    """
    Return the function with stand-ins for its variables, if these lie on several devices or in
    another process.
    """
    devices = {str(arg.device) for arg in function.args if is_resource(arg)}
    own_task, _, _ = own_cpu().partition("/device:")
    if len(devices) < 2 and all(device.startswith(f"{own_task}/") for device in devices):
        return function
    return replace(
        function, args=tuple(_stand_in(arg) if is_resource(arg) else arg for arg in function.args)
    )


def own_cpu() -> str:
    """Return the full name of the first CPU of this process, which may be a task of a cluster."""
    import tensorflow as tf

    with tf.device("CPU:0"):
        return str(tf.constant(0).device)


def without_reductions(definition: Any) -> int:
    """Let reductions between replicas hand on their input; return their number."""
    reductions = {node.name for node in definition.node_def if node.op == _REDUCTION}
    if not reductions:
        return 0

    def renamed(ref: str) -> str:
        name, _, output = ref.partition(":")
        return f"{name}:output:0" if name in reductions and output == "data:0" else ref

    for node in definition.node_def:
        inputs = [renamed(ref) for ref in node.input]
        if node.name in reductions:
            node.op, inputs = "Identity", inputs[:1]
            for attribute in set(node.attr) - {"T"}:
                node.attr.pop(attribute)
        del node.input[:]
        node.input.extend(inputs)
    for result, ref in definition.ret.items():
        definition.ret[result] = renamed(ref)
    return len(reductions)


def _stand_in(variable: Any) -> Any:
    """Return the handle of a new variable without a value on the CPU, in memory never touched."""
    import tensorflow as tf
    from tensorflow.python.eager import context
    from tensorflow.python.ops import gen_resource_variable_ops

    # private: the only place where a handle keeps the type of its variable
    dtype = tf.as_dtype(variable._handle_data.shape_and_type[0].dtype)
    shape = gen_resource_variable_ops.variable_shape(variable)
    with tf.device("CPU:0"):
        handle = tf.raw_ops.VarHandleOp(
            dtype=dtype, shape=shape.numpy().tolist(), shared_name=context.anonymous_name()
        )
        value = tf.raw_ops.Empty(shape=shape, dtype=dtype, init=False)
        tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    return handle


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowerable:
    """A function that XLA can lower."""

    function: Function
    """The function itself, or a copy."""
    callees: tuple[Any, ...] = ()
    """FunctionDefs of its callees that the runtime does not know yet."""
    is_sized: bool = False
    """Whether lists of intermediate values were given a size."""


def lowerable(function: Function, size: int = 1) -> Lowerable:
    """
    Return a function that XLA can lower, a copy if it has gradients of loops or several replicas.

    `size` is of lists of a loop that have none; XLA drops further values.
    """
    function, top = on_one_device(function), function.load_definition()
    callees = reached_from(name for node in top.node_def for name in called_by(node))
    top, *callees = (copied(one, _SUFFIX) for one in (top, *callees))
    n_sized = sum(size_lists(one, size) for one in (top, *callees))
    if not n_sized + sum(set_items(one) + without_reductions(one) for one in (top, *callees)):
        return Lowerable(function=function)
    for definition in (top, *callees):
        for node in definition.node_def:
            for name in called_by(node):
                redirect(node, name, name + _SUFFIX)
    copy = replace(function, name=top.signature.name, definition=top)
    return Lowerable(function=copy, callees=tuple(callees), is_sized=bool(n_sized))


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
    to 3 ms, once or twice as long as tracing it took. The time limit ends it between functions. The
    batch size of the workload stands in where the input pipeline leaves it open.
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
    """Return the largest number of iterations of the loops in a module: the size of their lists."""
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

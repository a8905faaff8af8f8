"""
The variables that a step reads and writes, eagerly and in the functions that it calls.

A callback sees the resources passed to each op and function that Python runs. The definition of a
function shows their use, in all branches, whether or not they ran. A variable is identified by its
handle.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations, permutations
from typing import Any

from pytest_tfperf.compiler.functions import called_by, definition_of
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.nests import loaded_tensorflow
from pytest_tfperf.op_types import BRANCHES, FUNCTION_CALLS, LOOPS, PASS_THROUGH
from pytest_tfperf.text import and_more

_READS = {
    "ReadVariableOp",
    "_ReadVariablesOp",
    "ResourceGather",
    "ResourceGatherNd",
    "VariableShape",
    "VarIsInitializedOp",
    "DisableCopyOnRead",
}
"""Stateful ops that do not change a variable (tensorflow/core/ops/resource_variable_ops.cc)."""
_BEFORE_ARGUMENTS = dict.fromkeys(FUNCTION_CALLS | LOOPS, 0) | dict.fromkeys(BRANCHES, 1)
"""Number of inputs before the function's arguments, by type of the call."""
_FEW = 3
_OWN = (
    "each needs a model of its own: build it twice from the same seed, or use "
    "keras.models.clone_model"
)


@dataclass(slots=True)
class Use:
    """The resources that a step used."""

    read: dict[int, Any] = field(default_factory=dict)
    """Handles of the resources read, by `id`."""
    written: dict[int, Any] = field(default_factory=dict)
    """Handles of the resources written, by `id`."""
    why: str | None = None
    """Reason why they are not known."""


@dataclass(frozen=True, slots=True)
class _Arguments:
    """Positions of a function's arguments that are resources."""

    read: frozenset[int] = frozenset()
    """Positions of those that it reads."""
    written: frozenset[int] = frozenset()
    """Positions of those that it writes."""

    def __or__(self, other: _Arguments) -> _Arguments:
        return _Arguments(self.read | other.read, self.written | other.written)


@contextmanager
def use_recorded() -> Iterator[Use]:
    """
    Record within the context the resources passed to this thread's ops and functions.

    The result holds only a reason if TensorFlow's private callbacks differ from 2.18 to 2.22.
    """
    if loaded_tensorflow() is None:  # so there are no variables of it
        yield Use()
        return
    # private: the only place that sees both eager ops and calls of functions, with their arguments
    try:
        from tensorflow.python.framework.op_callbacks import add_op_callback, remove_op_callback
    except ImportError:
        yield Use(why="this version of TensorFlow does not show which variables a step uses")
        return
    use, known = Use(), dict[str, _Arguments]()

    def record(op_type: Any, inputs: Sequence[Any], *_: Any, graph: Any = None, **__: Any) -> None:
        if graph is None:
            name = op_type.decode() if isinstance(op_type, bytes) else op_type
            arguments = _of_executed(name, len(inputs), known)
            use.read.update(_resources(inputs, arguments.read))
            use.written.update(_resources(inputs, arguments.written))

    add_op_callback(record)
    try:
        yield use
    finally:
        remove_op_callback(record)


def _resources(inputs: Sequence[Any], positions: Iterable[int]) -> dict[int, Any]:
    tensors = [inputs[position] for position in positions]
    return {id(tensor): tensor for tensor in tensors if _is_resource(tensor)}


def refuse_shared(uses: Mapping[str, Use]) -> None:
    """
    Refuse named steps that share a variable which one of them writes.

    Raises:
        CaptureError: If a variable that one step writes is written or read by another.
    """
    for (first, its), (second, others) in combinations(uses.items(), 2):
        both = _names(handle for key, handle in its.written.items() if key in others.written)
        if both:
            raise CaptureError(f"variants {first!r} and {second!r} both train {both}; {_OWN}")
    for (first, its), (second, others) in permutations(uses.items(), 2):
        mixed = _names(handle for key, handle in its.written.items() if key in others.read)
        if mixed:
            raise CaptureError(
                f"variant {first!r} trains {mixed}, which {second!r} reads, so the results of "
                f"{second!r} depend on the order of the turns; {_OWN}"
            )


def _of_executed(name: str, n_inputs: int, known: dict[str, _Arguments]) -> _Arguments:
    """Return the inputs that an op or function run by Python uses."""
    from tensorflow.python.eager import context

    if context.context().has_function(name):
        return _of_function(name, known)
    return _of_op(name, range(n_inputs))


def _of_function(name: str, known: dict[str, _Arguments]) -> _Arguments:
    if name not in known:
        definition = definition_of(name)
        arguments, origins = _Arguments(), _Origins(definition)
        for node in definition.node_def:
            inputs = [origins.of(ref) for ref in node.input if not ref.startswith("^")]
            if any(inputs):
                arguments |= _of_node(node, inputs, known)
        known[name] = arguments
    return known[name]


def _of_node(
    node: Any, inputs: Sequence[frozenset[int]], known: dict[str, _Arguments]
) -> _Arguments:
    """Return the arguments of its function that a node uses, given those behind each input."""
    if node.op not in _BEFORE_ARGUMENTS:
        return _of_op(node.op, frozenset().union(*inputs))
    passed = inputs[_BEFORE_ARGUMENTS[node.op] :]
    arguments = _Arguments()
    for name in called_by(node):
        inner = _of_function(name, known)
        arguments |= _Arguments(
            read=frozenset().union(*(passed[index] for index in inner.read)),
            written=frozenset().union(*(passed[index] for index in inner.written)),
        )
    return arguments


def _of_op(op_type: str, resources: Iterable[int]) -> _Arguments:
    """Return the use by an op: a stateful op that is not a known reader may write its inputs."""
    from tensorflow.python.framework import op_def_registry

    if op_type in PASS_THROUGH:
        return _Arguments()
    definition = op_def_registry.get(op_type)
    if op_type not in _READS and definition is not None and definition.is_stateful:
        return _Arguments(written=frozenset(resources))
    return _Arguments(read=frozenset(resources))


class _Origins:
    """Origins of the resources in a function: positions of its arguments."""

    def __init__(self, definition: Any) -> None:
        from tensorflow.core.framework.types_pb2 import DT_RESOURCE

        args = definition.signature.input_arg
        self._nodes = {node.name: node for node in definition.node_def}
        self._found = {
            arg.name: frozenset([index])
            for index, arg in enumerate(args)
            if arg.type == DT_RESOURCE
        }

    def of(self, ref: str) -> frozenset[int]:
        """Return the arguments that a node's input may be, through nodes that only hand it on."""
        if ref not in self._found:
            self._found[ref] = frozenset()  # ends the search in a loop
            name, _, output = ref.partition(":")
            self._found[ref] = frozenset().union(*map(self.of, self._handed_on(name, output)))
        return self._found[ref]

    def _handed_on(self, name: str, output: str) -> list[str]:
        node = self._nodes.get(name)
        if node is None:
            return []
        inputs = [ref for ref in node.input if not ref.startswith("^")]
        if node.op in ("While", "StatelessWhile", "IdentityN"):
            return [inputs[int(output.rpartition(":")[2])]]
        return inputs if node.op in PASS_THROUGH else []


def _is_resource(tensor: Any) -> bool:
    return bool(getattr(getattr(tensor, "dtype", None), "name", None) == "resource")


def _names(handles: Iterable[Any]) -> str:
    """
    Return the names of the first variables among the handles, and the number of others.

    Trained variables come first. The result is empty if no handle belongs to a variable.
    """
    candidates = list(handles)
    if not candidates:
        return ""
    from tensorflow.python.ops import gen_resource_variable_ops
    from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable, _UnreadVariable

    held = {
        id(handle)
        for handle in candidates
        if gen_resource_variable_ops.var_is_initialized_op(handle)
    }
    if not held:
        return ""
    variables = [
        thing
        for thing in gc.get_objects()
        if issubclass(type(thing), BaseResourceVariable)
        and type(thing) is not _UnreadVariable
        and id(getattr(thing, "_handle", None)) in held
    ]
    ordered = sorted((not one.trainable, one.name.partition(":")[0]) for one in variables)
    names = list(dict.fromkeys(name for _, name in ordered)) or [f"{len(held)} variables"]
    return and_more(names, _FEW)

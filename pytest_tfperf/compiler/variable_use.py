"""
Which variables a step reads and which it writes: eagerly, and in the functions that it calls.

Each op and function that Python runs is seen with the resources it is given; what a function does with those stands in its
definition, in all its branches, whether or not they ran. A variable is known by its handle.
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
"""Stateful operations that leave a variable as it is (tensorflow/core/ops/resource_variable_ops.cc)."""
_BEFORE_ARGUMENTS = dict.fromkeys(FUNCTION_CALLS | LOOPS, 0) | dict.fromkeys(BRANCHES, 1)
"""The number of inputs before the function's arguments, by type of the call."""
_FEW = 3


@dataclass(slots=True)
class Use:
    """The handles of the resources that a step read and wrote, by `id`; `why` they are not known, if so."""

    read: dict[int, Any] = field(default_factory=dict)
    written: dict[int, Any] = field(default_factory=dict)
    why: str | None = None


@dataclass(frozen=True, slots=True)
class _Arguments:
    """Positions of a function's arguments that are resources it reads, and that it writes."""

    read: frozenset[int] = frozenset()
    written: frozenset[int] = frozenset()

    def __or__(self, other: _Arguments) -> _Arguments:
        return _Arguments(self.read | other.read, self.written | other.written)


@contextmanager
def use_recorded() -> Iterator[Use]:
    """
    Within the context, note the resources that this thread's ops and functions are given.

    Where TensorFlow's private callbacks for that are not what they were in 2.16 to 2.21, only the reason is there.
    """
    # private: the one place that sees eager ops and calls of functions alike, with what they are given
    try:
        from tensorflow.python.framework.op_callbacks import add_op_callback, remove_op_callback
    except ImportError:
        yield Use(why="this version of TensorFlow does not show which variables a step uses")
        return
    use, known = Use(), dict[str, _Arguments]()

    def note(op_type: Any, inputs: Sequence[Any], *_: Any, graph: Any = None, **__: Any) -> None:
        if graph is None:
            name = op_type.decode() if isinstance(op_type, bytes) else op_type
            arguments = _of_executed(name, len(inputs), known)
            use.read.update(
                {
                    id(inputs[index]): inputs[index]
                    for index in arguments.read
                    if _is_resource(inputs[index])
                }
            )
            use.written.update(
                {
                    id(inputs[index]): inputs[index]
                    for index in arguments.written
                    if _is_resource(inputs[index])
                }
            )

    add_op_callback(note)
    try:
        yield use
    finally:
        remove_op_callback(note)


def refuse_shared(uses: Mapping[str, Use]) -> None:
    """
    Raises:
        CaptureError: If a variable that one of these named steps writes is written or read by another.
    """
    for (one, its), (other, others) in combinations(uses.items(), 2):
        both = _names(handle for key, handle in its.written.items() if key in others.written)
        if both:
            raise CaptureError(f"variants {one!r} and {other!r} both train {both}; {_OWN}")
    for (one, its), (other, others) in permutations(uses.items(), 2):
        mixed = _names(handle for key, handle in its.written.items() if key in others.read)
        if mixed:
            depends = f"what {other!r} gives depends on whose turn it was before"
            raise CaptureError(
                f"variant {one!r} trains {mixed}, which {other!r} reads, so {depends}; {_OWN}"
            )


_OWN = "each needs a model of its own: build it twice from the same seed, or use keras.models.clone_model"


def _of_executed(name: str, n_inputs: int, known: dict[str, _Arguments]) -> _Arguments:
    """What an op or function that Python ran does with its inputs."""
    from tensorflow.python.eager import context

    return (
        _of_function(name, known)
        if context.context().has_function(name)
        else _of_op(name, range(n_inputs))
    )


def _of_function(name: str, known: dict[str, _Arguments]) -> _Arguments:
    if name not in known:
        definition = definition_of(name)
        found, origins = _Arguments(), _Origins(definition)
        for node in definition.node_def:
            inputs = [origins.of(ref) for ref in node.input if not ref.startswith("^")]
            if any(inputs):
                found |= _of_node(node, inputs, known)
        known[name] = found
    return known[name]


def _of_node(
    node: Any, inputs: Sequence[frozenset[int]], known: dict[str, _Arguments]
) -> _Arguments:
    """What a node does with the resources among the arguments of the function that it is in."""
    if node.op not in _BEFORE_ARGUMENTS:
        return _of_op(node.op, frozenset().union(*inputs))
    given = inputs[_BEFORE_ARGUMENTS[node.op] :]
    found = _Arguments()
    for name in called_by(node):
        inner = _of_function(name, known)
        read, written = (
            frozenset().union(*(given[index] for index in of)) for of in (inner.read, inner.written)
        )
        found |= _Arguments(read, written)
    return found


def _of_op(op_type: str, resources: Iterable[int]) -> _Arguments:
    """An operation that has a state and is no known reader may write what it is given."""
    from tensorflow.python.framework import op_def_registry

    if op_type in PASS_THROUGH:
        return _Arguments()
    definition = op_def_registry.get(op_type)
    writes = op_type not in _READS and definition is not None and definition.is_stateful
    return (
        _Arguments(written=frozenset(resources))
        if writes
        else _Arguments(read=frozenset(resources))
    )


class _Origins:
    """Which arguments of a function, by position, the resources in it may be."""

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
        """Those that a node's input comes from, through what only hands it on."""
        if ref not in self._found:
            self._found[ref] = frozenset()  # what a loop hands back to itself
            name, _, output = ref.partition(":")
            self._found[ref] = frozenset().union(*map(self.of, self._handed_on(name, output)))
        return self._found[ref]

    def _handed_on(self, name: str, output: str) -> list[str]:
        node = self._nodes.get(name)
        inputs = [] if node is None else [ref for ref in node.input if not ref.startswith("^")]
        if node is not None and node.op in ("While", "StatelessWhile", "IdentityN"):
            return [inputs[int(output.rpartition(":")[2])]]
        return inputs if node is not None and node.op in PASS_THROUGH else []


def _is_resource(tensor: Any) -> bool:
    return bool(getattr(getattr(tensor, "dtype", None), "name", None) == "resource")


def _names(handles: Iterable[Any]) -> str:
    """The variables among the handles: the first few names, trained ones before others, and how many more; empty if there is none."""
    from tensorflow.python.ops import gen_resource_variable_ops
    from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable, _UnreadVariable

    held = {
        id(handle) for handle in handles if gen_resource_variable_ops.var_is_initialized_op(handle)
    }
    if not held:
        return ""
    alive = [
        one
        for one in gc.get_objects()
        if issubclass(type(one), BaseResourceVariable) and type(one) is not _UnreadVariable
    ]
    found = [one for one in alive if id(getattr(one, "_handle", None)) in held]
    ordered = sorted((not one.trainable, one.name.partition(":")[0]) for one in found)
    names = list(dict.fromkeys(name for _, name in ordered)) or [f"{len(held)} variables"]
    return and_more(names, _FEW)

"""Copies of functions that XLA can lower where it refuses the functions themselves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pytest_tfperf.compiler.functions import (
    Function,
    called_by,
    copied,
    reached_from,
    redirect,
)
from pytest_tfperf.compiler.lowering.loop_gradients import set_items, size_lists
from pytest_tfperf.compiler.lowering.replicas import on_one_device, without_reductions

_SUFFIX = "_lowerable"


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

    Args:
        function: The function.
        size: Number of values in a list of a loop that has no size; XLA drops further ones.
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

"""
Gradients of loops in a form that XLA can lower.

Outside of XLA, TensorFlow makes gradients of loops that XLA refuses (while_v2.py and list_ops.py
in tensorflow/python/ops). Lists of intermediate values have no size. The gradient of a list has
the size that the forward loop pushed to such a list. Both are changed in copies of FunctionDefs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_INTERMEDIATES = re.compile(r"/accumulator(_\d+)?\Z")  # while_v2._build_accumulator_name
_ANY_SIZE = -1


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

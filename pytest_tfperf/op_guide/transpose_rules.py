"""The rule about transposes: those that move data and that no neighbouring product absorbs."""

from __future__ import annotations

from pytest_tfperf.op_guide.graph import (
    CONVOLUTION_GRADIENTS,
    CONVOLUTIONS,
    EINSUMS,
    Found,
    Links,
    all_users,
    shown,
)
from pytest_tfperf.op_types import MATMULS
from pytest_tfperf.recorded_graphs import Dims, OpNode


def transposes(links: Links) -> Found:
    """Yield transposes that move data and that no neighbour absorbs."""
    for index, op in links.typed({"Transpose", "ConjugateTranspose"}):
        if moves(links, index) and not is_free(links, index):
            perm = ",".join(map(str, _perm(links, index) or ()))
            yield index, f"{shown(op, links.shape(index))} by ({perm})"


def _perm(links: Links, index: int) -> tuple[int, ...] | None:
    """Return the order of a transpose; that of a gradient is given as its inverse."""
    source = links.source(index, 1)
    inverse = source is not None and links.graph.ops[source].op_type == "InvertPermutation"
    order = links.value(source, 0) if inverse and source is not None else links.value(index, 1)
    perm = (
        tuple(axis for axis in order if isinstance(axis, int)) if isinstance(order, tuple) else ()
    )
    if sorted(perm) != list(range(len(perm))) or not perm:
        return None
    return tuple(map(perm.index, range(len(perm)))) if inverse else perm


def moves(links: Links, index: int) -> bool:
    """Return whether a transpose reorders dimensions that are known to be longer than one."""
    shape, perm = links.shape(index), _perm(links, index)
    if shape is None or perm is None or len(shape) != len(perm):
        return False
    order = [axis for axis in perm if shape[axis] not in (0, 1, None)]
    return order != sorted(order) and 0 not in shape


def is_free(links: Links, index: int) -> bool:
    """Return whether the producer or all consumers read or write in the transposed order."""
    shape, perm = links.shape(index), _perm(links, index)
    assert shape is not None
    assert perm is not None
    kinds = _kinds(shape, perm)

    def reads(user: int, position: int) -> bool:
        op = links.graph.ops[user]
        if op.op_type in EINSUMS:
            return True
        if op.op_type in MATMULS:
            return "matrix" in kinds
        if op.op_type in CONVOLUTIONS:
            return ("kernel" if position else _batch_feature(op)) in kinds
        return False

    source = links.origin(index)
    if source is not None:
        op = links.graph.ops[source]
        if op.op_type in EINSUMS or (op.op_type in MATMULS and "matrix" in kinds):
            return True
        if op.op_type in CONVOLUTIONS | CONVOLUTION_GRADIENTS:
            kind = "kernel" if "Filter" in op.op_type else _batch_feature(op)
            if kind in kinds:
                return True
    return all_users(links, index, reads)


def _batch_feature(op: OpNode) -> str:
    return (
        "first and second"
        if op.attrs.get("data_format", "NHWC").startswith("NC")
        else "first and last"
    )


def _kinds(shape: Dims, perm: tuple[int, ...]) -> set[str]:
    """Return the exchanges of two dimensions that a transpose is, ignoring those of length one."""
    rank = len(perm)
    swaps = {
        "matrix": (rank - 2, rank - 1),
        "kernel": (rank - 2, rank - 1),
        "first and last": (0, rank - 1),
        "first and second": (0, 1),
    }
    order = [axis for axis in perm if shape[axis] != 1]
    return {
        kind
        for kind, ends in swaps.items()
        if rank >= 2 and order == [axis for axis in _swapped(rank, *ends) if shape[axis] != 1]
    }


def _swapped(rank: int, first: int, second: int) -> list[int]:
    axes = list(range(rank))
    axes[first], axes[second] = axes[second], axes[first]
    return axes

"""
Rules about layouts: ops that move data between the padded dimensions and others, and transposes.
"""

from __future__ import annotations

from pytest_tfperf.op_guide.graph import (
    CONVOLUTION_GRADIENTS,
    CONVOLUTIONS,
    EINSUMS,
    IN_PLACE,
    PRODUCTS,
    Found,
    Links,
    all_users,
    at_least,
    result,
    shown,
)
from pytest_tfperf.op_types import MATMULS
from pytest_tfperf.recorded_graphs import Dims, OpNode

LANES, ROWS = 128, 8
_SMALL = 1024  # elements of one 8x128 tile; smaller arrays cost nothing to move
_MANY = 64  # examples; a convolution with this batch or more has it along the lanes
_SLICES = frozenset({"Slice", "StridedSlice", "Split", "SplitV"})
_CONCATS = frozenset({"Concat", "ConcatV2"})
_PADS = frozenset({"Pad", "PadV2", "MirrorPad"})
_POOLS = frozenset(
    {
        "MaxPool",
        "MaxPoolV2",
        "AvgPool",
        "MaxPool3D",
        "AvgPool3D",
        "MaxPoolGrad",
        "MaxPoolGradV2",
        "AvgPoolGrad",
        "MaxPool3DGrad",
        "AvgPool3DGrad",
    }
)
_SPATIAL = CONVOLUTIONS | CONVOLUTION_GRADIENTS | _POOLS
_CROSSING = frozenset(
    {
        "SpaceToBatchND",
        "BatchToSpaceND",
        "SpaceToBatch",
        "BatchToSpace",
        "SpaceToDepth",
        "DepthToSpace",
    }
)
_ACTIVATIONS = frozenset(
    {"Relu", "Relu6", "Elu", "Selu", "LeakyRelu", "Sigmoid", "Tanh", "Softplus", "Softsign"}
)
_ELEMENTWISE = (
    IN_PLACE
    | _ACTIVATIONS
    | {"AddV2", "Add", "Mul", "Sub", "FusedBatchNormV3", "ReluGrad", "Relu6Grad", "Rsqrt"}
)
_MOVES = frozenset({"Transpose", "Reshape"})


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


def padded_moves(links: Links) -> Found:
    """Yield slices, concatenations and pads along a padded dimension, at unaligned sizes."""
    for index, op in links.typed(_SLICES):
        position = 1 if op.op_type == "Split" else 0
        before = links.shape(index, position)
        for after in dict.fromkeys(out.shape for out in op.outputs):
            changed = _changed(before, after)
            if changed and _unaligned(links, index, changed, (before, after)):
                yield index, f"{shown(op, before)} to {shown(op, after)}"
                break
    for index, op in links.typed(_PADS):
        before, after = links.shape(index), result(op)
        if _unaligned(links, index, _changed(before, after), (before, after)):
            yield index, f"{shown(op, before)} to {shown(op, after)}"
    for index, op in links.typed(_CONCATS):
        axis = links.value(index, len(op.inputs) - 1 if op.op_type == "ConcatV2" else 0)
        parts = [links.shape(index, at) for at in range(len(op.inputs))]
        parts = parts[:-1] if op.op_type == "ConcatV2" else parts[1:]
        shape = result(op)
        if not isinstance(axis, int) or not shape or len(parts) < 2:
            continue
        if _unaligned(links, index, [axis % len(shape)], (*parts, shape)):
            yield (
                index,
                f"{len(parts)} parts to {shown(op, shape)} along dimension {axis % len(shape)}",
            )


def padded_reshapes(links: Links) -> Found:
    """Yield reshapes that split or merge padded rows."""
    for index, op in links.typed({"Reshape"}):
        if _rearranges(links, index):
            yield index, f"{shown(op, links.shape(index))} to {shown(op, result(op))}"


def space_batch(links: Links) -> Found:
    """Yield ops that move spatial dimensions into batch or depth, or back."""
    for index, op in links.typed(_CROSSING):
        yield index, f"{shown(op, links.shape(index))} to {shown(op, result(op))}"


def unfused_epilogues(links: Links) -> Found:
    """Yield biases and activations that a data movement separates from their product."""
    for index, op in links.typed(_ACTIVATIONS | {"BiasAdd", "BiasAddV1", "AddV2", "Add"}):
        for position in _candidates(links, index, op):
            chain = _chain(links, index, position)
            if chain is not None:
                mover, product = (links.graph.ops[one] for one in chain)
                yield (
                    index,
                    f"{mover.op_type} ({mover.name}) separates it from"
                    f" {product.op_type} ({product.name})",
                )
                break


def _changed(before: Dims | None, after: Dims | None) -> list[int]:
    """Return the dimensions whose known sizes differ; none if the rank changes."""
    if before is None or after is None or len(before) != len(after):
        return []
    return [
        axis
        for axis, (old, new) in enumerate(zip(before, after, strict=True))
        if old != new and None not in (old, new)
    ]


def _unaligned(
    links: Links, index: int, changed: list[int], shapes: tuple[Dims | None, ...]
) -> bool:
    """
    Return whether a changed dimension is padded and has a size that is not a multiple of its tile.
    """
    whole = max(shapes, key=at_least)
    if whole is None or at_least(whole) <= _SMALL:
        return False
    multiples = _multiples(links, index, whole)
    sizes = {
        axis: [shape[axis] for shape in shapes if shape is not None]
        for axis in changed
        if axis in multiples
    }
    return any(
        None not in found and any((size or 0) % multiples[axis] for size in found)
        for axis, found in sizes.items()
    )


def _multiples(links: Links, index: int, shape: Dims) -> dict[int, int]:
    """
    Return the multiples to which the padded dimensions are padded.

    These are batch and features of a convolution's data, else the last two dimensions.
    """
    rank = len(shape)
    if rank >= 4:
        beside = [
            links.origin(index, through=_ELEMENTWISE),
            *(user for user, _ in links.users(index, _ELEMENTWISE) if user >= 0),
        ]
        spatial = next(
            (
                links.graph.ops[one]
                for one in beside
                if one is not None and links.graph.ops[one].op_type in _SPATIAL
            ),
            None,
        )
        if spatial is not None:
            feature = 1 if spatial.attrs.get("data_format", "NHWC").startswith("NC") else rank - 1
            many = shape[0] is not None and shape[0] >= _MANY
            return {0: LANES if many else ROWS, feature: ROWS if many else LANES}
    return {rank - 1: LANES} if rank < 2 else {rank - 1: LANES, rank - 2: ROWS}


def _rearranges(links: Links, index: int) -> bool:
    """
    Return whether a reshape changes the last dimension, or splits or merges unaligned rows.

    Unaligned means that the size of the second-last dimension is not a multiple of 8. Dimensions of
    one do not count. Arrays that the host feeds as rank 1 are meant to be reshaped.
    """
    before, after = links.shape(index), result(links.graph.ops[index])
    if (
        before is None
        or after is None
        or max(at_least(before), at_least(after)) < _SMALL
        or _is_fed_flat(links, index, before)
    ):
        return False
    old, new = ([dim for dim in shape if dim != 1] for shape in (before, after))
    if old == new or not old or not new or None in (old[-1], new[-1]):
        return False
    if old[-1] != new[-1]:
        return True
    rows = [dims[-2] if len(dims) > 1 else None for dims in (old, new)]
    if rows[0] == rows[1] or None in rows:
        return False
    return any((size or 0) % ROWS for size in rows)


def _is_fed_flat(links: Links, index: int, before: Dims) -> bool:
    source = links.origin(index)
    fed = source is None or links.graph.ops[source].op_type in ("Placeholder", "IteratorGetNext")
    return len(before) == 1 and fed


def _candidates(links: Links, index: int, op: OpNode) -> list[int]:
    """
    Return the operands of an epilogue that may be the product.

    Of a sum this is the operand that is added to the bias.
    """
    if op.op_type not in ("AddV2", "Add"):
        return [0]
    return [position for position in (0, 1) if _is_bias(links, index, 1 - position)]


def _is_bias(links: Links, index: int, position: int) -> bool:
    """Return whether an operand is a variable or an argument of one dimension."""
    origin = links.origin(
        index, position, IN_PLACE - {"ReadVariableOp"} | {"Reshape", "ExpandDims"}
    )
    shape = links.shape(index, position)
    long = [dim for dim in shape or () if dim != 1]
    return (
        len(long) == 1
        and origin is not None
        and links.graph.ops[origin].op_type in ("ReadVariableOp", "Placeholder", "Const")
    )


def _chain(links: Links, index: int, position: int) -> tuple[int, int] | None:
    """Find the op that moves data and the product behind it on the only path to an operand."""
    found, mover = links.source(index, position), None
    while found is not None and len(links.consumers[found]) == 1:
        op = links.graph.ops[found]
        if op.op_type in PRODUCTS:
            return None if mover is None else (mover, found)
        if op.op_type in _MOVES:
            moving = (
                _rearranges(links, found)
                if op.op_type == "Reshape"
                else moves(links, found) and not is_free(links, found)
            )
            mover = found if moving else mover
        elif op.op_type not in IN_PLACE | {"Squeeze", "ExpandDims"}:
            return None
        found = links.source(found)
    return None

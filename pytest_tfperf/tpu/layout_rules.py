"""Rules about layouts: ops that move data between the padded dimensions and others; transposes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from pytest_tfperf.hlo.layout import shape_text
from pytest_tfperf.hlo.module import HloInstruction
from pytest_tfperf.hlo.walk import ELEMENTWISE, is_convolution
from pytest_tfperf.op_types import MATMULS
from pytest_tfperf.tpu.bodies import (
    BIASES,
    CONVOLUTIONS,
    PRODUCTS,
    Body,
    Found,
    in_place,
    is_einsum,
    is_gradient,
    is_product,
    kind,
    named,
)

LANES, ROWS = 128, 8
_SMALL = 1024  # elements of one 8x128 tile; smaller arrays cost nothing to move
_MANY = 64  # examples; a convolution with this batch or more has it along the lanes
_TRANSPOSES = frozenset({"Transpose", "ConjugateTranspose"})
_MOVES = {
    "slice": frozenset({"Slice", "StridedSlice", "Split", "SplitV"}),
    "pad": frozenset({"Pad", "PadV2", "MirrorPad"}),
    "concatenate": frozenset({"Concat", "ConcatV2", "MirrorPad"}),
}
_MOVES["dynamic-slice"] = _MOVES["slice"]
_POOLS = frozenset({"reduce-window", "select-and-scatter"})
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
_NORMS = frozenset({"batch-norm-training", "batch-norm-inference", "get-tuple-element"})
_VIEWS = frozenset({"Squeeze", "ExpandDims"})


def transposes(body: Body) -> Found:
    """Yield transposes that move data and that no neighbour absorbs."""
    for op in body.ops({"transpose"}, _TRANSPOSES):
        if moves(body, op) and not is_free(body, op):
            order = ",".join(map(str, op.dimensions))
            yield op, f"{shape_text(body.operand(op).shape)} by ({order})"


def moves(body: Body, op: HloInstruction) -> bool:
    """Return whether a transpose reorders dimensions longer than one of an array in memory."""
    source = body.operand(op)
    order = [axis for axis in op.dimensions if source.shape.dimensions[axis] > 1]
    is_made = source.opcode not in ("broadcast", "constant", "iota")
    return is_made and order != sorted(order) and source.shape.elements > 0


def is_free(body: Body, op: HloInstruction) -> bool:
    """Return whether the producer or all consumers read or write in the transposed order."""
    source, users = body.origin(op), body.users(op)
    rank = len(op.dimensions)
    dims = source.convolution
    if is_einsum(body, source) or (source.op_type in MATMULS and _swaps(op, rank - 2, rank - 1)):
        return True
    if (
        is_convolution(source)
        and dims is not None
        and _swaps(op, dims.output_batch, dims.output_feature)
    ):
        return True
    return bool(users) and all(_absorbs(body, op, *user) for user in users)


def _absorbs(body: Body, op: HloInstruction, user: HloInstruction, position: int) -> bool:
    """Return whether a consumer of a transpose reads in the transposed order."""
    rank, dims = len(op.dimensions), user.convolution
    if is_einsum(body, user):
        return True
    if is_convolution(user) and dims is not None and not is_gradient(user):
        if position:
            return _swaps(op, dims.kernel_input_feature, dims.kernel_output_feature)
        return _swaps(op, dims.input_batch, dims.input_feature)
    # a convolution may reshape its kernel first
    return user.op_type in MATMULS | CONVOLUTIONS and _swaps(op, rank - 2, rank - 1)


def _swaps(op: HloInstruction, first: int, second: int) -> bool:
    """Return whether a transpose only exchanges two dimensions, ignoring those of length one."""
    axes = list(range(len(op.dimensions)))
    if not 0 <= min(first, second) <= max(first, second) < len(axes):
        return False
    axes[first], axes[second] = axes[second], axes[first]
    sizes = dict(zip(op.dimensions, op.shape.dimensions, strict=True))
    return [one for one in op.dimensions if sizes[one] != 1] == [
        one for one in axes if sizes[one] != 1
    ]


def padded_moves(body: Body) -> Found:
    """Yield slices, concatenations and pads along a padded dimension, at unaligned sizes."""
    seen = set()
    for op in body.instructions:
        if op.opcode not in _MOVES or not body.is_of(op, _MOVES[op.opcode]):
            continue
        after = op.shape.dimensions
        shapes = [one.shape.dimensions for one in body.part.operands(op)]
        if op.opcode == "concatenate":
            axis = op.dimensions[0]
            what = f"{len(shapes)} parts to {shape_text(op.shape)} along dimension {axis}"
            is_found = len(shapes) > 1 and _unaligned(body, op, [axis], [*shapes, after])
        else:
            changed = [axis for axis, size in enumerate(shapes[0]) if size != after[axis]]
            what = f"{shape_text(body.operand(op).shape)} to {shape_text(op.shape)}"
            is_found = not _drops(body, op) and _unaligned(body, op, changed, [shapes[0], after])
        if is_found and body.op_of(op) not in seen:  # a split is many slices
            seen.add(body.op_of(op))
            yield op, what


def _drops(body: Body, op: HloInstruction) -> bool:
    """Return whether a slice is at one position of a dimension, which is then left out."""
    before, after = body.operand(op).shape.dimensions, op.shape.dimensions
    left = tuple(new for old, new in zip(before, after, strict=True) if new != 1 or old == 1)
    users = body.consumers[op.id]
    return (
        left != after
        and bool(users)
        and all(user.opcode == "reshape" and user.shape.dimensions == left for user, _ in users)
    )


def padded_reshapes(body: Body) -> Found:
    """Yield reshapes that split or merge padded rows."""
    for op in body.ops({"reshape"}, {"Reshape"}):
        if _rearranges(body, op):
            yield op, f"{shape_text(body.operand(op).shape)} to {shape_text(op.shape)}"


def space_batch(body: Body) -> Found:
    """Yield ops that move spatial dimensions into batch or depth, or back."""
    for group in body.whole(_CROSSING):
        yield (
            group[-1],
            f"{shape_text(body.given(group).shape)} to {shape_text(group[-1].shape)}",
        )


def unfused_epilogues(body: Body) -> Found:
    """Yield biases and activations that a data movement separates from their product."""
    seen = set()
    for op in body.instructions:
        chains = (_chain(body, op, position) for position in _candidates(body, op))
        chain = next(filter(None, chains), None)
        if chain is not None and body.op_of(op) not in seen:
            seen.add(body.op_of(op))
            mover, product = (f"{kind(one)} ({named(one)})" for one in chain)
            yield op, f"{mover} separates it from {product}"


def _unaligned(
    body: Body, op: HloInstruction, changed: Sequence[int], shapes: Sequence[tuple[int, ...]]
) -> bool:
    """
    Return whether a changed dimension is padded and has a size that is not a multiple of its tile.
    """
    whole = max(shapes, key=prod)
    if prod(whole) <= _SMALL:
        return False
    multiples = _multiples(body, op, whole)
    return any(
        shape[axis] % multiples[axis] for axis in changed if axis in multiples for shape in shapes
    )


def _multiples(body: Body, op: HloInstruction, shape: tuple[int, ...]) -> dict[int, int]:
    """
    Return the multiples to which the padded dimensions are padded.

    These are batch and features of a convolution's data, else the last two dimensions.
    """
    rank = len(shape)
    if rank >= 4:
        beside = [
            body.origin(op, through=_elementwise),
            *(user for user, _ in body.users(op, _elementwise)),
        ]
        spatial = next((one for one in beside if is_convolution(one) or one.opcode in _POOLS), None)
        if spatial is not None:
            feature = 1 if _features_come_second(spatial) else rank - 1
            many = shape[0] >= _MANY
            return {0: LANES if many else ROWS, feature: ROWS if many else LANES}
    return {rank - 1: LANES} if rank < 2 else {rank - 1: LANES, rank - 2: ROWS}


def _elementwise(body: Body, op: HloInstruction) -> bool:
    return in_place(body, op) or op.opcode in ELEMENTWISE or op.opcode in _NORMS


def _features_come_second(op: HloInstruction) -> bool:
    """Return whether the data of a convolution or pooling have their features before the space."""
    if op.convolution is not None:
        return op.convolution.input_feature == 1
    sizes = [one.size for one in op.window]
    return len(sizes) > 2 and sizes[1] == 1 < sizes[-1]


def _rearranges(body: Body, op: HloInstruction) -> bool:
    """
    Return whether a reshape changes the last dimension, or splits or merges unaligned rows.

    Unaligned means that the size of the second-last dimension is not a multiple of 8. Dimensions of
    one do not count. Arrays that the host feeds as rank 1 are meant to be reshaped.
    """
    before, after = body.operand(op).shape.dimensions, op.shape.dimensions
    old, new = ([size for size in sizes if size != 1] for sizes in (before, after))
    is_fed = body.origin(op).opcode in ("parameter", "get-tuple-element")
    if prod(before) < _SMALL or (len(before) == 1 and is_fed) or old == new or not old or not new:
        return False
    if old[-1] != new[-1]:
        return True
    rows = [sizes[-2] if len(sizes) > 1 else 0 for sizes in (old, new)]
    return rows[0] != rows[1] and 0 not in rows and any(size % ROWS for size in rows)


def _candidates(body: Body, op: HloInstruction) -> Sequence[int]:
    """
    Return the operands of an epilogue that may be the product.

    Of a sum this is the operand that is added to the bias.
    """
    if op.opcode == "add" and op.op_type in BIASES:
        return [0]
    if op.opcode == "add" and body.is_of(op, {"Add", "AddV2"}):
        return [position for position in (0, 1) if _is_bias(body, op, 1 - position)]
    if body.of_tensorflow:
        return range(len(op.operands)) if op.op_type in _ACTIVATIONS else ()
    is_relu = op.opcode == "maximum" and any(
        body.origin(op, position).constant == 0 for position in (0, 1)
    )
    return range(len(op.operands)) if is_relu or op.opcode in ("tanh", "logistic") else ()


def _is_bias(body: Body, op: HloInstruction, position: int) -> bool:
    """Return whether an operand is a variable or an argument of one dimension."""
    found = body.operand(op, position)
    while found.operands and (in_place(body, found) or found.opcode == "reshape"):
        if found.opcode != "broadcast" and sum(size != 1 for size in found.shape.dimensions) != 1:
            return False
        found = body.operand(found)
    is_given = found.opcode in ("parameter", "constant", "get-tuple-element")
    return is_given and sum(size != 1 for size in found.shape.dimensions) == 1


def _chain(
    body: Body, op: HloInstruction, position: int
) -> tuple[HloInstruction, HloInstruction] | None:
    """Find the op that moves data and the product behind it on the only path to an operand."""
    found, mover = body.operand(op, position), None
    while body.feeds_one(found):
        if is_product(body, found):
            return None if mover is None else (mover, found)
        if found.opcode == "transpose" and body.is_of(found, _TRANSPOSES):
            mover = found if moves(body, found) and not is_free(body, found) else mover
        elif found.opcode == "reshape" and body.is_of(found, {"Reshape"}):
            mover = found if _rearranges(body, found) else mover
        elif not (in_place(body, found) or found.op_type in PRODUCTS | _VIEWS):
            return None
        if not found.operands:
            return None
        found = body.operand(found)
    return None

"""Rules about computation: ops that are expensive on a TPU, cannot run there, or prevent fusion."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from pytest_tfperf.hlo.layout import shape_text
from pytest_tfperf.hlo.module import HloInstruction
from pytest_tfperf.hlo.walk import ELEMENTWISE
from pytest_tfperf.op_types import REDUCTIONS
from pytest_tfperf.tpu.bodies import Body, Found, in_place, kind, named

TPU_OPS_DATE = "2026-04-09"
"""Date of the list "Available graph operators", https://cloud.google.com/tpu/docs/tensorflow-ops."""
NOT_ON_TPUS = frozenset(
    {
        "Betainc",
        "Dequantize",
        "DynamicPartition",
        "FakeQuantWithMinMaxVarsPerChannel",
        "FakeQuantWithMinMaxVarsPerChannelGradient",
        "Igamma",
        "Igammac",
        "MatrixInverse",
        "MatrixSolve",
        "Polygamma",
        "SelfAdjointEigV2",
        "Svd",
        "Unique",
        "UniqueV2",
        "Zeta",
    }
)
"""Ops that XLA compiles for CPUs, but that this list lacks.

Their Python functions are among its "Unavailable Python APIs".
"""

_NORMALS = frozenset(
    {
        "RandomStandardNormal",
        "TruncatedNormal",
        "ParameterizedTruncatedNormal",
        "StatelessRandomNormal",
        "StatelessRandomNormalV2",
        "StatelessTruncatedNormal",
        "StatelessTruncatedNormalV2",
        "StatelessParameterizedTruncatedNormal",
    }
)
_COMBINE = frozenset({"add", "and", "maximum", "minimum", "multiply", "or"})
_VIEWS = frozenset({"broadcast", "convert", "reshape"})
_FARTHEST = 5
"""Most ops between two reductions; moments, softmax and normalisations have fewer."""


def unfused_batch_norms(body: Body) -> Found:
    """
    Yield 1 / √(variance + ε) of a batch normalisation of TensorFlow.

    The variance is a mean over all dimensions but the last, or a moving one that scales features.
    """
    for op, *_ in body.whole({"Rsqrt"}):
        added = body.origin(op)
        if added.opcode != "add" or not body.is_of(added, {"Add", "AddV2"}):
            continue
        for position in (0, 1):
            variance = body.origin(added, position, _keeps)
            if _number(body, added, 1 - position) == () and _is_variance(body, op, variance):
                made = f"{kind(variance)} ({named(variance)})" if variance.op_type else "a variable"
                yield op, f"of a variance from {made}, {shape_text(op.shape)}"
                break


def max_pool_gradients(body: Body) -> Found:
    """Yield gradients of max pooling."""
    kinds = {"MaxPoolGrad", "MaxPoolGradV2", "MaxPool3DGrad", "MaxPoolGradWithArgmax"}
    for op in body.ops({"select-and-scatter"}, kinds):
        yield op, f"of {shape_text(op.shape)}"


def categorical(body: Body) -> Found:
    """Yield samples from categorical distributions."""
    for group in body.whole({"Multinomial", "StatelessMultinomial"}):
        sizes = ",".join(map(str, body.given(group).shape.dimensions))
        yield group[-1], f"from logits[{sizes}]{' in a loop' if body.in_loop else ''}"


def reduced_then_multiplied(body: Body) -> Found:
    """Yield sums that only a product with one number takes: sum(x) * y equals sum(x * y)."""
    for op in body.ops({"multiply"}, {"Mul"}):
        for position in (0, 1):
            total, factor = body.operand(op, position), _number(body, op, 1 - position)
            while body.feeds_one(total) and _is_kept_sum(body, total):
                total = body.operand(total)
            if (
                factor is not None
                and total.opcode == "reduce"
                and body.is_of(total, {"Sum"})
                and body.reduces_by(total) == "add"
                and len(body.consumers[total.id]) == 1
                and len(factor) <= len(op.shape.dimensions)
            ):
                before, after = shape_text(body.operand(total).shape), shape_text(op.shape)
                yield op, f"sum of {before} to {after}, then a product with one number"
                break


def reductions_in_turn(body: Body) -> Found:
    """Yield reductions of the result of an equal reduction: same shape, same axes."""
    keys = {
        op.id: (body.operand(op).shape.dimensions, op.dimensions)
        for op in body.ops({"reduce"}, REDUCTIONS)
        if body.reduces_by(op) in _COMBINE
        and all(body.operand(op).shape.dimensions[axis] != 1 for axis in op.dimensions)
    }
    for key in keys:
        op = body.part.instructions[key]
        first = _reduction_behind(body, op, keys)
        if op.dimensions and first is not None:
            what = f"of {shape_text(body.operand(op).shape)}"
            yield op, f"{what}, after an equal {kind(first)} ({named(first)})"


def not_on_tpus(body: Body) -> Found:
    """Yield ops that the public list of TPU ops lacks."""
    for group in body.whole(NOT_ON_TPUS):
        op_type = group[-1].op_type
        yield group[-1], f"the list of Cloud TPU ops of {TPU_OPS_DATE} lacks {op_type}"


def normal_sampling(body: Body) -> Found:
    """Yield samples from normal distributions."""
    for group in body.whole(_NORMALS):
        yield group[-1], shape_text(group[-1].shape)


def _keeps(body: Body, op: HloInstruction) -> bool:
    """Return whether an instruction passes on a variance, a mean of which is divided by a count."""
    is_division = op.opcode == "divide" and op.op_type == "Mean"
    return in_place(body, op) or op.opcode == "reshape" or is_division


def _number(body: Body, op: HloInstruction, position: int) -> tuple[int, ...] | None:
    """Return the shape of an operand of one element, before it is broadcast; None for others."""
    sizes = body.origin(op, position).shape.dimensions
    return sizes if prod(sizes) == 1 else None


def _is_variance(body: Body, root: HloInstruction, op: HloInstruction) -> bool:
    if op.opcode == "reduce" and op.op_type == "Mean":
        rank = len(body.operand(op).shape.dimensions)
        return rank > 1 and sorted(op.dimensions) == list(range(rank - 1))
    is_vector = op.opcode == "parameter" and len(op.shape.dimensions) == 1
    return is_vector and _scales_features(body, root)


def _scales_features(body: Body, op: HloInstruction) -> bool:
    """Return whether a vector scales an array, directly or after a product with another vector."""
    scaled = [user for user, _ in body.users(op, _keeps) if user.opcode == "multiply"]
    twice = [user for one in scaled for user, _ in body.users(one, _keeps)]
    return any(
        sum(size != 1 for size in user.shape.dimensions) > 1
        for user in (*scaled, *twice)
        if user.opcode == "multiply"
    )


def _is_kept_sum(body: Body, op: HloInstruction) -> bool:
    """Return whether an instruction only converts a sum, or keeps its dimensions."""
    return op.opcode == "convert" or (op.opcode == "reshape" and body.is_of(op, {"Sum"}))


def _reduction_behind(
    body: Body,
    op: HloInstruction,
    keys: Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]],
) -> HloInstruction | None:
    """Find the nearest equal reduction that an operand was computed from, element by element."""
    waiting, seen = [(body.operand(op), 0)], set()
    while waiting:
        found, steps = waiting.pop(0)
        if found.id in seen or steps > _FARTHEST:
            continue
        seen.add(found.id)
        if found.id in keys:
            if keys[found.id] == keys[op.id]:
                return found
        elif found.opcode in ELEMENTWISE | _VIEWS:
            next_ = steps + (found.opcode not in _VIEWS)
            waiting += [(one, next_) for one in body.part.operands(found)]
    return None

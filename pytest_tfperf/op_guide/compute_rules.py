"""Rules about computation: ops that are expensive on a TPU, cannot run there, or prevent fusion."""

from __future__ import annotations

from pytest_tfperf.op_guide.graph import Found, Links, dtype, result, shown
from pytest_tfperf.op_types import FUNCTION_CALLS, REDUCTIONS, computes
from pytest_tfperf.recorded_graphs import Dims, Ints, OpNode

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

_RESHAPES = frozenset({"Reshape", "Squeeze", "ExpandDims", "BroadcastTo", "Tile"})
_KEEPS = frozenset({"Identity", "StopGradient", "Cast", "Reshape", "Squeeze", "ExpandDims"})
_PRODUCERS = frozenset({"Placeholder", "ReadVariableOp", "Const", "IteratorGetNext"})
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
_FARTHEST = 5
"""Most ops between two reductions; moments, softmax and normalisations have fewer."""


def unfused_batch_norms(links: Links) -> Found:
    """
    Yield 1 / √(variance + ε) of a batch normalisation.

    The variance is a mean over all dimensions but the last, or a moving one that scales features.
    """
    for index, op in links.typed({"Rsqrt"}):
        added = links.source(index)
        if added is None or links.graph.ops[added].op_type not in ("AddV2", "Add"):
            continue
        for position in (0, 1):
            variance = links.origin(added, position, _KEEPS)
            epsilon = links.shape(added, 1 - position)
            if epsilon == () and variance is not None and _is_variance(links, index, variance):
                source = links.graph.ops[variance]
                yield (
                    index,
                    f"of a variance from {source.op_type} ({source.name}), {shown(op, result(op))}",
                )
                break


def max_pool_gradients(links: Links) -> Found:
    """Yield gradients of max pooling."""
    for index, op in links.typed(
        {"MaxPoolGrad", "MaxPoolGradV2", "MaxPool3DGrad", "MaxPoolGradWithArgmax"}
    ):
        yield index, f"of {shown(op, result(op))}"


def categorical(links: Links) -> Found:
    """Yield samples from categorical distributions."""
    for index, op in links.typed({"Multinomial", "StatelessMultinomial"}):
        logits = shown(op, links.shape(index)).replace(dtype(op), "logits", 1)
        yield index, f"from {logits}{' in a loop' if op.in_loop else ''}"


def reduced_then_multiplied(links: Links) -> Found:
    """Yield sums that only a product with one number takes: sum(x) * y equals sum(x * y)."""
    for index, op in links.typed({"Mul"}):
        for position in (0, 1):
            total, factor = links.source(index, position), links.shape(index, 1 - position)
            if (
                total is None
                or factor is None
                or links.graph.ops[total].op_type != "Sum"
                or len(links.consumers[total]) != 1
            ):
                continue
            summed = result(links.graph.ops[total])
            if (
                all(dim == 1 for dim in factor)
                and summed is not None
                and len(factor) <= len(summed)
            ):
                before, after = shown(op, links.shape(total)), shown(op, summed)
                yield index, f"sum of {before} to {after}, then a product with one number"
                break


def reductions_in_turn(links: Links) -> Found:
    """Yield reductions of the result of an equal reduction: same shape, same axes."""
    reductions = {index: _reduced(links, index) for index, _ in links.typed(REDUCTIONS)}
    for index, key in reductions.items():
        before = None if key is None else _reduction_behind(links, index, key, reductions)
        if before is not None:
            op, first = links.graph.ops[index], links.graph.ops[before]
            what = f"of {shown(op, links.shape(index))}"
            yield index, f"{what}, after an equal {first.op_type} ({first.name})"


def without_kernel(links: Links) -> Found:
    """
    Yield ops that XLA has no kernel for, or that the public list of TPU ops lacks.

    Fetching input is left out, since the host does it. An op whose consumers all lack a kernel is
    part of their finding, such as the text that tf.print prints.
    """
    foreign = {index for index, op in enumerate(links.graph.ops) if _is_foreign(op)}
    for index, op in enumerate(links.graph.ops):
        if op.op_type in NOT_ON_TPUS:
            yield index, f"the list of Cloud TPU ops of {TPU_OPS_DATE} lacks {op.op_type}"
        elif index in foreign and not (
            links.consumers[index] and all(user in foreign for user, _ in links.consumers[index])
        ):
            yield (
                index,
                f"XLA has no kernel for {op.op_type}{f' of {dtype(op)}' if op.outputs else ''}",
            )


def _is_foreign(op: OpNode) -> bool:
    return (
        not op.compiles
        and computes(op.op_type)
        and op.op_type not in FUNCTION_CALLS | {"Placeholder"}
    )


def normal_sampling(links: Links) -> Found:
    """Yield samples from normal distributions."""
    for index, op in links.typed(_NORMALS):
        yield index, f"{shown(op, result(op))}"


def _is_variance(links: Links, root: int, variance: int) -> bool:
    op = links.graph.ops[variance]
    if op.op_type == "Mean":
        shape, axes = links.shape(variance), _axes(links.value(variance, 1), links.shape(variance))
        return shape is not None and len(shape) > 1 and axes == frozenset(range(len(shape) - 1))
    return (
        op.op_type == "ReadVariableOp"
        and len(result(op) or ()) == 1
        and _scales_features(links, root)
    )


def _scales_features(links: Links, index: int) -> bool:
    """Return whether a vector scales an array, directly or after a product with another vector."""
    for user, position in links.users(index, _KEEPS):
        if user < 0 or links.graph.ops[user].op_type != "Mul":
            continue
        others = links.shape(user, 1 - position)
        long = [dim for dim in others or () if dim != 1]
        if len(long) > 1 or (
            len(long) == 1
            and any(_long_product(links, *next_) for next_ in links.users(user, _KEEPS))
        ):
            return True
    return False


def _long_product(links: Links, user: int, position: int) -> bool:
    return (
        user >= 0
        and links.graph.ops[user].op_type == "Mul"
        and sum(dim != 1 for dim in links.shape(user, 1 - position) or ()) > 1
    )


def _axes(value: Ints | None, shape: Dims | None) -> frozenset[int] | None:
    """Return the reduced axes, counted from the first."""
    if value is None or shape is None or not shape:
        return None
    axes = (value,) if isinstance(value, int) else value
    return frozenset(axis % len(shape) for axis in axes if isinstance(axis, int))


def _reduced(links: Links, index: int) -> tuple[Dims, frozenset[int]] | None:
    """Return the shape and axes of a reduction; None if unknown, or if it reduces nothing."""
    shape, axes = links.shape(index), _axes(links.value(index, 1), links.shape(index))
    if shape is None or not axes or any(shape[axis] == 1 for axis in axes):
        return None
    return shape, axes


def _reduction_behind(
    links: Links,
    index: int,
    key: tuple[Dims, frozenset[int]],
    reductions: dict[int, tuple[Dims, frozenset[int]] | None],
) -> int | None:
    """Find the nearest equal reduction that an operand was computed from, element by element."""
    waiting, seen = [(links.source(index), 0)], set()
    while waiting:
        found, steps = waiting.pop(0)
        if found is None or found in seen or steps > _FARTHEST:
            continue
        seen.add(found)
        op = links.graph.ops[found]
        if found in reductions:
            if reductions[found] == key:
                return found
            continue
        if op.op_type not in _PRODUCERS and (
            op.op_type in _RESHAPES or _is_elementwise(op.op_type, result(op), key[0])
        ):
            waiting += [
                (links.source(found, position), steps + 1) for position in range(len(op.inputs))
            ]
    return None


_ELEMENTWISE = frozenset(
    {
        "Abs",
        "Add",
        "AddV2",
        "Cast",
        "Div",
        "DivNoNan",
        "Equal",
        "Exp",
        "Identity",
        "Log",
        "Log1p",
        "Maximum",
        "Minimum",
        "Mul",
        "Neg",
        "Pow",
        "RealDiv",
        "Relu",
        "Rsqrt",
        "Select",
        "SelectV2",
        "Sigmoid",
        "Sqrt",
        "Square",
        "SquaredDifference",
        "StopGradient",
        "Sub",
        "Tanh",
        "Xdivy",
        "Xlogy",
    }
)


def _is_elementwise(op_type: str, shape: Dims | None, whole: Dims) -> bool:
    return op_type in _ELEMENTWISE and shape is not None and len(shape) <= len(whole)

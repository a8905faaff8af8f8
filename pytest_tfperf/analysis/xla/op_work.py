"""The work of a step by op: its FLOPs, its type of numbers, and the place in the user's code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_tfperf.analysis.host.shown import JAX, TENSORFLOW
from pytest_tfperf.hlo.cost import Costs, OpCost, Work
from pytest_tfperf.quantities import COUNT, FLOP, SHARE, format_quantity
from pytest_tfperf.text import and_more
from pytest_tfperf.values import Column, Table, Value

Programs = Sequence[tuple[Costs, float]]
"""The costs of each module of a step, and how often it runs in one, on all devices together."""
Places = Callable[[Iterable[str]], Mapping[str, tuple[str, str]]]
"""Finds the user's line (`model.py:12`) and function (`model.py:block`) of ops by name."""
TABLE = "op_work"
CASTS = ("Cast", "convert_element_type")
"""Types of ops that change the type of numbers, in TensorFlow and JAX."""
CALLERS = ("while", "call", "conditional", "async-start")
_CALLS = re.compile(r"^((Stateful)?PartitionedCall(_\d+)?/)+")
_GRADIENT = "gradient_tape/"
_WRAPPED = re.compile(r"^(\w+)\((.*)\)$")
_NUMBERS = re.compile(r"(_\d+)+$")
_NAMES = {"f": "float", "bf": "bfloat", "s": "int", "u": "uint", "c": "complex"}
_MOST = 5_000
_N_LARGEST, _LEAST, _N_OF_WIDTH = 3, 0.1, 2
_LOOK_UP = {
    TENSORFLOW: "look up the rows by tf.gather(weights, ids) or a keras.layers.Embedding, in place "
    "of the product with one-hot rows",
    JAX: "look up the rows by weights[ids] (in Keras a keras.layers.Embedding), in place of the "
    "product with one-hot rows",
}
_IN_16_BITS = {
    TENSORFLOW: "keras.mixed_precision.set_global_policy('mixed_bfloat16'), or cast the operands",
    JAX: "cast parameters and inputs to jnp.bfloat16; in Keras, "
    "keras.mixed_precision.set_global_policy('mixed_bfloat16')",
}
_ALSO_IN_16_BITS = (
    "let these follow the precision of the others: no dtype= of their own, and no operand that is "
    "float32 or cast to it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpWork:
    """The ops of one type in one place, with their gradients."""

    op_type: str
    """Type of the op."""
    key: str
    """Layer or function, without the numbers that name scopes get in the order of tracing."""
    place: str
    """Layer and line of today: `in model/dense_1 at model.py:12`; empty if nothing tells it."""
    dtype: str
    """Type of its numbers, as `float32`."""
    n_ops: float
    """Ops a step."""
    work: Work
    """FLOPs a step."""
    has_gradient: bool
    """Whether gradients are among them."""
    looked_up: int
    """FLOPs of products with one-hot rows, with their gradients where all products are such."""

    @property
    def title(self) -> str:
        """`MatMul ×2 and gradient in model/dense_1 at model.py:12`."""
        times = f" ×{format_quantity(self.n_ops, COUNT)}" if self.n_ops > 1 else ""
        gradient = " and gradient" if self.has_gradient else ""
        return f"{self.op_type}{times}{gradient} {self.place}".rstrip()


def ops_of(programs: Programs, places: Places, in_keras: bool = False) -> list[OpWork]:
    """
    Return the ops of a step with FLOPs, and those that change a type, the most FLOPs first.

    Args:
        programs: The modules.
        places: Finds the places that the modules do not name.
        in_keras: True if the steps are those of a loop of Keras, whose line most ops have.
    """
    costs = [
        (cost, runs * cost.runs)
        for module, runs in programs
        for cost in module.ops
        if cost.opcode not in CALLERS and (cost.work.flops or _is_cast(cost))
    ]
    types = {_own_name(cost): cost.op_type for cost, _ in costs if not _is_gradient(cost)}
    found = places(sorted({_own_name(cost) for cost, _ in costs if not cost.line} - {""}))
    lines = Counter(line for line, _ in found.values())
    of_loop = lines.most_common(1)[0][0] if in_keras and lines else None

    def seen_as(cost: OpCost) -> tuple[str, str, str, str]:
        name = _own_name(cost)
        scopes, last, functions = _scopes(name)
        line, function = found.get(name) or (Path(cost.line).name, "")
        scope = "/".join(scopes)
        key = "/".join(filter(None, (_NUMBERS.sub("", part) for part in scopes)))
        key = key or "/".join(functions) or function or line.partition(":")[0]
        at = f"at {line}" if line and not (scope and line == of_loop) else ""
        place = " ".join(filter(None, (f"in {scope}" if scope else "", at)))
        op_type = types.get(name) or cost.op_type or last or cost.opcode
        return op_type, key, place, _dtype(cost.dtype)

    groups: dict[tuple[str, str, str, str], list[tuple[OpCost, float]]] = {}
    for cost, runs in costs:
        groups.setdefault(seen_as(cost), []).append((cost, runs))
    rows = [_op(*seen, group) for seen, group in groups.items()]
    return sorted(rows, key=lambda row: (-row.work.flops, row.title, row.dtype))


def _op(
    op_type: str, key: str, place: str, dtype: str, costs: Sequence[tuple[OpCost, float]]
) -> OpWork:
    own = [one for one in costs if not _is_gradient(one[0])] or costs
    # an op of TensorFlow may be several instructions
    ops = {cost.op_name if cost.op_type else n: runs for n, (cost, runs) in enumerate(own)}
    kinds = ("flops", "matmul_flops", "half_flops")
    work = Work(
        *(round(sum(getattr(one.work, kind) * runs for one, runs in costs)) for kind in kinds)
    )
    products = [one for one in own if one[0].work.matmul_flops]
    looked_up = [one for one in products if one[0].looks_up]
    flops = sum(cost.work.flops * runs for cost, runs in looked_up)
    return OpWork(
        op_type=op_type,
        key=key,
        place=place,
        dtype=dtype,
        n_ops=round(sum(ops.values()), 2),
        work=work,
        has_gradient=any(_is_gradient(cost) for cost, _ in costs),
        looked_up=work.flops if looked_up and looked_up == products else round(flops),
    )


def table_of(rows: Sequence[OpWork]) -> Table:
    """Return the table of ops, which baselines store and compare."""
    columns = (
        Column("type", "type"),
        Column("key", "layer or function"),
        Column("place", "place"),
        Column("dtype", "dtype"),
        Column("ops", "ops", COUNT),
        Column("flops", "FLOPs", FLOP),
    )
    cells = [
        (one.op_type, one.key, one.place, one.dtype, one.n_ops, one.work.flops) for one in rows
    ]
    return Table.of("FLOPs by op, with its gradients", columns, cells, limit=_MOST)


def with_ops(metric: str, value: Value, ops: Sequence[OpWork], framework: str) -> Value:
    """
    Add the ops behind flops or half_precision, and the remedy of their kind where there is one.

    Args:
        metric: The metric.
        value: Its value.
        ops: The ops of the step, the most FLOPs first.
        framework: The framework that ran it.
    """
    detail: dict[str, Any] = {}
    if value.number and metric == "flops":
        detail = _largest(ops, framework)
    elif value.number is not None and value.number < 1 and metric == "half_precision":
        remedy = _ALSO_IN_16_BITS if value.number else _IN_16_BITS[framework]
        detail = {"where": _by_width(ops), "try": remedy}
    return replace(value, detail={**value.detail, **detail})


def _largest(ops: Sequence[OpWork], framework: str) -> dict[str, Any]:
    total = sum(op.work.flops for op in ops)
    if not total:
        return {}
    named = [op for op in ops[:_N_LARGEST] if op.work.flops >= _LEAST * total]
    shares = [format_quantity(op.work.flops / total, SHARE) for op in named]
    where = [
        f"{op.title}: {format_quantity(op.work.flops, FLOP)} ({share} of all)"
        for op, share in zip(named, shares, strict=True)
    ]
    named_flops = sum(op.work.flops for op in named)
    detail = {"where": "; ".join(where), "accounted": named_flops / total}
    if looked_up := sum(op.looked_up for op in named):
        left = format_quantity(total - looked_up, FLOP)
        detail["try"] = f"{_LOOK_UP[framework]}; without it flops is {left}"
    return detail


def _by_width(ops: Sequence[OpWork]) -> str:
    """Name the matmuls and convolutions with more than 16 bits, then the others."""
    products = [op for op in ops if op.work.matmul_flops]
    wide = [op for op in products if op.work.half_flops < op.work.matmul_flops]
    parts = {"more than 16 bits": wide, "16 bits": [op for op in products if op not in wide]}
    return "; ".join(
        f"{title}: {and_more([f'{op.title} ({op.dtype})' for op in found], _N_OF_WIDTH)}"
        for title, found in parts.items()
        if found
    )


def _is_cast(cost: OpCost) -> bool:
    return cost.opcode == "convert" and (
        cost.op_type in CASTS or cost.op_name.rpartition("/")[2] in CASTS
    )


def _is_gradient(cost: OpCost) -> bool:
    return _GRADIENT in cost.op_name or "transpose(" in cost.op_name


def _own_name(cost: OpCost) -> str:
    """Return the name of an op, for a gradient that of the op that it belongs to."""
    name = _CALLS.sub("", cost.op_name.rpartition(";")[2])  # `caller's name;name` if inlined
    if name.startswith(_GRADIENT):
        name = name.removeprefix(_GRADIENT).rpartition("/")[0]
    return name


def _scopes(name: str) -> tuple[list[str], str, list[str]]:
    """Return the scopes of an op's name, its last part, and JAX's functions around it."""
    scopes: list[str] = []
    functions: list[str] = []
    *parts, last = _parts(name)
    for part in parts:
        is_function = False
        while wrapped := _WRAPPED.match(part):  # jit(f), transpose(jvp(scope))
            is_function = is_function or wrapped[1] in ("jit", "pjit", "pmap")
            part = wrapped[2]
        (functions if is_function else scopes).append(part)
    return list(filter(None, scopes)), last, [one for one in functions if one != "main"]


def _parts(name: str) -> list[str]:
    """Split a name at slashes outside of brackets: `jit(f)/transpose(jvp(a/b))/add`."""
    parts, depth = [""], 0
    for character in name:
        depth += (character == "(") - (character == ")")
        if character == "/" and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _dtype(name: str) -> str:
    """Return a type of HLO as the frameworks call it: `f32` is `float32`."""
    found = re.fullmatch(r"(f|bf|s|u|c)(\d+)", name)
    return f"{_NAMES[found[1]]}{found[2]}" if found else {"pred": "bool"}.get(name, name)

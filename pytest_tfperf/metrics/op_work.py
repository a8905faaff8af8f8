"""The work of a step by op: its FLOPs, its type of numbers, and the place in the user's code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_tfperf.advice.by_framework import ANY, IN_16_BITS, LOOK_UP_ROWS, text_for
from pytest_tfperf.hlo.avoidable import DIAGONAL, LOOK_UP, SLICED
from pytest_tfperf.hlo.cost import Costs, OpCost, Programs, Work
from pytest_tfperf.hlo.products import cast_before
from pytest_tfperf.metrics.graph_ops import line_of_fit
from pytest_tfperf.quantities import COUNT, FLOP, SHARE, format_quantity
from pytest_tfperf.text import and_more
from pytest_tfperf.values import Column, Table, Value

Places = Callable[[Iterable[str]], Mapping[str, tuple[str, str]]]
"""Finds the user's line (`model.py:12`) and function (`model.py:block`) of ops by name."""
TABLE = "op_work"
"""Key of the table of ops."""
CASTS = ("Cast", "convert_element_type")
"""Types of ops that change the type of numbers, in TensorFlow and JAX."""
CALLERS = ("while", "call", "conditional", "async-start")
_CALLS = re.compile(r"^((Stateful)?PartitionedCall(_\d+)?/)+")
_GRADIENT = "gradient_tape/"
_GRADIENTS = re.compile(r"(?:^|/)gradients/(.+)_grad/[^/]+$")
_WRAPPED = re.compile(r"^(\w+)\((.*)\)$")
_NUMBERS = re.compile(r"(_\d+)+$")
_CONTROL = frozenset({"", "while", "body", "cond", "then", "else", "closed_call"})
"""Scopes that loops, branches and functions make, and no layer."""
_NAMES = {"f": "float", "bf": "bfloat", "s": "int", "u": "uint", "c": "complex"}
_MOST = 5_000
_N_LARGEST, _LEAST, _N_OF_WIDTH = 3, 0.1, 2
_NEEDLESS = {
    LOOK_UP: LOOK_UP_ROWS,
    DIAGONAL: {
        ANY: "multiply elementwise by the diagonal (d[:, None] * x, from the right x * d), in "
        "place of the product with a diagonal matrix"
    },
    SLICED: {ANY: "slice before the product, since most of its result is not used"},
}
_ALSO_IN_16_BITS = (
    "let these follow the precision of the others: no dtype= of their own, and no operand that is "
    "float32 or cast to it"
)
_NO_CAST = (
    "stay in 16 bits there: no cast to float32, and no float32 array as the other operand (give "
    "it dtype=bfloat16); in Keras no dtype='float32' of the layer, and casts to self.compute_dtype"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpWork:
    """The ops of one type in one place, with their gradients."""

    op_type: str
    key: str
    """Layer or function, without the numbers that name scopes get in the order of tracing."""
    place: str
    """Layer and line of today: `in model/dense_1 at model.py:12`; empty if nothing tells it."""
    dtype: str
    n_ops: float
    """Ops a step."""
    work: Work
    """FLOPs a step."""
    has_gradient: bool
    avoidable: str
    """Kind of its products of which most is not needed (`hlo/avoidable.py`), else empty."""
    saved: int
    """FLOPs that are not needed, with those of gradients where all products are of that kind."""
    cast: str = ""
    """Place of the cast that made its products wide: `in model/dense_1`; of the largest only."""

    @property
    def is_wide(self) -> bool:
        """True if products among them have operands of more than 16 bits."""
        return self.work.half_flops < self.work.matmul_flops

    @property
    def title(self) -> str:
        """`MatMul ×2 and gradient in model/dense_1 at model.py:12`."""
        times = f" ×{format_quantity(self.n_ops, COUNT)}" if self.n_ops > 1 else ""
        gradient = " and gradient" if self.has_gradient else ""
        return f"{self.op_type}{times}{gradient} {self.place}".rstrip()


def ops_of(programs: Programs, places: Places, in_keras: bool = False) -> list[OpWork]:
    """Return a step's ops with FLOPs or changes of type, the most FLOPs first."""
    costs = [
        (cost, runs * cost.runs)
        for module, runs in programs
        for cost in module.ops
        if cost.opcode not in CALLERS and (cost.work.flops or _is_cast(cost))
    ]
    types = {_own_name(cost): cost.op_type for cost, _ in costs if not _is_gradient(cost)}
    # a place takes a fifth of a millisecond, and of most ops of a layer its name says enough
    found = places(sorted({name for cost, _ in costs if (name := _to_find(cost))}))
    of_loop = line_of_fit(line for line, _ in found.values()) if in_keras else None

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
    rows = [(_op(*seen, group), group) for seen, group in groups.items()]
    rows.sort(key=lambda row: (-row[0].work.flops, row[0].title, row[0].dtype))
    modules = {id(cost): module for module, _ in programs for cost in module.ops}
    ops, n_wide = [], 0
    for op, group in rows:
        if op.is_wide and n_wide < _N_OF_WIDTH:
            n_wide += 1
            products = [cost for cost, _ in group if cost.work.matmul_flops]
            product = min(products, key=_is_gradient)
            cast = _cast_before(product, modules[id(product)])
            op = replace(op, cast=(seen_as(cast)[2] or cast.op_name) if cast else "")
        ops.append(op)
    return ops


def _cast_before(product: OpCost, costs: Costs) -> OpCost | None:
    """Return the cast that made the operands of a product wide, None without one."""
    name = cast_before(costs.module, product.name) if costs.module else ""
    return next((cost for cost in costs.ops if cost.name == name), None)


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
    kind = next((cost.avoidable for cost, _ in products if cost.avoidable), "")
    of_kind = [one for one in products if kind and one[0].avoidable == kind]
    saved = sum(cost.work.flops * (1 - cost.needed) * runs for cost, runs in of_kind)
    all_flops = sum(cost.work.flops * runs for cost, runs in of_kind)
    if of_kind == products and all_flops:  # none of branches that are not counted
        saved *= work.flops / all_flops
    return OpWork(
        op_type=op_type,
        key=key,
        place=place,
        dtype=dtype,
        n_ops=round(sum(ops.values()), 2),
        work=work,
        has_gradient=any(_is_gradient(cost) for cost, _ in costs),
        avoidable=kind,
        saved=round(saved),
    )


def table_of(rows: Sequence[OpWork]) -> Table:
    """Return the table of ops, which baselines store and compare."""
    return Table.of_each(
        "FLOPs by op, with its gradients",
        rows,
        [
            (Column("type", "type"), lambda one: one.op_type),
            (Column("key", "layer or function"), lambda one: one.key),
            (Column("place", "place"), lambda one: one.place),
            (Column("dtype", "dtype"), lambda one: one.dtype),
            (Column("ops", "ops", COUNT), lambda one: one.n_ops),
            (Column("flops", "FLOPs", FLOP), lambda one: one.work.flops),
        ],
        limit=_MOST,
    )


def with_ops(metric: str, value: Value, ops: Sequence[OpWork], framework: str) -> Value:
    """Add the ops behind flops or half_precision, and the remedy of their kind, if any."""
    detail: dict[str, Any] = {}
    if value.number and metric == "flops":
        detail = _largest(ops, framework)
    elif value.number is not None and value.number < 1 and metric == "half_precision":
        is_cast = any(op.cast for op in [op for op in ops if op.is_wide][:1])
        remedy = _ALSO_IN_16_BITS if value.number else text_for(IN_16_BITS, framework)
        remedy = _NO_CAST if is_cast else remedy
        detail = {"where": _by_width(ops), "try": remedy}
    return value.changed(detail={**value.detail, **detail})


def _largest(ops: Sequence[OpWork], framework: str) -> dict[str, Any]:
    total = _flops(ops)
    if not total:
        return {}
    named = [op for op in ops[:_N_LARGEST] if op.work.flops >= _LEAST * total]
    sums = [(op.title, op.work.flops) for op in named] or _types(ops)
    where = [
        f"{title}: {format_quantity(flops, FLOP)} ({format_quantity(flops / total, SHARE)} of all)"
        for title, flops in sums
    ]
    accounted = sum(flops for _, flops in sums) / total
    detail: dict[str, Any] = {"where": "; ".join(where), "accounted": accounted}
    if kind := next((op.avoidable for op in named if op.avoidable), ""):
        left = total - sum(op.saved for op in named if op.avoidable == kind)
        remedy = text_for(_NEEDLESS[kind], framework)
        detail["try"] = f"{remedy}; flops is {format_quantity(left, FLOP)} then"
    return detail


def _types(ops: Sequence[OpWork]) -> list[tuple[str, int]]:
    """Return the types of op with the most FLOPs, where no op alone has many."""
    of_type: dict[str, list[OpWork]] = {}
    for op in ops:  # the largest first
        of_type.setdefault(op.op_type, []).append(op)
    sums = [
        (f"{name} in {len(found)} places, the largest {found[0].place}", _flops(found))
        for name, found in of_type.items()
    ]
    least = _LEAST * _flops(ops)
    return sorted((one for one in sums if one[1] >= least), key=lambda one: -one[1])[:_N_LARGEST]


def _flops(ops: Sequence[OpWork]) -> int:
    return sum(op.work.flops for op in ops)


def _by_width(ops: Sequence[OpWork]) -> str:
    """Name the matmuls and convolutions with more than 16 bits, then the others."""
    total = sum(op.work.matmul_flops for op in ops)
    wide = [
        f"{op.title} ({format_quantity(op.work.matmul_flops / total, SHARE)}, {op.dtype}"
        f"{f' since the cast {op.cast}' if op.cast else ''})"
        for op in ops
        if op.is_wide
    ]
    narrow = [f"{op.title} ({op.dtype})" for op in ops if op.work.matmul_flops and not op.is_wide]
    parts = {"more than 16 bits": wide, "16 bits": narrow}
    return "; ".join(
        f"{title}: {and_more(found, _N_OF_WIDTH)}" for title, found in parts.items() if found
    )


def _to_find(cost: OpCost) -> str:
    """Return the name of an op whose place is to be found, empty if that is known."""
    name = _own_name(cost)
    is_simple = not cost.work.matmul_flops and not _is_cast(cost)
    is_told = cost.line or (is_simple and _scopes(name)[0])
    return "" if is_told else name


def _is_cast(cost: OpCost) -> bool:
    return cost.opcode == "convert" and (
        cost.op_type in CASTS or cost.op_name.rpartition("/")[2] in CASTS
    )


def _is_gradient(cost: OpCost) -> bool:
    name = cost.op_name
    return _GRADIENT in name or "transpose(" in name or bool(_GRADIENTS.search(name))


def _own_name(cost: OpCost) -> str:
    """Return the name of an op, for a gradient that of the op that it belongs to."""
    name = _CALLS.sub("", cost.op_name.rpartition(";")[2])  # `caller's name;name` if inlined
    if inner := _GRADIENTS.search(name):  # in a loop, and of tf.gradients
        return inner[1]
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
    scopes = [one for one in scopes if _NUMBERS.sub("", one) not in _CONTROL]
    if scopes and _NUMBERS.sub("", scopes[-1]).lower() == _NUMBERS.sub("", last).lower():
        del scopes[-1]  # the op's own: `einsum_1/Einsum`
    return scopes, last, [one for one in functions if one != "main"]


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

"""
Prediction of the arrays of a step in a TPU's memory, from HLO without layouts.

Arrays that are surely in memory count: parameters, results, operands of matrix multiplications and
convolutions, and results of these, of reductions and of custom calls. Elementwise ops fuse into
them, updated variables keep their place, and arrays of at most one tile are left out. Layouts are
estimates: each array has a smallest, a likely and a largest size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_tfperf.graphs import reached
from pytest_tfperf.hlo.layout import (
    layout_text,
    leaves,
    logical_bytes,
    padded_bytes,
    padded_dimensions,
    shape_text,
)
from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule, Shape, source_line
from pytest_tfperf.hlo.walk import ELEMENTWISE, bodies, is_convolution, is_identity
from pytest_tfperf.tpu.tiles import (
    LARGE_BATCH,
    LARGEST_SKIPPED,
    Buffer,
    Generation,
    Order,
    Padding,
    common_batches,
    compact,
    convolution_orders,
    filling_sizes,
    kernels,
    row_major,
    swapped_rows,
    tiled,
)

_MATRIX = frozenset({"dot", "scaled-dot", "convolution"})
_WRITES = _MATRIX | {"reduce", "custom-call"}
_FUSED = frozenset({"broadcast", "reverse"})  # the window that reads a kernel reverses it
_VIEWS = frozenset({"reshape", "concatenate"})
_NOWHERE = frozenset(
    {"constant", "iota", "get-tuple-element", "tuple", "after-all", "partition-id", "replica-id"}
)
_TIE = (
    "batches of {} are equally common among the convolutions; it is not documented which of them"
    " determines the layout"
)


@dataclass(frozen=True, slots=True)
class _Orders:
    """The orders that convolutions give the arrays of a computation."""

    by_batch: tuple[Mapping[int, Order], ...]
    """Orders by instruction, for the most common batch and for another equally common one."""
    kernels: frozenset[int]
    """Ids of the kernels."""

    def of(self, op: HloInstruction, shape: Shape) -> list[Order]:
        """Return the orders of one array of an instruction."""
        return [
            orders[op.id]
            for orders in self.by_batch
            if len(orders.get(op.id, ())) == len(shape.dimensions) > 0
        ]


def predict(
    modules: Sequence[HloModule], generation: Generation, lines: Mapping[str, str] | None = None
) -> Padding:
    """Predict the arrays of a step; an array of an unknown type raises LayoutError."""
    batches = common_batches(modules)
    others = [
        batch for batch in batches[1:] if (batch >= LARGE_BATCH) != (batches[0] >= LARGE_BATCH)
    ][:1]
    buffers: list[Buffer] = []
    for module in modules:
        for part in bodies(module):
            orders = _Orders(
                tuple(convolution_orders(part, batch) for batch in (*batches[:1], *others)),
                kernels(part),
            )
            known = _lines_of(part, lines or {})
            for op in key_arrays(part, part.id == module.entry_id):
                buffers += _buffers(op, orders, generation, known.get(op.id))
    notes = (_TIE.format(" and ".join(map(str, batches))),) if others else ()
    return Padding(
        buffers=tuple(buffers), source="predicted", generation=generation.name, notes=notes
    )


def key_arrays(part: HloComputation, is_entry: bool) -> tuple[HloInstruction, ...]:
    """Return the instructions of a computation whose arrays are surely in memory, in order."""
    keys = {
        op.id
        for op in part.instructions.values()
        if op.opcode in _WRITES or (is_entry and op.opcode == "parameter")
    }
    for op in part.instructions.values():
        if op.opcode in _MATRIX:
            reads = _fuses if is_convolution(op) else _fuses_or_views
            keys.update(
                source.id
                for operand in part.operands(op)
                for source in _sources(operand, part, reads)
            )
    if not is_entry:
        keys = {key for key in keys if part.instructions[key].opcode != "parameter"}
    elif part.root.opcode != "parameter":
        for result in part.operands(part.root) if part.root.opcode == "tuple" else (part.root,):
            sources = _sources(result, part, _fuses_or_views)
            in_place = any(
                source.id in keys and _sizes(source) == _sizes(result) for source in sources
            )
            if not in_place and result.opcode not in _NOWHERE:
                keys.add(result.id)
    return tuple(op for op in part.instructions.values() if op.id in keys)


def padded_text(shape: Shape) -> str:
    """Write an array rounded up to its tiles, with its layout: `f32[104,1024]{1,0:T(8,128)}`."""
    return shape_text(replace(shape, dimensions=padded_dimensions(shape))) + layout_text(shape)


def _sources(
    op: HloInstruction,
    part: HloComputation,
    fuses: Callable[[HloInstruction, HloComputation], bool],
) -> list[HloInstruction]:
    """Return the instructions that an operand's reader reads from memory after fusion."""

    def reads(key: int) -> tuple[int, ...]:
        source = part.instructions[key]
        return source.operands if fuses(source, part) else ()

    sources = (part.instructions[key] for key in reached([op.id], reads))
    return [one for one in sources if one.opcode not in _NOWHERE and not fuses(one, part)]


def _fuses(op: HloInstruction, part: HloComputation) -> bool:
    """Return whether an instruction fuses into its reader."""
    return op.opcode in ELEMENTWISE or op.opcode in _FUSED or is_identity(op, part)


def _fuses_or_views(op: HloInstruction, part: HloComputation) -> bool:
    """Return whether an instruction fuses, or only adds or drops dimensions of one element."""
    views = op.opcode in _VIEWS and [_sizes(operand) for operand in part.operands(op)] == [
        _sizes(op)
    ]
    return views or _fuses(op, part)


def _sizes(op: HloInstruction) -> list[int]:
    return [size for size in op.shape.dimensions if size != 1]


def _buffers(
    op: HloInstruction, orders: _Orders, generation: Generation, line: str | None
) -> Iterator[Buffer]:
    for leaf in leaves(op.shape):
        plain = replace(leaf, tiles=(), minor_to_major=())
        layouts = _layouts(plain, op, orders, generation)
        likely = next(layouts)
        if logical_bytes(likely) and plain.dimensions and padded_bytes(likely) > LARGEST_SKIPPED:
            sizes = [padded_bytes(shape) for shape in (likely, *layouts)]
            yield Buffer(
                name=op.name,
                what=f"{op.opcode} {op.op_name}".strip(),
                shape=shape_text(plain),
                padded_shape=padded_text(likely),
                logical_bytes=logical_bytes(likely),
                padded_bytes=padded_bytes(likely),
                lower_bytes=min(sizes),
                upper_bytes=max(sizes),
                line=line,
                advice=filling_sizes(likely, None if orders.of(op, plain) else generation),
            )


def _layouts(
    shape: Shape, op: HloInstruction, orders: _Orders, generation: Generation
) -> Iterator[Shape]:
    """Yield the layouts that an array may have, the likely one first."""
    if known := orders.of(op, shape):
        yield from (tiled(shape, order, generation) for order in known)
        if op.opcode == "parameter":
            yield compact(shape, generation)
        return
    yield compact(shape, generation)
    yield row_major(shape, generation)
    if op.id in orders.kernels:
        yield swapped_rows(shape, generation)


def _lines_of(part: HloComputation, lines: Mapping[str, str]) -> dict[int, str]:
    """Return the user's source line of each instruction; of a parameter that of its first use."""
    own: dict[int, str] = {}
    known: dict[int, str] = {}
    for op in reversed(part.instructions.values()):
        if stated := lines.get(_made_by(op)) or source_line(op):
            own[op.id] = stated
        if line := stated or known.get(op.id):
            known |= dict.fromkeys((op.id, *op.operands), line)
    return {
        key: line
        for key, line in known.items()
        if key in own or part.instructions[key].opcode == "parameter"
    }


def _made_by(op: HloInstruction) -> str:
    """Return the op that an instruction was made for, the first if XLA names several."""
    return op.op_name.partition(";")[0]

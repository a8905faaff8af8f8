"""
The padding of a step as metrics and a table: measured if compiled for a TPU, else predicted.

It is measured from the layouts of the arrays in the TPU's memory. An array counts once, where an
instruction of the entry computation, or of a loop or call in it, makes it. Values inside a fusion
are never in memory; tuples, bitcasts and the state of a loop are existing arrays. Left out are
buffers of one tile, scalars, memories other than HBM (space 0) and VMEM (1), and prefetches into
VMEM. Memory spaces: xla/layout.h and libtpu's own dumps.

The matrix unit works on padding where sizes do not fill it. This is a model, not checked against
hardware: one operand streams through in rows of 8, the remaining two sizes fill the square array.
The FLOPs of M × N × K are 2·M·N·K; a convolution is the product of its windows and its kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

from pytest_tfperf.errors import LayoutError, TfperfError
from pytest_tfperf.hlo.cost import Programs, products_in
from pytest_tfperf.hlo.layout import (
    layout_text,
    leaves,
    logical_bytes,
    padded_bytes,
    padded_dimensions,
    physical_dimensions,
    rounded_up,
    shape_text,
)
from pytest_tfperf.hlo.module import HloInstruction, HloModule, Shape, source_line
from pytest_tfperf.hlo.products import Product
from pytest_tfperf.hlo.walk import bodies
from pytest_tfperf.op_types import multiplies_matrices
from pytest_tfperf.quantities import BYTES, format_quantity
from pytest_tfperf.text import plural
from pytest_tfperf.tpu.predict import predict
from pytest_tfperf.tpu.tiles import (
    LARGEST_SKIPPED,
    SUBLANES,
    Buffer,
    Generation,
    Padding,
    better_size,
    generation,
)
from pytest_tfperf.trace.devices import device_spec, tpus
from pytest_tfperf.trace.xspace import Trace
from pytest_tfperf.values import NOTES, Column, Source, Table, Unknown, Value

MEMORY, MATRIX_UNIT = "padding_overhead", "mxu_padding_overhead"
Modules = Sequence[tuple[HloModule, float]]
"""The modules of a step, each with its runs in one step."""
_WORST, _NAMED = 5, 3
_NO_HLO = "the trace does not hold the HLO of what ran on the TPU"
_NOT_LOWERED = (
    "nothing in the trace was compiled for a TPU, and padding is predicted only if pytest runs the"
    " step"
)
_EAGER = (
    "the step runs {} eagerly, whose shapes the trace does not have; put them into a tf.function"
)
_NOTHING = f"no array of the step takes more than the {LARGEST_SKIPPED:,} bytes of one tile"
_NO_PRODUCT = (
    "the step's HLO has no matrix multiplication and no convolution; library calls do not count"
)
_GROUPED = (
    "the only matrix multiplications of the step are grouped convolutions ({}), which the model"
    " does not cover"
)
_MISSING = "the trace holds the HLO of {} of the {} executables that ran on the TPU"
_TOGETHER = "it is unknown whether the positions of a window fill the matrix unit together"
_UNCERTAIN = "only a compiler for TPUs decides the layouts"
Found = tuple[dict[str, Value], dict[str, Table]]
"""The metrics of this module, and the tables behind them."""
_MEMORIES = frozenset({0, 1})
_NOT_NEW = frozenset(
    {
        "add-dependency",
        "after-all",
        "async-update",
        "bitcast",
        "constant",
        "copy-done",
        "get-tuple-element",
        "opt-barrier",
        "recv",
        "send",
        "send-done",
        "slice-done",
        "tuple",
        "while",
    }
)
"""Opcodes that make no new array, or copy one between HBM and VMEM."""
_BEGINS = "-start"  # its -done gives the result
# Types of TPUs in the names of their planes' devices (openxla/xprof, hardware_type_utils.cc).
_TYPES = {
    "2": "v2",
    "3": "v3",
    "4": "v4",
    "4 lite": "v4",
    "5 lite": "v5e",
    "5e": "v5e",
    "5": "v5p",
    "5p": "v5p",
    "6 lite": "v6e",
    "6e": "v6e",
}


def padding_values(
    eager: Sequence[tuple[str, str | None, int]],
    asked: Generation,
    lowered: Modules | Unknown,
    lines: Mapping[str, str],
    products: Iterable[Product] = (),
    executables: Programs = (),
    tpu: Generation | None = None,
    n_missing: int = 0,
) -> Found:
    """
    Compute the padding of a step: measured on a TPU, else predicted for the generation asked.

    `eager` are the ops that Python ran in the step, as in a recording, and `lowered` the modules
    before optimisation, with functions inlined, of which the products are. `lines` are of ops,
    since HLO that TensorFlow lowers does not name them. `executables` ran on `tpu`, None without
    one, and `n_missing` more whose HLO is missing.
    """
    if tpu is not None and not executables:
        return _unknown(_NO_HLO)
    modules = [costs.module for costs, _ in executables if costs.module]
    if tpu is not None or any(map(has_tiles, modules)):
        if n_missing:
            return _unknown(_MISSING.format(len(executables), len(executables) + n_missing))
        tpu = tpu or asked
        found = measured_padding(modules, tpu)
        return values_of(found, products_in(executables), tpu, Source.HLO)
    return _predicted(eager, asked, lowered, lines, products)


def _predicted(
    eager: Sequence[tuple[str, str | None, int]],
    asked: Generation,
    lowered: Modules | Unknown,
    lines: Mapping[str, str],
    products: Iterable[Product],
) -> Found:
    """Predict the padding of a step on a TPU from its HLO before optimisation."""
    outside = sorted({op for op, *_ in eager if multiplies_matrices(op)})
    if outside:
        return _unknown(_EAGER.format(", ".join(outside)))
    if isinstance(lowered, Unknown):
        return _unknown(lowered.why or _NOT_LOWERED)
    try:
        found = predict([module for module, _ in lowered], asked, lines)
        return values_of(found, products, asked, Source.PREDICTED)
    except TfperfError as error:
        return _unknown(str(error))


def padding_table(padding: Padding, limit: int = _WORST) -> Table:
    """Make the table of the arrays that waste most, with better sizes."""
    title = f"Padding on a TPU {padding.generation} ({padding.source})"
    return Table.of_each(
        title,
        padding.worst(len(padding.buffers)),
        [
            (Column("array", "array"), lambda one: one.name),
            (Column("made_by", "made by"), lambda one: one.what),
            (Column("shape", "shape"), lambda one: one.shape),
            (Column("padded", "padded"), lambda one: one.padded_shape),
            (Column("bytes", "bytes", BYTES), lambda one: one.logical_bytes),
            (Column("padded_bytes", "padded bytes", BYTES), lambda one: one.padded_bytes),
            (Column("line", "line"), lambda one: one.line or ""),
            (Column("try", "try"), lambda one: one.advice),
        ],
        limit,
    )


def values_of(
    padding: Padding | Unknown, products: Iterable[Product], tpu: Generation, source: Source
) -> Found:
    """Return the metrics and the table of a step's padding, or why it is unknown."""
    unit = _matrix_unit(products, tpu, source)
    if isinstance(padding, Unknown) or padding.overhead is None:
        why = padding.why if isinstance(padding, Unknown) else _NOTHING
        return {MEMORY: Value.unknown(MEMORY, why), MATRIX_UNIT: unit}, {}
    detail = (
        _bounds(padding.low, padding.high, _UNCERTAIN)
        | {"padding": padding.source, "tpu": tpu.name}
        | _explained(padding)
    )
    value = Value.of(MEMORY, padding.overhead, source, **detail)
    tables = {"padding": padding_table(padding)} if padding.worst(1) else {}
    return {MEMORY: value, MATRIX_UNIT: unit}, tables


def _matrix_unit(products: Iterable[Product], tpu: Generation, source: Source) -> Value:
    own, width = [one for one in products if not one.by_library], tpu.matrix_width
    grouped = list(dict.fromkeys(one.op for one in own if one.grouped))
    own = [one for one in own if not one.grouped]
    total, padded = sum(map(macs, own)), [padded_macs(one, width) for one in own]
    if not total:
        why = _GROUPED.format(", ".join(grouped[:3])) if grouped else _NO_PRODUCT
        return Value.unknown(MATRIX_UNIT, why)
    low, high = (sum(bounds) / total - 1 for bounds in zip(*padded, strict=True))
    detail: dict[str, Any] = {
        **_bounds(low, high, _TOGETHER),
        "padding": "estimated" if source is Source.HLO else "predicted",
        "tpu": tpu.name,
    }
    if grouped:
        skipped = plural(len(grouped), "grouped convolution")
        detail["without"] = f"{skipped}, which the model does not cover"
    waste = [(least - macs(one), one) for one, (least, _) in zip(own, padded, strict=True)]
    waste.sort(key=lambda row: -row[0])
    if worst := list(dict.fromkeys(one for much, one in waste if much))[:_NAMED]:
        detail["where"] = ", ".join(
            f"{one.op} ({'×'.join(str(prod(size)) for size in sizes_of(one))})"
            + (f" at {one.line}" if one.line else "")
            for one in worst
        )
        if sizes := better_sizes(worst, width):
            detail["try"] = f"sizes that fill the {width} × {width} unit: {', '.join(sizes)}"
    return Value.of(MATRIX_UNIT, low, source, **detail)


def _bounds(low: float | None, high: float | None, why: str) -> dict[str, Any]:
    return {"low": low, "high": high, "bounds": why} if low != high else {}


def _explained(padding: Padding) -> dict[str, Any]:
    """Return the largest waste and the advice as details."""
    detail: dict[str, Any] = {}
    for one in padding.worst(1):
        line = f" at {one.line}" if one.line else ""
        detail["where"] = f"most in {one.what}{line}: {one.shape} takes {one.padded_shape}"
        if one.advice:
            detail["try"] = one.advice
    if padding.notes:
        detail[NOTES] = list(padding.notes)
    return detail


def _unknown(why: str) -> Found:
    return {name: Value.unknown(name, why) for name in (MEMORY, MATRIX_UNIT)}, {}


_TYPES |= {"7": "v7x", "7x": "v7x"}


def measured_padding(modules: Iterable[HloModule], tpu: Generation) -> Padding | Unknown:
    """
    Measure the arrays that executables compiled for a TPU keep in memory.

    An array whose layout prints no tile gets the tile of the generation; the padding is then
    estimated.
    """
    try:
        found = [
            (leaf, _buffer(op, number, leaf, tpu))
            for module in modules
            for op, number, leaf in _arrays(module)
        ]
    except LayoutError as error:
        return Unknown(str(error))
    kept = [
        (leaf, buffer)
        for leaf, buffer in found
        if buffer.padded_bytes > LARGEST_SKIPPED and buffer.logical_bytes
    ]
    if not kept:
        return Unknown(
            f"none of the {len(found)} arrays that the executables keep in the TPU's memory takes "
            f"more than {format_quantity(LARGEST_SKIPPED, BYTES)}, which is one tile"
        )
    guessed = sum(not leaf.tiles for leaf, _ in kept)
    notes = []
    if guessed:
        notes.append(
            f"{guessed} of {len(kept)} arrays have no tile in their layout: they are counted with"
            f" that of {tpu.name}"
        )
    dynamic = sum(any(leaf.dynamic) for leaf, _ in kept)
    if dynamic:
        notes.append(
            f"{dynamic} of {len(kept)} arrays have dynamic sizes: they are counted at their bounds"
        )
    buffers = tuple(buffer for _, buffer in kept)
    return Padding(
        buffers=buffers,
        source="estimated" if guessed else "measured",
        generation=tpu.name,
        notes=tuple(notes),
    )


def has_tiles(module: HloModule) -> bool:
    """Return whether a compiler for TPUs laid out the arrays of a module."""
    return any(
        leaf.tiles
        for part in module.computations.values()
        for op in part.instructions.values()
        for leaf in leaves(op.shape)
    )


def trace_generation(trace: Trace) -> Generation | None:
    """Return the generation of a trace's TPUs; None if unknown."""
    names = (re.fullmatch(r"TPU ?v?(.+)", device_spec(plane).name) for plane in tpus(trace))
    known = (_TYPES.get(name[1].lower()) for name in names if name)
    return next((generation(name) for name in known if name), None)


def _arrays(module: HloModule) -> Iterator[tuple[HloInstruction, int, Shape]]:
    """
    Yield the arrays in a TPU's memory, with their instruction and their number among its results.
    """
    for part in bodies(module):
        is_entry = part.id == module.entry_id
        handed_on = (
            set()
            if is_entry
            else {part.root_id, *part.root.operands}
            if part.root.opcode == "tuple"
            else {part.root_id}
        )
        for op in part.instructions.values():
            if (
                op.opcode in _NOT_NEW
                or op.opcode.endswith(_BEGINS)
                or op.id in handed_on
                or (op.opcode == "parameter" and not is_entry)
            ):
                continue
            for number, leaf in enumerate(leaves(op.shape)):
                if leaf.dimensions and leaf.memory_space in _MEMORIES:
                    yield op, number, leaf


def _buffer(op: HloInstruction, number: int, leaf: Shape, tpu: Generation) -> Buffer:
    sized = _sized(leaf, tpu)
    what = f"{op.opcode} {op.op_name}".strip()
    return replace(
        sized,
        name=f"{op.name}.{number}" if op.shape.dtype == "tuple" else op.name,
        what=what,
        line=source_line(op),
    )


@lru_cache(maxsize=4096)
def _sized(leaf: Shape, tpu: Generation) -> Buffer:
    """Measure an array of a shape, without the facts of its instruction."""
    bits = leaf.element_bits or max(8, leaf.bits)
    shape = (
        leaf
        if leaf.tiles or not leaf.bits
        else replace(leaf, tiles=(tpu.tile(bits, physical_dimensions(leaf)),))
    )
    padded = padded_bytes(shape)
    return Buffer(
        name="",
        what="",
        shape=shape_text(shape) + layout_text(shape),
        padded_shape=shape_text(replace(shape, dimensions=padded_dimensions(shape))),
        logical_bytes=logical_bytes(shape),
        padded_bytes=padded,
        upper_bytes=padded,
        advice=better_size(shape),
    )


def sizes_of(product: Product) -> tuple[tuple[int, int], ...]:
    """
    Return M, N and K, M × K by K × N, each as (size, repeats).

    The positions of a window repeat the features. They may fill the matrix unit together, or each
    position alone. Where the input is dilated, as in gradients of strided convolutions, only its
    own positions count. In the gradient of a kernel the examples are summed and the window is the
    result.
    """
    matmul, windows = product.matmul, product.matmul.windows
    m, n, k = (matmul.rows, 1), (matmul.columns, 1), (matmul.depth, 1)
    if windows and windows.is_kernel_gradient:
        m = (windows.examples, windows.own_positions)
    elif windows:
        m = (windows.examples * windows.own_positions, 1)
        k = (windows.channels_in, windows.taps)
    return m, n, k


def macs(product: Product) -> float:
    """Return the number of multiply-adds of a product in a step."""
    return product.runs * product.matmul.batch * prod(map(prod, sizes_of(product)))


def padded_macs(product: Product, width: int) -> tuple[float, float]:
    """Compute lower and upper bound of the multiply-adds with padding on a matrix unit."""
    sizes, count = sizes_of(product), product.runs * product.matmul.batch
    steps = (SUBLANES, width)
    least = _least([[rounded_up(prod(one), step) for one in sizes] for step in steps])
    alone = [[rounded_up(size, step) * repeats for size, repeats in sizes] for step in steps]
    return count * least, count * max(least, _least(alone))


def filling_steps(product: Product, width: int) -> dict[int, int]:
    """Return the sizes that leave padding, each with the number that it should be a multiple of."""
    m, n, k = map(prod, sizes_of(product))
    m_streams = rounded_up(m, SUBLANES) * rounded_up(n, width) <= rounded_up(
        n, SUBLANES
    ) * rounded_up(m, width)
    streamed, filling = (m, n) if m_streams else (n, m)
    steps = {streamed: SUBLANES} | {filling: width, k: width}
    return {size: step for size, step in steps.items() if size % step}


def better_sizes(products: Iterable[Product], width: int) -> list[str]:
    """
    Return changes of sizes that leave no padding in any of some products: `129 → 128 or 256`.

    A size of less than half of its step is given by the task, as one result or ten classes are.
    """
    steps: dict[int, int] = {}
    for one in products:
        for size, step in filling_steps(one, width).items():
            steps[size] = max(step, steps.get(size, 0))
    near = {
        size: [str(one) for one in (size // step * step, rounded_up(size, step)) if one]
        for size, step in steps.items()
        if 2 * size >= step
    }
    return [f"{size} → {' or '.join(sizes)}" for size, sizes in near.items()]


def _least(sizes: Sequence[Sequence[int]]) -> int:
    """
    Return the lower cost: M streams and N × K fill the array, or N streams and M × K do.

    The sizes are (streamed, filling).
    """
    (m_rows, n_rows, _), (m, n, k) = sizes
    return min(m_rows * n * k, n_rows * m * k)

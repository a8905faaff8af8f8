"""
Padding of executables compiled for a TPU, from the layouts of the arrays in its memory.

An array counts once, where an instruction of the entry computation, or of a loop or call in it,
makes it. Values inside a fusion are never in memory; tuples, bitcasts and the state of a loop are
existing arrays. Left out are buffers of one tile, scalars, memories other than HBM (space 0) and
VMEM (1), and prefetches into VMEM. Memory spaces: xla/layout.h and libtpu's own dumps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from pytest_tfperf.errors import LayoutError
from pytest_tfperf.hlo.layout import (
    layout_text,
    leaves,
    logical_bytes,
    padded_bytes,
    padded_dimensions,
    physical_dimensions,
    shape_text,
)
from pytest_tfperf.hlo.module import HloInstruction, HloModule, Shape, source_line
from pytest_tfperf.hlo.walk import bodies
from pytest_tfperf.padding.tiles import (
    LARGEST_SKIPPED,
    Buffer,
    Generation,
    Padding,
    better_size,
    generation,
)
from pytest_tfperf.quantities import BYTES, format_quantity
from pytest_tfperf.trace.devices import device_spec, tpus
from pytest_tfperf.trace.xspace import Trace
from pytest_tfperf.values import Unknown

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

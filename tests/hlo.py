"""
XLA modules for tests, written like HLO text.

    module(main=[op("a", "parameter", "f32[8,4]"), op("b", "dot", "f32[8,8]", "a", "w", dot=dot([1], [0]))])

The computations stand in order, callees first; the last one is run. Of each the last instruction is the root.
"""

import re
from dataclasses import replace

from pytest_tfperf.trace.hlo_module import (
    ConvolutionDimensions,
    DotDimensions,
    HloComputation,
    HloInstruction,
    HloModule,
    Shape,
    WindowDimension,
)


def shape(text, **layout):
    """`bf16[8,4]`, a scalar `s32[]`, a tuple `(f32[8], u8[4])`."""
    if text.startswith("("):
        return Shape("tuple", parts=tuple(shape(part) for part in re.findall(r"\w+\[[\d,]*\]", text)))
    dtype, sizes = re.fullmatch(r"(\w+)\[([\d,]*)\]", text).groups()
    return Shape(dtype, tuple(int(size) for size in sizes.split(",") if size), **layout)


def op(name, opcode, result, *operands, called=(), layout=None, **more):
    """An instruction whose operands and callees are names."""
    return HloInstruction(0, name, opcode, shape(result, **(layout or {})), operands, called, **more)


def parameters(*shapes):
    """Parameters p0, p1, … of these shapes."""
    return [op(f"p{number}", "parameter", result, parameter_number=number) for number, result in enumerate(shapes)]


def dot(lhs, rhs, lhs_batch=(), rhs_batch=()):
    return DotDimensions(tuple(lhs), tuple(rhs), tuple(lhs_batch), tuple(rhs_batch))


def window(*sizes, stride=1, pad=(0, 0), dilate=1, base=1):
    return tuple(WindowDimension(size, stride, *pad, dilate, base) for size in sizes)


def labels(text):
    """Dimension labels as in HLO text: `b01f_01io->b01f`."""
    data, kernel, output = re.fullmatch(r"(\w+)_(\w+)->(\w+)", text).groups()
    spatial = [str(number) for number in range(len(data) - 2)]
    places = [tuple(map(side.index, spatial)) for side in (data, kernel, output)]
    return ConvolutionDimensions(
        data.index("b"), data.index("f"), places[0], kernel.index("i"), kernel.index("o"), places[1],
        output.index("b"), output.index("f"), places[2],
    )  # fmt: skip


def module(scheduled=False, **computations):
    parts, ids = {}, {}
    for name, ops in computations.items():
        ids[name] = len(ids) + 1
        keys = {one.name: place for place, one in enumerate(ops)}
        placed = {
            place: replace(
                one, id=place, operands=tuple(map(keys.__getitem__, one.operands)), called=tuple(map(ids.__getitem__, one.called))
            )
            for place, one in enumerate(ops)
        }
        parts[ids[name]] = HloComputation(ids[name], name, len(ops) - 1, placed)
    return HloModule("m", len(ids), parts, scheduled)

"""
XLA modules for tests, written like HLO text.

    module(main=[op("a", "parameter", "f32[8,4]"), op("b", "dot", "f32[8,8]", "a", "w", dot=dot([1], [0]))])

The computations stand in order, callees first; the last one is run. Of each the last instruction is the root.
"""

import re
from dataclasses import replace

from helpers.xspace import at, field, line, plane, space, varint

from pytest_tfperf.hlo.module import (
    DTYPES,
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
        return Shape(
            "tuple", parts=tuple(shape(part) for part in re.findall(r"\w+\[[\d,]*\]", text))
        )
    dtype, sizes = re.fullmatch(r"(\w+)\[([\d,]*)\]", text).groups()
    return Shape(dtype, tuple(int(size) for size in sizes.split(",") if size), **layout)


def op(name, opcode, result, *operands, called=(), layout=None, **more):
    """An instruction whose operands and callees are names."""
    return HloInstruction(
        0, name, opcode, shape(result, **(layout or {})), operands, called, **more
    )


def parameters(*shapes):
    """Parameters p0, p1, … of these shapes."""
    return [
        op(f"p{number}", "parameter", result, parameter_number=number)
        for number, result in enumerate(shapes)
    ]


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
        data.index("b"),
        data.index("f"),
        places[0],
        kernel.index("i"),
        kernel.index("o"),
        places[1],
        output.index("b"),
        output.index("f"),
        places[2],
    )


def module(scheduled=False, **computations):
    parts, ids = {}, {}
    for name, ops in computations.items():
        ids[name] = len(ids) + 1
        keys = {one.name: place for place, one in enumerate(ops)}
        placed = {
            place: replace(
                one,
                id=place,
                operands=tuple(map(keys.__getitem__, one.operands)),
                called=tuple(map(ids.__getitem__, one.called)),
            )
            for place, one in enumerate(ops)
        }
        parts[ids[name]] = HloComputation(ids[name], name, len(ops) - 1, placed)
    return HloModule("m", len(ids), parts, scheduled)


def encoded(made):
    """A module as the bytes of its HloModuleProto: names, opcodes, shapes, operands, callees and metadata."""
    parts = [
        field(1, part.name)
        + field(5, part.id)
        + field(6, part.root_id)
        + b"".join(field(2, _instruction(op)) for op in part.instructions.values())
        for part in made.computations.values()
    ]
    return (
        field(1, made.name) + field(6, made.entry_id) + b"".join(field(3, part) for part in parts)
    )


def _instruction(op):
    texts = {1: op.op_type, 2: op.op_name}
    metadata = b"".join(field(number, text) for number, text in texts.items() if text)
    fields = {
        1: op.name,
        2: op.opcode,
        3: _shape(op.shape),
        7: metadata,
        9: op.parameter_number,
        11: op.fusion_kind,
        35: op.id,
        36: b"".join(map(varint, op.operands)),
        38: b"".join(map(varint, op.called)),
    }
    return b"".join(field(number, value) for number, value in fields.items())


def _shape(made):
    number = next(number for number, name in DTYPES.items() if name == made.dtype)
    return (
        field(2, number)
        + field(3, b"".join(map(varint, made.dimensions)))
        + b"".join(field(4, _shape(part)) for part in made.parts)
    )


def trace_of(modules, ran=(), steps=True):
    """The bytes of a CPU's trace of one step, with these executables by name in its metadata, of which some ran, by program id."""
    thunks = [
        at("tanh", n + 0.1, n + 0.2, hlo_op="i", hlo_module="m", program_id=program)
        for n, program in enumerate(ran)
    ]
    runs = [at("CpuExecutable::ExecuteAsyncOnStream", n, n + 0.9) for n, _ in enumerate(ran)]
    marks = [at("train", 0, 100, step_num=0, _r=1)] if steps else []
    metadata = {name: {"Hlo Proto": field(1, encoded(made))} for name, made in modules.items()}
    return space(
        plane("/host:CPU", line("marks", *marks), line("t", *runs, *thunks)),
        plane("/host:metadata", metadata=metadata),
    )

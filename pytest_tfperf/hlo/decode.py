"""
Decoding of XLA modules from their bytes, without a protobuf library.

Field numbers are those of xla/service/hlo.proto and xla/xla_data.proto (openxla/xla).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TypeVar

from pytest_tfperf.files import is_installed
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
from pytest_tfperf.protobuf import BYTES, VARINT, Message

T = TypeVar("T")

_SCALARS = {
    "pred": (2, ""),
    "s32": (4, ""),
    "s64": (5, ""),
    "u32": (6, ""),
    "u64": (7, ""),
    "s8": (15, "<b"),
    "u8": (3, "<B"),
    "s16": (17, "<h"),
    "u16": (16, "<H"),
    "f16": (11, "<e"),
    "bf16": (13, "<H"),
    "f32": (8, "<f"),
    "f64": (9, "<d"),
}
"""Fields of LiteralProto with their codes for `struct`; types without a code are varints."""
_DEEPEST = 100  # nested shapes; protobuf's own limit


def decode_module(raw: bytes, name: str) -> HloModule:
    """
    Decode the bytes of an HloModuleProto; `name` stands in error messages.

    Raises:
        TraceError: If the bytes are not an HloModuleProto, or operands or callees are missing or
            come after their users.
    """
    return module_at(Message(raw, name), 0, len(raw))


def module_at(message: Message, begin: int, end: int) -> HloModule:
    """
    Decode the HloModuleProto in this part of a message.

    Args:
        message: The message.
        begin: Offset of the module's first byte.
        end: Offset behind its last byte.

    Raises:
        TraceError: As in `decode_module`.
    """
    reader = _Reader(message)
    fields = reader.fields(begin, end, "HloModuleProto")
    reader.frames = [line for span in fields.spans(17) for line in reader.stack_frames(*span)]
    computations: dict[int, HloComputation] = {}
    for span in fields.spans(3):
        computation = reader.computation(*span, computations)
        computations[computation.id] = computation
    entry = fields.integer(6)
    if entry not in computations:
        raise message.error("HloModuleProto", begin, f"there is no computation {entry} to enter")
    return HloModule(fields.text(1), entry, computations, bool(fields.spans(7)))


def shape_at(message: Message, begin: int, end: int) -> Shape:
    """
    Decode the ShapeProto in bytes `begin:end` of a message.

    Args:
        message: The message.
        begin: Offset of the shape's first byte.
        end: Offset behind the shape.

    Raises:
        TraceError: If the bytes are not a ShapeProto.
    """
    return _Reader(message).shape(begin, end)


class _Fields:
    """The fields of one message by number."""

    __slots__ = ("found", "message", "where")

    def __init__(self, message: Message, begin: int, end: int, where: str) -> None:
        self.message = message
        self.where = where
        self.found: dict[int, list[tuple[int, int, int]]] = {}
        for number, wire, value, behind in message.fields(begin, end, where):
            self.found.setdefault(number, []).append((wire, value, behind))

    def integer(self, number: int, default: int = 0) -> int:
        values = [value for wire, value, _ in self.found.get(number, ()) if wire == VARINT]
        return self.message.signed(values[-1]) if values else default

    def integers(self, number: int) -> tuple[int, ...]:
        """Return the values of a repeated number, packed or not."""
        values: list[int] = []
        for wire, value, behind in self.found.get(number, ()):
            if wire == VARINT:
                values.append(self.message.signed(value))
            while wire == BYTES and value < behind:
                item, value = self.message.varint(value, behind, self.where)
                values.append(self.message.signed(item))
        return tuple(values)

    def spans(self, number: int) -> list[tuple[int, int]]:
        return [
            (value, behind) for wire, value, behind in self.found.get(number, ()) if wire == BYTES
        ]

    def text(self, number: int) -> str:
        spans = self.spans(number)
        return self.message.text(*spans[-1]) if spans else ""


class _Reader:
    """Decoder of the parts of one module; equal shapes are decoded once."""

    __slots__ = ("frames", "message", "shapes")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.frames: list[tuple[str, int]] = []
        self.shapes: dict[bytes, Shape] = {}

    def fields(self, begin: int, end: int, where: str) -> _Fields:
        return _Fields(self.message, begin, end, where)

    def stack_frames(self, begin: int, end: int) -> Iterator[tuple[str, int]]:
        """
        Yield file and line of each stack frame, whose ids count from 1.

        A frame of an installed package gives way to its nearest caller outside of one.
        StackFrameIndexProto: file_names = 1, file_locations = 3 (file_name_id = 1, line = 3),
        stack_frames = 4 (file_location_id = 1, parent_frame_id = 2).
        """
        fields = self.fields(begin, end, "StackFrameIndexProto")
        names = ["", *(self.message.text(*span) for span in fields.spans(1))]
        places = [self.fields(*span, "FileLocation") for span in fields.spans(3)]
        lines = [("", 0), *((_at(names, one.integer(1), ""), one.integer(3)) for one in places)]
        frames = [self.fields(*span, "StackFrame") for span in fields.spans(4)]
        found = [_at(lines, one.integer(1), ("", 0)) for one in frames]
        users: list[tuple[str, int] | None] = []
        for number, (line, frame) in enumerate(zip(found, frames, strict=True)):
            caller = frame.integer(2) - 1  # callers come first
            behind = users[caller] if 0 <= caller < number else None
            users.append(behind if is_installed(line[0]) else line)
        yield from (user or line for user, line in zip(users, found, strict=True))

    def source(self, metadata: _Fields) -> tuple[str, int]:
        """Return file and line of an instruction, which newer XLA tells by a stack frame."""
        if metadata.found.get(3):
            return metadata.text(3), metadata.integer(4)
        frame = metadata.integer(15)
        return self.frames[frame - 1] if 0 < frame <= len(self.frames) else ("", 0)

    def computation(
        self, begin: int, end: int, before: dict[int, HloComputation]
    ) -> HloComputation:
        fields = self.fields(begin, end, "HloComputationProto")
        instructions: dict[int, HloInstruction] = {}
        for span in fields.spans(2):
            found = self.instruction(*span)
            missing = [key for key in found.operands if key not in instructions] + [
                key for key in found.called if key not in before
            ]
            if missing or found.id in instructions:
                what = (
                    f"{found.name!r} needs {missing[0]}, which does not come before it"
                    if missing
                    else f"two instructions have the id {found.id}"
                )
                raise self.message.error("HloInstructionProto", span[0], what)
            instructions[found.id] = found
        root, key = fields.integer(6), fields.integer(5)
        if root not in instructions or key in before:
            what = (
                f"two computations have the id {key}"
                if key in before
                else f"there is no instruction {root} to return"
            )
            raise self.message.error("HloComputationProto", begin, what)
        return HloComputation(key, fields.text(1), root, instructions)

    def instruction(self, begin: int, end: int) -> HloInstruction:
        fields = self.fields(begin, end, "HloInstructionProto")
        metadata = self.fields(*[(0, 0), *fields.spans(7)][-1], "OpMetadata")
        shapes = [self.shape(*span) for span in fields.spans(3)]
        file, line = self.source(metadata)
        padding = [
            inner
            for span in fields.spans(21)
            for inner in self.fields(*span, "PaddingConfig").spans(1)
        ]
        return HloInstruction(
            id=fields.integer(35),
            name=fields.text(1),
            opcode=fields.text(2),
            shape=shapes[-1] if shapes else Shape("token"),
            operands=fields.integers(36),
            called=fields.integers(38),
            op_type=metadata.text(1),
            op_name=metadata.text(2),
            source_file=file,
            source_line=line,
            parameter_number=fields.integer(9),
            tuple_index=fields.integer(13),
            dimensions=fields.integers(14),
            fft_length=fields.integers(32),
            window=tuple(window for span in fields.spans(15) for window in self.window(*span)),
            dot=next((self.dot(*span) for span in fields.spans(30)), None),
            precision=next((self.precision(*span) for span in fields.spans(51)), (0, 0)),
            convolution=next((self.convolution(*span) for span in fields.spans(16)), None),
            feature_groups=max(1, fields.integer(50)),
            batch_groups=max(1, fields.integer(58)),
            fusion_kind=fields.text(11),
            custom_call_target=fields.text(28),
            backend_config=fields.text(43),
            direction=fields.text(63),
            constant=self.scalar(shapes[-1], *fields.spans(8)[-1])
            if shapes and fields.spans(8)
            else None,
            slices=tuple(self.three(*span, "SliceDimensions") for span in fields.spans(17)),
            padding=tuple(self.three(*span, "PaddingConfigDimension") for span in padding),
        )

    def three(self, begin: int, end: int, where: str) -> tuple[int, int, int]:
        fields = self.fields(begin, end, where)
        return fields.integer(1), fields.integer(2), fields.integer(3)

    def scalar(self, shape: Shape, begin: int, end: int) -> bool | float | None:
        """
        Return the number in a LiteralProto; None for arrays and other types.

        Args:
            shape: Shape of the literal.
            begin: Offset of its first byte.
            end: Offset behind it.
        """
        number, code = _SCALARS.get(shape.dtype, (0, ""))
        if shape.dimensions or not number:
            return None
        fields = self.fields(begin, end, "LiteralProto")
        if not code:
            value = next(iter(fields.integers(number)), 0)
            return (
                bool(value)
                if shape.dtype == "pred"
                else value % (1 << 64)
                if shape.dtype == "u64"
                else value
            )
        raw = b"".join(self.message.slice(*span) for span in fields.spans(number))
        if len(raw) != struct.calcsize(code):
            return None
        if shape.dtype == "bf16":  # the upper half of a float32
            code, raw = "<f", bytes(2) + raw
        return struct.unpack(code, raw)[0]  # type: ignore[no-any-return]

    def shape(self, begin: int, end: int, depth: int = 0) -> Shape:
        key = self.message.slice(begin, end)
        if key not in self.shapes:
            self.shapes[key] = self._shape(begin, end, depth)
        return self.shapes[key]

    def _shape(self, begin: int, end: int, depth: int) -> Shape:
        """
        Decode a ShapeProto.

        Its LayoutProto has minor_to_major = 1, tiles = 6, element_size_in_bits = 7, memory_space =
        8 and tail_padding_alignment_in_elements = 16.

        Args:
            begin: Offset of the shape's first byte.
            end: Offset behind the shape.
            depth: Number of tuples around the shape.
        """
        if depth > _DEEPEST:
            raise self.message.error("ShapeProto", begin, f"more than {_DEEPEST} nested shapes")
        fields = self.fields(begin, end, "ShapeProto")
        dimensions = fields.integers(3)
        if any(size < 0 for size in dimensions):
            raise self.message.error(
                "ShapeProto", begin, f"a dimension has the size {min(dimensions)}"
            )
        layout = [self.fields(*span, "LayoutProto") for span in fields.spans(5)][-1:] or [
            self.fields(0, 0, "LayoutProto")
        ]
        number = fields.integer(2)
        return Shape(
            dtype=DTYPES.get(number, f"type {number}"),
            dimensions=dimensions,
            dynamic=tuple(bool(value) for value in fields.integers(6)),
            minor_to_major=layout[0].integers(1),
            tiles=tuple(self.fields(*span, "TileProto").integers(1) for span in layout[0].spans(6)),
            memory_space=layout[0].integer(8),
            element_bits=max(0, layout[0].integer(7)),
            parts=tuple(self.shape(*span, depth + 1) for span in fields.spans(4)),
            tail_alignment=max(1, layout[0].integer(16)),
        )

    def window(self, begin: int, end: int) -> Iterator[WindowDimension]:
        for span in self.fields(begin, end, "Window").spans(1):
            fields = self.fields(*span, "WindowDimension")
            size, stride, low, high, dilation, base, reversal = (
                fields.integer(number) for number in range(1, 8)
            )
            yield WindowDimension(
                size, max(1, stride), low, high, max(1, dilation), max(1, base), bool(reversal)
            )

    def dot(self, begin: int, end: int) -> DotDimensions:
        fields = self.fields(begin, end, "DotDimensionNumbers")
        return DotDimensions(*(fields.integers(number) for number in range(1, 5)))

    def precision(self, begin: int, end: int) -> tuple[int, int]:
        fields = self.fields(begin, end, "PrecisionConfig")
        return max(fields.integers(1), default=0), fields.integer(2)

    def convolution(self, begin: int, end: int) -> ConvolutionDimensions:
        fields = self.fields(begin, end, "ConvolutionDimensionNumbers")
        one, many = fields.integer, fields.integers
        return ConvolutionDimensions(
            one(7), one(8), many(11), one(3), one(4), many(6), one(9), one(10), many(12)
        )


def _at(values: Sequence[T], place: int, other: T) -> T:
    """Return the value at a place; another one where there is none."""
    return values[place] if 0 <= place < len(values) else other

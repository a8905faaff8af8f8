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
from pytest_tfperf.protobuf import Message, Record

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

    Raises TraceError if they are none, or operands or callees lack or come after their users.
    """
    return module_at(Message(raw, name), 0, len(raw))


def module_at(message: Message, begin: int, end: int) -> HloModule:
    """Decode the HloModuleProto in bytes `begin:end` of a message."""
    reader = _Reader(message)
    fields = Record(message, begin, end, "HloModuleProto")
    frames = fields.records(17, "StackFrameIndexProto")
    reader.frames = [line for one in frames for line in reader.stack_frames(one)]
    computations: dict[int, HloComputation] = {}
    for part in fields.records(3, "HloComputationProto"):
        computation = reader.computation(part, computations)
        computations[computation.id] = computation
    entry = fields.integer(6)
    if entry not in computations:
        raise fields.error(f"there is no computation {entry} to enter")
    return HloModule(
        name=fields.text(1),
        entry_id=entry,
        computations=computations,
        scheduled=bool(fields.spans(7)),
        devices=_devices(fields.record(15, "DeviceAssignmentProto")),
    )


def shape_at(message: Message, begin: int, end: int) -> Shape:
    """Decode the ShapeProto in bytes `begin:end` of a message."""
    return _Reader(message).shape(begin, end)


class _Reader:
    """Decoder of the parts of one module; equal shapes are decoded once."""

    __slots__ = ("frames", "message", "shapes")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.frames: list[tuple[str, int]] = []
        self.shapes: dict[bytes, Shape] = {}

    def stack_frames(self, fields: Record) -> Iterator[tuple[str, int]]:
        """
        Yield file and line of each stack frame, whose ids count from 1.

        A frame of an installed package gives way to its nearest caller outside of one.
        StackFrameIndexProto: file_names = 1, file_locations = 3 (file_name_id = 1, line = 3),
        stack_frames = 4 (file_location_id = 1, parent_frame_id = 2).
        """
        names = ["", *(self.message.text(*span) for span in fields.spans(1))]
        places = fields.records(3, "FileLocation")
        lines = [("", 0), *((_at(names, one.integer(1), ""), one.integer(3)) for one in places)]
        frames = list(fields.records(4, "StackFrame"))
        found = [_at(lines, one.integer(1), ("", 0)) for one in frames]
        users: list[tuple[str, int] | None] = []
        for number, (line, frame) in enumerate(zip(found, frames, strict=True)):
            caller = frame.integer(2) - 1  # callers come first
            behind = users[caller] if 0 <= caller < number else None
            users.append(behind if is_installed(line[0]) else line)
        yield from (user or line for user, line in zip(users, found, strict=True))

    def source(self, metadata: Record) -> tuple[str, int]:
        """Return file and line of an instruction, which newer XLA tells by a stack frame."""
        if 3 in metadata:
            return metadata.text(3), metadata.integer(4)
        frame = metadata.integer(15)
        return self.frames[frame - 1] if 0 < frame <= len(self.frames) else ("", 0)

    def computation(self, fields: Record, before: dict[int, HloComputation]) -> HloComputation:
        instructions: dict[int, HloInstruction] = {}
        for one in fields.records(2, "HloInstructionProto"):
            found = self.instruction(one)
            missing = [key for key in found.operands if key not in instructions] + [
                key for key in found.called if key not in before
            ]
            if missing or found.id in instructions:
                what = (
                    f"{found.name!r} needs {missing[0]}, which does not come before it"
                    if missing
                    else f"two instructions have the id {found.id}"
                )
                raise one.error(what)
            instructions[found.id] = found
        root, key = fields.integer(6), fields.integer(5)
        if root not in instructions or key in before:
            what = (
                f"two computations have the id {key}"
                if key in before
                else f"there is no instruction {root} to return"
            )
            raise fields.error(what)
        return HloComputation(key, fields.text(1), root, instructions)

    def instruction(self, fields: Record) -> HloInstruction:
        metadata = fields.record(7, "OpMetadata")
        shapes = [self.shape(*span) for span in fields.spans(3)]
        file, line = self.source(metadata)
        padding = [
            inner
            for config in fields.records(21, "PaddingConfig")
            for inner in config.records(1, "PaddingConfigDimension")
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
            window=tuple(side for one in fields.records(15, "Window") for side in _window(one)),
            dot=next(map(_dot, fields.records(30, "DotDimensionNumbers")), None),
            precision=next(map(_precision, fields.records(51, "PrecisionConfig")), (0, 0)),
            convolution=next(
                map(_convolution, fields.records(16, "ConvolutionDimensionNumbers")), None
            ),
            feature_groups=max(1, fields.integer(50)),
            batch_groups=max(1, fields.integer(58)),
            fusion_kind=fields.text(11),
            custom_call_target=fields.text(28),
            backend_config=fields.text(43),
            direction=fields.text(63),
            constant=self.scalar(shapes[-1], fields) if shapes and fields.spans(8) else None,
            slices=tuple(map(_three, fields.records(17, "SliceDimensions"))),
            padding=tuple(map(_three, padding)),
            replica_groups=_replica_groups(fields),
        )

    def scalar(self, shape: Shape, constant: Record) -> bool | float | None:
        """Return the number in a constant's LiteralProto; None for arrays and other types."""
        number, code = _SCALARS.get(shape.dtype, (0, ""))
        if shape.dimensions or not number:
            return None
        fields = constant.record(8, "LiteralProto")
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
        """
        if depth > _DEEPEST:
            raise self.message.error("ShapeProto", begin, f"more than {_DEEPEST} nested shapes")
        fields = Record(self.message, begin, end, "ShapeProto")
        dimensions = fields.integers(3)
        if any(size < 0 for size in dimensions):
            raise fields.error(f"a dimension has the size {min(dimensions)}")
        layout = fields.record(5, "LayoutProto")
        number = fields.integer(2)
        return Shape(
            dtype=DTYPES.get(number, f"type {number}"),
            dimensions=dimensions,
            dynamic=tuple(bool(value) for value in fields.integers(6)),
            minor_to_major=layout.integers(1),
            tiles=tuple(tile.integers(1) for tile in layout.records(6, "TileProto")),
            memory_space=layout.integer(8),
            element_bits=max(0, layout.integer(7)),
            parts=tuple(self.shape(*span, depth + 1) for span in fields.spans(4)),
            tail_alignment=max(1, layout.integer(16)),
        )


def _window(fields: Record) -> Iterator[WindowDimension]:
    for one in fields.records(1, "WindowDimension"):
        size, stride, low, high, dilation, base, reversal = map(one.integer, range(1, 8))
        yield WindowDimension(
            size, max(1, stride), low, high, max(1, dilation), max(1, base), bool(reversal)
        )


def _dot(fields: Record) -> DotDimensions:
    return DotDimensions(*map(fields.integers, range(1, 5)))


def _precision(fields: Record) -> tuple[int, int]:
    return max(fields.integers(1), default=0), fields.integer(2)


def _convolution(fields: Record) -> ConvolutionDimensions:
    one, many = fields.integer, fields.integers
    return ConvolutionDimensions(
        one(7), one(8), many(11), one(3), one(4), many(6), one(9), one(10), many(12)
    )


def _three(fields: Record) -> tuple[int, int, int]:
    return fields.integer(1), fields.integer(2), fields.integer(3)


def _replica_groups(fields: Record) -> str:
    """
    Return the groups of a collective, or its pairs of source and target, as in HLO text.

    HloInstructionProto replica_groups = 49 → replica_ids = 1, source_target_pairs = 52 → source =
    1, target = 2, collective_device_list = 87 → (replica_groups = 1, iota_replica_group_list = 2).
    IotaReplicaGroupListProto: num_replica_groups = 1, num_devices_per_group = 2, iota_reshape_dims
    = 3, iota_transpose_perm = 4.
    """
    rows = [group.integers(1) for group in fields.records(49, "ReplicaGroup")]
    for devices in fields.records(87, "CollectiveDeviceListProto"):
        for iota in devices.records(2, "IotaReplicaGroupListProto"):
            sizes = _listed(iota.integers(1) + iota.integers(2))
            order = _listed(iota.integers(4))
            turned = f"T({order})" if order not in ("", "0") else ""
            return f"[{sizes}]<=[{_listed(iota.integers(3))}]{turned}"
        rows += [group.integers(1) for group in devices.records(1, "ReplicaGroup")]
    for pair in fields.records(52, "SourceTarget"):
        rows.append((pair.integer(1), pair.integer(2)))
    return "{" + ",".join("{" + _listed(row) + "}" for row in rows) + "}" if rows else ""


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _devices(fields: Record) -> tuple[int, ...]:
    """
    Return the ids of a module's devices by global id.

    DeviceAssignmentProto computation_devices = 3 → replica_device_ids = 1. The global id of HLO is
    replica × number of computations + computation.
    """
    columns = [one.integers(1) for one in fields.records(3, "ComputationDevice")]
    if len({len(column) for column in columns}) != 1:
        return ()
    return tuple(device for row in zip(*columns, strict=True) for device in row)


def _at(values: Sequence[T], place: int, other: T) -> T:
    """Return the value at a place; another one where there is none."""
    return values[place] if 0 <= place < len(values) else other

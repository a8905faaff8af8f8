"""
XLA modules as frozen values.

Names are XLA's own: xla/service/hlo.proto and xla/xla_data.proto (openxla/xla).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

from pytest_tfperf.files import is_installed

_NO_FILE = "dummy_file_name"  # what TensorFlow writes where it knows no line (2.18 to 2.22)
# xla_data.proto, PrimitiveType, spelled as in HLO text
DTYPES = {
    1: "pred",
    2: "s8",
    3: "s16",
    4: "s32",
    5: "s64",
    6: "u8",
    7: "u16",
    8: "u32",
    9: "u64",
    10: "f16",
    11: "f32",
    12: "f64",
    13: "tuple",
    14: "opaque",
    15: "c64",
    16: "bf16",
    17: "token",
    18: "c128",
    19: "f8e5m2",
    20: "f8e4m3fn",
    21: "s4",
    22: "u4",
    23: "f8e4m3b11fnuz",
    24: "f8e5m2fnuz",
    25: "f8e4m3fnuz",
    26: "s2",
    27: "u2",
    28: "f8e4m3",
    29: "f8e3m4",
    30: "s1",
    31: "u1",
    32: "f4e2m1fn",
    33: "f8e8m0fnu",
    34: "buffer",
}
_BITS = {
    name: int((re.findall(r"\d+", name) or ["8" if name == "pred" else "0"])[0])
    for name in DTYPES.values()
}


@dataclass(frozen=True, slots=True)
class Shape:
    """An array with its layout, or a tuple of shapes."""

    dtype: str
    """Type of the elements as in HLO text (`f32`), or `tuple`."""
    dimensions: tuple[int, ...] = ()
    """Sizes of the dimensions; dynamic ones at their bound."""
    dynamic: tuple[bool, ...] = ()
    """For each dimension, whether its size is an upper bound."""
    minor_to_major: tuple[int, ...] = ()
    """Dimensions of the layout, the fastest first; empty if there is no layout."""
    tiles: tuple[tuple[int, ...], ...] = ()
    """Tiles of the layout, the outermost first."""
    memory_space: int = 0
    """Number of the memory space (xla/layout.h)."""
    element_bits: int = 0
    """Bits that the layout stores for an element; 0 for those of the dtype."""
    parts: tuple[Shape, ...] = ()
    tail_alignment: int = 1
    """Number of elements that the layout rounds the array up to a multiple of."""

    @property
    def bits(self) -> int:
        """Bits of an element; 0 for tuples, tokens and other types without elements."""
        return _BITS.get(self.dtype, 0)

    @property
    def is_floating(self) -> bool:
        """Whether the elements are floating-point or complex numbers."""
        return self.dtype.startswith(("f", "bf", "c"))

    @property
    def elements(self) -> int:
        """Number of elements of an array; 0 for other types."""
        return prod(self.dimensions) if self.bits else 0

    @property
    def bytes(self) -> int:
        """
        Bytes without padding; those of a tuple are the sum of its parts.

        A type of less than 8 bits takes a byte unless the layout packs it.
        """
        return -(-self.elements * (self.element_bits or max(8, self.bits)) // 8) + sum(
            part.bytes for part in self.parts
        )

    def arrays(self) -> Iterator[Shape]:
        """Yield the arrays in the shape, in order."""
        if self.bits:
            yield self
        for part in self.parts:
            yield from part.arrays()


@dataclass(frozen=True, slots=True)
class WindowDimension:
    """The movement of a window along one dimension."""

    size: int
    stride: int = 1
    padding_low: int = 0
    """Padding before the first element."""
    padding_high: int = 0
    """Padding after the last element."""
    window_dilation: int = 1
    """Distance of the window's elements."""
    base_dilation: int = 1
    """Distance of the operand's elements."""
    reversal: bool = False


@dataclass(frozen=True, slots=True)
class DotDimensions:
    """The contracted dimensions and the batch dimensions of a dot's operands."""

    lhs_contracting: tuple[int, ...]
    rhs_contracting: tuple[int, ...]
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ConvolutionDimensions:
    """The meaning of each dimension of a convolution's input, kernel and output."""

    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HloInstruction:
    """One instruction of a computation."""

    id: int
    """Id, unique in its computation."""
    name: str
    opcode: str
    """Opcode, as in HLO text."""
    shape: Shape
    operands: tuple[int, ...] = ()
    """Ids of instructions of the same computation."""
    called: tuple[int, ...] = ()
    """Ids of computations."""
    op_type: str = ""
    """Type of the framework's op."""
    op_name: str = ""
    """Name of the framework's op, with its scopes."""
    source_file: str = ""
    """File of the user's code, empty if unknown."""
    source_line: int = 0
    """Line of the user's code, 0 if unknown."""
    parameter_number: int = 0
    tuple_index: int = 0
    """Index of a get-tuple-element."""
    dimensions: tuple[int, ...] = ()
    """Dimensions of a transpose, reduction, broadcast and the like."""
    fft_length: tuple[int, ...] = ()
    window: tuple[WindowDimension, ...] = ()
    """Window of a convolution or a windowed reduction."""
    dot: DotDimensions | None = None
    precision: tuple[int, int] = (0, 0)
    """Highest precision of the operands of a product, and its algorithm, as `PrecisionConfig`."""
    convolution: ConvolutionDimensions | None = None
    feature_groups: int = 1
    batch_groups: int = 1
    fusion_kind: str = ""
    custom_call_target: str = ""
    backend_config: str = ""
    """The backend's configuration, as text."""
    direction: str = ""
    """Direction of a comparison."""
    constant: bool | float | None = None
    """Value of a scalar constant of an ordinary type; None for other constants."""
    slices: tuple[tuple[int, int, int], ...] = ()
    """(start, limit, stride) of each dimension of a slice."""
    padding: tuple[tuple[int, int, int], ...] = ()
    """(low, high, interior) of each dimension of a pad."""
    replica_groups: str = ""
    """Replica groups of a collective, or pairs of source and target, as in HLO text."""

    @property
    def config(self) -> dict[str, object]:
        """The backend's configuration as a JSON object; empty if it is not one."""
        try:
            found = json.loads(self.backend_config or "{}")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def trip_count(self) -> int | None:
        """
        Number of iterations of a loop; None if the compiler does not know it.

        Source: WhileLoopBackendConfig.known_trip_count (xla_data.proto).
        """
        known = self.config.get("known_trip_count")
        text = str(known.get("n", "")) if isinstance(known, dict) else ""
        return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


@dataclass(frozen=True, slots=True)
class HloComputation:
    """A function of a module."""

    id: int
    """Id, unique in its module."""
    name: str
    root_id: int
    """Id of the instruction whose value it returns."""
    instructions: dict[int, HloInstruction]
    """Instructions by id, operands before their users."""

    @property
    def root(self) -> HloInstruction:
        """The instruction whose value the computation returns."""
        return self.instructions[self.root_id]

    @property
    def parameters(self) -> dict[int, HloInstruction]:
        """The parameters by number."""
        return {
            op.parameter_number: op for op in self.instructions.values() if op.opcode == "parameter"
        }

    def operands(self, instruction: HloInstruction) -> tuple[HloInstruction, ...]:
        """Return the operands of one of its instructions."""
        return tuple(self.instructions[key] for key in instruction.operands)


@dataclass(frozen=True, slots=True)
class HloModule:
    """A program of XLA."""

    name: str
    entry_id: int
    """Id of the computation that runs."""
    computations: dict[int, HloComputation]
    """Computations by id, callees before their callers."""
    scheduled: bool
    """True if a backend has compiled the module."""
    devices: tuple[int, ...] = ()
    """Ids of the devices that run it by global id of HLO; empty if it names none."""

    @property
    def entry(self) -> HloComputation:
        """The computation that is run."""
        return self.computations[self.entry_id]


@dataclass(frozen=True, slots=True)
class Buffers:
    """Bytes that an executable needs."""

    arguments: int
    """Bytes of the arguments."""
    outputs: int
    """Bytes of the results; what is updated in place is an argument and a result."""
    temporaries: int
    """Bytes of everything in between."""


def source_line(op: HloInstruction) -> str | None:
    """
    Return the user's source line of an instruction (`model.py:12`).

    None if the module names none, or one of an installed package such as TensorFlow.
    """
    if op.source_file in ("", _NO_FILE) or is_installed(op.source_file):
        return None
    return f"{Path(op.source_file).name}:{op.source_line}"

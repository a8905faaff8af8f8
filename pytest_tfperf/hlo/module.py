"""
XLA modules as plain frozen values. Names are XLA's own: xla/service/hlo.proto and xla/xla_data.proto (openxla/xla).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from pytest_tfperf.files import is_installed

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
    """
    An array (`dtype` as in HLO text, `f32`), or a tuple of shapes (`dtype` is `tuple`, the shapes are `parts`).

    `minor_to_major`, `tiles`, `memory_space`, `element_bits` (0: as many as the dtype has) and `tail_alignment`, which the number
    of elements is rounded up to, are the layout's.
    """

    dtype: str
    dimensions: tuple[int, ...] = ()
    dynamic: tuple[bool, ...] = ()
    minor_to_major: tuple[int, ...] = ()
    tiles: tuple[tuple[int, ...], ...] = ()
    memory_space: int = 0
    element_bits: int = 0
    parts: tuple[Shape, ...] = ()
    tail_alignment: int = 1

    @property
    def bits(self) -> int:
        """Bits of an element's type; 0 for a tuple, a token and what else has no elements."""
        return _BITS.get(self.dtype, 0)

    @property
    def elements(self) -> int:
        """Elements of an array; 0 for what is none."""
        return prod(self.dimensions) if self.bits else 0

    @property
    def bytes(self) -> int:
        """Bytes of an array without padding, of a tuple those of its parts; a narrow type takes a byte unless the layout packs it."""
        return -(-self.elements * (self.element_bits or max(8, self.bits)) // 8) + sum(
            part.bytes for part in self.parts
        )

    def arrays(self) -> Iterator[Shape]:
        """The arrays in it, in order."""
        if self.bits:
            yield self
        for part in self.parts:
            yield from part.arrays()


@dataclass(frozen=True, slots=True)
class WindowDimension:
    """How a window moves along one dimension."""

    size: int
    stride: int = 1
    padding_low: int = 0
    padding_high: int = 0
    window_dilation: int = 1
    base_dilation: int = 1
    reversal: bool = False


@dataclass(frozen=True, slots=True)
class DotDimensions:
    """Which dimensions of a dot's operands are contracted, and which are batches."""

    lhs_contracting: tuple[int, ...]
    rhs_contracting: tuple[int, ...]
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ConvolutionDimensions:
    """What each dimension of a convolution's input, kernel and output means."""

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
    """
    One instruction; `operands` are ids in its own computation, `called` ids of computations.

    `constant` is the value of a scalar constant, where its type is an ordinary one; `slices` are (start, limit, stride) and
    `padding` (low, high, interior) of each dimension.
    """

    id: int
    name: str
    opcode: str
    shape: Shape
    operands: tuple[int, ...] = ()
    called: tuple[int, ...] = ()
    op_type: str = ""
    op_name: str = ""
    source_file: str = ""
    source_line: int = 0
    parameter_number: int = 0
    tuple_index: int = 0
    dimensions: tuple[int, ...] = ()
    fft_length: tuple[int, ...] = ()
    window: tuple[WindowDimension, ...] = ()
    dot: DotDimensions | None = None
    convolution: ConvolutionDimensions | None = None
    feature_groups: int = 1
    batch_groups: int = 1
    fusion_kind: str = ""
    custom_call_target: str = ""
    backend_config: str = ""
    direction: str = ""
    constant: bool | float | None = None
    slices: tuple[tuple[int, int, int], ...] = ()
    padding: tuple[tuple[int, int, int], ...] = ()

    @property
    def config(self) -> dict[str, object]:
        """The backend's configuration as the JSON object it is; empty where there is none."""
        try:
            found = json.loads(self.backend_config or "{}")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def trip_count(self) -> int | None:
        """How often a loop runs, where the compiler found out (xla_data.proto, WhileLoopBackendConfig.known_trip_count)."""
        known = self.config.get("known_trip_count")
        text = str(known.get("n", "")) if isinstance(known, dict) else ""
        return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


@dataclass(frozen=True, slots=True)
class HloComputation:
    """A function of a module: its instructions by id, operands before their users."""

    id: int
    name: str
    root_id: int
    instructions: dict[int, HloInstruction]

    @property
    def root(self) -> HloInstruction:
        """The instruction whose value it returns."""
        return self.instructions[self.root_id]

    @property
    def parameters(self) -> dict[int, HloInstruction]:
        """Its parameters by number."""
        return {
            op.parameter_number: op for op in self.instructions.values() if op.opcode == "parameter"
        }

    def operands(self, instruction: HloInstruction) -> tuple[HloInstruction, ...]:
        """The operands of one of its instructions."""
        return tuple(self.instructions[key] for key in instruction.operands)


@dataclass(frozen=True, slots=True)
class HloModule:
    """A program of XLA: its computations by id, callees before their callers. `scheduled`: a backend has compiled it."""

    name: str
    entry_id: int
    computations: dict[int, HloComputation]
    scheduled: bool

    @property
    def entry(self) -> HloComputation:
        """The computation that is run."""
        return self.computations[self.entry_id]


@dataclass(frozen=True, slots=True)
class Buffers:
    """Bytes of an executable's arguments, of its results (what is updated in place is both), and of what it needs in between."""

    arguments: int
    outputs: int
    temporaries: int


def source_line(op: HloInstruction) -> str | None:
    """`model.py:12`; None where the module does not say, or names a line of an installed package, as TensorFlow's own are."""
    if not op.source_file or is_installed(op.source_file):
        return None
    return f"{op.source_file}:{op.source_line}"

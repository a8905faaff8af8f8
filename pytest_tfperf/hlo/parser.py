"""
XLA modules from HLO text, as XLA dumps them: the same frozen values as from their bytes.

Names of attributes are those of xla/hlo/parser/hlo_parser.cc (openxla/xla). What the values do not hold is passed over: shardings,
frontend attributes, the values of arrays, how a gather or a scatter indexes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from functools import lru_cache
from itertools import count
from math import inf, nan

from pytest_tfperf.errors import LayoutError, TraceError
from pytest_tfperf.hlo.layout import parse_shape
from pytest_tfperf.hlo.lexer import Block, Line, ModuleText, modules_in, pairs, parts, unquoted
from pytest_tfperf.hlo.module import (
    ConvolutionDimensions,
    DotDimensions,
    HloComputation,
    HloInstruction,
    HloModule,
    Shape,
    WindowDimension,
)

_CALLEES = (  # in the order of an instruction's called computations: xla/hlo/ir/hlo_instruction.h
    "body",
    "condition",
    "select",
    "scatter",
    "calls",
    "to_apply",
    "true_computation",
    "false_computation",
    "branch_computations",
    "called_computations",
    "async_computation",
)
_INTEGER = re.compile(r"-?\d{1,18}")
_FLOATS = {"inf": inf, "-inf": -inf, "nan": nan, "-nan": nan}
_ROUNDED = {"f16": "<e", "f32": "<f", "f64": "<d"}
_WINDOW = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal")


def read_hlo(text: str, name: str) -> list[HloModule]:
    """
    The modules of a HLO text; `name` stands in error messages, with the line.

    Raises:
        TraceError: If it is no HLO, or an instruction needs one that does not stand before it.
        LayoutError: If a shape or its layout cannot be understood.
    """
    return [_module(found) for found in modules_in(text, name)]


def _module(found: ModuleText) -> HloModule:
    title = re.match(r"HloModule\s+%?([^\s,]+)", found.head)
    entries = [number for number, block in enumerate(found.blocks, 1) if block.entry]
    if title is None or len(entries) != 1:
        what = (
            "the module has no name"
            if title is None
            else f"a module has one ENTRY computation, this one {len(entries)}"
        )
        raise TraceError(f"{found.where}: {what}")
    reader = _Reader(_frames(found.others))
    for number, block in enumerate(found.blocks, 1):
        reader.add(number, block)
    return HloModule(title[1], entries[0], reader.computations, "is_scheduled=true" in found.head)


class _Reader:
    """The computations read so far, and the source lines of stack frames."""

    __slots__ = ("computations", "frames", "ids", "numbers")

    def __init__(self, frames: dict[str, tuple[str, int]]) -> None:
        self.frames = frames
        self.ids = count(1)
        self.computations: dict[int, HloComputation] = {}
        self.numbers: dict[str, int] = {}

    def add(self, number: int, block: Block) -> None:
        """Read a computation, whose callees are known."""
        if block.name in self.numbers or not block.lines:
            what = "holds no instruction" if not block.lines else "is there twice"
            raise TraceError(f"{block.where}: the computation {block.name!r} {what}")
        places: dict[str, int] = {}
        instructions: dict[int, HloInstruction] = {}
        root = 0
        for line in block.lines:
            if line.name in places:
                raise TraceError(f"{line.where}: there are two instructions {line.name!r}")
            made = _placed(self.instruction(line, places), line)
            places[line.name] = made.id
            instructions[made.id] = made
            root = made.id if line.root or not root else root
        if not any(line.root for line in block.lines):  # then it is the last
            root = made.id
        self.numbers[block.name] = number
        self.computations[number] = HloComputation(number, block.name, root, instructions)

    def instruction(self, line: Line, places: dict[str, int]) -> HloInstruction:
        try:
            return self._instruction(line, places)
        except TraceError as error:
            raise TraceError(f"{line.where}: {error}") from error
        except LayoutError as error:
            raise LayoutError(f"{line.where}: {error}") from error
        except (ArithmeticError, LookupError, RecursionError, ValueError) as error:
            raise TraceError(
                f"{line.where}: an attribute of {line.name!r} cannot be understood: {error!r}"
            ) from error

    def _instruction(self, line: Line, places: dict[str, int]) -> HloInstruction:
        given, opcode = line.attributes, line.opcode
        shape = _shape(line.shape)
        metadata = pairs(given["metadata"], "metadata") if "metadata" in given else {}
        said = {key: unquoted(value) for key, value in metadata.items()}
        file, source_line = self.frames.get(said.get("stack_frame_id", ""), ("", 0))
        return HloInstruction(
            id=next(self.ids),
            name=line.name,
            opcode=opcode,
            shape=shape,
            operands=_operands(line, places),
            called=self.called(given),
            op_type=said.get("op_type", ""),
            op_name=said.get("op_name", ""),
            source_file=said.get("source_file", file),
            source_line=_integer(said["source_line"]) if "source_line" in said else source_line,
            parameter_number=_integer(line.inside) if opcode == "parameter" else 0,
            tuple_index=_integer(given["index"]) if opcode == "get-tuple-element" else 0,
            dimensions=_integers(
                given.get("dimensions", given.get("iota_dimension", "") if opcode == "iota" else "")
            ),
            fft_length=_integers(given.get("fft_length", "")),
            window=_window(given["window"]) if "window" in given else (),
            dot=_dot(given) if opcode in ("dot", "scaled-dot") else None,
            convolution=_labels(given["dim_labels"]) if "dim_labels" in given else None,
            feature_groups=_integer(given.get("feature_group_count", "1")),
            batch_groups=_integer(given.get("batch_group_count", "1")),
            fusion_kind=given.get("kind", "") if opcode == "fusion" else "",
            custom_call_target=unquoted(given.get("custom_call_target", "")),
            backend_config=unquoted(given.get("backend_config", "")),
            direction=given.get("direction", ""),
            constant=_scalar(shape, line.inside) if opcode == "constant" else None,
            slices=tuple(_slice(part) for part in parts(_inside(given["slice"])))
            if opcode == "slice" and "slice" in given
            else (),
            padding=tuple(_edges(part) for part in given["padding"].split("x"))
            if opcode == "pad" and "padding" in given
            else (),
        )

    def called(self, given: dict[str, str]) -> tuple[int, ...]:
        """Ids of the computations that an instruction calls."""
        names = [
            name.lstrip("%")
            for key in _CALLEES
            if key in given
            for name in parts(_inside(given[key]))
        ]
        missing = next((name for name in names if name not in self.numbers), None)
        if missing is not None:
            raise TraceError(
                f"it calls the computation {missing!r}, which does not stand before it"
            )
        return tuple(self.numbers[name] for name in names)


def _placed(made: HloInstruction, line: Line) -> HloInstruction:
    """The instruction, if it says what its opcode needs."""
    lacking = {
        "convolution": len(made.operands) < 2 or made.convolution is None,
        "dot": len(made.operands) < 2,
        "get-tuple-element": len(made.operands) != 1,
        "while": len(made.called) != 2 or len(made.operands) != 1,
        "fusion": len(made.called) != 1,
    }
    if lacking.get(made.opcode):
        raise TraceError(
            f"{line.where}: {made.name!r} lacks operands or attributes that every {made.opcode} has"
        )
    return made


def _operands(line: Line, places: dict[str, int]) -> tuple[int, ...]:
    if line.opcode in ("parameter", "constant"):
        return ()
    names = [part.split()[-1].lstrip("%") for part in parts(line.inside) if part and part.split()]
    missing = next((name for name in names if name not in places), None)
    if missing is not None and not (line.opcode == "iota" and not names):
        raise TraceError(f"{line.name!r} needs {missing!r}, which does not stand before it")
    return tuple(places[name] for name in names)


@lru_cache(maxsize=4096)
def _shape(text: str) -> Shape:
    return parse_shape(text)


def _frames(lines: Iterable[str]) -> dict[str, tuple[str, int]]:
    """
    File and line of each stack frame, by id, from the tables FileNames, FileLocations and StackFrames.

    Source: StackFrameIndexProto, xla/service/hlo.proto, as HloModule::Print writes it (openxla/xla).
    """
    tables: dict[str, dict[str, str]] = {}
    rows: dict[str, str] = {}
    for line in lines:
        number, _, row = line.partition(" ")
        if row:
            rows[number] = row
        else:
            rows = tables.setdefault(line, {})
    names = {number: unquoted(row) for number, row in tables.get("FileNames", {}).items()}
    places = {
        number: pairs(row, "a file location")
        for number, row in tables.get("FileLocations", {}).items()
    }
    frames = {
        number: pairs(row, "a stack frame").get("file_location_id", "")
        for number, row in tables.get("StackFrames", {}).items()
    }
    found = {number: places[place] for number, place in frames.items() if place in places}
    return {
        number: (names.get(place.get("file_name_id", ""), ""), _integer(place.get("line", "0")))
        for number, place in found.items()
    }


def _inside(text: str) -> str:
    """What stands between braces, or the text where there are none."""
    return text[1:-1] if text.startswith("{") and text.endswith("}") else text


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text.strip()):
        raise ValueError(f"{text[:40]!r} is no number")
    return int(text)


def _integers(text: str) -> tuple[int, ...]:
    return tuple(_integer(part) for part in parts(_inside(text)))


def _dot(given: dict[str, str]) -> DotDimensions:
    keys = ("lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims")
    return DotDimensions(*(_integers(given.get(key, "")) for key in keys))


def _window(text: str) -> tuple[WindowDimension, ...]:
    """`{size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=2x2 rhs_dilate=1x1 rhs_reversal=1x1}` (xla/window_util.cc)."""
    given = pairs(text, "window")
    columns = {key: given[key].split("x") for key in _WINDOW if key in given}
    rank = len(next(iter(columns.values()), []))
    if any(len(column) != rank for column in columns.values()):
        raise ValueError(f"a window of different ranks: {text[:80]}")

    def column(key: str, usual: str) -> list[str]:
        return columns.get(key, [usual] * rank)

    sides = [tuple(map(_integer, side.split("_"))) for side in column("pad", "0_0")]
    return tuple(
        WindowDimension(
            _integer(size),
            _integer(stride),
            low,
            high,
            _integer(dilation),
            _integer(base),
            reversal != "0",
        )
        for size, stride, (low, high), dilation, base, reversal in zip(
            column("size", "1"),
            column("stride", "1"),
            sides,
            column("rhs_dilate", "1"),
            column("lhs_dilate", "1"),
            column("rhs_reversal", "0"),
            strict=True,
        )
    )


def _labels(text: str) -> ConvolutionDimensions:
    """`b01f_01io->b01f`: what each dimension of input, kernel and output is."""
    match = re.fullmatch(r"([bf\d?]+)_([io\d?]+)->([bf\d?]+)", text)
    if match is None:
        raise ValueError(f"{text[:40]!r} names no dimensions, as b01f_01io->b01f does")
    given, kernel, output = match.groups()
    spatial = [str(number) for number in range(len(given) - 2)]
    if (
        not len(set(given))
        == len(given)
        == len(set(kernel))
        == len(kernel)
        == len(set(output))
        == len(output)
    ):
        raise ValueError(f"{text[:40]!r} names dimensions twice")
    sides = [tuple(side.index(label) for label in spatial) for side in (given, kernel, output)]
    return ConvolutionDimensions(
        given.index("b"),
        given.index("f"),
        sides[0],
        kernel.index("i"),
        kernel.index("o"),
        sides[1],
        output.index("b"),
        output.index("f"),
        sides[2],
    )


def _slice(text: str) -> tuple[int, int, int]:
    """`[0:8:2]`, of which the stride is mostly left out."""
    start, limit, stride = (*map(_integer, text.strip("[]").split(":")), 1)[:3]
    return start, limit, stride


def _edges(text: str) -> tuple[int, int, int]:
    """`low_high_interior`, of which the last is mostly left out."""
    low, high, interior = (*map(_integer, text.split("_")), 0)[:3]
    return low, high, interior


def _scalar(shape: Shape, text: str) -> bool | float | None:
    """A number as its type holds it; None for an array, and what is no ordinary number."""
    if shape.dimensions or text.startswith(("{", "(")):
        return None
    if shape.dtype == "pred":
        return text == "true"
    if re.fullmatch(r"[su]\d+", shape.dtype):
        return int(text) if re.fullmatch(r"-?\d{1,20}", text) else None
    return (
        _round(shape.dtype, _FLOATS[text] if text in _FLOATS else float(text))
        if shape.dtype in _ROUNDED or shape.dtype == "bf16"
        else None
    )


def _round(dtype: str, value: float) -> float:
    """The nearest number that the type holds."""
    if dtype == "bf16":  # the upper half of a float32, rounded to even
        bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
        if value != value or value in (inf, -inf):
            return value
        upper = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        code, raw = "<f", struct.pack("<I", upper)
    else:
        code = _ROUNDED[dtype]
        raw = struct.pack(code, value)
    return struct.unpack(code, raw)[0]  # type: ignore[no-any-return]

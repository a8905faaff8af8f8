"""
Parsing of HLO text, as XLA dumps it, into the same values as from a module's bytes.

Names of attributes are those of xla/hlo/parser/hlo_parser.cc (openxla/xla). Attributes that the
values do not hold are skipped: shardings, frontend attributes, values of arrays, and the indexing
of a gather or a scatter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import count

from pytest_tfperf.errors import LayoutError, TraceError
from pytest_tfperf.hlo.attributes import (
    convolution_dimensions,
    dot_dimensions,
    integer,
    integers,
    padding_edges,
    scalar,
    slice_bounds,
    window_dimensions,
    without_braces,
)
from pytest_tfperf.hlo.layout import parse_shape
from pytest_tfperf.hlo.lexer import (
    ComputationText,
    InstructionText,
    ModuleText,
    modules_in,
    pairs,
    parts,
    unquoted,
)
from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule, Shape

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


def read_hlo(text: str, name: str) -> list[HloModule]:
    """
    Read the modules of an HLO text.

    Args:
        text: HLO text.
        name: Its name in error messages.

    Raises:
        TraceError: If the text is not HLO, or an instruction needs one that does not come before
            it.
        LayoutError: If a shape or its layout cannot be read.
    """
    return [_module(found) for found in modules_in(text, name)]


def _module(found: ModuleText) -> HloModule:
    title = re.match(r"HloModule\s+%?([^\s,]+)", found.head)
    entries = [number for number, block in enumerate(found.blocks, 1) if block.entry]
    if title is None or len(entries) != 1:
        what = (
            "the module has no name"
            if title is None
            else f"a module has one ENTRY computation, this one has {len(entries)}"
        )
        raise TraceError(f"{found.where}: {what}")
    try:
        reader = _Reader(_frames(found.others))
    except (TraceError, ValueError) as error:
        raise TraceError(f"{found.where}: {error}") from error
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

    def add(self, number: int, block: ComputationText) -> None:
        """Read a computation, whose callees are already known."""
        if block.name in self.numbers or not block.instructions:
            what = "holds no instruction" if not block.instructions else "occurs twice"
            raise TraceError(f"{block.where}: the computation {block.name!r} {what}")
        places: dict[str, int] = {}
        instructions: dict[int, HloInstruction] = {}
        root = 0
        for line in block.instructions:
            if line.name in places:
                raise TraceError(f"{line.where}: two instructions have the name {line.name!r}")
            made = _placed(self.instruction(line, places), line)
            places[line.name] = made.id
            instructions[made.id] = made
            root = made.id if line.root or not root else root
        if not any(line.root for line in block.instructions):  # then it is the last
            root = made.id
        self.numbers[block.name] = number
        self.computations[number] = HloComputation(number, block.name, root, instructions)

    def instruction(self, line: InstructionText, places: dict[str, int]) -> HloInstruction:
        try:
            return self._instruction(line, places)
        except TraceError as error:
            raise TraceError(f"{line.where}: {error}") from error
        except LayoutError as error:
            raise LayoutError(f"{line.where}: {error}") from error
        except (ArithmeticError, LookupError, RecursionError, ValueError) as error:
            raise TraceError(
                f"{line.where}: an attribute of {line.name!r} cannot be read: {error!r}"
            ) from error

    def _instruction(self, line: InstructionText, places: dict[str, int]) -> HloInstruction:
        attributes, opcode = line.attributes, line.opcode
        shape = _shape(line.shape)
        metadata = pairs(attributes["metadata"], "metadata") if "metadata" in attributes else {}
        texts = {key: unquoted(value) for key, value in metadata.items()}
        file, source_line = self.frames.get(texts.get("stack_frame_id", ""), ("", 0))
        return HloInstruction(
            id=next(self.ids),
            name=line.name,
            opcode=opcode,
            shape=shape,
            operands=_operands(line, places),
            called=self.called(attributes),
            op_type=texts.get("op_type", ""),
            op_name=texts.get("op_name", ""),
            source_file=texts.get("source_file", file),
            source_line=integer(texts["source_line"]) if "source_line" in texts else source_line,
            parameter_number=integer(line.inside) if opcode == "parameter" else 0,
            tuple_index=integer(attributes["index"]) if opcode == "get-tuple-element" else 0,
            dimensions=integers(
                attributes.get(
                    "dimensions", attributes.get("iota_dimension", "") if opcode == "iota" else ""
                )
            ),
            fft_length=integers(attributes.get("fft_length", "")),
            window=window_dimensions(attributes["window"]) if "window" in attributes else (),
            dot=dot_dimensions(attributes) if opcode in ("dot", "scaled-dot") else None,
            convolution=convolution_dimensions(attributes["dim_labels"])
            if "dim_labels" in attributes
            else None,
            feature_groups=integer(attributes.get("feature_group_count", "1")),
            batch_groups=integer(attributes.get("batch_group_count", "1")),
            fusion_kind=attributes.get("kind", "") if opcode == "fusion" else "",
            custom_call_target=unquoted(attributes.get("custom_call_target", "")),
            backend_config=unquoted(attributes.get("backend_config", "")),
            direction=attributes.get("direction", ""),
            constant=scalar(shape, line.inside) if opcode == "constant" else None,
            slices=tuple(slice_bounds(part) for part in parts(without_braces(attributes["slice"])))
            if opcode == "slice" and "slice" in attributes
            else (),
            padding=tuple(padding_edges(part) for part in attributes["padding"].split("x"))
            if opcode == "pad" and "padding" in attributes
            else (),
        )

    def called(self, attributes: dict[str, str]) -> tuple[int, ...]:
        """Return the ids of the computations that an instruction calls."""
        names = [
            name.lstrip("%")
            for key in _CALLEES
            if key in attributes
            for name in parts(without_braces(attributes[key]))
        ]
        missing = next((name for name in names if name not in self.numbers), None)
        if missing is not None:
            raise TraceError(f"it calls the computation {missing!r}, which does not come before it")
        return tuple(self.numbers[name] for name in names)


def _placed(made: HloInstruction, line: InstructionText) -> HloInstruction:
    """Return the instruction if it has what its opcode needs."""
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


def _operands(line: InstructionText, places: dict[str, int]) -> tuple[int, ...]:
    if line.opcode in ("parameter", "constant"):
        return ()
    names = [part.split()[-1].lstrip("%") for part in parts(line.inside) if part and part.split()]
    missing = next((name for name in names if name not in places), None)
    if missing is not None and not (line.opcode == "iota" and not names):
        raise TraceError(f"{line.name!r} needs {missing!r}, which does not come before it")
    return tuple(places[name] for name in names)


@lru_cache(maxsize=4096)
def _shape(text: str) -> Shape:
    return parse_shape(text)


def _frames(lines: Iterable[str]) -> dict[str, tuple[str, int]]:
    """
    Return file and line of each stack frame by id, from the tables behind the module's head.

    The tables are FileNames, FileLocations and StackFrames. Source: StackFrameIndexProto,
    xla/service/hlo.proto, as HloModule::Print writes it (openxla/xla).
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
        number: (names.get(place.get("file_name_id", ""), ""), integer(place.get("line", "0")))
        for number, place in found.items()
    }

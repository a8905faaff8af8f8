"""
HLO text, as XLA dumps it, read into the same values as a module's bytes.

XLA prints one instruction a line, and so does `text_of`; any other text is refused. The syntax and
the names of attributes are those of xla/hlo/parser/hlo_parser.cc (openxla/xla). Attributes that the
values do not hold are skipped: shardings, frontend attributes, values of arrays, and the indexing
of a gather or a scatter.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import TypeVar

from pytest_tfperf.errors import TfperfError, TraceError
from pytest_tfperf.hlo.layout import parse_shape
from pytest_tfperf.hlo.module import (
    ConvolutionDimensions,
    DotDimensions,
    HloComputation,
    HloInstruction,
    HloModule,
    Shape,
    WindowDimension,
)
from pytest_tfperf.text import elide

_Value = TypeVar("_Value")
_NO_INSTRUCTION = (
    "not an instruction, which XLA prints on one line as 'name = shape opcode(…), key=value'"
)
_NOT_HLO = "not HLO text, which begins with a line 'HloModule …'"
_STRING = r'"(?:\\.|[^"\\])*'
# what is not closed reaches to the end, so that no regex tries it at every place again
_TOKEN = re.compile(rf'{_STRING}("?)|/\*.*?(\*/|$)|[()\[\]{{}},]')
_MODULE = re.compile(r"HloModule %?([^\s,]+)")
_HEAD = re.compile(r"(ENTRY )?%?([^\s()={}%,]+) ?[({]")
_TABLE = re.compile(r"[A-Z]\w*")
_ROW = re.compile(r"(\d+) (.*)")
_INSTRUCTION = re.compile(r"(ROOT )?%?([^\s()={}%,]+) = ")
_OPCODE = re.compile(r" ([a-zA-Z][\w-]*)\(")
_ATTRIBUTE = re.compile(r"([a-zA-Z_][\w-]*)=(.*)")
_PAIR = re.compile(rf'\b(\w+)=({_STRING}"|\{{[^{{}}]*\}}|[^\s{{}},]+)')
_INTEGER = re.compile(r"-?\d{1,18}")
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_FORMATS = {"f16": "<e", "f32": "<f", "bf16": "<f", "f64": "<d"}
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
_DOT = ("lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims")
_shape = lru_cache(maxsize=4096)(parse_shape)


def read_hlo(text: str, name: str) -> list[HloModule]:
    """
    Read the modules of an HLO text.

    Raises TraceError, with the line's number, if XLA prints no such line, or an instruction needs
    one that does not come before it.
    """
    modules: list[_Module] = []
    number = 1
    try:
        for number, raw in enumerate(text.split("\n"), 1):
            line = _without_comments(raw).strip()
            if line.startswith("HloModule") and not (modules and modules[-1].part):
                modules.append(_Module(line, number))
            elif line and not modules:
                raise TraceError(f"{_NOT_HLO}: {_short(line)}")
            elif line:
                modules[-1].read(line, number)
        if not modules:
            raise TraceError(_NOT_HLO)
        found = []
        for module in modules:
            number = module.begun
            found.append(module.done())
    except TfperfError as error:
        raise TraceError(f"{name}:{number}: {error}") from error
    return found


class _Module:
    """A module, as far as its lines are read."""

    def __init__(self, head: str, number: int) -> None:
        title = _MODULE.match(head)
        if title is None:
            raise TraceError("the module has no name")
        self.part = ""  # the computation that has begun and not ended
        self.begun = number  # the line where it begins, or else the module
        self._number = number
        self._title, self._scheduled = title[1], "is_scheduled=true" in head
        self._computations: dict[int, HloComputation] = {}
        self._numbers: dict[str, int] = {}
        self._entries: list[int] = []
        self._instructions: dict[int, HloInstruction] = {}
        self._places: dict[str, int] = {}
        self._ids = count(1)
        self._root = 0
        self._table = ""
        self._files: dict[str, str] = {}
        self._locations: dict[str, tuple[str, int]] = {}
        self._frames: dict[str, tuple[str, int]] = {}

    def read(self, line: str, number: int) -> None:
        """Read a line behind the head."""
        if self.part and (line == "}" or line.startswith("}, ")):
            self._close()
        elif self.part:
            self._add(line)
        elif line.endswith("{") and (head := _HEAD.match(line)):
            if head[2] in self._numbers:
                raise TraceError(f"the computation {head[2]!r} occurs twice")
            self.part, self.begun = head[2], number
            self._entries += [len(self._numbers) + 1] if head[1] else []
        elif _TABLE.fullmatch(line):
            self._table = line
        elif self._table and (row := _ROW.fullmatch(line)):
            self._read_row(*row.groups())
        else:
            raise TraceError(f"neither a computation nor its end: {_short(line)}")

    def done(self) -> HloModule:
        """Return the module, of which all lines are read."""
        if self.part:
            raise TraceError(f"the computation {self.part!r} has no end")
        if len(self._entries) != 1:
            raise TraceError(
                f"a module has one ENTRY computation, this one has {len(self._entries)}"
            )
        return HloModule(self._title, self._entries[0], self._computations, self._scheduled)

    def _close(self) -> None:
        """End the open computation; without a ROOT its last instruction is the result."""
        if not self._instructions:
            raise TraceError(f"the computation {self.part!r} holds no instruction")
        root = self._root or next(reversed(self._instructions))
        number = self._numbers[self.part] = len(self._numbers) + 1
        self._computations[number] = HloComputation(number, self.part, root, self._instructions)
        self.part, self.begun, self._root = "", self._number, 0
        self._instructions, self._places = {}, {}

    def _read_row(self, key: str, row: str) -> None:
        """Read a row of XLA's StackFrameIndexProto (xla/service/hlo.proto)."""
        if self._table == "FileNames":
            self._files[key] = _unquoted(row)
        elif self._table == "FileLocations":
            place = _value(self._table, row, _pairs)
            line = _value("line", place.get("line", "0"), _integer)
            self._locations[key] = self._files.get(place.get("file_name_id", ""), ""), line
        elif self._table == "StackFrames":
            location = _value(self._table, row, _pairs).get("file_location_id", "")
            self._frames[key] = self._locations.get(location, ("", 0))

    def _add(self, line: str) -> None:
        """Read `name = shape opcode(inside), attributes`."""
        start = _INSTRUCTION.match(line)
        begin = start.end() if start else 0
        is_tuple = line.startswith("(", begin)
        end = _pieces(line, begin + 1)[1] + 1 if is_tuple else line.find(" ", begin)
        opcode = _OPCODE.match(line, end)
        if start is None or opcode is None:
            raise TraceError(f"{_NO_INSTRUCTION}: {_short(line)}")
        operands, close = _pieces(line, opcode.end())
        rest = line[close + 1 :].lstrip(", ")
        texts, rest_end = _pieces(rest)
        if close == len(line) or rest_end < len(rest):
            raise TraceError(f"{_NO_INSTRUCTION}: {_short(line)}")
        attributes = {}
        for text in texts:
            match = _ATTRIBUTE.fullmatch(text)
            if match is None:
                raise TraceError(f"{_short(text)} is not an attribute, which is key=value")
            attributes[match[1]] = match[2]
        names = [text.rpartition(" ")[2].lstrip("%") for text in operands]
        inside, shape = line[opcode.end() : close].strip(), _shape(line[begin:end])
        made = self._instruction(start[2], opcode[1], shape, inside, names, attributes)
        _check(made)
        if made.name in self._places:
            raise TraceError(f"two instructions have the name {made.name!r}")
        self._places[made.name] = made.id
        self._instructions[made.id] = made
        self._root = made.id if start[1] else self._root

    def _instruction(
        self,
        name: str,
        opcode: str,
        shape: Shape,
        inside: str,
        operands: Sequence[str],
        attributes: Mapping[str, str],
    ) -> HloInstruction:
        def read(key: str, how: Callable[[str], _Value], usual: str = "") -> _Value:
            return _value(key, attributes.get(key, usual), how)

        metadata = {key: _unquoted(text) for key, text in read("metadata", _pairs, "{}").items()}
        file, line = self._frames.get(metadata.get("stack_frame_id", ""), ("", 0))
        if "source_line" in metadata:
            line = _value("source_line", metadata["source_line"], _integer)
        has_operands = opcode not in ("parameter", "constant")
        called = [one for key in _CALLEES if key in attributes for one in read(key, _listed)]
        return HloInstruction(
            id=next(self._ids),
            name=name,
            opcode=opcode,
            shape=shape,
            operands=_earlier(operands, self._places) if has_operands else (),
            called=_earlier(called, self._numbers),
            op_type=metadata.get("op_type", ""),
            op_name=metadata.get("op_name", ""),
            source_file=metadata.get("source_file", file),
            source_line=line,
            parameter_number=_value("parameter", inside, _integer) if opcode == "parameter" else 0,
            tuple_index=read("index", _integer) if opcode == "get-tuple-element" else 0,
            dimensions=read("iota_dimension" if opcode == "iota" else "dimensions", _integers),
            fft_length=read("fft_length", _integers),
            window=read("window", _window, "{}"),
            dot=DotDimensions(*(read(key, _integers) for key in _DOT))
            if opcode in ("dot", "scaled-dot")
            else None,
            convolution=read("dim_labels", _labels) if "dim_labels" in attributes else None,
            feature_groups=read("feature_group_count", _integer, "1"),
            batch_groups=read("batch_group_count", _integer, "1"),
            fusion_kind=attributes.get("kind", "") if opcode == "fusion" else "",
            custom_call_target=_unquoted(attributes.get("custom_call_target", "")),
            backend_config=_unquoted(attributes.get("backend_config", "")),
            direction=attributes.get("direction", ""),
            constant=_value("constant", inside, lambda text: _constant(shape, text))
            if opcode == "constant"
            else None,
            slices=read("slice", _slices) if opcode == "slice" else (),
            padding=read("padding", _edges) if opcode == "pad" else (),
        )


def _check(op: HloInstruction) -> None:
    """Raise TraceError if an instruction lacks what its opcode needs."""
    lacking = {
        "convolution": len(op.operands) < 2 or op.convolution is None,
        "dot": len(op.operands) < 2,
        "get-tuple-element": len(op.operands) != 1,
        "while": len(op.called) != 2 or len(op.operands) != 1,
        "fusion": len(op.called) != 1,
    }
    if lacking.get(op.opcode):
        raise TraceError(f"{op.name!r} lacks operands or attributes that every {op.opcode} has")


def _earlier(names: Sequence[str], known: Mapping[str, int]) -> tuple[int, ...]:
    """Return the ids of instructions, or of computations, that come before."""
    missing = next((name for name in names if name not in known), None)
    if missing is not None:
        raise TraceError(f"it needs {missing!r}, which does not come before it")
    return tuple(known[name] for name in names)


def _value(key: str, text: str, how: Callable[[str], _Value]) -> _Value:
    try:
        return how(text)
    except (ArithmeticError, LookupError, ValueError):
        raise TraceError(f"{key} cannot be read: {_short(text)}") from None


def _without_comments(line: str) -> str:
    if "/*" not in line:
        return line
    return _TOKEN.sub(lambda match: " " if _closed(match)[0][0] == "/" else match[0], line)


def _closed(match: re.Match[str]) -> re.Match[str]:
    """Raise TraceError for a string or a comment that goes on to the next line."""
    if "" in match.groups():
        raise TraceError(f"not closed on its line: {_short(match[0])}")
    return match


def _pieces(text: str, begin: int = 0) -> tuple[list[str], int]:
    """Return the texts between commas, up to the closing bracket or the end, and that place."""
    found, depth, end = [], 0, len(text)
    start = begin
    for match in map(_closed, _TOKEN.finditer(text, begin)):
        token = match[0]
        if token in _OPENING:
            depth += 1
        elif token in _CLOSING:
            if not depth:
                end = match.start()
                break
            depth -= 1
        elif token == "," and not depth:
            found.append(text[start : match.start()].strip())
            start = match.end()
    if depth:
        raise TraceError(f"{_NO_INSTRUCTION}: {_short(text)}")
    last = text[start:end].strip()
    return [*found, last] if found or last else [], end


def _unquoted(text: str) -> str:
    """Return a string without its quotes and C's escapes, and any other text unchanged."""
    if not re.fullmatch(rf'{_STRING}"', text):
        return text
    return re.sub(r"\\(x[0-9a-fA-F]{2}|[0-7]{3}|.)", _unescaped, text[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) == 3:
        return chr(int(code[1:], 16) if code[0] == "x" else int(code, 8))
    return {"n": "\n", "t": "\t", "r": "\r"}.get(code, code)


def _pairs(text: str) -> dict[str, str]:
    """Read `{key=value key="a value"}`."""
    found = dict(_PAIR.findall(text))
    if not text.startswith("{") or (not found and text.strip("{} ")):
        raise ValueError
    return found


def _listed(text: str, sign: str = ",") -> list[str]:
    """Read `%a`, or `{%a, %b}`, or `1x2`."""
    inner = text.strip("{}")
    return [name.strip().lstrip("%") for name in inner.split(sign)] if inner else []


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text.strip()):
        raise ValueError
    return int(text)


def _integers(text: str, sign: str = ",") -> tuple[int, ...]:
    return tuple(map(_integer, _listed(text, sign)))


def _slices(text: str) -> tuple[tuple[int, int, int], ...]:
    """Read `{[0:8], [1:9:2]}`: start, limit, and a stride where one is not 1."""
    return tuple(_three(_integers(part.strip("[]"), ":"), 1) for part in _listed(text))


def _edges(text: str) -> tuple[tuple[int, int, int], ...]:
    """Read `0_1x2_2_1`: low, high, and an interior where one is not 0."""
    return tuple(_three(_integers(part, "_"), 0) for part in _listed(text, "x"))


def _three(numbers: tuple[int, ...], usual: int) -> tuple[int, int, int]:
    first, second, third = numbers if len(numbers) == 3 else (*numbers, usual)
    return first, second, third


def _window(text: str) -> tuple[WindowDimension, ...]:
    """Read `{size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=2x2}` (xla/window_util.cc)."""
    given = {key: values.split("x") for key, values in _pairs(text).items()}
    rank = len(next(iter(given.values()), ()))
    usual = ["1"] * rank
    rows = zip(
        given.get("size", usual),
        given.get("stride", usual),
        given.get("pad", ["0_0"] * rank),
        given.get("rhs_dilate", usual),
        given.get("lhs_dilate", usual),
        given.get("rhs_reversal", ["0"] * rank),
        strict=True,
    )
    found = []
    for size, stride, pad, dilation, base, reversal in rows:
        low, high = _integers(pad, "_")
        numbers = (_integer(size), _integer(stride), low, high, _integer(dilation), _integer(base))
        found.append(WindowDimension(*numbers, reversal != "0"))
    return tuple(found)


def _labels(text: str) -> ConvolutionDimensions:
    """Read the labels of a convolution's input, kernel and output: `b01f_01io->b01f`."""
    data, kernel, output = re.split("_|->", text)
    if len({size for part in (data, kernel, output) for size in (len(part), len(set(part)))}) > 1:
        raise ValueError
    numbers = [str(number) for number in range(len(data) - 2)]
    spatial = [tuple(map(labels.index, numbers)) for labels in (data, kernel, output)]
    return ConvolutionDimensions(
        input_batch=data.index("b"),
        input_feature=data.index("f"),
        input_spatial=spatial[0],
        kernel_input_feature=kernel.index("i"),
        kernel_output_feature=kernel.index("o"),
        kernel_spatial=spatial[1],
        output_batch=output.index("b"),
        output_feature=output.index("f"),
        output_spatial=spatial[2],
    )


def _constant(shape: Shape, text: str) -> bool | float | None:
    """Read a constant as its type holds it; None for arrays and other types."""
    if shape.dimensions or text.startswith(("{", "(")):
        return None
    if shape.dtype == "pred":
        return text == "true"
    if re.fullmatch(r"[su]\d+", shape.dtype):
        return int(text) if re.fullmatch(r"-?\d{1,20}", text) else None
    if shape.dtype not in _FORMATS:
        return None
    packed = struct.pack(_FORMATS[shape.dtype], float(text.partition("(")[0]))  # as in nan(0x1)
    if shape.dtype == "bf16":  # the upper half of a float32, rounded to even
        bits: int = struct.unpack("<I", packed)[0]
        packed = struct.pack("<I", bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000)
    return struct.unpack(_FORMATS[shape.dtype], packed)[0]  # type: ignore[no-any-return]


def _short(text: str) -> str:
    return repr(elide(text, 80))

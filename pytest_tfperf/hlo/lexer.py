"""
The syntax of HLO text: modules, computations, instructions and attributes, with line numbers.

Source: xla/hlo/parser/hlo_parser.cc and hlo_lexer.cc (openxla/xla).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_tfperf.errors import TraceError
from pytest_tfperf.text import elide

_STRING = r'"(?:\\.|[^"\\])*"'
_QUOTED = re.compile(_STRING, re.DOTALL)
# what is not closed reaches to the end of the text, so that no regex tries it at every place again
_OPEN_STRING = r'"(?:\\(?:.|\Z)|[^"\\])*(?:"|\Z)'
_COMMENT = re.compile(rf"{_OPEN_STRING}|/\*.*?(?:\*/|\Z)|//[^\n]*", re.DOTALL)
_BRACKET = re.compile(rf"{_OPEN_STRING}|[()\[\]{{}}]", re.DOTALL)
_CLOSED = re.compile(rf"{_STRING}|/\*.*\*/|//.*", re.DOTALL)
_HEAD = re.compile(r"(ENTRY\s+)?%?([^\s()={}%,]+)\s*(?:\(|\{)")
_INSTRUCTION = re.compile(r"(ROOT\s+)?%?([^\s()={}%,]+)\s*=\s*")
_OPCODE = re.compile(r"\s*([a-zA-Z][\w-]*)\(")
_ATTRIBUTE = re.compile(r"\s*([a-zA-Z_][\w-]*)\s*=\s*(.*)", re.DOTALL)
_CLOSING = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class InstructionText:
    """An instruction: `name = shape opcode(inside), attributes`."""

    where: str
    """File and line, for error messages."""
    root: bool
    """True for the computation's result."""
    name: str
    """Name of the instruction."""
    shape: str
    """Text of its shape."""
    opcode: str
    """Opcode."""
    inside: str
    """Text between the parentheses."""
    attributes: dict[str, str]
    """Texts of attributes by name."""


@dataclass(frozen=True, slots=True)
class ComputationText:
    """A computation with its instructions."""

    where: str
    """File and line, for error messages."""
    entry: bool
    """True for the computation that is run."""
    name: str
    """Name of the computation."""
    instructions: tuple[InstructionText, ...]
    """Its instructions, in order."""


@dataclass(frozen=True, slots=True)
class ModuleText:
    """A module."""

    where: str
    """File and line, for error messages."""
    head: str
    """The first line."""
    blocks: tuple[ComputationText, ...]
    """The computations, in order."""
    others: tuple[str, ...]
    """All other lines: tables of files and stack frames."""


def modules_in(text: str, name: str) -> Iterator[ModuleText]:
    """
    Yield the modules of a text, each of which begins with a line `HloModule NAME`.

    Args:
        text: HLO text.
        name: Its name in error messages.

    Raises:
        TraceError: If there is no module, or a line cannot be read; with its line number.
    """
    statements = list(_statements(_without_comments(text, name), name))
    starts = [
        number for number, (_, line) in enumerate(statements) if re.match(r"HloModule\b", line)
    ]
    if not starts:
        where, line = statements[0] if statements else (name, "")
        raise TraceError(
            f"{where}: not HLO text, which begins with a line 'HloModule …'"
            + (f": {_short(line)}" if line else "")
        )
    if starts[0]:
        raise TraceError(
            f"{statements[0][0]}: a line before the first HloModule: {_short(statements[0][1])}"
        )
    for begin, end in zip(starts, [*starts[1:], len(statements)], strict=True):
        yield _module(statements[begin:end])


def parts(text: str) -> list[str]:
    """
    Split a text at its commas, except those within brackets and strings.

    An empty text has no parts.
    """
    found, depth, begin = [], 0, 0
    for match in re.finditer(rf"{_STRING}|[()\[\]{{}},]", text, re.DOTALL):
        token = match[0]
        depth += (token in _CLOSING) - (token in _CLOSING.values())
        if token == "," and depth == 0:
            found.append(text[begin : match.start()].strip())
            begin = match.end()
    found.append(text[begin:].strip())
    return found if len(found) > 1 or found[0] else []


def unquoted(text: str) -> str:
    """Return a string without its quotes and C's escapes, and any other text unchanged."""
    if not _QUOTED.fullmatch(text):
        return text
    return re.sub(r"\\(x[0-9a-fA-F]{2}|[0-7]{3}|.)", _escaped, text[1:-1], flags=re.DOTALL)


def pairs(text: str, of: str) -> dict[str, str]:
    """
    Read `{key=value key="a value"}` as values by key.

    Raises:
        TraceError: If the text has another form; `of` names it.
    """
    found = re.findall(rf"(\w+)=({_STRING}|\{{[^{{}}]*\}}|[^\s{{}},]+)", text, re.DOTALL)
    if text.strip()[:1] != "{" or (not found and text.strip("{} ")):
        raise TraceError(f"{of} is {_short(text)}, not {{key=value}}")
    return dict(found)


def _escaped(match: re.Match[str]) -> str:
    code = match[1]
    known = {"n": "\n", "t": "\t", "r": "\r"}
    if len(code) == 3:
        return chr(int(code[1:], 16) if code[0] == "x" else int(code, 8))
    return known.get(code, code)


def _without_comments(text: str, name: str) -> str:
    """
    Remove the comments of a text, but not their line ends.

    Raises:
        TraceError: If a comment or a string is not closed.
    """

    def kept(match: re.Match[str]) -> str:
        if match.end() == len(text) and not _CLOSED.fullmatch(match[0]):
            kind = "string" if match[0][0] == '"' else "comment"
            number = text.count("\n", 0, match.start()) + 1
            raise TraceError(f"{name}:{number}: this {kind} is not closed: {_short(match[0])}")
        return match[0] if match[0][0] == '"' else "\n" * match[0].count("\n")

    return _COMMENT.sub(kept, text)


def _statements(text: str, name: str) -> Iterator[tuple[str, str]]:
    """
    Yield the statements of a text, each with file and line.

    A statement continues on the next line while its brackets are open, after a comma, and if the
    next line begins with an opcode.
    """
    open_lines: list[str] = []
    depth, where = 0, name
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line:
            continue
        if open_lines and depth == 0 and not _goes_on(open_lines, line):
            yield where, " ".join(open_lines)
            open_lines = []
        where = where if open_lines else f"{name}:{number}"
        open_lines.append(line)
        depth += _depth(line)
        if depth < 0 and line[0] != "}":
            raise TraceError(f"{where}: a bracket is closed that was not opened: {_short(line)}")
        if depth < 0 or (depth == 1 and line.endswith("{") and _HEAD.match(open_lines[0])):
            yield where, " ".join(open_lines)
            open_lines, depth = [], 0
    if depth > 0:
        raise TraceError(
            f"{where}: brackets or a string are not closed at the end of the text:"
            f" {_short(open_lines[0])}"
        )
    if open_lines:
        yield where, " ".join(open_lines)


def _goes_on(lines: list[str], following: str) -> bool:
    return following[0] != "}" and (
        lines[-1][-1] == ","
        or (bool(_INSTRUCTION.match(lines[0])) and bool(_OPCODE.match(following)))
    )


def _depth(line: str) -> int:
    tokens = _BRACKET.findall(line)
    return sum((token in _CLOSING) - (token in _CLOSING.values()) for token in tokens)


def _module(statements: list[tuple[str, str]]) -> ModuleText:
    (where, head), *rest = statements
    blocks: list[ComputationText] = []
    others: list[str] = []
    begun: tuple[str, re.Match[str]] | None = None
    lines: list[InstructionText] = []
    for place, line in rest:
        if begun and line.startswith("}"):
            blocks.append(ComputationText(begun[0], bool(begun[1][1]), begun[1][2], tuple(lines)))
            begun, lines = None, []
        elif begun:
            lines.append(_instruction(line, place))
        elif line.endswith("{") and (match := _HEAD.match(line)):
            begun = (place, match)
        elif re.match(r"[A-Z]\w*\Z|\d+ ", line):
            others.append(line)
        else:
            raise TraceError(f"{place}: neither a computation nor its end: {_short(line)}")
    if begun:
        raise TraceError(f"{begun[0]}: the computation {begun[1][2]!r} has no end")
    return ModuleText(where, head, tuple(blocks), tuple(others))


def _instruction(text: str, where: str) -> InstructionText:
    start = _INSTRUCTION.match(text)
    if start is None:
        raise TraceError(
            f"{where}: not an instruction, which is 'name = shape opcode(…)': {_short(text)}"
        )
    shape_end = _end_of(text, start.end(), " ")
    opcode = _OPCODE.match(text, shape_end)
    if opcode is None:
        raise TraceError(
            f"{where}: no opcode with operands behind the shape"
            f" {_short(text[start.end() : shape_end])}"
        )
    inside_end = _end_of(text, opcode.end() - 1, "")
    attributes = {}
    for part in parts(text[inside_end:].lstrip(" ,")):
        match = _ATTRIBUTE.fullmatch(part)
        if match is None:
            raise TraceError(f"{where}: {_short(part)} is not an attribute, which is key=value")
        attributes[match[1]] = match[2].strip()
    inside = text[opcode.end() : inside_end - 1].strip()
    return InstructionText(
        where,
        bool(start[1]),
        start[2],
        text[start.end() : shape_end],
        opcode[1],
        inside,
        attributes,
    )


def _end_of(text: str, begin: int, until: str) -> int:
    """
    Find the offset at which the brackets from `begin` on are closed and `until` follows.

    Args:
        text: The text.
        begin: The offset to start from.
        until: The text behind; if it is empty, the first closing bracket ends the search.
    """
    depth, place = 0, begin
    for match in _BRACKET.finditer(text, begin):
        if depth == 0 and until and until in text[place : match.start()]:
            return text.index(until, place)
        depth += (match[0] in _CLOSING) - (match[0] in _CLOSING.values())
        place = match.end()
        if depth == 0 and not until:
            return place
    end = text.find(until, place) if until else -1
    return len(text) if end < 0 else end


def _short(text: str) -> str:
    return repr(elide(" ".join(text.split()), 80))

"""
XLA modules as graphs in Graphviz' DOT language, and as SVG if Graphviz is installed.

A node is an instruction; an edge goes from an operand to its user. A fusion is a frame around its
fused computation. Loop bodies, reducers and other called computations are frames of their own, with
a dashed line to the caller.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator

from pytest_tfperf.errors import ExportError
from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule
from pytest_tfperf.hlo.printer import callees, instruction_text, literal_text, shape_text
from pytest_tfperf.text import elide, plain

_DOT_SECONDS = 120.0
_LONGEST = 60  # characters of a line in a node
_LONGEST_TIP = 2000  # a string of more than 16,384 bytes is an error to Graphviz 2
_SPACE = re.compile(r"[\t\n]")

# Tints of Okabe and Ito's eight colours, which people of any colour vision can distinguish
# (jfly.uni-koeln.de/color). Each pair is the fill and the line of a node.
_QUIET = ("#f7f7f7", "#999999")
_COLOURS = {
    **dict.fromkeys(["dot", "convolution"], ("#fbd98f", "#e69f00")),  # orange: matrix units
    **dict.fromkeys(
        ["reduce", "reduce-window", "select-and-scatter", "sort", "scatter", "gather"],
        ("#a6e3d0", "#009e73"),
    ),  # green
    **dict.fromkeys(
        [
            "copy",
            "transpose",
            "concatenate",
            "pad",
            "slice",
            "dynamic-slice",
            "dynamic-update-slice",
            "reverse",
        ],
        ("#f9f3a5", "#b8a900"),
    ),  # yellow: memory
    **dict.fromkeys(
        ["while", "conditional", "call", "custom-call"], ("#ecc9dd", "#cc79a7")
    ),  # purple: calls
    **dict.fromkeys(
        [
            "all-reduce",
            "all-gather",
            "reduce-scatter",
            "all-to-all",
            "collective-permute",
            "all-reduce-start",
            "all-gather-start",
            "collective-permute-start",
        ],
        ("#f2b48a", "#d55e00"),
    ),  # vermilion: collectives
    **dict.fromkeys(
        [
            "parameter",
            "constant",
            "tuple",
            "get-tuple-element",
            "bitcast",
            "iota",
            "copy-done",
            "all-reduce-done",
        ],
        _QUIET,
    ),
}
_PLAIN = ("#ffffff", "#555555")
_FUSION = ("#e3f2fb", "#56b4e9")
_FRAME = ("#fcfcfc", "#bbbbbb")


def dot_of(module: HloModule) -> str:
    """Write a module as one directed graph."""
    uses = Counter(
        key
        for part in module.computations.values()
        for op in part.instructions.values()
        for key in op.called
    )
    graph = _Graph(module, frozenset(key for key, n in uses.items() if n == 1))
    return (
        "\n".join(
            [
                f"digraph {_label([elide(module.name, _LONGEST)])} {{",
                "  compound=true; rankdir=TB; newrank=true;",
                '  graph [fontname="Helvetica", fontsize=11, style="rounded,filled"];',
                '  node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=10,'
                ' margin="0.1,0.05"];',
                '  edge [color="#777777", arrowsize=0.6, fontname="Helvetica", fontsize=9];',
                *(
                    f"  {line}"
                    for part in module.computations.values()
                    if part.id not in graph.fused
                    for line in graph.frame(part)
                ),
                *(
                    f"  {line}"
                    for part in module.computations.values()
                    for line in graph.edges(part)
                ),
                "}",
            ]
        )
        + "\n"
    )


def svg_of(dot: str) -> bytes:
    """Draw a DOT graph as SVG; ExportError if Graphviz is missing, fails, or takes two minutes."""
    program = shutil.which("dot")
    if program is None:
        raise ExportError("an .svg needs Graphviz's dot in PATH; write a .dot file instead")
    try:
        done = subprocess.run(
            [program, "-Tsvg"],
            input=dot.encode(),
            capture_output=True,
            timeout=_DOT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ExportError(
            f"Graphviz's dot takes longer than {_DOT_SECONDS:g} s for this module; write a .dot or"
            " .txt file instead"
        ) from error
    if done.returncode:
        message = (
            done.stderr.decode(errors="replace").strip() or f"its exit status is {done.returncode}"
        )
        raise ExportError(f"Graphviz's dot failed: {message}; write a .dot file instead")
    return done.stdout


class _Graph:
    """Writer of a module's frames, nodes and edges."""

    __slots__ = ("fused", "module", "once")

    def __init__(self, module: HloModule, once: frozenset[int]) -> None:
        self.module = module
        self.once = once
        parts = module.computations.values()
        self.fused = frozenset(
            op.called[0] for part in parts for op in part.instructions.values() if self.inside(op)
        )

    def inside(self, op: HloInstruction) -> HloComputation | None:
        """Return the computation whose frame stands for a fusion; None if a node does."""
        return (
            self.module.computations[op.called[0]]
            if op.opcode == "fusion" and op.called and op.called[0] in self.once
            else None
        )

    def frame(self, part: HloComputation, fusion: HloInstruction | None = None) -> Iterator[str]:
        """Yield the lines of a computation's frame, or of the fusion's that it belongs to."""
        fill, line = _FUSION if fusion else _FRAME
        lines = (
            [
                elide(f"fusion {fusion.name} {fusion.fusion_kind}".rstrip(), _LONGEST),
                *_named(fusion),
            ]
            if fusion
            else [elide(self.title(part), _LONGEST)]
        )
        yield f"subgraph cluster_{part.id} {{"
        yield f'  label={_label(lines)}; fillcolor="{fill}"; color="{line}";'
        for op in part.instructions.values():
            inner = self.inside(op)
            yield from (
                f"  {text}"
                for text in ([self.node(part, op)] if inner is None else self.frame(inner, op))
            )
        yield "}"

    def title(self, part: HloComputation) -> str:
        return f"ENTRY {part.name}" if part.id == self.module.entry_id else part.name

    def node(self, part: HloComputation, op: HloInstruction) -> str:
        fill, line = _COLOURS.get(op.opcode, _PLAIN)
        text = "#666666" if (fill, line) == _QUIET else "#000000"
        width = 2 if op.id == part.root_id else 1
        literal = literal_text(op)
        what = f"{op.opcode}({literal}) {op.name}" if literal else f"{op.opcode} {op.name}"
        label = _label(
            [
                elide(what, _LONGEST),
                elide(shape_text(op.shape, layout=False), _LONGEST),
                *_named(op),
            ]
        )
        tip = _label([elide(instruction_text(self.module, part, op), _LONGEST_TIP)])
        colours = f'fillcolor="{fill}", color="{line}", fontcolor="{text}"'
        return f"{_id(part, op)} [label={label}, tooltip={tip}, {colours}, penwidth={width}];"

    def edges(self, part: HloComputation) -> Iterator[str]:
        """
        Yield edges from operands to users, and dashed ones from called computations to callers.

        The edges of a fusion's operands end at its parameters.
        """
        for op in part.instructions.values():
            inner = self.inside(op)
            for place, operand in enumerate(part.operands(op)):
                user = (
                    _id(part, op)
                    if inner is None
                    else _id(inner, inner.parameters.get(place, inner.root))
                )
                yield f"{self.result(part, operand)} -> {user};"
            for title, called in callees(self.module, part, op) if inner is None else ():
                style = f'style=dashed, ltail=cluster_{called.id}, label="{title}"'
                yield f"{self.result(called, called.root)} -> {_id(part, op)} [{style}];"

    def result(self, part: HloComputation, op: HloInstruction) -> str:
        """Name the node that computes an instruction's value; of a fusion the root in it."""
        inner = self.inside(op)
        return _id(part, op) if inner is None else self.result(inner, inner.root)


def _id(part: HloComputation, op: HloInstruction) -> str:
    return f"n{part.id}_{op.id}"


def _named(op: HloInstruction) -> list[str]:
    """Return the framework's name of an instruction, if it has one."""
    return [elide(op.op_name, _LONGEST)] if op.op_name else []


def _label(lines: list[str]) -> str:
    """
    Write lines one below the other.

    A backslash starts an escape in labels, so a literal one is doubled.
    """
    return _quoted(r"\n".join(_entities(line).replace("\\", r"\\") for line in lines))


def _entities(text: str) -> str:
    """Escape HTML's entities, which DOT reads in texts (`&lt;`)."""
    return _SPACE.sub(" ", plain(text)).replace("&", "&amp;")


def _quoted(text: str) -> str:
    """Quote a DOT string; only the quotation mark is escaped (graphviz.org/doc/info/lang.html)."""
    return '"' + text.replace('"', r"\"") + '"'

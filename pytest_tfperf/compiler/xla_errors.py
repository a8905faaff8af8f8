"""TensorFlow's error about a function that XLA cannot compile, with every op that is in the way and the line that made it."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from typing import Any

from pytest_tfperf.compiler.functions import definition_of
from pytest_tfperf.compiler.instances import ops_in
from pytest_tfperf.compiler.source_lines import lines_in
from pytest_tfperf.compiler.xla_coverage import why_outside
from pytest_tfperf.op_types import NO_KERNEL, PYTHON, TEXT
from pytest_tfperf.text import and_more

# tensorflow/compiler/tf2xla/tf2xla_util.cc and xla_compiler.cc: "when trying to compile graph f[…] on XLA_CPU_JIT"
_FUNCTION = re.compile(r"trying to compile graph (\S+?)\[")
_MOST = 10


def explain(error: BaseException) -> None:
    """Add to an error of TensorFlow's, if it says that XLA cannot compile a function, which ops of it are outside XLA and why."""
    function = _FUNCTION.search(str(error))
    if function is None:
        return
    try:
        lines = list(_ops_in_the_way(function[1]))
    except Exception:  # the error itself matters more
        return
    if lines:
        _add_note(
            error,
            "\n  ".join(["tfperf: XLA cannot compile", and_more(lines, _MOST, "\n  ")]),
        )


def _ops_in_the_way(name: str) -> Iterator[str]:
    line = lines_in(_graph_of(name))
    for op in ops_in(definition_of(name).node_def):
        why = why_outside(op.node, auto=False)
        if why in (TEXT, PYTHON, NO_KERNEL):
            made = line(op.node, op.owner)
            yield f"{op.node.op} ({op.name}){f' at {made}' if made else ''}: {why}"


def _graph_of(name: str) -> Any:
    """The graph of a function that somebody still holds, which knows the lines; None if nobody does."""
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    found = (
        thing
        for thing in gc.get_objects()
        if type(thing) is ConcreteFunction and thing.name.decode() == name
    )
    return next((function.graph for function in found), None)


def _add_note(error: BaseException, note: str) -> None:
    if hasattr(error, "add_note"):
        error.add_note(note)
    elif hasattr(
        error, "_message"
    ):  # Python 3.10 has no notes; TensorFlow's errors keep their text here
        error._message = f"{error._message}\n{note}"
    else:
        error.args = (f"{error}\n{note}",)

"""Add to XLA's compile errors every op that XLA cannot compile, with its source line."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from typing import Any

from pytest_tfperf.compiler.functions import definition_of
from pytest_tfperf.compiler.runtime_graphs import ops_in
from pytest_tfperf.compiler.source_lines import lines_in
from pytest_tfperf.compiler.xla_coverage import why_outside
from pytest_tfperf.op_types import NO_KERNEL, PYTHON, TEXT
from pytest_tfperf.text import and_more

# "when trying to compile graph f[…] on XLA_CPU_JIT" in tf2xla_util.cc and xla_compiler.cc
# (tensorflow/compiler/tf2xla).
_FUNCTION = re.compile(r"trying to compile graph (\S+?)\[")
_MOST = 10


def explain(error: BaseException) -> None:
    """Add a note with the ops that XLA cannot compile to an error about a function."""
    function = _FUNCTION.search(str(error))
    if function is None:
        return
    try:
        lines = list(_uncompilable_ops(function[1]))
    except Exception:  # the error itself matters more
        return
    if lines:
        note = "\n  ".join(["tfperf: XLA cannot compile", and_more(lines, _MOST, "\n  ")])
        _add_note(error, note)


def _uncompilable_ops(name: str) -> Iterator[str]:
    line = lines_in(_graph_of(name))
    for op in ops_in(definition_of(name).node_def):
        why = why_outside(op.node, auto=False)
        if why in (TEXT, PYTHON, NO_KERNEL):
            source = line(op.node, op.owner)
            at = f" at {source}" if source else ""
            yield f"{op.node.op} ({op.name}){at}: {why}"


def _graph_of(name: str) -> Any:
    """Return the graph of a function that is still referenced, with source lines, or None."""
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    functions = (
        thing
        for thing in gc.get_objects()
        if type(thing) is ConcreteFunction and thing.name.decode() == name
    )
    return next((function.graph for function in functions), None)


def _add_note(error: BaseException, note: str) -> None:
    if hasattr(error, "add_note"):
        error.add_note(note)
    elif hasattr(error, "_message"):
        # Python 3.10 has no notes; private: TensorFlow's errors keep their text here
        error._message = f"{error._message}\n{note}"
    else:
        error.args = (f"{error}\n{note}",)

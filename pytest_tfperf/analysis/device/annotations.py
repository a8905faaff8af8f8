"""What launched each event of a GPU: an XLA instruction, an op of the framework, or nobody that the trace names."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.stats import labels

_NUMBERED = re.compile(r"([._]\d+)+\Z")
HLO_OP = "hlo_op"
_SOURCES = ("annotation", "tf_op", HLO_OP)  # the last that is there holds; before TensorFlow 2.5 the op is in the annotation


class Launcher(NamedTuple):
    """An instruction, or an op and its type; `source` is the stat that names it, empty where none does and `name` is the event's own."""

    name: str
    kind: str
    source: str


def launchers(events: Events) -> tuple[Ints, list[Launcher]]:
    """Which launcher each event has, shape (n,), and all launchers."""
    code, found = events.plane.name_index[events.rows], [Launcher(name, "", "") for name in events.plane.names]
    for stat in _SOURCES:
        which, texts = labels(events, stat)
        named = np.array([_names_an_op(text) for text in texts], bool)
        code = np.where(named[which], which + len(found), code)
        found += [_launcher(text, stat) for text in texts]
    return code, found


def _names_an_op(text: str) -> bool:
    """Whether a text names an op: an empty type, as in `XlaModule:`, says only that XLA ran."""
    return bool(text.partition("#")[0]) and not text.startswith("XlaModule:")


def _launcher(text: str, source: str) -> Launcher:
    """`node:Type#shape=…#` or, in JAX, `jit(f)/dot_general:`; instructions have the kind of their name without numbers."""
    if source == HLO_OP:
        return Launcher(text, _NUMBERED.sub("", text), source)
    name, _, kind = text.partition("#")[0].partition("::")[0].rpartition(":")
    name = name or kind
    return Launcher(name, kind or _NUMBERED.sub("", name.rpartition("/")[2]), source)

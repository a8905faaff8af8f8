"""Whether two executables are the same program: a hash of what HLO computes, not of what it is called."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter

from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule

# ids and names are numbered anew in every process; lines move as code around them does; a backend's notes may hold what was tuned
_LEFT_OUT = frozenset(
    {
        "id",
        "name",
        "operands",
        "called",
        "op_type",
        "op_name",
        "source_file",
        "source_line",
        "backend_config",
    }
)
_computed = attrgetter(
    *(field.name for field in fields(HloInstruction) if field.name not in _LEFT_OUT)
)


def hlo_hash(module: HloModule) -> str:
    """
    Eight hexadecimal digits, the same for modules whose instructions are the same in the same order: opcodes, shapes, layouts, operands.

    Of constants only scalars count.
    """
    parts = {key: place for place, key in enumerate(module.computations)}
    digest = hashlib.blake2b(digest_size=4)
    for part in module.computations.values():
        digest.update(_text(part, parts).encode())
    return digest.hexdigest()


def _text(part: HloComputation, parts: Mapping[int, int]) -> str:
    """A computation, with what it refers to by place."""
    places = {key: place for place, key in enumerate(part.instructions)}
    return repr(
        [
            (
                _computed(op),
                [places.get(key) for key in op.operands],
                [parts.get(key) for key in op.called],
            )
            for op in part.instructions.values()
        ]
    )

"""A hash of the program that a module computes, whatever the names in it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter

from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule

# Ids and names are numbered anew in every process, source lines move with the code around them,
# and the backend's configuration may hold the results of autotuning. Stored hashes know no groups.
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
        "replica_groups",
    }
)
_computed = attrgetter(
    *(field.name for field in fields(HloInstruction) if field.name not in _LEFT_OUT)
)


def hlo_hash(module: HloModule) -> str:
    """
    Return eight hexadecimal digits, equal for modules with equal instructions in equal order.

    Opcodes, shapes, layouts and operands count; of constants only scalars count.
    """
    parts = {key: place for place, key in enumerate(module.computations)}
    digest = hashlib.blake2b(digest_size=4)
    for part in module.computations.values():
        digest.update(_text(part, parts).encode())
    return digest.hexdigest()


def _text(part: HloComputation, parts: Mapping[int, int]) -> str:
    """Write a computation with references by position."""
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

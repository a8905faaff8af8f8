"""What of a module its result needs; XLA writes the HLO that it starts from with much that nobody uses."""

from __future__ import annotations

from dataclasses import replace

from pytest_tfperf.graphs import reached
from pytest_tfperf.hlo.module import HloComputation, HloModule


def without_dead_code(module: HloModule) -> HloModule:
    """The module with the instructions that its result needs, with all parameters, and the computations that those call."""
    parts = {key: _used(part) for key, part in module.computations.items()}
    live = reached([module.entry_id], lambda key: [called for op in parts[key].instructions.values() for called in op.called])
    return replace(module, computations={key: part for key, part in parts.items() if key in live})


def _used(part: HloComputation) -> HloComputation:
    used = reached([part.root_id, *(op.id for op in part.parameters.values())], lambda key: part.instructions[key].operands)
    return replace(part, instructions={key: op for key, op in part.instructions.items() if key in used})

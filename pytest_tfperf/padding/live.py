"""What of a module its result needs; XLA writes the HLO that it starts from with much that nobody uses."""

from __future__ import annotations

from dataclasses import replace

from pytest_tfperf.trace.hlo_module import HloComputation, HloModule


def without_dead_code(module: HloModule) -> HloModule:
    """The module with the instructions that its result needs, with all parameters, and the computations that those call."""
    parts: dict[int, HloComputation] = {}
    waiting = [module.entry_id]
    while waiting:
        key = waiting.pop()
        if key not in parts:
            parts[key] = _used(module.computations[key])
            waiting += [called for op in parts[key].instructions.values() for called in op.called]
    return replace(module, computations={key: parts[key] for key in module.computations if key in parts})


def _used(part: HloComputation) -> HloComputation:
    used: set[int] = set()
    waiting = [part.root_id, *(op.id for op in part.parameters.values())]
    while waiting:
        key = waiting.pop()
        if key not in used:
            used.add(key)
            waiting += part.instructions[key].operands
    return replace(part, instructions={key: op for key, op in part.instructions.items() if key in used})

"""
Instructions whose results nobody uses, taken out of a module that XLA has not optimised.

A gradient of the input, which TensorFlow's tapes write and its runtime prunes, is in the HLO that XLA starts from. Protos:
xla/service/hlo.proto (openxla/xla), as TensorFlow carries them.
"""

from __future__ import annotations

from typing import Any


def without_dead_code(module: bytes) -> bytes:
    """The serialised HloModuleProto with those computations and instructions that its result needs, and all parameters."""
    from tensorflow.compiler.xla.service import hlo_pb2

    proto = hlo_pb2.HloModuleProto.FromString(module)
    computations = {computation.id: computation for computation in proto.computations}
    reached, waiting = set(), [proto.entry_computation_id]
    while waiting:
        computation = computations[waiting.pop()]
        if computation.id not in reached:
            reached.add(computation.id)
            _keep_used(computation)
            waiting += [called for instruction in computation.instructions for called in instruction.called_computation_ids]
    kept = [computation for computation in proto.computations if computation.id in reached]
    del proto.computations[:]
    proto.computations.extend(kept)
    result: bytes = proto.SerializeToString()
    return result


def _keep_used(computation: Any) -> None:
    instructions = {instruction.id: instruction for instruction in computation.instructions}
    used, waiting = set(), [computation.root_id, *(key for key, one in instructions.items() if one.opcode == "parameter")]
    while waiting:
        key = waiting.pop()
        if key not in used:
            used.add(key)
            waiting += [*instructions[key].operand_ids, *instructions[key].control_predecessor_ids]
    kept = [instruction for key, instruction in instructions.items() if key in used]
    del computation.instructions[:]
    computation.instructions.extend(kept)

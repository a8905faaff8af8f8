"""
Instructions whose results nobody uses, taken out of a module that XLA has not optimised.

A gradient of the input, which TensorFlow's tapes write and its runtime prunes, is in the HLO that XLA starts from. Protos:
xla/service/hlo.proto (openxla/xla), as TensorFlow carries them.
"""

from __future__ import annotations

from typing import Any

from pytest_tfperf.graphs import reached


def without_unused(module: bytes) -> bytes:
    """The serialised HloModuleProto with those computations and instructions that its result needs, and all parameters."""
    from tensorflow.compiler.xla.service import hlo_pb2

    proto = hlo_pb2.HloModuleProto.FromString(module)
    computations = {computation.id: computation for computation in proto.computations}
    for computation in proto.computations:
        _keep_used(computation)
    live = reached(
        [proto.entry_computation_id],
        lambda key: [
            called
            for one in computations[key].instructions
            for called in one.called_computation_ids
        ],
    )
    kept = [computation for computation in proto.computations if computation.id in live]
    del proto.computations[:]
    proto.computations.extend(kept)
    result: bytes = proto.SerializeToString()
    return result


def _keep_used(computation: Any) -> None:
    instructions = {instruction.id: instruction for instruction in computation.instructions}
    used = reached(
        [
            computation.root_id,
            *(key for key, one in instructions.items() if one.opcode == "parameter"),
        ],
        lambda key: [*instructions[key].operand_ids, *instructions[key].control_predecessor_ids],
    )
    kept = [instruction for key, instruction in instructions.items() if key in used]
    del computation.instructions[:]
    computation.instructions.extend(kept)

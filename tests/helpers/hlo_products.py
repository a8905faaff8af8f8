"""What the tests look at in lowered modules: products and their operands, read with TensorFlow's own protos."""

from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2


def products(raw):
    """`opcode dtype[left] dtype[right]` of each dot and convolution in a module, sorted."""
    module = hlo_pb2.HloModuleProto.FromString(raw)
    found = []
    for computation in module.computations:
        shapes = {instruction.id: instruction.shape for instruction in computation.instructions}
        for one in computation.instructions:
            if one.opcode in ("dot", "convolution"):
                found.append(
                    " ".join([one.opcode, *(text(shapes[operand]) for operand in one.operand_ids)])
                )
    return sorted(found)


def text(shape):
    name = xla_data_pb2.PrimitiveType.Name(shape.element_type).lower()
    return f"{name}[{','.join(map(str, shape.dimensions))}]"


def of_step(lowered):
    """The products of a step's modules, each with how often its module runs; modules without any are left out."""
    return sorted((products(raw), runs) for raw, runs in lowered if products(raw))

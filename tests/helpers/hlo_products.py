"""What the tests look at in lowered modules: products and their operands."""


def products(module):
    """`opcode dtype[left] dtype[right]` of each dot and convolution in a module, sorted."""
    return sorted(
        " ".join([one.opcode, *(text(part.instructions[key].shape) for key in one.operands)])
        for part in module.computations.values()
        for one in part.instructions.values()
        if one.opcode in ("dot", "convolution")
    )


def text(shape):
    return f"{shape.dtype}[{','.join(map(str, shape.dimensions))}]"


def of_step(lowered):
    """The products of a step's modules, each with how often its module runs; modules without any are left out."""
    return sorted((products(module), runs) for module, runs in lowered if products(module))

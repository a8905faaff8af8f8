"""The types that matrix multiplications were written with, and the casts that made them wide."""

from __future__ import annotations

from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule

_HALF = 16  # bits
_DEEPEST = 16  # nested tuples

# a value: the computation, the instruction, and which part of its result
_Value = tuple[int, int, tuple[int, ...]]
_Callers = dict[int, list[tuple[HloComputation, HloInstruction]]]


def hides_types(module: HloModule) -> bool:
    """
    Return whether a CPU's compiler may have widened the 16-bit products of a module.

    A CPU has no 16-bit units: XLA turns a bfloat16 dot into a float32 dot of converted operands
    (xla/service/cpu/cpu_compiler.cc, float normalization; openxla/xla). A TPU's layouts have tiles;
    a GPU's modules have calls and configurations of its own.
    """
    if not module.scheduled:
        return False
    ops = [op for part in module.computations.values() for op in part.instructions.values()]
    arrays = [array for op in ops for array in op.shape.arrays()]
    on_gpu = any(
        op.custom_call_target.startswith("__cu") or '"operation_queue_id"' in op.backend_config
        for op in ops
    )
    return (
        not on_gpu
        and not any(array.tiles for array in arrays)
        and any(_is_float(array.dtype) and array.bits <= _HALF for array in arrays)
    )


def cast_before(module: HloModule, name: str) -> str:
    """
    Return the name of the program's cast from 16 bits that made a product's operands wide.

    Of several it is the farthest from the product: what comes later is wide since that one.

    Args:
        module: The module.
        name: Name of the product's instruction.

    Returns:
        An empty text if nothing before the product was cast, as where the arguments are wide.
    """
    ops = [(part, op) for part in module.computations.values() for op in part.instructions.values()]
    callers: _Callers = {}
    for part, op in ops:
        for key in dict.fromkeys(op.called):
            callers.setdefault(key, []).append((part, op))
    part, product = next((part, op) for part, op in ops if op.name == name)
    values: list[_Value] = [(part.id, key, ()) for key in product.operands]
    seen, cast = set(values), ""
    for key, number, path in values:  # breadth first
        part = module.computations[key]
        op = part.instructions[number]
        if op.shape.dtype != "tuple" and not (_is_float(op.shape.dtype) and op.shape.bits > _HALF):
            continue
        if op.opcode == "convert":
            narrow = part.operands(op)[0].shape
            if _is_float(narrow.dtype) and narrow.bits <= _HALF:
                # else a product's, of its narrower operand
                cast = op.name if _is_cast(op) else cast
                continue
        before = _before(module, callers, part, op, path)
        new = [one for one in before if one not in seen and len(one[2]) <= _DEEPEST]
        seen.update(new)
        values += new
    return cast


def _before(
    module: HloModule,
    callers: _Callers,
    part: HloComputation,
    op: HloInstruction,
    path: tuple[int, ...],
) -> list[_Value]:
    """Return the values that a part of an instruction's result is made of."""
    if op.opcode == "get-tuple-element":
        return [(part.id, op.operands[0], (op.tuple_index, *path))]
    if op.opcode == "tuple" and path:
        return [(part.id, op.operands[path[0]], path[1:])]
    if op.opcode == "opt-barrier":
        return [(part.id, op.operands[0], path)]
    if op.opcode in ("fusion", "call", "while"):
        inside = (op.called[0], module.computations[op.called[0]].root_id, path)
        return [inside, (part.id, op.operands[0], path)] if op.opcode == "while" else [inside]
    if op.opcode == "parameter":
        return [
            (caller.id, key, path)
            for caller, call in callers.get(part.id, ())
            for key in _argument(call, part.id, op.parameter_number)
        ]
    return [(part.id, key, ()) for key in op.operands]


def _argument(call: HloInstruction, computation: int, number: int) -> tuple[int, ...]:
    """Return the operands of a call that a parameter of the called computation may hold."""
    if call.opcode in ("fusion", "call"):
        return call.operands[number : number + 1]
    if call.opcode == "while":
        return (call.id,)  # the state also comes from the loop's body
    if call.opcode == "conditional":
        return tuple(
            call.operands[1 + branch]
            for branch, key in enumerate(call.called)
            if key == computation
        )
    return ()


def _is_cast(op: HloInstruction) -> bool:
    """Return whether a conversion is TensorFlow's Cast or JAX's convert_element_type."""
    return op.op_type == "Cast" or op.op_name.endswith("convert_element_type")


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("f", "bf"))

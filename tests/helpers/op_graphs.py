"""Graphs of ops, written by hand: each op by its type, operands and shape."""

from pytest_tfperf.op_guide.rules import findings
from pytest_tfperf.recorded_graphs import OpGraph, OpNode, Tensor


class Ops:
    """Adds ops one by one; each call gives the op's edge."""

    def __init__(self):
        self.ops = []

    def __call__(self, op_type, *inputs, shape=None, value=None, dtype="float32", **others):
        outputs = (Tensor(shape=shape, dtype=dtype),)
        inputs = tuple(self.const(one) if isinstance(one, (int, list)) else one for one in inputs)
        self.ops.append(
            OpNode(
                name=f"{op_type}_{len(self.ops)}",
                op_type=op_type,
                inputs=inputs,
                outputs=outputs,
                value=value,
                **others,
            )
        )
        return len(self.ops) - 1, 0

    def const(self, value):
        value = tuple(value) if isinstance(value, list) else value
        return self(
            "Const",
            shape=(len(value),) if isinstance(value, tuple) else (),
            value=value,
            dtype="int32",
        )

    def arg(self, *shape):
        return self("Placeholder", shape=shape)

    def found(self, *results):
        graph = OpGraph(ops=tuple(self.ops), results=results)
        return findings(graph)

    def codes(self, *results):
        return [one.code for one in self.found(*results)]

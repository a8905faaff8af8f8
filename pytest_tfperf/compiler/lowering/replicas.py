"""
Functions of several replicas in a form that XLA can lower.

XLA lowers a function for one device of this process. So variables of other devices, and those of
parameter servers, get stand-ins on the CPU, which have their shapes and no values. Reductions
between replicas hand on their input.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_tfperf.compiler.functions import Function, is_resource

_REDUCTION = "CollectiveReduceV2"  # one input of data, one result (collective_ops.cc)


def on_one_device(function: Function) -> Function:
    """
    Return the function with stand-ins for its variables, if these lie on several devices or in
    another process.
    """
    devices = {str(arg.device) for arg in function.args if is_resource(arg)}
    own_task, _, _ = own_cpu().partition("/device:")
    if len(devices) < 2 and all(device.startswith(f"{own_task}/") for device in devices):
        return function
    return replace(
        function, args=tuple(_stand_in(arg) if is_resource(arg) else arg for arg in function.args)
    )


def own_cpu() -> str:
    """Return the full name of the first CPU of this process, which may be a task of a cluster."""
    import tensorflow as tf

    with tf.device("CPU:0"):
        return str(tf.constant(0).device)


def without_reductions(definition: Any) -> int:
    """Let reductions between replicas hand on their input; return their number."""
    reductions = {node.name for node in definition.node_def if node.op == _REDUCTION}
    if not reductions:
        return 0

    def renamed(ref: str) -> str:
        name, _, output = ref.partition(":")
        return f"{name}:output:0" if name in reductions and output == "data:0" else ref

    for node in definition.node_def:
        inputs = [renamed(ref) for ref in node.input]
        if node.name in reductions:
            node.op, inputs = "Identity", inputs[:1]
            for attribute in set(node.attr) - {"T"}:
                node.attr.pop(attribute)
        del node.input[:]
        node.input.extend(inputs)
    for result, ref in definition.ret.items():
        definition.ret[result] = renamed(ref)
    return len(reductions)


def _stand_in(variable: Any) -> Any:
    """Return the handle of a new variable without a value on the CPU, in memory never touched."""
    import tensorflow as tf
    from tensorflow.python.eager import context
    from tensorflow.python.ops import gen_resource_variable_ops

    # private: the only place where a handle keeps the type of its variable
    dtype = tf.as_dtype(variable._handle_data.shape_and_type[0].dtype)
    shape = gen_resource_variable_ops.variable_shape(variable)
    with tf.device("CPU:0"):
        handle = tf.raw_ops.VarHandleOp(
            dtype=dtype, shape=shape.numpy().tolist(), shared_name=context.anonymous_name()
        )
        value = tf.raw_ops.Empty(shape=shape, dtype=dtype, init=False)
        tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    return handle

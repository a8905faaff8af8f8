"""Source lines of ops in this file, through all layers of TensorFlow."""

import inspect
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import tensorflow as tf

from pytest_tfperf.compiler.source_lines import nodes_of, places, user_line, user_line_now

X = tf.ones((8, 32, 64))


def here():
    return f"test_source_lines.py:{inspect.currentframe().f_back.f_lineno}"


def test_the_innermost_line_is_found_through_tensorflow():
    lines = []
    tf.nest.map_structure(lambda _: lines.append((user_line_now(), here())), 1)
    found, expected = lines[0]
    assert found == expected


def test_ops_of_graphs_know_their_line_also_under_autograph():
    @tf.function
    def step(x):
        if tf.reduce_sum(x) > 0:
            x = tf.tanh(x)
        return tf.nn.relu(x)

    graph = step.get_concrete_function(tf.TensorSpec([2])).graph
    first = step.python_function.__code__.co_firstlineno
    assert user_line(graph.get_operation_by_name("Sum")) == f"test_source_lines.py:{first + 2}"
    assert user_line(graph.get_operation_by_name("Relu")) == f"test_source_lines.py:{first + 4}"


def test_places_of_ops_in_called_functions():
    @tf.function
    def one(x):
        return tf.tanh(tf.exp(x))

    @tf.function
    def other(x):
        return tf.exp(x)

    step = tf.function(lambda x: one(x) + other(x))
    graph = step.get_concrete_function(tf.TensorSpec([2])).graph
    lines = [
        f"test_source_lines.py:{function.python_function.__code__.co_firstlineno + 2}"
        for function in (one, other)
    ]
    names = ["PartitionedCall/Exp", "PartitionedCall_1/Exp", "Tanh", "Exp", "PartitionedCall/Log"]
    found = {name: line for name, (line, _) in places([graph], names).items()}
    assert found == dict(zip(names, [*lines, lines[0]], strict=False))  # which Exp is not known


@tf.function
def swapped(x):
    return tf.transpose(x, (0, 2, 1))


def nodes(function, *args, seconds=60):
    return nodes_of([tf.function(function).get_concrete_function(*args).graph], seconds)


def only(ops, op_type):
    (one,) = (op for op in ops if op.op_type == op_type)
    return one


def test_a_node_has_shapes_operands_and_its_line_also_in_a_call():
    compiled = tf.function(lambda x: swapped(tf.exp(x)), jit_compile=True)
    ops = nodes(lambda x: tf.matmul(x, compiled(x)), X)
    node = only(ops, "Transpose")
    assert node.name == "PartitionedCall/PartitionedCall/transpose"
    first = swapped.python_function.__code__.co_firstlineno
    assert node.line == f"test_source_lines.py:{first + 2}"
    assert [(one.shape, one.dtype) for one in node.outputs] == [((8, 64, 32), "float32")]
    assert [one.shape for one in node.inputs] == [(8, 32, 64), (3,)]
    assert node.inputs[0].op == "PartitionedCall/PartitionedCall/x"
    assert only(ops, "Exp").name == "PartitionedCall/Exp"
    assert not {op.op_type for op in ops} & {"PartitionedCall", "StatefulPartitionedCall"}


def test_nodes_of_a_function_called_twice_and_of_gradients_count_twice():
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(swapped(x) ** 2)
        return tape.gradient(y, x)

    for function in (lambda x: swapped(x) + swapped(x * 2.0), step):
        assert [op.op_type for op in nodes(function, X)].count("Transpose") == 2


def test_nodes_of_loops_and_branches_are_behind_them_and_those_of_datasets_left_out():
    def step(x):
        for _ in tf.range(3):
            x = tf.tanh(x)
        tf.data.Dataset.from_tensors(x).map(swapped)
        return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.exp(x), lambda: tf.sin(x))

    kinds = [op.op_type for op in nodes(step, X)]
    shown = [one for one in kinds if one in ("StatelessWhile", "Tanh", "StatelessIf", "Exp", "Sin")]
    assert shown == ["StatelessWhile", "Tanh", "StatelessIf", "Sin", "Exp"]  # else, then
    assert "Transpose" not in kinds


def test_an_unknown_size_is_none():
    ops = nodes(swapped.python_function, tf.TensorSpec((None, 32, 64), tf.float32))
    assert only(ops, "Transpose").outputs[0].shape == (None, 64, 32)
    ops = nodes(lambda x: tf.exp(x), tf.TensorSpec(None, tf.float32))
    assert only(ops, "Exp").outputs[0].shape is None


def test_a_large_constant_has_a_line():
    table = np.ones(2000, "float32")
    ops = nodes(lambda x: x[0, 0, 0] * table * 2.0, X)
    assert [op.line for op in ops if op.outputs[0].shape == (2000,) and op.op_type == "Const"] == [
        f"test_source_lines.py:{inspect.currentframe().f_lineno - 2}"
    ]


def test_there_are_no_nodes_beyond_the_time_limit():
    assert nodes(lambda x: tf.exp(x), X, seconds=-1) == ()


def test_library_files_are_not_the_users():
    mine = SimpleNamespace(filename="/home/me/model.py", lineno=12)
    for file in (
        "/home/me/venv/lib/python3.11/site-packages/transformers/model.py",
        "/usr/lib/python3/dist-packages/numpy/core.py",
        f"{sysconfig.get_paths()['stdlib']}/threading.py",
        f"{sysconfig.get_paths()['scripts']}/pytest",
        tf.__file__,
        "<string>",
        "/tmp/__autograph_generated_file7r2.py",
    ):
        library = SimpleNamespace(filename=file, lineno=1)
        assert user_line(SimpleNamespace(traceback=[mine, library])) == "model.py:12", file
        assert user_line(SimpleNamespace(traceback=[library])) is None, file


def test_inner_one_of_two_user_lines_is_found():
    frames = [
        SimpleNamespace(filename=f"/home/me/{name}.py", lineno=3)
        for name in ("test_model", "model")
    ]
    assert user_line(SimpleNamespace(traceback=frames)) == "model.py:3"
    assert user_line(SimpleNamespace(traceback=None)) is None


def test_op_of_a_replica_has_its_line():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])

    @tf.function
    def step(x):
        def replica(x):
            return tf.transpose(x)  # REPLICA LINE

        return strategy.run(replica, args=(x,))

    graph = step.get_concrete_function(tf.ones((2, 3))).graph
    (op,) = (op for op in graph.get_operations() if op.type == "Transpose")
    lines = Path(__file__).read_text().splitlines()
    assert (
        user_line(op)
        == f"test_source_lines.py:{next(n for n, line in enumerate(lines, 1) if line.endswith('# REPLICA LINE'))}"
    )

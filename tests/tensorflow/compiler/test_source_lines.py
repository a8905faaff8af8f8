"""Source lines of ops in this file, through all layers of TensorFlow."""

import inspect
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import tensorflow as tf

from pytest_tfperf.compiler.source_lines import places, user_line, user_line_now


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

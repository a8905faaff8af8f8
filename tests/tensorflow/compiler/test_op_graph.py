"""The graph of a step's ops, through calls, loops and branches."""

import tensorflow as tf

from pytest_tfperf.compiler.op_graph import graph_of, op_graph
from pytest_tfperf.compiler.step_calls import NO_PROBE, Probe, probed
from pytest_tfperf.values import Unknown

X = tf.ones((8, 32, 64))


def ops_of(function, *args, **options):
    return graph_of([tf.function(function, **options).get_concrete_function(*args).graph])


def only(graph, op_type):
    (one,) = (op for op in graph.ops if op.op_type == op_type)
    return one


def producer(graph, op, position=0):
    return graph.ops[op.inputs[position][0]]


def line(function, offset=0):
    return f"test_op_graph.py:{function.python_function.__code__.co_firstlineno + offset}"


@tf.function
def swapped(x):
    return tf.transpose(x, (0, 2, 1))


@tf.function(jit_compile=True)
def compiled(x):
    return swapped(tf.exp(x))


def test_op_has_shapes_and_line():
    graph = graph_of([swapped.get_concrete_function(X).graph])
    transpose = only(graph, "Transpose")
    assert (transpose.name, transpose.line) == ("transpose", line(swapped, 2))
    assert not transpose.in_loop
    assert (transpose.outputs[0].shape, transpose.outputs[0].dtype) == ((8, 64, 32), "float32")
    assert producer(graph, transpose).op_type == "Placeholder"
    assert producer(graph, transpose, 1).op_type == "Const"
    assert [producer(graph, op).name for op in graph.ops if op.op_type == "Identity"] == [
        "transpose"
    ]


def test_callees_are_inlined():
    graph = ops_of(lambda x: tf.matmul(x, compiled(x)), X)
    assert {op.op_type for op in graph.ops} <= {
        "Placeholder",
        "Const",
        "Exp",
        "Transpose",
        "Identity",
        "BatchMatMulV2",
    }
    transpose = only(graph, "Transpose")
    assert transpose.name.endswith("/transpose")
    assert transpose.line == line(swapped, 2)
    exp = producer(graph, transpose)
    assert exp.op_type == "Exp"
    assert producer(graph, exp).name == "x"


def test_function_called_twice_is_inlined_twice():
    graph = ops_of(lambda x: swapped(x) + swapped(x * 2.0), X)
    assert [op.op_type for op in graph.ops].count("Transpose") == 2


def test_gradient_passes_through_the_function():
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(compiled(x) ** 2)
        return tape.gradient(y, x)

    graph = ops_of(step, X)
    assert [op.op_type for op in graph.ops].count("Transpose") == 2
    assert "PartitionedCall" not in {op.op_type for op in graph.ops}


def test_bodies_of_loops_are_marked():
    def loop(x):
        for _ in tf.range(3):
            x = tf.tanh(x) + tf.cast(tf.random.categorical(x[0], 64), tf.float32)[0]
        return tf.exp(x)

    graph = ops_of(loop, X)
    assert {
        op.op_type: op.in_loop for op in graph.ops if op.op_type in ("Tanh", "Multinomial", "Exp")
    } == {
        "Tanh": True,
        "Multinomial": True,
        "Exp": False,
    }


def test_loop_variables_do_not_have_their_initial_values():
    def loop(x, y):
        return tf.while_loop(
            lambda i, _: i < 3,
            lambda i, z: (i + 1, z + x),
            (0, y),
        )[1]

    square = tf.ones((4, 8, 8))
    graph = ops_of(loop, square, square)
    sums = [op for op in graph.ops if op.op_type == "AddV2" and op.outputs[0].shape == (4, 8, 8)]
    assert sorted(
        producer(graph, sums[0], position).name.rpartition("/")[2] for position in (0, 1)
    )[1:] == ["x"]
    assert "y" not in {producer(graph, sums[0], position).name for position in (0, 1)}


def test_iterations_over_an_iterator_are_steps():
    iterator = iter(tf.data.Dataset.from_tensors(X).repeat())
    one_step = tf.function(lambda iterator: tf.tanh(next(iterator)))

    @tf.function
    def steps(iterator):
        for _ in tf.range(3):
            tf.print(tf.reduce_sum(one_step(iterator)))

    graph = graph_of([steps.get_concrete_function(iterator).graph])
    assert not only(graph, "Tanh").in_loop
    assert not only(graph, "PrintV2").in_loop


def test_branches_are_included():
    def branch(x):
        return tf.cond(
            tf.reduce_sum(x) > 0,
            lambda: tf.transpose(x, (0, 2, 1)),
            lambda: tf.reshape(x, (8, 64, 32)),
        )

    transpose = only(graph := ops_of(branch, X), "Transpose")
    assert producer(graph, transpose).name == "x"


def test_unneeded_ops_are_left_out():
    def step(x):
        tf.transpose(x, (0, 2, 1))
        return x + 1.0

    assert "Transpose" not in {op.op_type for op in ops_of(step, X, autograph=False).ops}


def test_functions_of_datasets_are_left_out():
    def step(x):
        return tf.data.Dataset.from_tensors(x).map(swapped).reduce(x, lambda total, _: total + 1.0)

    assert "Transpose" not in {op.op_type for op in ops_of(step, X).ops}


def test_unknown_shapes_are_none():
    graph = ops_of(swapped.python_function, tf.TensorSpec((None, 32, 64), tf.float32))
    assert only(graph, "Transpose").outputs[0].shape == (None, 64, 32)
    unknown = ops_of(lambda x: tf.exp(x), tf.TensorSpec(None, tf.float32))
    assert only(unknown, "Exp").outputs[0].shape is None


def test_graph_holds_the_called_functions():
    with probed() as probe:
        compiled(X)
        compiled(X)
    graph = op_graph(probe)
    assert [op.op_type for op in graph.ops].count("Transpose") == 1


def test_missing_graph_has_a_reason():
    assert op_graph(Probe()) == Unknown(NO_PROBE)
    with probed() as probe:
        tf.exp(X)
    assert op_graph(probe).why == "the step calls no tf.function, so it has no graph"
    with probed() as probe:
        compiled(X)
    assert "takes longer than -1 s (tfperf_max_seconds)" in op_graph(probe, -1).why
    assert len(op_graph(probe, 60).ops) == 6

"""The graphs of real steps, counted by hand: before and after Grappler, inside XLA and outside."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.compiler.step_calls import NO_PROBE, Probe, probed
from pytest_tfperf.compiler.step_graph import inspect_graph
from pytest_tfperf.metrics.graph_ops import graph_values
from pytest_tfperf.op_types import NO_KERNEL, PYTHON, TEXT, UNASKED
from pytest_tfperf.values import Unknown

X = tf.ones((8, 8))


def graph_of(step, warm=2):
    """Return the graph of a step that was called before, as in a profile."""
    for _ in range(warm):
        step()
    with probed() as probe:
        step()
    return inspect_graph(probe).graph


def values(graph, eager=()):
    return graph_values(graph, eager, None)


def coverage(graph):
    return values(graph)["xla_coverage"]


def line(function, offset):
    return f"test_step_graph.py:{function.python_function.__code__.co_firstlineno + offset}"


@tf.function
def square(x):
    return tf.nn.relu(x @ x)


@tf.function(jit_compile=True)
def compiled(x):
    return tf.nn.relu(x @ x)


@tf.function
def twice(x):
    y = square(x) + square(x * 2)
    return tf.reduce_sum(tf.identity(tf.identity(y)))


@tf.function
def mixed(x):
    return compiled(x) + tf.reduce_sum(x, axis=[0])


@tf.function
def thrice(x):
    return compiled(compiled(compiled(x)))


@tf.function
def thrice_with_python(x):
    return compiled(compiled(compiled(tf.py_function(lambda y: y, [x], tf.float32))))


@tf.function(jit_compile=True)
def unique(x):
    return tf.unique(tf.reshape(x, [-1]))[0]


@tf.function
def loop(x):
    for _ in tf.range(5):
        x = square(x)
    return x


@tf.function
def branch(x):
    return tf.cond(tf.reduce_sum(x, axis=[0, 1]) > 3, lambda: x * 2, lambda: tf.tanh(x))


@tf.function
def python(x):
    return tf.tanh(tf.py_function(lambda y: twice(y) + tf.sin(y) * 3, [x], tf.float32))


@tf.function
def text(x):
    return tf.strings.to_number(tf.strings.as_string(x)) + x


@tf.function(experimental_attributes={"_noinline": True})
def apart(x):
    return tf.identity(tf.identity(tf.tanh(x))) * 1.0


@tf.function
def calls_apart(x):
    return apart(x) + apart(x)


@tf.function
def calls_with_constant(x):
    return apart(tf.constant(2.0)) * x


COUNTS = [
    # of square MatMul, Relu, Identity twice; Mul, AddV2, Sum, two Const and three Identity; identities go
    (twice, 14, 9, 0, ["AddV2", "MatMul", "MatMul", "Mul", "Relu", "Relu", "Sum"]),
    (mixed, 7, 6, 2, ["AddV2", "Sum"]),  # MatMul, Relu, Identity, Sum, Const, AddV2, Identity
    (thrice_with_python, 11, 10, 6, ["EagerPyFunc"]),
    # around the loop seven Const, Range, Sub, FloorDiv, FloorMod, NotEqual, Cast, AddV2, Maximum, Identity; in its condition Less and
    # Identity, in its body square, two AddV2, Const and four Identity. Of what is around three Const are left
    (loop, 28, 9, 0, ["AddV2", "AddV2", "Less", "MatMul", "Relu"]),
    (python, 3, 2, 0, ["EagerPyFunc", "Tanh"]),  # its callees do not count
    # the six of `apart`, Const, Mul and Identity. Grappler copies `apart` for the constant: Mul and `apart` stay, with its own Const
    (calls_with_constant, 9, 7, 0, ["Mul", "Mul", "Tanh"]),
]
MORE_COUNTS = [
    (compiled, 3, 3, 2, []),  # Grappler does not see it
    (thrice, 10, 9, 6, []),
    # Reshape with its Const, Unique, Identity; asked for, it can be compiled
    (unique, 4, 4, 2, []),
    # Sum and Greater with a Const each, Mul with one, Tanh, and an Identity for each branch, for the whole and for the result
    (branch, 11, 7, 0, ["Greater", "Mul", "Sum", "Tanh"]),
    (text, 4, 3, 0, ["AddV2", "AsString", "StringToNumber"]),
    # twice the six of `apart`, AddV2 and Identity; Grappler doubles the result of one call, and sees no further
    (calls_apart, 14, 8, 0, ["Mul", "Mul", "Tanh"]),
]


@pytest.mark.parametrize(
    "counts",
    [
        pytest.param(COUNTS, id="main"),
        pytest.param(MORE_COUNTS, id="more", marks=pytest.mark.full),
    ],
)
def test_ops_are_counted_as_in_the_graph(counts):
    for function, before, after, inside, outside in counts:
        name = function.python_function.__name__
        graph = graph_of(lambda function=function: function(X))
        assert (sum(graph.before.values()), sum(graph.after.values())) == (before, after), name
        assert sum(graph.inside.values()) == inside, name
        assert sorted(op.op_type for op in graph.outside) == outside, name


def test_types_before_and_after_grappler_have_lines():
    graph = graph_of(lambda: twice(X))
    assert graph.before == {
        "MatMul": 2,
        "Relu": 2,
        "Mul": 1,
        "AddV2": 1,
        "Sum": 1,
        "Const": 2,
        "Identity": 5,
    }
    assert graph.after == {"MatMul": 2, "Relu": 2, "Mul": 1, "AddV2": 1, "Sum": 1, "Const": 2}
    lines = {op.name: op.line for op in graph.outside}
    assert lines["PartitionedCall/Relu"] == lines["PartitionedCall_1/matmul"] == line(square, 2)
    assert (lines["mul"], lines["Sum"]) == (line(twice, 2), line(twice, 3))


@pytest.mark.full
def test_a_copy_that_grappler_makes_for_one_call_counts_as_its_original():
    @tf.function(experimental_attributes={"api_implements": "own", "api_preferred_device": "CPU"})
    def both(x, factor):
        return tf.tanh(x) * factor, tf.sin(x)

    @tf.function
    def unused(x):
        return both(x, x)[0]

    @tf.function
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = unused(x)
        return tape.gradient(y, x)

    @tf.function
    def loop(x):
        for _ in tf.range(3):
            x = both(x, tf.constant(3.0))[0]
        return x

    for step, n_tanh in (unused, 1), (gradient, 1), (loop, 1):
        graph = graph_of(lambda step=step: step(X))
        assert graph.after["Tanh"] == graph.before["Tanh"] == n_tanh, step
        assert graph.after["Sin"] == 1, step
        assert step is loop or graph.lines["Tanh"] == line(both, 2), step


def test_the_largest_result_that_is_certainly_allocated():
    column, row, variable = tf.ones((8, 1)), tf.ones((1, 8)), tf.Variable(tf.ones((64, 64)))
    products = {
        "a product": (lambda x: x @ row, 4 * 64),
        "in a callee": (lambda x: tf.function(lambda x: x @ row)(x) * 2, 4 * 64),
        "random numbers": (lambda x: x[0, 0] + tf.random.uniform((128, 8)), 4 * 1024),
    }
    nothing = {
        "as large as its input": lambda x: tf.tanh(x * 2),
        "smaller": lambda x: tf.reduce_sum(x),
        "a variable": lambda x: variable + 0.0 * x[0, 0],
        "of constants": lambda x: tf.fill((1 << 19,), 2.0)[3] * x,
        "unused": lambda x: (x @ row, x)[1],
        "behind a branch": lambda x: tf.cond(
            tf.reduce_sum(x) > 9, lambda: x @ row, lambda: tf.zeros((8, 8))
        )[:, :1],
        "of Python": lambda x: tf.ensure_shape(
            tf.py_function(lambda x: x @ row, [x], tf.float32), (8, 8)
        ),
    }
    for name, (function, size) in (
        products | {key: (one, 0) for key, one in nothing.items()}
    ).items():
        step = tf.function(function)
        assert graph_of(lambda step=step: step(column)).allocated == size, name


def test_calls_with_jit_compile_are_inside_and_no_auto_clusters():
    for step, n_calls in ((compiled, 1), (thrice, 3)):
        graph = graph_of(lambda step=step: step(X))
        assert graph.inside == {"MatMul": n_calls, "Relu": n_calls}
        assert graph.n_clusters == 0


def test_a_function_that_python_calls_twice_counts_twice():
    def step():
        twice(X)
        compiled(X)
        twice(X)
        compiled(X)

    graph = graph_of(step)
    assert (sum(graph.before.values()), sum(graph.after.values())) == (
        2 * 14 + 2 * 3,
        2 * 9 + 2 * 3,
    )
    assert graph.inside == {"MatMul": 2, "Relu": 2}
    assert len(graph.outside) == 2 * 7


def test_each_op_outside_has_its_reason():
    @tf.function
    def step(x):
        y = tf.py_function(lambda value: value, [x], tf.float32)
        z = tf.strings.to_number(tf.strings.as_string(y))
        count = tf.size(tf.raw_ops.Bucketize(input=x, boundaries=[0.5, 1.5]))
        return tf.tanh(z) + tf.cast(count, tf.float32)

    graph = graph_of(lambda: step(X))
    whys = {op.op_type: (op.why, op.line) for op in graph.outside}
    assert whys["EagerPyFunc"] == (PYTHON, line(step, 2))
    assert whys["AsString"] == whys["StringToNumber"] == (TEXT, line(step, 3))
    assert whys["Tanh"] == (UNASKED, line(step, 5))
    assert {op.op_type for op in graph.outside if op.why == NO_KERNEL} <= {"Bucketize"}


def test_uncompilable_op_is_named():
    @tf.function
    def planted(x):
        return compiled(tf.py_function(lambda value: value, [x], tf.float32))

    @tf.function
    def without(x):
        return compiled(x)

    value = coverage(graph_of(lambda: planted(X)))
    assert value.number == 2 / 3
    assert f"EagerPyFunc (a Python function) at {line(planted, 2)}" in value.detail["where"]
    value = coverage(graph_of(lambda: without(X)))
    assert value.number == 1.0
    assert "where" not in value.detail


def test_identities_and_variables_do_not_change_coverage():
    variable = tf.Variable(X)

    @tf.function
    def more(x):
        x = tf.identity(tf.stop_gradient(tf.identity_n([x, x])[0]))
        variable.assign(x)
        return tf.identity(compiled(variable) + tf.reduce_sum(x, axis=[0]))

    assert (
        coverage(graph_of(lambda: more(X))).number
        == coverage(graph_of(lambda: mixed(X))).number
        == 0.5
    )


def test_functions_of_tf_data_do_not_count():
    dataset = tf.data.Dataset.range(64).map(lambda i: tf.cast(i * i + i, tf.float32)).repeat()
    iterator = iter(dataset)
    graph = graph_of(lambda: twice(tf.fill((8, 8), next(iterator))))
    assert sum(graph.before.values()) == 14


@pytest.mark.full
def test_functions_of_a_pipeline_within_the_step_do_not_count():
    @tf.function
    def inside(x):
        return x + tf.cast(
            tf.data.Dataset.range(3)
            .map(lambda i: i * i + i)
            .reduce(np.int64(0), lambda a, b: a * b),
            tf.float32,
        )

    assert graph_of(lambda: inside(X)).before["Mul"] == 1  # the step's own `reduce`, not the map

    squares = tf.data.Dataset.range(8).map(lambda i: i * i)

    @tf.function
    def loop(x, elements):
        for element in elements:
            x = x + tf.cast(element, x.dtype)
        return x

    assert "Mul" not in graph_of(lambda: loop(X, squares)).before  # of its map


def test_functions_with_all_kinds_of_arguments_have_graphs():
    for argument in (
        tf.data.Dataset.range(8).map(lambda i: i * i),
        iter(tf.data.Dataset.range(99)),
        tf.constant("a"),
        tf.constant(True),
        tf.ragged.constant([[1], []]),
    ):

        @tf.function
        def step(x, _):
            return tf.tanh(x)

        graph = graph_of(lambda step=step, argument=argument: step(X, argument))
        counts = {op: n for op, n in graph.after.items() if op != "Identity"}
        assert counts == {"Tanh": 1}, type(argument)


BATCHES = tf.data.Dataset.from_tensors(X).repeat(3)


def test_a_loop_over_a_dataset_counts_the_ops_of_its_body_once():
    @tf.function
    def loop(dataset):
        total = tf.zeros((8, 8))
        for element in dataset:
            total += compiled(tf.sin(element)) @ X
        return total

    graph = graph_of(lambda: loop(BATCHES))
    known = {"Sin": 1, "MatMul": 2, "Relu": 1, "AddV2": 1, "ScanDataset": 1, "ReduceDataset": 1}
    assert {op: graph.after[op] for op in known} == known
    assert graph.lines["Sin"] == line(loop, 4)
    found = values(graph)
    assert found["graph_ops"].number == sum(graph.after.values())
    assert found["graph_reduction"].why.startswith("a tf.function loops over a dataset")
    # MatMul and Relu are in the cluster of `compiled`; Sin, the other MatMul and AddV2 are outside
    detail = found["xla_coverage"].detail
    assert (detail["n_inside"], detail["n_outside"]) == (2, 3)


@pytest.mark.full
def test_a_pipeline_made_in_a_function_is_no_part_of_its_graph():
    @tf.function
    def loop(x):
        for element in tf.data.Dataset.range(3).map(lambda n: tf.sin(tf.cast(n, tf.float32))):
            x = x * element
        return x

    after = graph_of(lambda: loop(X)).after
    assert (after["Mul"], "Sin" in after) == (1, False)


def test_forward_and_gradient_functions_count_under_a_tape():
    def step():
        with tf.GradientTape() as tape:
            tape.watch(X)
            y = square(X)
        return tape.gradient(y, X)

    graph = graph_of(step)
    assert (graph.after["MatMul"], graph.after["Relu"], graph.after["ReluGrad"]) == (1 + 2, 1, 1)


@pytest.mark.imports("keras")
@pytest.mark.parametrize(
    "jit", [False, *(pytest.param(jit, marks=pytest.mark.full) for jit in (True, "auto"))]
)
def test_keras_fit_has_graphs(jit):
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse", jit_compile=jit)
    jit = model.jit_compile  # "auto" is False on a CPU
    x, y = np.ones((8, 4), "f4"), np.ones((8, 1), "f4")
    steps = [
        graph_of(lambda: model.train_on_batch(x, y)),
        graph_of(lambda: model.fit(x, y, batch_size=8, verbose=0)),
    ]
    for graph in steps:
        assert graph.before["AssignSubVariableOp"] == 4  # two kernels, two biases
        assert coverage(graph).number == (1.0 if jit else 0.0)
        assert all(op.line.startswith("test_step_graph.py:") for op in graph.outside if op.line)
        # forward 2, of the second layer 2, of the first 1, whose input needs no gradient
        assert sum(n for op_type, n in graph.after.items() if "MatMul" in op_type) == 5
    assert graph.before["IteratorGetNext"] == 1
    reduction = values(steps[0])["graph_reduction"]
    if jit:  # Grappler removes one op in the step of Keras 3.5
        removed = reduction.detail["before"] - reduction.detail["after"]
        assert removed == (1 if keras.__version__.startswith("3.5.") else 0)
    else:
        assert 0.4 < reduction.number < 0.6


def test_session_run_has_graphs():
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, (8, 8))
        hidden = tf.tanh(x @ x)
        result = square(hidden * 3)
        tf.sin(result)  # unneeded
        with tf.compat.v1.Session() as session:
            fed = {x: np.ones((8, 8))}
            graph = graph_of(lambda: session.run({"r": result, "h": [hidden]}, fed))
            assert graph.before == {
                "MatMul": 2,
                "Tanh": 1,
                "Const": 1,
                "Mul": 1,
                "Relu": 1,
                "Identity": 1,
            }
            assert {op: n for op, n in graph.after.items() if "Identity" not in op} == {
                "MatMul": 2,
                "Tanh": 1,
                "Const": 1,
                "Mul": 1,
                "Relu": 1,
            }
            assert {op.line for op in graph.outside if op.op_type == "Tanh"} == {
                f"test_step_graph.py:{line_of_hidden()}"
            }
            graph = graph_of(lambda: session.run([result.name], {hidden: np.ones((8, 8))}))
            assert "Tanh" not in graph.before
            mine = tf.compat.v1.RunMetadata()
            options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
            graph_of(lambda: session.run(result, fed, options=options, run_metadata=mine))
            assert mine.step_stats.dev_stats


def line_of_hidden():
    code = test_session_run_has_graphs.__code__
    return code.co_firstlineno + 3


def test_graphs_do_not_run_steps_or_change_variables():
    variable, ran = tf.Variable(0.0), []

    @tf.function
    def step(x):
        variable.assign_add(1.0)
        return tf.py_function(lambda value: (ran.append(1), tf.tanh(value) * 2)[1], [x], tf.float32)

    graph = graph_of(lambda: step(X))
    assert (graph.before["EagerPyFunc"], len(ran), variable.numpy()) == (1, 3, 3.0)


def test_unknown_graph_has_a_reason():
    assert inspect_graph(Probe()).graph == Unknown(NO_PROBE)
    probe = Probe(why=None)
    probe.calls.why = "it is not known which functions were called"
    assert inspect_graph(probe).graph == Unknown(probe.calls.why)
    broken = Probe(why=None)
    broken.calls.add(SimpleNamespace(name=b"nobody_knows_it"), [], [])
    broken.calls.end_step()
    assert inspect_graph(broken).graph.why.startswith(
        "the step's graphs could not be read: NotFoundError"
    )


def test_graphs_that_take_too_long_are_unknown():
    for _ in range(2):
        with probed() as probe:
            twice(X)
    assert "takes longer than -1 s (tfperf_max_seconds)" in inspect_graph(probe, -1).graph.why
    assert not isinstance(inspect_graph(probe, 60).graph, Unknown)


def test_eager_step_has_an_empty_graph():
    graph = graph_of(lambda: X * 2)
    assert (graph.before, graph.after, graph.inside) == ({}, {}, {})
    found = values(graph, eager=(("Mul", "model.py:3", 1),))
    assert (found["graph_ops"].number, found["xla_coverage"].number) == (None, 0.0)

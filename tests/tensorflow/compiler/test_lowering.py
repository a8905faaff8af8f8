"""Functions as unoptimised HLO: supported ones, ops left out, and unsupported ones."""

import os
from functools import partial

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import pytest
import tensorflow as tf
from helpers.hlo_products import of_step
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

from pytest_tfperf.compiler.lower import lower
from pytest_tfperf.compiler.step_calls import calls_recorded
from pytest_tfperf.values import Unknown

X = tf.ones((3, 4))
W = tf.Variable(tf.ones((4, 4)))
ONCE = ["dot f32[3,4] f32[4,4]"]
UNTOUCHED = ConcreteFunction._call_flat


@pytest.fixture(scope="module", autouse=True)
def kernels():
    tf.function(lambda x: x + 1, jit_compile=True)(1.0)  # as in every profile before lowering


def lowered(step, n_steps=2, batch=None, size=1, max_seconds=30):
    step()
    with calls_recorded() as calls:
        for _ in range(n_steps):
            step()
            calls.end_step(size)
    return lower(calls, {"batch": batch}, max_seconds)


def products_of(step, **options):
    result = lowered(step, **options)
    assert result.notes == ()
    return of_step(result.modules)


def why_not(step, **options):
    result = lowered(step, **options)
    assert isinstance(result, Unknown)
    return result.why


def assert_product_of(dtype, name, jit):
    step = tf.function(lambda x: tf.cast(x, dtype) @ tf.cast(W, dtype), jit_compile=jit)
    made = products_of(lambda: step(X))
    assert made == [([f"dot {name}[3,4] {name}[4,4]"], 1)], (name, jit)


def test_products_have_the_dtype_and_shape_of_the_program():
    assert_product_of(tf.float32, "f32", jit=False)
    assert_product_of(tf.bfloat16, "bf16", jit=True)
    assert_product_of(tf.float16, "f16", jit=False)


@pytest.mark.full
def test_products_have_the_dtype_compiled_or_not():
    assert_product_of(tf.float32, "f32", jit=True)
    assert_product_of(tf.bfloat16, "bf16", jit=False)
    assert_product_of(tf.float16, "f16", jit=True)


def test_each_function_counts_its_runs_per_step():
    once, thrice, nested = (
        tf.function(lambda x: x @ W),
        tf.function(lambda x: x @ W @ W),
        tf.function(lambda x: x @ W),
    )
    outer = tf.function(lambda x: nested(nested(x)) + 1)

    def step():
        once(X)
        for _ in range(3):
            thrice(X)
        outer(X)

    two = ONCE * 2
    assert products_of(step, n_steps=4) == [(ONCE, 1), (two, 1), (two, 3)]
    assert products_of(step, n_steps=4, size=2) == [(ONCE, 0.5), (two, 0.5), (two, 1.5)]


once, twice = tf.function(lambda x: x @ W), tf.function(lambda x: x @ W @ W)
by_shape = tf.function(lambda x: x @ W, input_signature=[tf.TensorSpec((None, 4))])
FIVE, SEVEN = tf.ones((5, 4)), tf.ones((7, 4))
OTHERS = "{} traced steps call other functions or shapes than the most common step; half_precision describes that step"


PERIODS = {
    "every fourth": (
        [[(once, X)], [(once, X)], [(once, X)], [(once, X), (twice, X)]],
        [(ONCE, 1)],
        "2 of 8",
    ),
    "2:1": ([[(once, X)], [(once, X)], [(twice, X)]], [(ONCE, 1)], "2 of 8|3 of 8"),
    "partial batch": (
        [[(by_shape, SEVEN)], [(by_shape, FIVE)], [(by_shape, SEVEN)]],
        [(["dot f32[7,4] f32[4,4]"], 1)],
        "2 of 8|3 of 8",
    ),
    "tie: more calls": ([[(once, X)], [(once, X)] * 2], [(ONCE, 2)], "4 of 8"),
    "tie: more elements": (
        [[(by_shape, FIVE)], [(by_shape, SEVEN)]],
        [(["dot f32[7,4] f32[4,4]"], 1)],
        "4 of 8",
    ),
    "tie: larger": ([[(once, X)], [(twice, X)]], [(ONCE * 2, 1)], "4 of 8"),
    "other order": (
        [[(once, X), (twice, X)], [(twice, X), (once, X)]],
        [(ONCE, 1), (ONCE * 2, 1)],
        None,
    ),
}


# a window begins at any step of a period
@pytest.mark.parametrize(
    "first", [1, *(pytest.param(first, marks=pytest.mark.full) for first in (0, 2, 3))]
)
def test_most_common_step_is_lowered_wherever_the_window_begins(first):
    for name, (period, expected, others) in PERIODS.items():
        with calls_recorded() as calls:
            for number in range(first, first + 8):
                for function, arg in period[number % len(period)]:
                    function(arg)
                calls.end_step()
        result = lower(calls, {}, 30)
        assert of_step(result.modules) == expected, name
        notes = [(OTHERS.format(other),) for other in others.split("|")] if others else [()]
        assert result.notes in notes, name


def test_steps_of_another_size_are_different_steps():
    with calls_recorded() as calls:
        for size in (4, 4, 2):
            for _ in range(size):
                once(X)
            calls.end_step(size)
    result = lower(calls, {}, 30)
    assert (of_step(result.modules), result.notes) == ([(ONCE, 1)], (OTHERS.format("1 of 3"),))


def test_nothing_is_lowered_if_most_steps_call_nothing():
    with calls_recorded() as calls:
        for number in range(4):
            if number == 1:
                once(X)
            calls.end_step()
    assert lower(calls, {}, 30).why == "3 of 4 traced steps call no tf.function"


def test_each_call_is_a_step_without_marks():
    with calls_recorded() as calls:
        for arg in (FIVE, SEVEN, FIVE):
            by_shape(arg)
    calls.each_is_step()
    result = lower(calls, {}, 30)
    assert (of_step(result.modules), result.notes) == (
        [(["dot f32[5,4] f32[4,4]"], 1)],
        (OTHERS.format("1 of 3"),),
    )


def test_several_functions_without_marks_have_no_steps():
    with calls_recorded() as calls:
        named_step = tf.function(lambda x: x @ W, autograph=False)
        other = tf.function(tf.identity)
        named_step(X)
        other(X)
    calls.each_is_step()
    assert (
        lower(calls, {}, 30).why
        == "it calls several functions, and which of them is the step is not known"
    )


def test_calls_with_other_shapes_are_lowered_with_their_shapes():
    step = tf.function(lambda x: x @ W, input_signature=[tf.TensorSpec((None, 4))])

    def both():
        step(tf.ones((5, 4)))
        step(tf.ones((7, 4)))

    assert products_of(both) == [(["dot f32[5,4] f32[4,4]"], 1), (["dot f32[7,4] f32[4,4]"], 1)]


def test_a_tape_outside_of_the_function_adds_its_gradient():
    loss = tf.function(lambda x: tf.reduce_sum(x @ W))

    def step():
        with tf.GradientTape() as tape:
            value = loss(X)
        tape.gradient(value, W)

    forward, backward = (
        ONCE,
        ["dot f32[3,4] f32[3,4]", "dot f32[3,4] f32[4,4]"],
    )  # for both inputs, since it is a function of both
    assert products_of(step) == [(backward, 1), (forward, 1)]


@pytest.mark.full
def test_training_step_of_keras_layers_is_lowered():
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            keras.layers.Conv2D(4, 3),
            keras.layers.Flatten(),
            keras.layers.Dense(2),
        ]
    )
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    [(products, runs)] = products_of(lambda: step(tf.ones((16, 8, 8, 3))))
    assert runs == 1
    assert products == [
        "convolution f32[16,8,8,3] f32[16,6,6,4]",  # of the filter; that of the images is unused
        "convolution f32[16,8,8,3] f32[3,3,3,4]",
        "dot f32[16,144] f32[144,2]",
        "dot f32[16,144] f32[16,2]",
        "dot f32[16,2] f32[144,2]",
    ]


@pytest.mark.full
def test_loops_of_a_recurrent_layer_are_part_of_the_module():
    layer = keras.layers.LSTM(5)
    step = tf.function(lambda x: layer(x))
    assert products_of(lambda: step(tf.ones((2, 7, 3)))) == [
        (["dot f32[2,3] f32[3,20]", "dot f32[2,5] f32[5,20]"], 1)
    ]


@tf.function
def printing(x):
    y = x @ W
    tf.print(tf.reduce_sum(y), output_stream="file:///dev/null")
    return y @ W


text = tf.function(lambda x: (x @ W @ W, tf.strings.length(tf.strings.as_string(x))))
named = tf.function(lambda x, name: (x @ W @ W, tf.identity(name)))
optional = tf.function(lambda x: tf.experimental.Optional.from_value(x @ W @ W))
asserting = tf.function(lambda x: (tf.debugging.assert_positive(x), x @ W @ W)[1])
between = tf.function(lambda x, variable, y: x @ variable @ y)
random = tf.function(lambda x: x @ W @ tf.random.normal((4, 4)))


def test_ops_without_products_do_not_prevent_lowering():
    assert products_of(lambda: printing(X)) == [(ONCE * 2, 1)]
    assert products_of(lambda: asserting(X)) == [(ONCE * 2, 1)]
    assert products_of(lambda: between(X, W, tf.ones((4, 4)))) == [(ONCE * 2, 1)]


@pytest.mark.full
def test_texts_optionals_and_random_numbers_do_not_prevent_lowering():
    assert products_of(lambda: text(X)) == [(ONCE * 2, 1)]
    assert products_of(lambda: named(X, tf.constant("a"))) == [(ONCE * 2, 1)]
    assert products_of(lambda: optional(X)) == [(ONCE * 2, 1)]
    assert products_of(lambda: random(X)) == [(ONCE * 2, 1)]


def test_shapes_pass_through_ops_left_out():
    signature = [tf.TensorSpec((None, 4))]
    step = tf.function(
        lambda x: tf.cast(tf.strings.length(tf.strings.as_string(x)), tf.float32) @ W,
        input_signature=signature,
    )
    assert products_of(lambda: step(X)) == [(ONCE, 1)]


@pytest.mark.full
def test_table_lookup_has_the_shape_of_its_keys():
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), 0)
    step = tf.function(lambda words: tf.one_hot(table.lookup(words), 4) @ W)
    assert products_of(lambda: step(tf.constant(["a", "b", "c"]))) == [(ONCE, 1)]


@pytest.fixture
def elements():
    return iter(tf.data.Dataset.from_tensors(tf.ones(4)).repeat().batch(5))


def test_an_iterator_in_the_function_gives_elements_of_the_batch(elements):
    step = tf.function(lambda iterator: next(iterator) @ W)
    assert products_of(lambda: step(elements), batch=5) == [(["dot f32[5,4] f32[4,4]"], 1)]
    assert r"of unknown size, (None, 4); batch(…, drop_remainder=True)" in why_not(
        lambda: step(elements)
    )


def test_a_loop_over_an_iterator_runs_once_a_step(elements):
    @tf.function
    def step(iterator):
        total = tf.zeros((5, 4))
        for _ in tf.range(3):
            total += next(iterator) @ W
        return total

    assert products_of(lambda: step(elements), batch=5, size=3) == [(["dot f32[5,4] f32[4,4]"], 1)]
    assert "say how many steps a call has: steps_per_call=" in why_not(
        lambda: step(elements), batch=5
    )


BATCHES = tf.data.Dataset.from_tensors(tf.ones(4)).repeat(15).batch(5)


def total_of(dataset):
    total = tf.zeros((5, 4))
    for element in dataset:
        total += element @ W
    return total


def until_large(dataset):
    total = tf.zeros((5, 4))
    for element in dataset:
        total += element @ W
        if tf.reduce_sum(total) > 1e9:
            break
    return total


def reduced(dataset):
    return dataset.reduce(tf.zeros((5, 4)), lambda total, element: total + element @ W)


def trained(dataset):
    for element in dataset:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(element @ W))
        W.assign_sub(0.0 * tape.gradient(loss, W))


@pytest.mark.parametrize(
    ("step", "products"),
    [
        pytest.param(total_of, ["dot f32[5,4] f32[4,4]"], marks=pytest.mark.full),
        pytest.param(reduced, ["dot f32[5,4] f32[4,4]"], marks=pytest.mark.full),
        (trained, ["dot f32[5,4] f32[4,4]", "dot f32[5,4] f32[5,4]"]),
    ],
    ids=["for", "reduce", "training"],
)
def test_a_loop_over_a_dataset_runs_its_body_once_a_step(step, products):
    """Three batches of five: three steps a call."""
    step = tf.function(step)
    assert products_of(lambda: step(BATCHES), batch=5, size=3) == [(products, 1)]
    fixed = BATCHES.batch(1, drop_remainder=True).unbatch()  # size 5 is not in its signature
    assert "of unknown size, (None, 4)" in why_not(lambda: step(fixed), size=3)
    assert "loops over a dataset an unknown number of times; say how many steps" in why_not(
        lambda: step(BATCHES), batch=5
    )


@pytest.mark.full
def test_a_loop_over_a_dataset_that_may_end_early_has_a_reason():
    step = tf.function(until_large)
    why = why_not(lambda: step(BATCHES), batch=5, size=3)
    assert "the operation TakeWhileDataset" in why


@tf.function
def branching(x):
    if tf.reduce_sum(x) > 0:
        tf.print("", output_stream="file:///dev/null")
        return x @ W
    return x @ W @ W


@tf.function
def looping(x):
    for _ in tf.range(3):
        x = x @ W
        tf.print("", output_stream="file:///dev/null")
    return x


def stacked(x, **options):
    array = tf.TensorArray(tf.float32, **options)
    for index in tf.range(3):
        x = x @ W
        array = array.write(index, x)
    return array.stack()


def written_once(x):
    return tf.TensorArray(tf.float32, 0, dynamic_size=True).write(0, x @ W).stack()


growing = tf.function(partial(stacked, size=0, dynamic_size=True))
writing = tf.function(written_once)
calling = tf.function(lambda x: writing(x) + 1)


def test_growing_array_is_not_lowered():
    """In a loop, without one, and in a function that is called."""
    for function in (growing, writing, calling):
        why = why_not(lambda function=function: function(X))
        assert "writes to a TensorArray that grows (dynamic_size=True)" in why
        assert "tf.TensorArray(dtype, size)" in why


@pytest.mark.full
def test_arrays_of_known_size_are_lowered():
    step = tf.function(partial(stacked, size=3))
    assert products_of(lambda: step(X)) == [(ONCE, 1)]
    unstacked = tf.function(
        lambda x: tf.TensorArray(tf.float32, 0, dynamic_size=True).unstack(x @ W).stack()
    )
    assert products_of(lambda: unstacked(X)) == [(ONCE, 1)]


SPARSE = tf.sparse.from_dense(tf.eye(4))
INTEGERS = tf.sparse.from_dense(tf.eye(4, dtype=tf.int32))


def test_ops_without_a_kernel_compute_nothing_if_they_know_integers_only():
    """Also where they return as many as the data say."""
    ids = tf.constant([0, 0, 2])
    for name, function in [
        ("counts", lambda x: (x @ W, tf.unique_with_counts(ids).count + 1)),
        ("places", lambda x: tf.gather(x @ W, tf.unique_with_counts(ids).idx)),
        ("sets", lambda x: (x @ W, tf.sets.size(tf.sets.intersection(ids[None], ids[None])))),
        ("sums", lambda x: (x @ W, tf.math.segment_sum(ids, ids))),
    ]:
        step = tf.function(function, autograph=False)
        assert products_of(lambda step=step: step(X)) == [(ONCE, 1)], name


def unsupported():
    """Functions that are not lowered, and what their reason says."""
    return [
        (
            tf.function(lambda x: tf.py_function(lambda a: a, [x], tf.float32) @ W),
            "the operation EagerPyFunc",
        ),
        (
            tf.function(lambda x: tf.zeros(tf.cast(x[0, :1], tf.int32))),
            "must be a compile-time constant",
        ),
        (
            tf.function(lambda x: tf.math.segment_sum(x @ W, tf.sort(tf.argmax(x, 1)))),
            "the number of segments depends on data; tf.math.unsorted_segment_sum takes it",
        ),
        (branching, "which of them runs is not known"),
        (looping, "how often it runs is not known"),
        (lambda x: x @ W, "called no tf.function"),
    ]


def unsupported_too():
    return [
        (
            tf.function(lambda x: tf.numpy_function(lambda a: a, [x], tf.float32)),
            "the operation PyFunc",
        ),
        (
            tf.function(lambda x: tf.sparse.sparse_dense_matmul(SPARSE, W)),
            "the operation SparseTensorDenseMatMul",
        ),
        (
            tf.function(lambda x: tf.sparse.sparse_dense_matmul(INTEGERS, tf.cast(W, tf.int32))),
            "the operation SparseTensorDenseMatMul",
        ),
        (
            tf.function(lambda x: tf.math.segment_max(x, tf.sort(tf.argmax(x, 1))) @ W),
            "tf.math.unsorted_segment_max",
        ),
    ]


@pytest.mark.parametrize(
    "made", [unsupported, pytest.param(unsupported_too, marks=pytest.mark.full)]
)
def test_unsupported_functions_have_a_reason(made):
    for step, said in made():
        why = why_not(lambda step=step: step(X))
        assert said in why
        assert len(why) < 500, said


def test_resources_that_are_not_variables_are_refused_before_xla():
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [2]), 0)
    inner = tf.function(lambda x, _: x @ W)
    step = tf.function(lambda x, handle: inner(x, handle))
    assert "a resource that is not a variable with a value" in why_not(
        lambda: step(X, table.resource_handle)
    )


def test_lowering_ends_at_its_time_limit():
    step = tf.function(lambda x: x @ W)
    assert "longer than 0 s (tfperf_max_seconds)" in why_not(lambda: step(X), max_seconds=0)


def test_lowering_does_not_change_the_program():
    generator = tf.random.Generator.from_seed(1)
    variable = tf.Variable(1.0)
    traced = []

    @tf.function
    def step(x):
        traced.append(1)
        variable.assign_add(1.0)
        return x @ W + generator.normal((3, 4)) + tf.random.normal((3, 4))

    tf.random.set_seed(1)
    step(X)
    with calls_recorded() as calls:
        step(X)
        calls.end_step()
    expected = (variable.numpy(), generator.state.numpy().tolist(), len(traced))
    names = set(context.context().list_function_names())
    assert lower(calls, {}, 30).modules
    assert (variable.numpy(), generator.state.numpy().tolist(), len(traced)) == expected
    assert set(context.context().list_function_names()) == names
    after = tf.random.uniform(()).numpy()
    tf.random.set_seed(1)
    step(X), step(X)
    assert tf.random.uniform(()).numpy() == after


def test_only_functions_and_resources_of_the_steps_stay_alive():
    step = tf.function(lambda x: x @ W)
    with calls_recorded() as calls:
        step(X)
        calls.end_step()
    [function] = calls.functions.values()
    assert function.args == (tf.TensorSpec((3, 4)), W.handle)


def test_calls_outside_steps_and_of_aborted_steps_do_not_count():
    step, other = tf.function(lambda x: x @ W), tf.function(lambda x: x @ W @ W)
    inside = True
    with calls_recorded(lambda: inside) as calls:
        other(X)
        calls.abort_step()
        step(X)
        calls.end_step()
        inside = False
        other(X)
    assert of_step(lower(calls, {}, 30).modules) == [(ONCE, 1)]


def test_error_in_the_step_propagates_and_all_is_restored():
    failing = tf.function(lambda x: (tf.debugging.assert_negative(x), x)[1])
    with pytest.raises(tf.errors.InvalidArgumentError), calls_recorded() as calls:
        failing(X)
    assert not calls.functions
    assert ConcreteFunction._call_flat is UNTOUCHED


def test_missing_private_functions_give_a_reason(monkeypatch):
    step = tf.function(lambda x: x @ W)
    step(X)
    with calls_recorded() as calls:
        step(X)
        calls.end_step()
    monkeypatch.delattr(context.Context, "get_compiler_ir")
    assert "cannot be lowered to HLO: " in lower(calls, {}, 30).why
    monkeypatch.delattr(ConcreteFunction, "_call_flat")
    with calls_recorded() as calls:
        pass
    assert lower(calls, {}, 30) == Unknown(
        "this version of TensorFlow does not show which functions a step calls"
    )

"""FLOPs of real loops, against products counted by hand: 2 for each multiply-add."""

import keras
import pytest
import tensorflow as tf

from pytest_tfperf.compiler.lower import lower
from pytest_tfperf.compiler.step_calls import calls_recorded
from pytest_tfperf.hlo.cost import module_costs
from pytest_tfperf.metrics.flops import lowered_programs, work_values
from pytest_tfperf.values import Unknown

X = tf.ones((3, 4))
W = tf.Variable(tf.ones((4, 4)))
ONCE = 2 * 3 * 4 * 4
STEPS, BATCH, INPUT, UNITS = 7, 2, 3, 5


@pytest.fixture(scope="module", autouse=True)
def kernels():
    tf.function(lambda x: x + 1, jit_compile=True)(1.0)  # as in every profile before lowering


def measured(step, n_steps=1, batch=None):
    """flops and half_precision of a step."""
    step()
    with calls_recorded() as calls:
        step()
        calls.end_step(n_steps)
    found = lower(calls, {"batch": batch}, 60)
    if isinstance(found, Unknown):
        return work_values(lowered_programs(found))
    return work_values([(module_costs(module), runs) for module, runs in found.modules])


def products(step, **options):
    """FLOPs of the products alone."""
    value = measured(step, **options)["flops"]
    assert value.why is None
    return value.detail["matmul_and_convolution"]


def in_range(x):
    for _ in tf.range(5):
        x = x @ W
    return x


def stepped(x):
    for _ in tf.range(9, 1, -3):
        x = x @ W
    return x


def nested(x):
    for _ in tf.range(5):
        for _ in tf.range(3):
            x = x @ W
    return x


def while_less(x):
    n = tf.constant(0)
    while n < 7:
        x, n = x @ W, n + 2
    return x


def mapped(x):
    return tf.map_fn(lambda row: tf.linalg.matvec(W, row), x)


def written(x):
    rows = tf.TensorArray(tf.float32, 6)
    for n in tf.range(6):
        rows = rows.write(n, x @ W)
    return rows.stack()


def assert_products(function, expected):
    step = tf.function(function)
    assert products(lambda: step(X)) == expected, function.__name__


def test_loops_with_constant_bounds():
    assert_products(stepped, 3 * ONCE)  # 9, 6, 3
    assert_products(nested, 15 * ONCE)


@pytest.mark.full
def test_other_loops_with_constant_bounds():
    assert_products(in_range, 5 * ONCE)
    assert_products(mapped, 3 * 2 * 4 * 4)
    assert_products(written, 6 * ONCE)
    assert_products(while_less, 4 * ONCE)  # 0, 2, 4, 6


@pytest.mark.imports("keras")
@pytest.mark.parametrize(
    ("kind", "gates"),
    [
        (keras.layers.LSTM, 4),
        pytest.param(keras.layers.GRU, 3, marks=pytest.mark.full),
        pytest.param(keras.layers.SimpleRNN, 1, marks=pytest.mark.full),
    ],
)
def test_recurrent_layers_forward_and_in_training(kind, gates):
    """Gradients: of both kernels and of the state; that of the input is not needed."""
    layer = kind(UNITS)
    x = tf.ones((BATCH, STEPS, INPUT))
    of_input, of_state = (2 * BATCH * size * gates * UNITS for size in (INPUT, UNITS))

    @tf.function
    def train(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x))
        return tape.gradient(loss, layer.trainable_variables)

    forward = tf.function(lambda x: layer(x))
    assert products(lambda: forward(x)) == STEPS * (of_input + of_state)
    assert products(lambda: train(x)) == STEPS * (2 * of_input + 3 * of_state)


def gradients(model, x):
    """A step that trains the model's variables."""

    @tf.function
    def train(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x))
        return tape.gradient(loss, model.trainable_variables)

    return lambda: train(x)


def of_lstm(size):
    """Products of one pass: of the input's kernel, and of the state's."""
    return [STEPS * 2 * BATCH * size_in * 4 * UNITS for size_in in (size, UNITS)]


@pytest.mark.full
def test_a_recurrent_layer_behind_another_also_has_the_gradient_of_its_input():
    layers = [keras.layers.LSTM(UNITS, return_sequences=True), keras.layers.LSTM(UNITS)]
    model = keras.Sequential([keras.Input((STEPS, INPUT)), *layers])
    of_input, of_state = of_lstm(INPUT)
    first = 2 * of_input + 3 * of_state
    second = 3 * sum(of_lstm(UNITS))
    assert products(gradients(model, tf.ones((BATCH, STEPS, INPUT)))) == first + second


@pytest.mark.full
# a development build of Keras 3.16 warns of every mask
@pytest.mark.filterwarnings("ignore:(?s).*does not support masking")
@pytest.mark.parametrize("mask", [False, True])
def test_a_recurrent_layer_behind_an_embedding(mask):
    embedding = keras.layers.Embedding(9, INPUT, mask_zero=mask)
    inputs = keras.Input((STEPS,), dtype="int32")
    model = keras.Sequential([inputs, embedding, keras.layers.LSTM(UNITS)])
    step = gradients(model, tf.ones((BATCH, STEPS), tf.int32))
    assert products(step) == 3 * sum(of_lstm(INPUT))


def test_a_tape_around_a_loop():
    """Each product has two gradients, also in the first iteration."""

    @tf.function
    def train(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.function(in_range)(x))
        return tape.gradient(loss, W)

    assert products(lambda: train(X)) == 3 * 5 * ONCE


def counted_down(x):
    n = tf.reduce_sum(x)
    while n > 0.0:
        x, n = x @ W, n - 1.0
    return x


@pytest.mark.parametrize("loop", [counted_down, pytest.param(nested, marks=pytest.mark.full)])
def test_a_tape_around_a_loop_that_runs_an_unknown_number_of_times(loop):
    @tf.function
    def train(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.function(loop)(x))
        return tape.gradient(loss, W)

    assert measured(lambda: train(X))["flops"].why == (
        "the step has the gradient of a loop, and the program does not say how often its loops "
        "run: loops within loops, or bounds that are not constants"
    )


def test_precision_of_products_in_and_outside_of_a_loop():
    """Five products in 16 bits, and one in 32."""

    @tf.function
    def step(x):
        y = tf.cast(x, tf.bfloat16)
        for _ in tf.range(5):
            y = y @ tf.cast(W, tf.bfloat16)
        return x @ W, y

    assert measured(lambda: step(X))["half_precision"].number == pytest.approx(5 / 6)


@pytest.mark.full
def test_a_loop_over_a_dataset_counts_each_batch():
    data = tf.data.Dataset.from_tensors(X).repeat(4)

    @tf.function
    def epoch(dataset):
        total = tf.zeros((3, 4))
        for x in dataset:
            total += in_range(x)
        return total

    assert products(lambda: epoch(data), n_steps=4) == 5 * ONCE


def test_a_bound_that_is_an_argument_is_unknown():
    @tf.function
    def step(x, n):
        while tf.reduce_sum(n) > 0.0:
            x, n = x @ W, n - 1.0
        return x

    why = measured(lambda: step(X, tf.constant([4.0])))["flops"].why
    assert "how often its loops run" in why

"""The op guide on real functions and Keras models, and the equality of its rewrites."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from pytest_tfperf.capture.inspection import StepInspection
from pytest_tfperf.compiler.step_calls import probed
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.step_code import analyse_op_guide
from pytest_tfperf.recording import Asked, Recording
from pytest_tfperf.tpu.op_guide import RULES

CUBE, PLAIN = tf.ones((8, 32, 64)), tf.ones((64, 256))
IMAGES, KERNEL = tf.ones((8, 16, 16, 16)), tf.ones((3, 3, 16, 16))


def guided(step, *args, on=("all",)):
    """Return what the op guide finds in a call of a tf.function, with some codes switched on."""
    with probed() as probe:
        step(*args)
    code = StepInspection(probe.calls, probe, {}, 60.0, ablation=False)
    recording = Recording(name="step", trace=None, workload={})
    return analyse_op_guide(Evidence(recording, inspection=code, asked=Asked(findings=on)))


def found(function, *args, compiled=True):
    """Return the findings of a function within a compiled function within a tf.function."""
    inner = tf.function(function, jit_compile=compiled)
    middle = tf.function(lambda *args: inner(*args))
    tables = guided(tf.function(lambda *args: middle(*args)), *args).tables
    return list(tables["op_guide"].records()) if tables else []


def codes(function, *args, compiled=True):
    return {one["code"] for one in found(function, *args, compiled=compiled)}


def gradient(function):
    def derived(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tape.gradient(y, x)

    return derived


def dilated(x, kernel):
    return tf.nn.convolution(x, kernel, 1, "SAME", dilations=2)


def batch_norm(x, axes=(0, 1, 2)):
    mean, variance = tf.nn.moments(x, axes, keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, None, None, 1e-3)


def layer_norm(x):
    centred = x - tf.reduce_mean(x, -1, keepdims=True)
    return centred * tf.math.rsqrt(tf.reduce_mean(centred**2, -1, keepdims=True) + 1e-3)


def one_pass(x):
    mean = tf.reduce_mean(x, -1, keepdims=True)
    return (x - mean) * tf.math.rsqrt(tf.reduce_mean(x**2, -1, keepdims=True) - mean**2 + 1e-3)


def softmax_by_hand(x):
    powers = tf.exp(x - tf.reduce_max(x, -1, keepdims=True))
    return powers / tf.reduce_sum(powers, -1, keepdims=True)


def drawn_in_loop(x):
    for _ in tf.range(3):
        x += tf.cast(tf.random.categorical(x, 256), tf.float32)
    return x


def apart(x, kernel):
    return tf.nn.relu(tf.transpose(tf.nn.conv2d(x, kernel, 1, "SAME"), (0, 3, 1, 2)))


def together(x, kernel):
    return tf.transpose(
        tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "SAME"), tf.ones(16))), (0, 3, 1, 2)
    )


FUNCTIONS = [
    (
        "TRANSPOSE",
        lambda x: tf.transpose(x, (0, 2, 1)) + 1.0,
        lambda x: tf.matmul(tf.transpose(x, (0, 2, 1)), x),
        (CUBE,),
    ),
    (
        "TRANSPOSE",
        lambda x: tf.transpose(x, (1, 0, 2)),
        lambda x: tf.transpose(tf.matmul(x, x, transpose_b=True), (0, 2, 1)),
        (CUBE,),
    ),
    (
        "TRANSPOSE",
        lambda x, k: tf.nn.conv2d(tf.transpose(x, (0, 2, 1, 3)), k, 1, "SAME"),
        lambda x, k: tf.nn.conv2d(
            tf.transpose(tf.ones((16, 16, 16, 8)) * x[0, 0, 0, 0], (3, 1, 2, 0)), k, 1, "SAME"
        ),
        (IMAGES, KERNEL),
    ),
    (
        "TRANSPOSE",
        gradient(lambda x: tf.transpose(x, (2, 0, 1)) ** 2),
        gradient(lambda x: tf.transpose(x[:1], (1, 0, 2)) ** 2),
        (CUBE,),
    ),
    ("PADDED_MOVE", lambda x: x[:, :100], lambda x: x[:, :128], (PLAIN,)),
    ("PADDED_MOVE", lambda x: tf.split(x, 4, 1), lambda x: tf.split(x, 2, 1), (PLAIN,)),
    (
        "PADDED_MOVE",
        lambda x: tf.pad(x, ((0, 0), (1, 1))),
        lambda x: tf.pad(x, ((8, 8), (0, 0))),
        (PLAIN,),
    ),
    (
        "PADDED_MOVE",
        lambda x: tf.concat([x, x[:, 100:]], 1),
        lambda x: tf.concat([x, x], 1),
        (PLAIN,),
    ),
    (
        "PADDED_RESHAPE",
        lambda x: tf.reshape(x, (8, 32, 4, 16)),
        lambda x: tf.reshape(x, (256, 64)),
        (CUBE,),
    ),
    ("SPACE_BATCH", lambda x: tf.nn.space_to_depth(x, 2), lambda x: x * 2.0, (IMAGES,)),
    (
        "SPACE_BATCH",
        dilated,
        lambda x, k: tf.nn.conv2d(x, k, 1, "SAME", dilations=2),
        (IMAGES, KERNEL),
    ),
    (
        "UNFUSED_BN",
        batch_norm,
        lambda x: tf.compat.v1.nn.fused_batch_norm(x, tf.ones(16), tf.ones(16))[0],
        (IMAGES,),
    ),
    ("UNFUSED_BN", batch_norm, lambda x: batch_norm(x, (1, 2)), (IMAGES,)),
    (
        "MAXPOOL_GRAD",
        gradient(lambda x: tf.nn.max_pool2d(x, 2, 2, "SAME")),
        lambda x: tf.nn.max_pool2d(x, 2, 2, "SAME"),
        (IMAGES,),
    ),
    (
        "CATEGORICAL",
        lambda x: tf.random.categorical(x, 1),
        lambda x: x + tf.random.uniform((64, 256)),
        (PLAIN,),
    ),
    (
        "CATEGORICAL",
        lambda x: tf.random.stateless_categorical(x, 1, (1, 2)),
        lambda x: tf.argmax(x, 1),
        (PLAIN,),
    ),
    (
        "REDUCE_THEN_MUL",
        lambda x: tf.reduce_sum(x, 1) * 0.5,
        lambda x: tf.reduce_sum(x, 1) * tf.range(64.0),
        (PLAIN,),
    ),
    (
        "REDUCE_THEN_MUL",
        lambda x: 0.5 * tf.reduce_sum(x),
        lambda x: tf.reduce_sum(x * 0.5),
        (PLAIN,),
    ),
    ("SEQ_REDUCTION", layer_norm, one_pass, (PLAIN,)),
    ("SEQ_REDUCTION", softmax_by_hand, tf.nn.softmax, (PLAIN,)),
    ("NO_TPU_KERNEL", lambda x: tf.numpy_function(np.sin, [x], tf.float32), tf.sin, (PLAIN,)),
    (
        "NO_TPU_KERNEL",
        lambda x: tf.strings.length(tf.strings.as_string(x)),
        lambda x: tf.where(x > 0, x, 0.0),
        (PLAIN,),
    ),
    (
        "NO_TPU_KERNEL",
        lambda x: tf.linalg.svd(x, compute_uv=False),
        lambda x: tf.linalg.cholesky(x[:, :64]),
        (PLAIN,),
    ),
    (
        "NORMAL_SAMPLING",
        lambda x: x + tf.random.normal((64, 256)),
        lambda x: x + tf.random.uniform((64, 256)),
        (PLAIN,),
    ),
    (
        "NORMAL_SAMPLING",
        lambda x: x + tf.random.stateless_truncated_normal((64, 256), (1, 2)),
        tf.exp,
        (PLAIN,),
    ),
    ("UNFUSED_EPILOGUE", apart, together, (IMAGES, KERNEL)),
]


def assert_only_the_first_breaks(number):
    code, breaks, keeps, args = FUNCTIONS[number]
    compiled = code != "NO_TPU_KERNEL"
    assert code in codes(breaks, *args, compiled=compiled), (code, number)
    assert code not in codes(keeps, *args), (code, number)


FIRST = {code: number for number, (code, *_) in reversed([*enumerate(FUNCTIONS)])}
"""The first row of each code."""


@pytest.mark.parametrize("code", FIRST)
def test_findings_of_functions(code):
    assert_only_the_first_breaks(FIRST[code])


@pytest.mark.full
def test_findings_of_more_functions():
    for number in set(range(len(FUNCTIONS))) - set(FIRST.values()):
        assert_only_the_first_breaks(number)


def of_keras(*stack, inputs=IMAGES, train=False):
    """Return the codes of a Keras model in inference, or in a training step as fit runs it."""
    model = keras.Sequential([keras.Input(inputs.shape[1:], batch_size=len(inputs)), *stack])
    if not train:
        step, args = tf.function(lambda x: model(x, training=False)), (inputs,)
    else:
        model.compile("sgd", "mse", jit_compile=False)
        model.optimizer.build(model.trainable_variables)
        step, args = tf.function(model.train_step), ((inputs, tf.zeros(model.output_shape)),)
    tables = guided(step, *args).tables
    return {one["code"] for one in tables["op_guide"].records()} if tables else set()


class Function(keras.layers.Layer):
    """A layer that calls a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x):
        return self.function(x)


class SelfAttention(keras.layers.Layer):
    """
    Keras' attention of a sequence to itself.

    With a dropout it uses products of transposes, without one einsums.
    """

    def __init__(self, dropout):
        super().__init__()
        self.attention = layers.MultiHeadAttention(2, 8, dropout=dropout)

    def build(self, shape):
        self.attention.build(shape, shape)

    def call(self, x):
        return self.attention(x, x)


def joined(*parts):
    return Function(lambda x: keras.ops.concatenate([x[..., :size] for size in parts], -1))


KERAS = [
    ("TRANSPOSE", [layers.Permute((3, 1, 2)), layers.ReLU()], [layers.ReLU()], False),
    (
        "TRANSPOSE",
        [layers.Reshape((256, 16)), SelfAttention(0.1)],
        [layers.Reshape((256, 16)), SelfAttention(0.0)],
        False,
    ),
    (
        "PADDED_MOVE",
        [layers.Conv2D(12, 3, padding="same"), joined(12, 12)],
        [layers.Conv2D(128, 3), joined(128, 128)],
        False,
    ),
    ("PADDED_MOVE", [layers.Cropping2D(1)], [layers.ZeroPadding2D(1), layers.Conv2D(16, 3)], False),
    (
        "PADDED_RESHAPE",
        [layers.Conv2D(16, 3), layers.Flatten()],
        [layers.Conv2D(16, 3), layers.GlobalAveragePooling2D()],
        False,
    ),
    ("SPACE_BATCH", [layers.Conv2D(16, 3, dilation_rate=2)], [layers.Conv2D(16, 3)], False),
    (
        "UNFUSED_BN",
        [layers.Conv2D(16, 3), layers.BatchNormalization()],
        [layers.Conv2D(16, 3), layers.LayerNormalization()],
        True,
    ),
    (
        "UNFUSED_BN",
        [layers.Conv2D(16, 3), layers.BatchNormalization()],
        [layers.LayerNormalization()],
        False,
    ),
    (
        "MAXPOOL_GRAD",
        [layers.Conv2D(16, 3), layers.MaxPooling2D(2)],
        [layers.Conv2D(16, 3), layers.AveragePooling2D(2)],
        True,
    ),
    ("MAXPOOL_GRAD", None, [layers.Conv2D(16, 3), layers.MaxPooling2D(2)], False),
    (
        "CATEGORICAL",
        [layers.Flatten(), Function(lambda x: keras.random.categorical(x, 1, seed=1))],
        [layers.Softmax()],
        False,
    ),
    (
        "REDUCE_THEN_MUL",
        [Function(lambda x: keras.ops.sum(x, 1) * 0.5)],
        [Function(lambda x: keras.ops.mean(x, 1))],
        False,
    ),
    ("SEQ_REDUCTION", [layers.LayerNormalization()], [layers.Softmax()], False),
    (
        "NO_TPU_KERNEL",
        [Function(lambda x: tf.ensure_shape(tf.numpy_function(np.sin, [x], tf.float32), x.shape))],
        [layers.Dense(4)],
        False,
    ),
    (
        "NORMAL_SAMPLING",
        [layers.Dense(4), layers.GaussianNoise(0.1)],
        [layers.Dense(4), layers.Dropout(0.1)],
        True,
    ),
    (
        "UNFUSED_EPILOGUE",
        [layers.Conv2D(16, 3), layers.Permute((3, 1, 2)), layers.ReLU()],
        [layers.Conv2D(16, 3, activation="relu")],
        False,
    ),
]


def assert_only_the_first_model_breaks(code, breaks, keeps, train):
    assert breaks is None or code in of_keras(*breaks, train=train), code
    assert code not in of_keras(*keeps, train=train), code


@pytest.mark.imports("keras")
def test_findings_of_a_keras_model_and_of_its_training():
    """A layer that is no function of the user's, and an op that only the gradient has."""
    for row in KERAS:
        if row[0] in ("SPACE_BATCH", "MAXPOOL_GRAD"):
            assert_only_the_first_model_breaks(*row)


@pytest.mark.full
@pytest.mark.parametrize("code", RULES)
def test_findings_of_keras_models(code):
    for row in KERAS:
        if row[0] == code:
            assert_only_the_first_model_breaks(*row)


@pytest.mark.imports("keras")
def test_every_code_has_a_case():
    assert {row[0] for row in FUNCTIONS} == {row[0] for row in KERAS} == set(RULES)


def test_categorical_sampling_in_a_loop_counts():
    for function, level in [
        (drawn_in_loop, "on"),
        (lambda x: tf.random.categorical(x, 1), "info"),
    ]:
        (one,) = guided(tf.function(function), PLAIN, on=()).tables["op_guide"].records()
        assert (one["code"], one["level"]) == ("CATEGORICAL", level)


def test_a_finding_has_the_users_source_line():
    def step(x):
        return tf.transpose(x, (0, 2, 1))

    line = f"test_real_steps.py:{step.__code__.co_firstlineno + 1}"
    assert found(step, CUBE)[0]["line"] == found(step, CUBE, compiled=False)[0]["line"] == line


def test_a_step_that_xla_cannot_lower_has_the_finding_that_tells_why_and_a_bound():
    step = tf.function(lambda x: tf.numpy_function(np.sin, [tf.transpose(x)], tf.float32))
    value = guided(step, PLAIN).values["op_guide_findings"]
    assert value.number == value.low() == 1 < value.high()
    assert "PyFunc, a Python function" in value.detail["where"]
    assert "has the operation PyFunc" in value.detail["bounds"]


def test_text_beside_the_step_leaves_the_other_rules_known():
    def step(x):
        tf.debugging.assert_positive(x)  # XLA leaves it out
        tf.print("sum", tf.reduce_sum(x))
        return tf.transpose(x)

    value = guided(tf.function(step), PLAIN).values["op_guide_findings"]
    assert (value.low(), value.high()) == (2, 2)
    assert [one[:9] for one in value.detail["where"].split("; ")] == ["TRANSPOSE", "NO_TPU_KE"]


def random(*shape):
    return tf.constant(np.random.default_rng(7).normal(size=shape))


def test_multiplying_before_a_sum_is_equal():
    x, y = random(40, 60), random()
    for axis in (None, 0, 1, (0, 1)):
        behind, before = tf.reduce_sum(x, axis) * y, tf.reduce_sum(x * y, axis)
        np.testing.assert_allclose(behind, before, rtol=1e-12, err_msg=str(axis))


def test_multiplying_before_a_sum_by_a_varying_factor_is_not_equal():
    x, y = random(60, 60), random(60)
    assert not np.allclose(tf.reduce_sum(x, 1) * y, tf.reduce_sum(x * y, 1))
    assert "REDUCE_THEN_MUL" not in codes(lambda x, y: tf.reduce_sum(x, 1) * y, x, y)


def test_a_dilated_convolution_is_equal_without_space_to_batch():
    x, kernel = random(2, 17, 19, 3), random(3, 3, 3, 5)
    for rate in (2, 3):
        np.testing.assert_allclose(
            tf.nn.convolution(x, kernel, 1, "SAME", dilations=rate),
            tf.nn.conv2d(x, kernel, 1, "SAME", dilations=rate),
            rtol=1e-9,
            atol=1e-9,
            err_msg=str(rate),
        )


def test_uniform_noise_gives_the_distribution_of_categories():
    logits = tf.constant([[0.0, 1.0, 2.0, -1.0]])
    u = tf.constant(np.random.default_rng(7).uniform(size=(200_000, 4)), tf.float32)
    drawn = tf.argmax(logits - tf.math.log(-tf.math.log(u)), -1)
    shares = np.bincount(drawn.numpy(), minlength=4) / len(drawn)
    np.testing.assert_allclose(shares, tf.nn.softmax(logits)[0], atol=0.005)


def test_the_order_of_an_einsum_is_a_transpose():
    x, y = random(2, 5, 3, 4), random(2, 6, 3, 4)
    by_hand = tf.matmul(tf.transpose(x, (0, 2, 1, 3)), tf.transpose(y, (0, 2, 3, 1)))
    np.testing.assert_allclose(tf.einsum("bshd,bthd->bhst", x, y), by_hand, rtol=1e-12)


def test_activations_and_biases_may_come_before_a_transpose():
    x, kernel, bias = random(2, 5, 5, 3), random(3, 3, 3, 4), random(4)
    product = tf.nn.conv2d(x, kernel, 1, "SAME")
    behind = tf.nn.relu(tf.transpose(product, (0, 3, 1, 2)) + tf.reshape(bias, (4, 1, 1)))
    np.testing.assert_array_equal(behind, tf.transpose(tf.nn.relu(product + bias), (0, 3, 1, 2)))


def test_a_fused_batch_norm_is_equal():
    x = tf.cast(random(8, 6, 6, 4), tf.float32)
    fused, *_ = tf.compat.v1.nn.fused_batch_norm(x, tf.ones(4), tf.zeros(4), epsilon=1e-3)
    np.testing.assert_allclose(fused, batch_norm(x), rtol=1e-4, atol=1e-5)


def test_one_pass_moments_are_nearly_equal():
    x = random(40, 60)
    np.testing.assert_allclose(one_pass(x), layer_norm(x), rtol=1e-8, atol=1e-9)

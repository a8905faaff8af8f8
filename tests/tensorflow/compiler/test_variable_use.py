"""Variables that steps of real TensorFlow read and write, and steps refused for that."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context, execute

from pytest_tfperf.compiler.variable_use import Use, refuse_shared, use_recorded
from pytest_tfperf.errors import CaptureError

ONES = tf.ones((3, 3))


def use_of(step):
    """Use of the second call of a step: the first may create variables."""
    step()
    with use_recorded() as use:
        step()
    return use


def used(step, **variables):
    """Names of the variables that a step only reads, and of those that it writes."""
    use = use_of(step)
    read, written = (
        {name for name, one in variables.items() if id(one.handle) in handles}
        for handles in (use.read, use.written)
    )
    return read - written, written


@pytest.fixture
def a():
    return tf.Variable(ONES, name="a")


@pytest.fixture
def b():
    return tf.Variable(ONES, name="b")


EAGER = {
    "assign": lambda a, b: a.assign(b),
    "assign_add": lambda a, b: a.assign_add(b),
    "assign_sub": lambda a, b: a.assign_sub(b + 1),
    "slice": lambda a, b: a[0].assign(b[0]),
    "scatter_nd": lambda a, b: a.scatter_nd_add([[0, 0]], b[0, :1]),
    "scatter": lambda a, b: a.scatter_add(tf.IndexedSlices(b[0], tf.constant(0))),
    "raw": lambda a, b: tf.raw_ops.AssignVariableOp(
        resource=a.handle, value=tf.nn.embedding_lookup(b, [0, 1, 2])
    ),
    "optimizer kernel": lambda a, b: tf.raw_ops.ResourceApplyGradientDescent(
        var=a.handle, alpha=0.1, delta=b.sparse_read([0, 1, 2])
    ),
}


def assert_a_is_written_and_b_read(how, wrap=lambda step: step):
    a, b = tf.Variable(ONES), tf.Variable(ONES)

    @wrap
    def step():
        EAGER[how](a, b)
        return b + 1

    assert used(step, a=a, b=b) == ({"b"}, {"a"}), how


def compiled(step):
    return tf.function(step, autograph=False, jit_compile=True)


def test_assigned_variables_are_written_and_others_read():
    for how in EAGER:
        assert_a_is_written_and_b_read(how)
    for wrap in (tf.function, compiled):
        assert_a_is_written_and_b_read("assign_add", wrap)
        assert_a_is_written_and_b_read("raw", wrap)


@pytest.mark.full
def test_variables_assigned_in_functions_are_written():
    for how in EAGER:
        assert_a_is_written_and_b_read(how, tf.function)
        assert_a_is_written_and_b_read(how, compiled)


def test_reading_writes_nothing(a, b):
    step = tf.function(
        lambda: (
            tf.gather(a, 0)
            + tf.gather_nd(a, [[0, 0]])
            + a.read_value()
            + b
            + tf.cast(tf.shape(a)[0], tf.float32)
        )
    )
    assert used(step, a=a, b=b) == ({"a", "b"}, set())


def test_random_generator_is_written():
    generator = tf.random.Generator.from_seed(1)
    assert used(lambda: generator.normal(()), state=generator.state) == (set(), {"state"})
    assert used(tf.function(lambda: generator.normal(())), state=generator.state) == (
        set(),
        {"state"},
    )


def test_a_write_is_found_through_calls_branches_and_loops(a, b):
    c = tf.Variable(0.0)
    inner = tf.function(lambda: a.assign_add(ONES))

    @tf.function
    def step(x):
        if tf.reduce_sum(x) > 1e9:  # never true
            b.assign(x)
        for _ in tf.range(2):
            c.assign_add(1.0)
        return inner() * 2

    assert used(lambda: step(ONES), a=a, b=b, c=c) == (set(), {"a", "b", "c"})


def test_variable_passed_as_argument_is_written(a, b):
    step = tf.function(lambda target, source: target.assign_add(source))
    assert used(lambda: step(a, b), a=a, b=b) == ({"b"}, {"a"})
    assert used(lambda: step(b, a), a=a, b=b) == ({"a"}, {"b"})


def test_gradient_reads_and_its_update_writes(a, b):
    loss = tf.function(lambda: tf.reduce_sum(a * b))

    def step():
        with tf.GradientTape() as tape:
            value = loss()
        a.assign_sub(0.1 * tape.gradient(value, a))

    assert used(step, a=a, b=b) == ({"b"}, {"a"})


def test_recording_leaves_tensorflow_as_it_was(a):
    step = tf.function(lambda: a.assign_add(ONES))
    use_of(step)
    with pytest.raises(ZeroDivisionError), use_recorded():
        raise ZeroDivisionError
    assert step.experimental_get_tracing_count() == 1
    assert not context.context().op_callbacks
    assert execute.execute is execute.quick_execute


def test_missing_callbacks_give_a_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow.python.framework.op_callbacks", None)
    with use_recorded() as use:
        pass
    assert use == Use(why="this version of TensorFlow does not show which variables a step uses")


def model():
    made = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2, name="dense")])
    made.compile("sgd", "mse")
    return made


X, Y = np.ones((4, 3), "float32"), np.ones((4, 2), "float32")
OWN = "each needs a model of its own: build it twice from the same seed, or use keras.models.clone_model"


def uses(**steps):
    return {name: use_of(step) for name, step in steps.items()}


@pytest.mark.full
def test_two_steps_that_train_one_model_are_refused():
    shared = model()
    steps = uses(plain=lambda: shared.train_on_batch(X, Y), fit=lambda: shared.fit(X, Y, verbose=0))
    with pytest.raises(
        CaptureError,
        match=rf"^variants 'plain' and 'fit' both train .*dense/kernel.*, and \d+ more; {OWN}$",
    ):
        refuse_shared(steps)


def test_two_functions_that_train_one_variable_are_refused(a):
    steps = uses(
        plain=tf.function(lambda: a.assign_add(ONES)),
        other=lambda: 1,
        xla=tf.function(lambda: a.assign_sub(ONES), jit_compile=True),
    )
    with pytest.raises(CaptureError, match=f"^variants 'plain' and 'xla' both train a; {OWN}$"):
        refuse_shared(steps)


@pytest.mark.imports("keras")
def test_step_that_reads_a_variable_trained_by_another_is_refused():
    shared = model()
    steps = {
        "train": lambda: shared.train_on_batch(X, Y),
        "predict": lambda: shared.predict_on_batch(X),
    }
    used = uses(**steps)
    for order in (("train", "predict"), ("predict", "train")):
        with pytest.raises(
            CaptureError,
            match=r"^variant 'train' trains .*dense/kernel.*, which 'predict' reads, so .* depend on the order of the turns; each",
        ):
            refuse_shared({name: used[name] for name in order})


@pytest.mark.full
def test_separate_models_are_accepted():
    one, other = model(), keras.models.clone_model(model())
    other.compile("sgd", "mse")
    refuse_shared(
        uses(one=lambda: one.train_on_batch(X, Y), other=lambda: other.train_on_batch(X, Y))
    )


def test_shared_reading_and_separate_writing_are_accepted(a, b):
    refuse_shared(
        uses(
            one=tf.function(lambda: a + 1),
            other=lambda: a * 2,
            third=tf.function(lambda: a - 1, jit_compile=True),
        )
    )
    refuse_shared(uses(one=lambda: a.assign_add(ONES), other=lambda: b.assign_add(ONES)))


def test_iterator_does_not_count_as_a_variable():
    iterator = iter(tf.data.Dataset.range(100))
    refuse_shared(uses(one=lambda: next(iterator), other=tf.function(lambda: next(iterator))))


@pytest.mark.imports("keras")
def test_variables_that_the_first_call_creates_are_not_written_by_it():
    layer = keras.layers.Dense(2)
    refuse_shared(uses(one=lambda: layer(X), other=tf.function(lambda: layer(X))))

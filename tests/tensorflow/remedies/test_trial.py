"""Remedies on real TensorFlow: what they change, what they leave as it was, and what is said of those that fail."""

import time
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.compiler.dataset_graph import parallel
from pytest_tfperf.compiler.functions import Unsupported
from pytest_tfperf.errors import CaptureError, UnknownMetric
from pytest_tfperf.frameworks.framework import TENSORFLOW
from pytest_tfperf.remedies import input as of_input
from pytest_tfperf.remedies import step as of_step
from pytest_tfperf.remedies.remedy import Call, Remedy
from pytest_tfperf.remedies.state import kept_state
from pytest_tfperf.remedies.trial import suggested, try_remedies
from pytest_tfperf.results import Profile
from pytest_tfperf.values import Advice

NOTHING_KNOWN = Profile(name="", metrics={})


def call_of(step, data=None, **options):
    return Call(step=step, data=data, profile=NOTHING_KNOWN, framework=TENSORFLOW, **options)


def tried(step, data=None, remedies=(), seconds=1.0, **options):
    found = try_remedies(call_of(step, data, **options), seconds, remedies=remedies)
    return {one.remedy: one for one in found}, found


def sleep_and_double(x):
    time.sleep(0.01)
    return np.int64(2 * x)


def load(x):
    return tf.ensure_shape(tf.numpy_function(sleep_and_double, [x], tf.int64), [])


def elements(data):
    return [np.asarray(one).tolist() for one in data.as_numpy_iterator()]


class Faulty(Remedy):
    """A remedy of the test's own."""

    name, kind = "faulty", "step"

    def __init__(self, change):
        self._change = change

    def applies(self, call):
        return True

    def apply(self, call):
        return self._change(call)


def test_parallel_stages_give_the_same_elements_in_the_same_order():
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.range(9), 7 * tf.range(9)), -1
    )
    scale = tf.Variable(3)
    numbers = tf.data.Dataset.range(9).map(lambda x: tf.cast(x, tf.int32))
    for data in (
        numbers.map(table.lookup),
        numbers.map(lambda x: x * scale).batch(2).prefetch(1),
        numbers.map(lambda x: {"a": x, "b": (x, x + 1)}).map(lambda x: x["b"][1]),
        numbers.map(tf.range).ragged_batch(3).map(lambda x: x.to_tensor()),
        numbers.interleave(
            lambda x: tf.data.Dataset.from_tensors(x).repeat(3), cycle_length=2, block_length=2
        ),
        tf.data.Dataset.from_generator(
            lambda: iter(range(5)), output_signature=tf.TensorSpec([], tf.int32)
        ).map(lambda x: x + 1),
        tf.data.Dataset.range(6).map(load).batch(2),
    ):
        assert elements(parallel(data)) == elements(data), data


def test_arrays_that_no_graph_can_hold_are_refused_before_they_are_copied(monkeypatch):
    monkeypatch.setattr("pytest_tfperf.compiler.dataset_graph._MOST_BYTES", 100)
    table = tf.zeros(1000)
    for data in (
        tf.data.Dataset.from_tensor_slices(np.zeros(1000)).map(lambda x: x + 1),
        tf.data.Dataset.range(9).map(lambda n: table[n]),
    ):
        with pytest.raises(Unsupported, match="more than 2 GB"):
            parallel(data)
    assert elements(parallel(tf.data.Dataset.range(2).map(lambda n: n + 1))) == [1, 2]


@pytest.mark.full
def test_a_sequential_map_is_measured_and_named():
    data = tf.data.Dataset.range(64).map(load).batch(2)
    found, remedies = tried(
        tf.function(tf.reduce_sum), data, [of_input.Parallel(), of_input.NoInput()], seconds=90.0
    )
    one = found["num_parallel_calls=tf.data.AUTOTUNE"]
    assert one.outputs == "same"
    assert one.speedup.low < one.speedup.high
    assert ".map(load, num_parallel_calls=tf.data.AUTOTUNE)" in one.write
    assert found["no input at all"].is_bound
    assert remedies.best is one
    assert "(bound: no input at all)" in str(remedies)


@pytest.mark.imports("keras")
def test_state_is_put_back_after_each_remedy_and_after_errors():
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    x, y = tf.ones((8, 4)), tf.ones((8, 2))
    seen, calls = [], {"n": 0}
    array = np.zeros(3)

    def step():
        calls["n"] += 1
        seen.append(calls["n"])
        array[:] += 1
        return model.train_on_batch(x, y)

    before = [np.array(value) for value in model.get_weights()]
    model.optimizer.build(model.trainable_variables)
    state = [one.numpy() for one in model.optimizer.variables]

    def fails(call):
        def broken():
            call.step()
            raise ValueError("in the code:\n  no such thing at all")

        return Call(step=broken, profile=NOTHING_KNOWN)

    found, remedies = tried(step, remedies=[Faulty(fails)])
    assert found["faulty"].why == "could not be tried: ValueError: no such thing at all"
    assert "nothing was measured" in str(remedies)
    with pytest.raises(UnknownMetric):
        _ = remedies.best
    with pytest.raises(KeyboardInterrupt), kept_state(step, None):
        step()
        raise KeyboardInterrupt
    assert (seen, calls, array.tolist()) == ([], {"n": 0}, [0, 0, 0])
    for one, value in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, value)
    for one, value in zip(state, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(one, value.numpy())


def test_outputs_are_the_same_different_or_random():
    x = tf.random.stateless_uniform((16, 16), (1, 2))
    weights = tf.Variable(tf.zeros((16, 16)))

    def step():
        weights.assign_add(x)
        return tf.reduce_sum(tf.tanh(weights @ x))

    def other():
        weights.assign_add(x)
        return tf.reduce_sum(tf.tanh(weights @ x)) + 1

    def forgetful():  # the same output in the first step, without the update behind it
        return tf.reduce_sum(tf.tanh((weights + x) @ x))

    def of(change):
        return tried(step, remedies=[Faulty(lambda call: call_of(change))])[0]["faulty"]

    assert of(tf.function(step)).outputs in ("same", "within tolerance")
    assert "differs by up to 1 " in of(other).outputs
    assert "step 2" in of(forgetful).outputs
    assert not of(forgetful).keeps_outputs

    def draws():
        return tf.random.uniform(())

    def of_draws(change):
        return tried(draws, remedies=[Faulty(lambda call: call_of(change))])[0]["faulty"]

    assert of_draws(lambda: 1 - tf.random.uniform(())).outputs == "random"
    frozen = of_draws(lambda: tf.constant(3.0))
    assert frozen.outputs == "the same in each run, and random without it"
    assert not frozen.keeps_outputs


def test_other_random_numbers_from_a_generator_are_no_other_outputs():
    generator = tf.random.Generator.from_seed(1)
    total = tf.Variable(tf.zeros(64))

    def drawn(scale, more=0.0):
        numbers = scale * generator.normal((64,))
        total.assign_add(numbers)
        return tf.reduce_sum(numbers), tf.reduce_sum(tf.ones(3)) + more

    def of(change):
        return tried(lambda: drawn(1.0), remedies=[Faulty(lambda call: call_of(change))])[0][
            "faulty"
        ]

    assert of(lambda: drawn(1.0)).outputs == "same"
    assert of(lambda: drawn(-1.0)).outputs == "random"  # from the same distribution
    assert "differs" in of(lambda: drawn(9.0)).outputs
    assert "output[1]" in of(lambda: drawn(-1.0, more=1.0)).outputs  # which is not random


@pytest.mark.full
def test_dropout_that_xla_draws_otherwise_is_random():
    import keras

    model = keras.Sequential(
        [keras.Input((32,)), keras.layers.Dense(32), keras.layers.Dropout(0.5)]
    )
    x = tf.ones((16, 32))

    @tf.function
    def step():
        return tf.reduce_mean(model(x, training=True) ** 2)

    found, _ = tried(step, remedies=[of_step.JitCompile()])
    assert found["jit_compile=True"].outputs == "random"
    assert found["jit_compile=True"].is_fair


@pytest.mark.full
def test_eager_steps_become_functions_and_inner_functions_are_compiled_in_a_copy():
    x = tf.ones((8, 8))
    inner = tf.function(lambda y: tf.tanh(y @ y))

    def step():
        return tf.reduce_sum(inner(x)).numpy()  # which no tf.function can trace

    found, _ = tried(step, remedies=of_step.REMEDIES, seconds=90.0)
    assert found["@tf.function"].why.startswith("could not be tried: ")
    assert found["jit_compile=True"].outputs in ("same", "within tolerance")
    assert inner._jit_compile is None


def test_changes_that_advice_names_come_first_and_bounds_last():
    def order(*advice):
        profile = Profile(name="", metrics={}, advice=advice)
        call = replace(call_of(step, tf.data.Dataset.range(4).map(load)), profile=profile)
        return [one.name for one in suggested(call)]

    @tf.function
    def step(x):
        return x

    def names(what, win_s):
        return Advice(what=what, because="", win_s=win_s, look="")

    assert order()[-1] == "no input at all"
    jit, prefetch = names("set jit_compile=True", 1e-3), names(".prefetch(tf.data.AUTOTUNE)", 2e-3)
    assert order(jit)[0] == "jit_compile=True"
    assert "prefetch" in order(jit, prefetch)[0]


def test_what_no_time_is_left_for_is_named():
    data = [np.float32(1)] * 8

    def step(x):
        time.sleep(0.05)
        return x

    found, remedies = tried(step, data, of_input.REMEDIES, seconds=0.1)
    assert {one.why for one in remedies if one.speedup is None} <= {
        "no time was left",
        "no time was left to measure",
    }
    assert found


def test_behind_the_end_only_the_first_is_tried():
    def fails(call):
        raise ValueError("no")

    _, remedies = tried(lambda: None, remedies=[Faulty(fails), Faulty(fails)], seconds=0.0)
    assert [one.why for one in remedies] == [
        "could not be tried: ValueError: no",
        "no time was left",
    ]


def test_data_that_cannot_begin_again_are_refused():
    with pytest.raises(CaptureError, match="begin again"):
        tried(lambda x: x, iter([1, 2]), of_input.REMEDIES)


def test_a_thread_loads_a_python_iterable_ahead_and_passes_its_errors_on():
    class Loader:
        def __iter__(self):
            yield from range(5)
            raise RuntimeError("the disk is gone")

    data = of_input.Ahead().apply(call_of(lambda x: x, Loader())).data
    iterator, seen = iter(data), []
    with pytest.raises(RuntimeError, match="the disk is gone"):
        seen.extend(iterator)
    iterator, seen = iter(data), []
    seen += [next(iterator) for _ in range(3)]
    iterator.close()
    assert seen == [0, 1, 2]

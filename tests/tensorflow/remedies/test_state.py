"""State that remedies put back: after each, after errors in the middle of a step, and after arrays were donated."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.remedies.state import kept_state

GLOBAL = {"count": 0}
total, pair, holder = 0, (1, "text"), None


def sets_globals(x=1):
    global total, pair, holder
    total += x
    pair = (pair[0] + x, pair[1])
    holder = np.full(3, total)
    GLOBAL["count"] += x
    return (lambda: total)()


def test_names_that_a_step_sets_are_put_back():
    for step in (sets_globals, functools.partial(sets_globals, x=2), lambda: sets_globals()):
        with kept_state(step, None) as restore:
            assert step() == total > 0
            restore()
            assert (total, pair, holder, GLOBAL) == (0, (1, "text"), None, {"count": 0})
            step()
        assert (total, pair, holder, GLOBAL) == (0, (1, "text"), None, {"count": 0})


def test_a_step_that_trains_and_raises_in_the_middle_leaves_nothing():
    weights, slots = tf.Variable(tf.ones(3)), {"momentum": tf.Variable(tf.zeros(3))}
    generator = tf.random.Generator.from_seed(7)
    before, log = generator.state.numpy(), [[0.0]]

    @tf.function
    def update(x):
        weights.assign_add(x)
        slots["momentum"].assign_add(x)
        return generator.normal((3,))

    def step():
        for n in range(9):
            log[0].append(float(tf.reduce_sum(update(tf.ones(3)))))
            if n == 4:
                raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError), kept_state(step, None):
        step()
    np.testing.assert_array_equal(weights, np.ones(3))
    np.testing.assert_array_equal(slots["momentum"], np.zeros(3))
    np.testing.assert_array_equal(generator.state, before)
    assert log == [[0.0]]


def test_containers_of_any_class_and_with_any_keys_are_put_back():
    counter, ordered = collections.Counter(a=3), collections.OrderedDict(x=1, y=2)
    mixed = {1: 0, "one": 0, None: {2: 0, "two": 0}}

    def step():
        counter.update("ab")
        ordered.pop("x")
        ordered["z"] = 3
        mixed["one"] += 1
        mixed[None]["two"] += 1

    with kept_state(step, None) as restore:
        for _ in range(2):
            step()
            restore()
            assert counter == {"a": 3}
            assert set(ordered.items()) == {("x", 1), ("y", 2)}
            assert mixed == {1: 0, "one": 0, None: {2: 0, "two": 0}}


@pytest.mark.imports("jax")
def test_arrays_of_jax_live_on_after_they_were_donated():
    jax = pytest.importorskip("jax")
    scope = {"params": (jax.numpy.ones(3), {"bias": jax.numpy.zeros(2)}), "names": {1: 2, "x": 3}}

    @functools.partial(jax.jit, donate_argnums=0)
    def update(params):
        return jax.tree.map(lambda leaf: leaf + 1, params)

    scope["update"] = update
    code = "def step():\n    global params\n    params = update(params)\n    return params, names"
    exec(code, scope)  # a module of its own
    for _ in range(2):
        with kept_state(scope["step"], None) as restore:
            for _ in range(3):
                scope["step"]()
                restore()
            scope["step"]()
        weights, rest = scope["params"]
        assert (weights.tolist(), rest["bias"].tolist()) == ([1, 1, 1], [0, 0])


@pytest.mark.imports("keras")
def test_random_generators_draw_the_same_numbers_again():
    import random

    import keras

    of_numpy, of_keras = np.random.default_rng(3), keras.random.SeedGenerator(3)

    def step():
        numbers = (of_numpy.random(), np.random.random(), random.random())  # noqa: NPY002
        return (*numbers, float(keras.random.normal((), seed=of_keras)))

    with kept_state(step, None) as restore:
        first = step()
        restore()
        assert step() == first
    assert step() == first

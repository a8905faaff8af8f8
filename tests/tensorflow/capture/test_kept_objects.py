"""What real steps keep is named: the container, its variable, the objects in it, and a remedy of their kind."""

import collections
import functools
import gc
import itertools
import re

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers.profilers import profiler as new_profiler

from pytest_tfperf.capture import kept_objects
from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.checks.limits import check_limits

pytestmark = [pytest.mark.full, pytest.mark.imports("keras", "jax")]

LIMITS = {"max_memory_growth": "4 KiB"}
ROWS = np.ones((64, 64), "float32")  # 16 KiB
CACHE = {}
LONGEST_S = 300.0
"""Time enough for all steps, and for the search among all objects, on a busy machine."""


@pytest.fixture
def failed(monkeypatch):
    """A function that profiles by a function of `tf_profile`, and returns `where`, `try` and the share that they explain."""
    profilers = []
    monkeypatch.setattr(kept_objects, "_LONGEST_S", LONGEST_S)
    frozen = gc.get_freeze_count()
    gc.unfreeze()  # the collector tells nothing of objects that somebody froze

    def run(profile, **more):
        wanted = Wanted.read({**LIMITS, **more})
        profilers.append(new_profiler(wanted.given, max_seconds=LONGEST_S))
        found = profile(profilers[-1])
        (check,) = check_limits(found, wanted.limits, None, False)
        assert check.verdict.value == "FAIL", check.sentence
        lines = dict([*check.details, *check.advice])
        return lines["where"], lines["try"], check.detail.get("accounted", 0)

    yield run
    for profiler in profilers:
        profiler.close()
    if frozen:
        gc.freeze()


def keeping(keep, jit=tf.function):
    compute = jit(tf.tanh if jit is tf.function else jnp.tanh)

    def step(rows):
        keep(compute(rows))

    return lambda tf_profile: tf_profile(step, [ROWS] * 4, steps=40)


class History:
    __slots__ = ("log",)

    def __init__(self):
        self.log = collections.defaultdict(list)

    def add(self, result):
        self.log["loss"].append((0.5, {"grads": [result, result * 2]}))


def in_a_closure():
    losses = []
    return keeping(lambda result: losses.append(result))


def in_an_attribute():
    return keeping(History().add, jax.jit)


def in_a_global_dict():
    numbers = itertools.count()
    return keeping(lambda result: CACHE.update({next(numbers): result.numpy()}))


def in_a_cache():
    numbers = itertools.count()

    @functools.cache
    def table(number):
        return jnp.full((64, 64), number)

    return keeping(lambda _: table(next(numbers)), jax.jit)


def as_views():
    first = collections.deque()
    return keeping(lambda result: first.append(result.numpy().copy()[0]))


KEPT = (
    (in_a_closure, r"the list losses of in_a_closure\S* \(test_kept_objects\.py:\d+\) keeps 1 tensor float32\[64,64\]", r"float\(x\)"),
    (in_an_attribute, r"the list log\['loss'\] of History .* keeps 2 jax\.Array float32\[64,64\]", r"log\['loss'\].*float\(x\)"),
    (in_a_global_dict, r"the dict CACHE of module \S*test_kept_objects keeps 1 NumPy array float32\[64,64\]", r"old entries of CACHE"),
    (in_a_cache, r"cache of in_a_cache\.table \(test_kept_objects\.py:\d+\) keeps 1 jax\.Array", r"maxsize"),
    (as_views, r"1 NumPy array float32\[64\] \(a view of the whole float32\[64,64\]\)", r"copy"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("case", "place", "remedy"),
    [KEPT[0], *(pytest.param(*row, marks=pytest.mark.nightly) for row in KEPT[1:])],
)
def test_what_a_container_keeps_is_named_with_its_variable(failed, case, place, remedy):
    where, advice, accounted = failed(case())
    assert re.search(place, where), where
    assert re.search(remedy, advice), advice
    assert accounted > 0.6, where


class Recorder(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(self.model.get_weights())


def model():
    made = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64)])
    made.compile("sgd", "mse")
    return made


def test_a_callback_that_lives_as_long_as_fit_is_named(failed):
    data = tf.data.Dataset.from_tensors((ROWS, ROWS)).repeat()
    fit = {"epochs": 6, "steps_per_epoch": 150, "verbose": 0, "shuffle": False}
    where, advice, _ = failed(lambda one: one.fit(model(), data, callbacks=[Recorder()], **fit))
    assert re.search(r"the list seen of Recorder .* float32\[64,64\]", where), where
    assert "keep in seen" in advice


STEPS = {"warmup": 2, "steps": 10, "trace_steps": 2}


def test_models_that_are_kept_are_named_with_their_list(failed):
    models = []

    def keep():
        models.append(model())
        return models[-1](ROWS)

    where, advice, accounted = failed(lambda one: one(keep), **STEPS)
    assert "the list models of" in where
    assert "keeps 1 Sequential more a step" in where
    assert 0.25 <= accounted < 0.8  # TensorFlow keeps more of a model than Python does
    assert "once" in advice


@pytest.mark.nightly
def test_models_that_are_only_made_are_named_by_their_making(failed):
    where, advice, _ = failed(lambda one: one(lambda: model()(ROWS)), **STEPS)
    assert "Keras makes a model in the steps" in where
    assert "once" in advice
    assert "list" not in advice


@pytest.mark.nightly
def test_growth_of_steps_that_are_each_traced_again_is_decided(failed):
    def trial():
        model().train_on_batch(ROWS, ROWS)

    where, advice, _ = failed(lambda one: one(trial), warmup=2)
    assert re.search(r"\d+ retraces in the same steps", where), where
    assert "once" in advice


def test_what_no_container_keeps_is_not_explained(failed):
    chain, numbers = {}, []

    def link(result):
        chain["last"] = (chain.get("last"), result)
        numbers.append(0.5)  # grows, and explains nothing

    where, advice, accounted = failed(keeping(link))
    assert where.startswith("a step: "), where
    assert advice.startswith("look for what keeps objects")
    assert not accounted


@pytest.mark.nightly
def test_tensors_in_regions_of_an_allocator_decide_a_limit(failed):
    """oneDNN's allocator takes regions that double in size from malloc, which alone decide nothing."""
    predictions = []
    weights = tf.ones((64, 4000))

    def step(rows):
        predictions.append(compute(rows))

    compute = tf.function(lambda rows: tf.nn.softmax(rows @ weights))
    where, _, accounted = failed(lambda one: one(step, [ROWS] * 4))
    assert "predictions" in where
    assert accounted > 0.25  # a region is up to twice as large as what it holds

"""Remedies of tf.data: where a pipeline has what they change, and that its elements stay as they were."""

from contextlib import nullcontext

import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.compiler.dataset_graph import (
    moved_before_maps,
    stages_to_move,
    with_parallel_batches,
)
from pytest_tfperf.frameworks.framework import TENSORFLOW
from pytest_tfperf.remedies import input as of_input
from pytest_tfperf.remedies.remedy import Call
from pytest_tfperf.remedies.trial import try_remedies
from pytest_tfperf.results import Profile

NUMBERS = tf.data.Dataset.range(24)
BESIDE = lambda _: nullcontext()  # noqa: E731 - no verdict here is of a time


def call_of(data, step=None):
    profile = Profile(name="", metrics={})
    return Call(step=step or (lambda *x: x), data=data, profile=profile, framework=TENSORFLOW)


def elements(data):
    return [
        [np.asarray(leaf).tolist() for leaf in tf.nest.flatten(one, expand_composites=True)]
        for one in data
    ]


def python(x):
    return tf.ensure_shape(tf.numpy_function(lambda n: n * 2, [x], tf.int64), [])


def as_pair(x):
    return x, tf.fill([2, 3], tf.cast(x, tf.float32))


def as_dict(x):
    return {"number": x, "image": tf.fill([2, 3], tf.cast(x, tf.float32))}


def halved(x):
    return tf.cast(x, tf.float32) / 2.0 + 1.0


def both(x, y):
    return x * 2, tf.tanh(y)


def tail_tanh(x, y):
    return x, tf.tanh(y)


def moved():
    """Pipelines with a stage that moves, and which."""
    return (
        (NUMBERS.map(python).shard(3, 1), "shard"),
        (NUMBERS.map(as_pair).skip(5).prefetch(1), "skip"),
        (NUMBERS.map(halved).batch(5), "batch"),
        (NUMBERS.map(as_pair).map(both).batch(5, drop_remainder=True).prefetch(1), None),
        (NUMBERS.map(halved, num_parallel_calls=2).batch(5).repeat(2), "batch"),
        (NUMBERS.map(as_dict).filter(lambda x: x["number"] % 3 == 0).batch(2), "filter"),
        (NUMBERS.map(python).map(as_pair).shard(2, 0), "shard"),
        (NUMBERS.map(as_pair).map(tail_tanh).filter(lambda x, _: x % 3 == 0), "filter"),
    )


def staying():
    return (
        NUMBERS.map(as_dict).filter(lambda x: x["image"][0, 0] > 3),  # of what the map computes
        NUMBERS.map(lambda x: x + tf.random.uniform((), maxval=9, dtype=tf.int64)).shard(2, 0),
        NUMBERS.map(as_pair).batch(4),  # makes larger elements
        NUMBERS.map(as_pair).map(lambda x, y: y * tf.cast(x, tf.float32)).batch(4),  # of two ranks
        NUMBERS.map(lambda x: x * tf.constant([1, 2], tf.int64)).batch(4),
        NUMBERS.map(as_pair).map(lambda x, y: tf.reduce_sum(y)).batch(4),
        NUMBERS.map(lambda x: tf.constant(1.0)).batch(4),
        NUMBERS.batch(4).map(lambda x: x + 1),
    )


def test_stages_change_places_only_where_elements_stay_the_same():
    for data, method in moved():
        found = [name for name, _ in stages_to_move(data)]
        assert found == [method] if method else not found or found == ["batch"], (found, data)
        assert elements(moved_before_maps(data)) == elements(data), data
        assert moved_before_maps(data).element_spec == data.element_spec
    for data in staying():
        assert stages_to_move(data) == [], data
        assert not of_input.Order().is_of(data)


def test_the_map_sees_fewer_elements_behind_a_shard_and_a_filter():
    seen = []

    def noted(x):
        seen.append(int(x))
        return x

    def load(x):
        return x, tf.ensure_shape(tf.numpy_function(noted, [x], tf.int64), [])

    data = NUMBERS.map(load).shard(4, 1).filter(lambda x, _: x > 12)
    call = call_of(data)
    expected = elements(data)
    assert len(seen) == 24
    seen.clear()
    assert elements(of_input.Order().apply(call).data) == expected
    assert len(seen) == len(expected) == 3
    assert "test_input.py" in of_input.Order().write(call)
    assert ".shard(…) before " in of_input.Order().write(call)


@pytest.mark.parametrize(
    ("remedy", "data", "written"),
    [
        (
            of_input.ManyCalls(),
            lambda: NUMBERS.map(python).batch(4),
            "options.threading.private_threadpool_size = ",
        ),
        (
            of_input.ManyCalls(),
            lambda: NUMBERS.interleave(lambda x: tf.data.Dataset.from_tensors(x).map(python)),
            "num_parallel_calls=",
        ),
        (
            of_input.ManyCalls(),
            lambda: NUMBERS.map(python, num_parallel_calls=2).batch(4),
            "num_parallel_calls=",
        ),
        (
            of_input.ParallelFilter(),
            lambda: NUMBERS.map(halved).filter(lambda x: x > 3).batch(2),
            "filter_parallelization = True",
        ),
        (
            of_input.ParallelBatch(),
            lambda: NUMBERS.map(lambda x: tf.fill([512, 256], x)).batch(4),
            "num_parallel_calls=tf.data.AUTOTUNE",
        ),
    ],
)
def test_parallel_stages_give_the_same_elements(remedy, data, written):
    data = data()
    call = call_of(data)
    assert remedy.applies(call)
    assert written in remedy.write(call)
    changed = remedy.apply(call).data
    assert elements(changed.prefetch(2)) == elements(data)
    assert changed.element_spec == data.element_spec


def test_remedies_of_stages_need_such_stages():
    data = NUMBERS.map(halved).batch(4)
    for remedy in (of_input.ManyCalls(), of_input.ParallelFilter(), of_input.ParallelBatch()):
        assert not remedy.applies(call_of(data)), remedy
        assert not remedy.applies(call_of([1, 2])), remedy
    options = tf.data.Options()
    options.threading.private_threadpool_size = 512
    assert not of_input.ManyCalls().is_of(NUMBERS.map(python).with_options(options))
    drawing = NUMBERS.filter(lambda _: tf.random.uniform(()) > 0.5)
    assert not of_input.ParallelFilter().is_of(drawing)


def test_ragged_and_sparse_elements_stay_what_they_are():
    ragged = NUMBERS.map(lambda x: tf.range(x % 4)).ragged_batch(3)
    sparse = NUMBERS.map(
        lambda x: tf.sparse.from_dense(tf.one_hot(x % 5, 5, dtype=tf.int64) * x)
    ).batch(4)
    for data in (ragged, sparse, tf.data.Dataset.zip(ragged, sparse)):
        assert elements(with_parallel_batches(data)) == elements(data)
        for remedy in of_input.REMEDIES:
            if remedy.is_of(data) and not isinstance(remedy, (of_input.NoInput, of_input.Cache)):
                assert elements(remedy.apply(call_of(data)).data) == elements(data), remedy
        for remedy in (of_input.Cache(), of_input.Ready(), of_input.NoInput()):
            first = next(iter(remedy.apply(call_of(data)).data))
            assert elements([first]) == elements([next(iter(data))]), remedy


@pytest.mark.full
@pytest.mark.parametrize(
    "data",
    [
        NUMBERS.take(2),
        NUMBERS.repeat(),
        NUMBERS.map(halved).take(1),
    ],
    ids=["shorter than what is compared", "infinite", "one element"],
)
def test_datasets_that_end_early_or_never_are_tried(data):
    step = tf.function(lambda x: x + 1)
    for remedy in (of_input.Prefetch(), of_input.NoInput()):
        [found] = try_remedies(call_of(data, step), 1.0, exclusive=BESIDE, remedies=[remedy])
        assert found.speedup is not None, found
        assert found.outputs == ("–" if remedy.is_bound else "same")


def stage_that_counts():
    """A stage, and how often it has run."""
    runs = tf.Variable(0, dtype=tf.int64)

    def work(x):
        runs.assign_add(1)
        return tf.fill([2], tf.cast(x, tf.float32))

    return work, runs


def shifted(x):
    return x + tf.random.uniform([])


@pytest.mark.parametrize(
    "behind",
    [
        lambda data: data.repeat().batch(4),
        lambda data: data.shuffle(8).batch(4).prefetch(1),
        lambda data: data.map(shifted).batch(2).batch(2).with_options(tf.data.Options()),
    ],
    ids=["repeat", "shuffle", "random map"],
)
def test_what_is_not_random_is_cached_before_what_is(behind):
    work, runs = stage_that_counts()
    data = behind(NUMBERS.map(work))
    remedy = of_input.CacheBefore()
    assert remedy.is_of(data)
    assert not of_input.Cache().is_of(data)
    assert remedy.write(call_of(data)).startswith(".cache() behind ")
    assert "an epoch (192 B) of it" in remedy.write(call_of(data))
    cached = remedy.apply(call_of(data)).data
    before = int(runs)
    found = [tf.reshape(one, [-1]) for one in cached.take(6)]
    assert int(runs) == before >= 24
    assert cached.element_spec == data.element_spec
    whole = np.sort(np.floor(tf.concat(found, 0)))  # two numbers of each element, and an epoch
    assert whole.tolist() == np.repeat(np.arange(24.0), 2).tolist()


def test_only_a_part_of_a_pipeline_is_cached_that_works_and_is_always_the_same():
    work, _ = stage_that_counts()
    for data in (
        NUMBERS.shuffle(8).map(work),  # what is always the same does no work
        NUMBERS.map(python).shuffle(8),
        NUMBERS.map(work),  # all of it may be cached
        NUMBERS.map(work).cache().shuffle(8),
        NUMBERS.map(work).shuffle(8, seed=1, reshuffle_each_iteration=False),
        tf.data.Dataset.zip(NUMBERS.map(work), NUMBERS.shuffle(8)),
        [1, 2],
    ):
        assert not of_input.CacheBefore().is_of(data), data


@pytest.mark.full
def test_shuffled_elements_are_random():
    data = NUMBERS.shuffle(24)
    step = tf.function(lambda x: x + 1)
    [found] = try_remedies(
        call_of(data, step), 1.0, exclusive=BESIDE, remedies=[of_input.Prefetch()]
    )
    assert found.outputs == "random"
    assert not of_input.Cache().is_of(data)


def test_loaders_of_other_libraries_are_loaded_ahead_and_told_their_own_way():
    for module, written in (
        ("torch.utils.data.dataloader", "DataLoader(…, num_workers=2"),
        ("grain._src.python.data_loader", "worker_count=2"),
        ("project.pipeline", "from_generator"),
    ):
        loader = type("Loader", (), {"__module__": module, "__iter__": lambda _: iter(range(5))})()
        call = call_of(loader, lambda x: x)
        assert [one for one in of_input.REMEDIES if one.applies(call)] == [
            one for one in of_input.REMEDIES if isinstance(one, (of_input.Ahead, of_input.NoInput))
        ]
        assert list(of_input.Ahead().apply(call).data) == list(range(5))
        assert written in of_input.Ahead().write(call)


@pytest.mark.nightly
def test_a_data_loader_of_pytorch_is_tried():
    torch = pytest.importorskip("torch")
    data = torch.utils.data.DataLoader(torch.arange(24.0), batch_size=4)
    wanted = [of_input.Ahead(), of_input.NoInput()]
    found = try_remedies(call_of(data, lambda x: x + 1), 9.0, exclusive=BESIDE, remedies=wanted)
    assert {one.remedy: one.outputs for one in found} == {
        "a thread that loads ahead": "same",
        "no input at all": "–",
    }

"""Threads of the user's own that run TensorFlow beside the step."""

import threading
import time
from contextlib import contextmanager

import tensorflow as tf

STEP = tf.ones((32, 32))
OTHER = tf.ones((64, 64))
FLOPS = 2 * 32**3


@tf.function
def step(x):
    return x @ x


@tf.function
def beside(x):
    return x @ x @ x


@contextmanager
def calling(function, x):
    """Call a function in another thread all the time; its error is the test's."""
    beside(OTHER)
    ended, errors = threading.Event(), []

    def run():
        try:
            while not ended.is_set():
                function(x)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert errors == []


def slow(x):
    time.sleep(0.002)  # so that the other thread runs in each step
    return step(x)


def test_calls_of_another_thread_are_neither_cancelled_nor_the_step_s(profile):
    with calling(beside, OTHER):
        found = profile(slow, [STEP] * 40)
    for metric in ("flops", "graph_ops", "xla_coverage"):
        assert found.value(metric).number is None, metric
        assert "another thread called beside while the step" in found.value(metric).why, metric


def test_what_a_thread_of_before_calls_in_a_step_is_not_counted_as_the_step_s(profile):
    asked, answered = threading.Event(), threading.Event()
    ended = []

    def serve():
        while asked.wait() and not ended:
            asked.clear()
            beside(OTHER)
            answered.set()

    def served(x):
        answered.clear()
        asked.set()
        answered.wait()
        return step(x)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        found = profile(served, [STEP] * 40)
    finally:
        ended.append(True)
        asked.set()
        thread.join()
    for metric in ("eager_ops", "xla_launches"):
        assert "another thread called beside" in found.value(metric).why, metric
    assert found.retraces == 0
    assert found.step_time > 0


def test_a_thread_that_a_step_starts_and_awaits_works_for_the_step(profile):
    def in_a_thread(x):
        thread = threading.Thread(target=step, args=(x,))
        thread.start()
        thread.join()

    found = profile(in_a_thread, [STEP] * 40)
    assert (found.flops, found.graph_ops) == (FLOPS, 1)


def test_a_thread_that_only_waits_or_computes_without_tensorflow_changes_nothing(profile):
    with calling(lambda x: sum(range(1000)), None):
        found = profile(step, [STEP] * 40)
    assert (found.flops, found.graph_ops) == (FLOPS, 1)


def test_eager_ops_of_another_thread_are_not_counted_as_the_step_s(profile):
    with calling(lambda x: x + 1, OTHER):
        found = profile(slow, [STEP] * 40)
    assert "another thread ran AddV2 eagerly" in found.value("eager_ops").why
    assert (found.flops, found.graph_ops) == (FLOPS, 1)


def test_a_dataset_that_another_thread_reads_is_not_waited_for_by_the_step(profile):
    elements = iter(tf.data.Dataset.range(10).repeat().prefetch(1))
    with calling(lambda _: next(elements), None):
        without = profile(lambda: slow(STEP), name="without data")
        data = tf.data.Dataset.from_tensors(STEP).repeat()
        given = (profile(slow, data, name=f"data {n}").value("input_bound") for n in range(3))
        # a busy machine can make waits look like those of a buffer that drains
        assert any(bound.number is not None for bound in given)
    bound = without.value("input_bound")
    assert bound.number is None or bound.number < 0.05, bound

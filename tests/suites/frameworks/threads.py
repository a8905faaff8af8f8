"""Threads that call JAX beside a step: those of before it, and those that it starts."""

import threading
from contextlib import contextmanager

import jax
import jax.numpy as jnp

X = jnp.ones((32, 64))
FLOPS = 2 * 32 * 64 * 32
COUNTS = ("flops", "xla_launches", "eager_ops", "host_device_copies")
step = jax.jit(lambda x: x @ x.T)


@contextmanager
def answering(serve):
    """Give a function that lets another thread call `serve`, and waits for it."""
    asked, answered, ended = threading.Event(), threading.Event(), threading.Event()

    def run():
        while asked.wait() and not ended.is_set():
            asked.clear()
            serve()
            answered.set()

    def ask():
        answered.clear()
        asked.set()
        answered.wait()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield ask
    finally:
        ended.set()
        asked.set()
        thread.join()


def served(tf_profile, serve):
    with answering(serve) as ask:
        return tf_profile(lambda: (ask(), step(X)))


def test_what_a_thread_of_before_calls_is_not_counted_as_the_step_s(tf_profile):
    def beside(x):
        return jnp.tanh(x)

    beside = jax.jit(beside)
    beside(X)
    found = served(tf_profile, lambda: beside(X).block_until_ready())
    for metric in COUNTS:
        assert "another thread called beside" in found.value(metric).why, metric
    assert (found.retraces, found.xla_compiles) == (0, 0)


def test_what_a_thread_of_before_compiles_is_not_counted_as_the_step_s(tf_profile):
    found = served(tf_profile, lambda: jax.jit(lambda x: x + 1)(X))
    for metric in ("retraces", "xla_compiles"):
        assert "another thread traced or compiled" in found.value(metric).why, metric


def test_threads_that_only_wait_and_those_of_the_step_change_nothing(tf_profile):
    def threaded():
        thread = threading.Thread(target=lambda: step(X).block_until_ready())
        thread.start()
        thread.join()

    with answering(lambda: None):
        found = tf_profile(threaded)
    assert [found.value(metric).number for metric in COUNTS] == [FLOPS, 1, 0, 0]

"""Nothing of the steps outlives the profiler: an iterator that does can stop the interpreter from exiting."""

import gc

import tensorflow as tf
from helpers.profilers import profiler as new_profiler

from pytest_tfperf.compiler.functions import Function


def called():
    """Functions of steps, with the iterators that they were called with."""
    gc.collect()
    return {id(one) for one in gc.get_objects() if type(one) is Function}


def test_functions_and_their_arguments_are_freed():
    before = called()
    profiler = new_profiler({"warmup": 2, "steps": 4, "trace_steps": 2})
    data = tf.data.Dataset.range(1000).batch(4)
    profile = profiler(tf.function(lambda x: tf.reduce_sum(x)), data)
    assert called() - before
    profiler.close()
    assert not called() - before
    assert profile.retraces == 0

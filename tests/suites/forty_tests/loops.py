"""Pipelines, loops, Keras, and classes; what fails says so."""

import unittest

import numpy as np
import pytest
import tensorflow as tf
from steps import ONES, batches, chain, model


@pytest.mark.tfperf(max_retraces=0, eager_ops=0)
class TestData:
    def test_steps(self, tf_profile):
        step = tf.function(chain)
        for batch in tf_profile.steps(batches()):
            step(batch)

    def test_pipeline(self, tf_profile):
        tf_profile(tf.function(chain), batches())

    def test_last_batch_is_smaller(self, tf_profile):  # fails: it traces again
        tf_profile(tf.function(chain), tf.data.Dataset.range(20).map(float).batch(8))

    def test_named(self, tf_profile):
        for name in ("train", "eval"):
            tf_profile(tf.function(chain), batches(), name=name)

    def test_trace(self, tf_profile):
        step = tf.function(chain)
        step(ONES[0])
        with tf_profile.trace() as trace:
            for x in ONES:
                with trace.step():
                    step(x)

    def test_latency(self, tf_profile):
        tf_profile(tf.function(chain), ONES, latency=True)


@pytest.mark.tfperf(max_retraces=0)
class TestKeras:
    def test_fit(self, tf_profile):
        made, x, y = model()
        tf_profile.fit(made, x, y, batch_size=8, verbose=0)

    def test_evaluate(self, tf_profile):
        made, x, y = model()
        tf_profile.evaluate(made, x, y, batch_size=8, verbose=0)

    def test_predict(self, tf_profile):  # fails: the last batch is smaller
        made, x, _ = model()
        tf_profile.predict(made, x[:30], batch_size=8, verbose=0)

    @pytest.mark.tfperf(max_op_guide_findings=100)
    def test_marker_alone(self):
        made, x, y = model()
        made.fit(x, y, batch_size=8, verbose=0, epochs=2)


@pytest.mark.tfperf(max_retraces=1)
def test_one_function(tf_profile):
    step = tf.function(chain)

    def called(x):
        return step(x) + 1

    tf_profile(called, ONES)


class TestCase(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def profiler(self, tf_profile):
        self.tf_profile = tf_profile

    @pytest.mark.tfperf(max_eager_ops=0)
    def test_array(self):  # fails: it runs an op of its own
        self.tf_profile(lambda x: tf.sin(x), [np.ones((4, 4), "float32")] * 4)

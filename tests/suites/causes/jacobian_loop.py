"""
tensorflow/tensorflow#36227: a Jacobian with `experimental_use_pfor=False` takes a gradient for each of 300 outputs, one after another.

Cause: the graph has a while loop with one backward pass for each output. Remedy: the vectorised form (pfor, the default), or
`batch_jacobian`. By hand: 6 ms, against 0.7 ms.
"""

import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "step_time",
    "where": r"(?i)(while|loop|iterations|jacobian).*jacobian_loop\.py:\d+|jacobian_loop\.py:\d+.*(while|loop|iterations|jacobian)",
    "try": r"(?i)vectori[sz]|pfor|batch_jacobian",
    "never": r"(?i)larger batch|shapes constant|16 bits|map_fn\b",
}

WEIGHTS = [tf.random.normal((32, 32)) for _ in range(4)] + [tf.random.normal((32, 300))]
POINTS = [tf.random.normal((1, 32))] * 4


def jacobian(use_pfor):
    @tf.function
    def slopes(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for weights in WEIGHTS:
                y = tf.tanh(y @ weights)
        return tape.jacobian(y, x, experimental_use_pfor=use_pfor)

    return slopes


@pytest.mark.tfperf(max_step_time="2 ms")
def test_broken(tf_profile):
    tf_profile(jacobian(use_pfor=False), POINTS)


@pytest.mark.tfperf(max_step_time="2 ms")
def test_fixed(tf_profile):
    tf_profile(jacobian(use_pfor=True), POINTS)

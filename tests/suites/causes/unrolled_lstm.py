"""
tensorflow/tensorflow#34920: an LSTM with `unroll=True` over 150 time steps has a huge graph, and starts very slowly.

Cause: `unroll=True` puts the cell into the graph once for each time step. Remedy: `unroll=False`, which loops in the graph.
"""

import keras
import numpy as np
import pytest

EXPECTED = {
    "metric": "graph_ops",
    "where": r"(?i)lstm",
    "try": r"(?i)unroll|tf\.while_loop|loop in the graph",
    "never": r"(?i)16 bits",
}

X, Y = np.ones((64, 150, 4), "float32"), np.zeros((64, 1), "float32")


def train(tf_profile, unroll):
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((150, 4)), layers.LSTM(8, unroll=unroll), layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    tf_profile.fit(model, X, Y, batch_size=16, epochs=20, verbose=0)


@pytest.mark.tfperf(max_graph_ops=1500)
def test_broken(tf_profile):
    train(tf_profile, unroll=True)


@pytest.mark.tfperf(max_graph_ops=1500)
def test_fixed(tf_profile):
    train(tf_profile, unroll=False)

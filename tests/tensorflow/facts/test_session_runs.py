"""Traces of TensorFlow 1 sessions, by which servers of saved models run their requests."""

import numpy as np
import tensorflow as tf

from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.trace.logdir import find_traces
from pytest_tfperf.trace.xspace import read_trace


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.weights = tf.Variable(tf.ones((8, 8)))

    @tf.function(input_signature=[tf.TensorSpec([None, 8])])
    def __call__(self, x):
        return tf.nn.relu(x @ self.weights)


def test_each_request_to_a_saved_model_is_a_step(tmp_path):
    model = Model()
    tf.saved_model.save(model, str(tmp_path / "model"), signatures=model.__call__)
    v1 = tf.compat.v1
    with v1.Session(graph=tf.Graph()) as session:
        loaded = v1.saved_model.loader.load(session, ["serve"], str(tmp_path / "model"))
        signature = loaded.signature_def["serving_default"]
        [given], [result] = signature.inputs.values(), signature.outputs.values()
        request = {given.name: np.ones((2, 8), "float32")}
        session.run(result.name, request)
        with tf.profiler.experimental.Profile(str(tmp_path / "log")):
            for _ in range(3):
                session.run(result.name, request)
    [trace] = find_traces(tmp_path / "log")
    steps = find_steps(read_trace(trace))
    assert (len(steps), steps.source, steps.n_dropped) == (3, "session", 0)

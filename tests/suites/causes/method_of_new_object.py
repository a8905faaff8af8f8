"""
tensorflow/tensorflow#31175, #26311: a tf.function that is a method is traced again and again, and memory grows.

Cause: each step makes a new `Agent`, and `self` is part of the signature of a method, so each object has its own trace. Remedy: one object
for all steps, or a function that does not take the object. By hand: a trace in each step, against one.
"""

import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "retraces",
    "where": r"(?is)act.*(self|Agent|object|instance)|(self|Agent|object|instance).*\bact\b",
    "try": r"(?i)(one|same|single) (object|instance|agent)|once|outside|(make|create|build).*before|__eq__|keep",
    "never": r"(?i)reduce_retracing|\bpad\b|drop_remainder|input_signature",
}

WEIGHTS = tf.Variable(tf.random.normal((8, 4)))
STATES = [tf.random.normal((1, 8))] * 4


class Agent:
    def __init__(self, temperature):
        self.temperature = temperature

    @tf.function
    def act(self, state):
        return tf.nn.softmax(state @ WEIGHTS / self.temperature)


@pytest.mark.tfperf(max_retraces=0)
def test_broken(tf_profile):
    def step(state):
        agent = Agent(0.5)
        return agent.act(state)

    tf_profile(step, STATES)


@pytest.mark.tfperf(max_retraces=0)
def test_fixed(tf_profile):
    agent = Agent(0.5)
    tf_profile(lambda state: agent.act(state), STATES)

"""
tensorflow/tensorflow#45984: a function takes a list of tensors, and the list has another length in each call.

Cause: the number of tensors is part of the signature, so each length is another trace. Remedy: one tensor for all of them: stack
them (padded to one length), or make a RaggedTensor.
"""

import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "retraces",
    "where": r"(?i)returns?\b.*rewards.*(list|length|elements|items|\d+ tensors|\d+ → \d+)",
    "try": r"(?i)stack|one tensor|ragged|concat|same length|pad",
    "never": r"(?i)reduce_retracing|Python numbers|create the tf\.function once",
}


@tf.function
def returns(rewards):
    total = tf.zeros(4)
    for reward in rewards:
        total = 0.9 * total + reward
    return total


@tf.function(input_signature=[tf.TensorSpec((None, 4))])
def returns_of_stack(rewards):
    return tf.foldl(lambda total, reward: 0.9 * total + reward, rewards, tf.zeros(4))


EPISODES = [[tf.ones(4)] * length for length in range(3, 80)]


@pytest.mark.tfperf(max_retraces=0)
def test_broken(tf_profile):
    tf_profile(lambda episode: returns(episode), EPISODES, unpack=False)


@pytest.mark.tfperf(max_retraces=0)
def test_fixed(tf_profile):
    tf_profile(lambda episode: returns_of_stack(tf.stack(episode)), EPISODES, unpack=False)

"""
tensorflow/tensorflow#7511 (also rbgirshick/fast-rcnn#40): a detector spends its time in `tf.image.non_max_suppression`.

Cause: all 8,000 boxes compete, each candidate is compared with each box that was chosen, and the op runs on one core. Remedy: keep
the best few hundred by score (`tf.math.top_k`, a score threshold) before. By hand: 45 ms, against 1.4 ms.
"""

import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "step_time",
    "where": r"(?i)non_?max_?suppression",
    "try": r"(?i)top_k|score_threshold|threshold|fewer boxes|best (few|boxes)|max_output_size|combined_non_max",
    "never": r"(?i)larger batch|run_eagerly|tf\.function around",
}

CORNERS = tf.random.stateless_uniform((8_000, 2), seed=(1, 2))
BOXES = tf.concat([CORNERS, CORNERS + 0.01], axis=1)
KERNEL = tf.Variable(tf.random.stateless_normal((64, 1), seed=(3, 4)))
FEATURES = [tf.random.stateless_normal((8_000, 64), seed=(5, number)) for number in range(4)]


def scores_of(features):
    return tf.sigmoid(tf.squeeze(features @ KERNEL, axis=1))


@tf.function
def detect(features):
    scores = scores_of(features)
    return tf.image.non_max_suppression(BOXES, scores, max_output_size=1_500)


@tf.function
def detect_among_best(features):
    scores, best = tf.math.top_k(scores_of(features), 300)
    return tf.image.non_max_suppression(tf.gather(BOXES, best), scores, max_output_size=300)


@pytest.mark.tfperf(max_step_time="12 ms")
def test_broken(tf_profile):
    tf_profile(detect, FEATURES)


@pytest.mark.tfperf(max_step_time="12 ms")
def test_fixed(tf_profile):
    tf_profile(detect_among_best, FEATURES)

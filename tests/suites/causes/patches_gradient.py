"""
tensorflow/tensorflow#13017, #20146: backpropagation through `tf.image.extract_patches` is extremely slow.

Cause: patches of 7 × 7 around each pixel are 49 times the features, and are written and read forwards and backwards. Remedy: the
convolution that patches and a product are (`tf.nn.conv2d`). By hand: 150 ms, against 13 ms.
"""

import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "step_time",
    "where": r"(?i)extract_?(image_?)?patches|patches_gradient\.py:\d+",
    "try": r"(?i)conv",
    "never": r"(?i)larger batch|num_parallel_calls",
}

SIZE = 7
FILTERS = tf.Variable(tf.random.normal((1, 1, 3, 8)))
HEAD = tf.Variable(tf.random.normal((SIZE, SIZE, 8, 16)) / 16)
IMAGES = [tf.random.normal((8, 64, 64, 3))] * 4


def by_patches(features):
    sizes = [1, SIZE, SIZE, 1]
    patches = tf.image.extract_patches(features, sizes, [1] * 4, [1] * 4, "SAME")
    return patches @ tf.reshape(HEAD, (-1, 16))


def by_convolution(features):
    return tf.nn.conv2d(features, HEAD, 1, "SAME")


def training(model):
    @tf.function
    def step(images):
        with tf.GradientTape() as tape:
            features = tf.nn.relu(tf.nn.conv2d(images, FILTERS, 1, "SAME"))
            loss = tf.reduce_mean(model(features) ** 2)
        gradients = tape.gradient(loss, (FILTERS, HEAD))
        for variable, gradient in zip((FILTERS, HEAD), gradients, strict=True):
            variable.assign_sub(1e-4 * gradient)
        return loss

    return step


@pytest.mark.tfperf(max_step_time="45 ms")
def test_broken(tf_profile):
    tf_profile(training(by_patches), IMAGES)


@pytest.mark.tfperf(max_step_time="45 ms")
def test_fixed(tf_profile):
    tf_profile(training(by_convolution), IMAGES)

"""
tensorflow/tensorflow#39623, #16396: reading images for random crops of 120 × 120 is slow, since the images are far larger.

Cause: each image is decoded in full, and 2 % of its pixels are used. Remedy: images that are stored smaller, `decode_jpeg(ratio=…)`,
or `decode_and_crop_jpeg`. Here 800 × 800. By hand: 20 ms of waiting for a step of 6 ms, against 0.3 ms.
"""

import numpy as np
import pytest
import tensorflow as tf
from _step import step

EXPECTED = {
    "metric": "input_bound",
    "where": r"(?i)map.*(crop|data_full_decode\.py:\d+|decode)",
    "try": r"(?i)decode_and_crop|ratio|smaller|resi[zs]e.*(once|before)|two stages|split.*cache|cache.*(before|between|in front)|decod",
    "never": r"(?i)larger batch|vectori[sz]e",
}


def encoded(size):
    waves = np.sin(np.arange(size)[:, None, None] / 7 + np.arange(size)[:, None] / 5)
    noise = np.random.default_rng(0).integers(0, 60, (size, size, 3))
    return tf.io.encode_jpeg(tf.constant((waves * 90 + 100 + noise).astype("uint8"))).numpy()


def crop(image):
    return tf.image.random_crop(tf.io.decode_jpeg(image, channels=3), (120, 120, 3))


def images(size):
    data = tf.data.Dataset.from_tensors(encoded(size)).repeat(1_000)
    data = data.map(crop, num_parallel_calls=2, name="crop")
    return data.map(lambda image: tf.cast(image, tf.float32)).batch(4).prefetch(2)


@pytest.mark.tfperf(max_input_bound="20%")
def test_broken(tf_profile):
    tf_profile(step, images(800))


@pytest.mark.tfperf(max_input_bound="20%")
def test_fixed(tf_profile):
    tf_profile(step, images(150))

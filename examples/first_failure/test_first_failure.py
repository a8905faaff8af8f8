"""A Keras model that waits for its images. The test fails on purpose, to show the message."""

import keras
import pytest
import tensorflow as tf
from images import load

BATCH = 32


@pytest.mark.tfperf(max_input_bound="5%", max_retraces=0)
def test_training_waits_for_no_input(tf_profile):
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    data = tf.data.Dataset.range(10 * BATCH).map(load, name="load").batch(BATCH).repeat()
    tf_profile.fit(model, data, steps_per_epoch=100, shuffle=False, verbose=0)

"""
Profile Keras' loops of TensorFlow on a GPU: plain, compiled by XLA, in bfloat16, and starved.

    pytest benchmarks/gpu_steps/test_keras.py --tfperf-report=run.json
"""

import os
import time

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf

BATCH, PIXELS = 64, int(os.environ.get("TFPERF_PIXELS", 128))


def resnet(precision, **compiling):
    keras.mixed_precision.set_global_policy(precision)
    model = keras.applications.ResNet50(weights=None, input_shape=(PIXELS, PIXELS, 3), classes=10)
    model.compile("sgd", "sparse_categorical_crossentropy", **compiling)
    return model


def transformer(precision, **compiling):
    keras.mixed_precision.set_global_policy(precision)
    inputs = x = keras.Input((128, 512))
    for _ in range(2):
        normal = keras.layers.LayerNormalization()(x)
        x += keras.layers.MultiHeadAttention(8, 64)(normal, normal)
        normal = keras.layers.LayerNormalization()(x)
        x += keras.layers.Dense(512)(keras.layers.Dense(2048, "gelu")(normal))
    outputs = keras.layers.Dense(10)(keras.layers.GlobalAveragePooling1D()(x))
    model = keras.Model(inputs, outputs)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, **compiling)
    return model


def data(*shape):
    x = np.random.default_rng(0).random((BATCH, *shape), "float32")
    batch = tf.data.Dataset.from_tensors((x, np.zeros(BATCH, "int32")))
    return batch.cache().repeat().prefetch(2)


def starved(element, label):
    def wait(label):
        time.sleep(0.05)
        return label

    return element, tf.ensure_shape(tf.numpy_function(wait, [label], tf.int32), [BATCH])


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
def test_transformer(tf_profile, precision, jit):
    tf_profile.fit(transformer(precision, jit_compile=jit), data(128, 512))


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_resnet(tf_profile, precision):
    tf_profile.fit(resnet(precision, jit_compile=False), data(PIXELS, PIXELS, 3))


def test_starved(tf_profile):
    tf_profile.fit(transformer("float32", jit_compile=False), data(128, 512).map(starved))

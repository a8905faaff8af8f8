"""
What the op guide says of models as they are: ResNet50, MobileNetV3Small, EfficientNetV2B0 and a small transformer, in training.

    python benchmarks/op_guide.py [-v]

Every finding is printed, of many alike the first with their number; at the end the time of all four, which is held to 60 s on two cores.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import time
from collections import Counter

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from pytest_tfperf.compiler.op_graph import graph_of
from pytest_tfperf.padding.lint import RULES, findings

BATCH, SIZE, CLASSES, LENGTH, VOCABULARY = 8, 64, 10, 32, 1000
MOST_S = 60.0


def vision(make):
    def model():
        images = np.random.rand(BATCH, SIZE, SIZE, 3).astype("float32")
        return make(weights=None, input_shape=(SIZE, SIZE, 3), classes=CLASSES), images

    return model


def transformer():
    """Two blocks before a dense layer, with dropout and attention as Keras has them."""
    tokens = keras.Input((LENGTH,), dtype="int32")
    x = layers.Embedding(VOCABULARY, 128)(tokens)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 32, dropout=0.1)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(128)(layers.Dense(512, activation="gelu")(x)))
    logits = layers.Dense(CLASSES, activation="softmax")(layers.GlobalAveragePooling1D()(x))
    return keras.Model(tokens, logits), np.random.randint(0, VOCABULARY, (BATCH, LENGTH)).astype("int32")


MODELS = {
    "ResNet50": vision(keras.applications.ResNet50),
    "MobileNetV3Small": vision(keras.applications.MobileNetV3Small),
    "EfficientNetV2B0": vision(keras.applications.EfficientNetV2B0),
    "transformer": transformer,
}


def step_of(make):
    """The graph of a training step, traced and not run."""
    model, inputs = make()
    labels = np.zeros(len(inputs), "int32")
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    return tf.function(model.train_step).get_concrete_function((tf.constant(inputs), tf.constant(labels))).graph


def tell(name, graph, seconds, verbose):
    found = findings(graph)
    counted = Counter(one.level for one in found)
    print(f"\n{name}: {len(graph.ops):,} ops in {seconds:.1f} s; {dict(counted)}")
    for code in RULES:
        alike = [one for one in found if one.code == code]
        for one in alike if verbose else alike[:1]:
            more = "" if verbose or len(alike) == 1 else f" (and {len(alike) - 1} more)"
            print(f"  {code} [{one.level}] {one.op_type} ({one.op}) at {one.line}: {one.what}{more}\n    {one.why}; {one.rewrite}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("-v", "--verbose", action="store_true", help="print findings that are alike one by one")
    verbose = parser.parse_args().verbose
    started = time.perf_counter()
    for name, make in MODELS.items():
        traced = step_of(make)
        begun = time.perf_counter()
        graph = graph_of([traced])
        tell(name, graph, time.perf_counter() - begun, verbose)
    seconds = time.perf_counter() - started
    print(f"\nall four in {seconds:.1f} s, models and their tracing included (at most {MOST_S:g} s)")
    assert seconds <= MOST_S


main()

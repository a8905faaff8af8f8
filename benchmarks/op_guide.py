"""
Apply the op guide and the padding prediction to four models as they are.

    python benchmarks/op_guide.py [-v]

The models are ResNet50, MobileNetV3Small, EfficientNetV2B0 and a small transformer. Their training steps are
traced and not run. It prints every finding (of equal ones the first, with their number) and the cost of tiles on
a TPU. At the end it prints the time of all four, which must be at most 60 s on two cores.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from pytest_tfperf.compiler.lower import lower
from pytest_tfperf.compiler.step_calls import Calls
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.recording import Recording
from pytest_tfperf.tpu.op_guide import RULES, findings
from pytest_tfperf.tpu.padding import padding_values
from pytest_tfperf.tpu.tiles import DEFAULT, generation

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
        x = layers.LayerNormalization()(
            x + layers.Dense(128)(layers.Dense(512, activation="gelu")(x))
        )
    logits = layers.Dense(CLASSES, activation="softmax")(layers.GlobalAveragePooling1D()(x))
    return keras.Model(tokens, logits), np.random.randint(0, VOCABULARY, (BATCH, LENGTH)).astype(
        "int32"
    )


MODELS = {
    "EfficientNetV2B0": vision(keras.applications.EfficientNetV2B0),
    "ResNet50": vision(keras.applications.ResNet50),
    "MobileNetV3Small": vision(keras.applications.MobileNetV3Small),
    "transformer": transformer,
}


def step_of(make):
    """The training step as a concrete function, and its inputs."""
    model, inputs = make()
    data = (tf.constant(inputs), tf.zeros(len(inputs), "int32"))
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    return tf.function(model.train_step).get_concrete_function(data), data


def lowered_of(step, data):
    """The HLO of the step, or the reason why XLA does not make it."""
    calls = Calls()
    calls.add(step, data, step.captured_inputs)
    calls.end_step()
    done = lower(calls, {}, MOST_S)
    return getattr(done, "modules", done)


def shown(found, verbose):
    """Lines about findings."""
    yield f"  {dict(Counter(one.level for one in found))}"
    for code in RULES:
        alike = [one for one in found if one.code == code]
        for one in alike if verbose else alike[:1]:
            more = "" if verbose or len(alike) == 1 else f" (and {len(alike) - 1} more)"
            yield f"  {code} [{one.level}] {one.op_type} ({one.op}): {one.what}{more}\n    {one.why}; {one.rewrite}"


def shown_padding(values, tables):
    for name, value in values.items():
        yield f"  {name}: {value.why if value.number is None else f'{value.low():.3f} to {value.high():.3f}'}"
    for table in tables.values():
        yield f"  {table.title}"
        for row in table.rows[:5]:
            yield "    " + ", ".join(str(cell) for cell in row if cell not in (None, ""))


def told(name, verbose):
    """Report on a model, as text."""
    started = time.perf_counter()
    step, data = step_of(MODELS[name])
    traced = time.perf_counter()
    recording = Recording(name="", trace=None, workload={}, lowered=lowered_of(step, data))
    inlined = Evidence(recording).inlined
    modules = [module for module, _ in inlined]
    in_hlo = time.perf_counter()
    found = findings(modules)
    guided = time.perf_counter()
    padding = padding_values((), generation(DEFAULT), inlined, {})
    n_instructions = sum(
        len(part.instructions) for module in modules for part in module.computations.values()
    )
    seconds = (
        f"{traced - started:.1f} s traced, {in_hlo - traced:.1f} s lowered, "
        f"{guided - in_hlo:.1f} s for its findings, {time.perf_counter() - guided:.1f} s for its padding"
    )
    return "\n".join(
        [
            f"\n{name}: {n_instructions:,} instructions; {seconds}",
            *shown(found, verbose),
            *shown_padding(*padding),
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="print findings that are alike one by one"
    )
    verbose = parser.parse_args().verbose
    started = time.perf_counter()
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for text in pool.map(told, MODELS, [verbose] * len(MODELS)):
            print(text, flush=True)
    seconds = time.perf_counter() - started
    print(f"\nall four in {seconds:.1f} s in two processes (at most {MOST_S:g} s)")
    assert seconds <= MOST_S


if __name__ == "__main__":
    main()

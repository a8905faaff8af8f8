"""
Steps of the models that Keras' own benchmarks of layers build.

The variable SUITE names a module in benchmarks/layer_benchmark of a checkout of Keras; its first three benchmarks run.
"""

import importlib
import os

import numpy as np
import pytest
from benchmarks.layer_benchmark.base_benchmark import LayerBenchmark

SUITE = importlib.import_module(f"benchmarks.layer_benchmark.{os.environ['SUITE']}_benchmark")
NAMES = [name for name in vars(SUITE) if name.startswith("benchmark_")][:3]
BATCH = 20


def model_and_batch(name, monkeypatch):
    """The model of a benchmark, with one batch of data and labels."""
    made = []
    monkeypatch.setattr(
        LayerBenchmark,
        "benchmark_predict",
        lambda self, num_samples, batch_size, data=None: made.append((self, data)),
    )
    monkeypatch.setattr(LayerBenchmark, "benchmark_train", lambda *args, **options: None)
    getattr(SUITE, name)(num_samples=BATCH, batch_size=BATCH)
    ((benchmark, data),) = made
    if data is None:
        shapes, draw = benchmark.input_shape, np.random.default_rng(0)
        nested = isinstance(shapes[0], (tuple, list))
        data = [
            draw.normal(size=(BATCH, *shape)).astype("float32")
            for shape in (shapes if nested else [shapes])
        ]
    model = benchmark._keras_model
    return model, data, model.predict_on_batch(data) * 1.001


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.tfperf(max_regression="5%")
def test_predict(tf_profile, monkeypatch, name):
    model, x, _ = model_and_batch(name, monkeypatch)
    tf_profile(lambda: model.predict_on_batch(x))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.tfperf(max_regression="5%")
def test_train(tf_profile, monkeypatch, name):
    model, x, y = model_and_batch(name, monkeypatch)
    tf_profile(lambda: model.train_on_batch(x, y))

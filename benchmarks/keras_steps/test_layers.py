"""
Steps of the models that Keras' own benchmarks of layers build.

The variable SUITE names a module in benchmarks/layer_benchmark of a checkout of Keras, and NUMBER one of its benchmarks.
"""

import importlib
import os

import numpy as np
import pytest
from benchmarks.layer_benchmark.base_benchmark import LayerBenchmark

SUITE = importlib.import_module(f"benchmarks.layer_benchmark.{os.environ['SUITE']}_benchmark")
NAMES = [name for name in vars(SUITE) if name.startswith("benchmark_")]
NAME = NAMES[int(os.environ["NUMBER"]) % len(NAMES)]
BATCH = 20


@pytest.fixture
def model_and_batch(monkeypatch):
    """The model of the benchmark, with one batch of data and labels."""
    made = []
    monkeypatch.setattr(
        LayerBenchmark,
        "benchmark_predict",
        lambda self, num_samples, batch_size, data=None: made.append((self, data)),
    )
    monkeypatch.setattr(LayerBenchmark, "benchmark_train", lambda *args, **options: None)
    getattr(SUITE, NAME)(num_samples=BATCH, batch_size=BATCH)
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


@pytest.mark.tfperf(max_regression="5%")
def test_predict(tf_profile, model_and_batch):
    model, x, _ = model_and_batch
    tf_profile(lambda: model.predict_on_batch(x))


@pytest.mark.tfperf(max_regression="5%")
def test_train(tf_profile, model_and_batch):
    model, x, y = model_and_batch
    tf_profile(lambda: model.train_on_batch(x, y))

"""Keras loops on PyTorch: times, memory and retraces are known, all else says why not."""

import os
from itertools import count

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import pytest

X = np.random.default_rng(0).random((256, 64), "float32")
Y = np.arange(256) % 10
WHY = "the step ran on PyTorch, which tfperf times and does not trace"


def network(**how):
    model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(10)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), **how)
    return model


def test_times_are_known_and_counts_are_not(tf_profile):
    found = tf_profile.fit(network(), X, Y, batch_size=8, epochs=4, verbose=0)
    assert found.step_time > 0
    assert found.value("first_step_time").number > 0
    assert found.value("throughput").detail["examples_per_step"] == 8
    assert found.retraces == 0
    assert {
        found.value(name).why
        for name in ("flops", "xla_compiles", "input_wait", "graph_ops", "eager_ops")
    } == {WHY}
    assert "PyTorch" in tf_profile._test.environment()["platform"]


def test_a_function_that_torch_compiles_again_is_a_retrace(tf_profile):
    import torch

    step, sizes = torch.compile(lambda x: x * 2, backend="eager", dynamic=False), count(2)
    found = tf_profile(
        lambda: step(torch.ones(next(sizes))), warmup=1, steps=2, trace_steps=2, name="grows"
    )
    n_calls = next(sizes) - 2
    assert found.retraces == min(n_calls, 8) - 1  # then torch no longer compiles the function


@pytest.mark.tfperf(max_retraces=0)
def test_the_marker_alone():
    network().fit(X, Y, batch_size=8, epochs=4, verbose=0)


def test_bracketed_steps_are_an_error(tf_profile):
    with (
        pytest.raises(Exception, match="steps of PyTorch are not traced"),
        tf_profile.trace() as trace,
        trace.step(),
    ):
        network().predict(X[:8], verbose=0)


def test_a_loop_is_compared_with_the_same_step_in_pytorch_s_words(tf_profile):
    found = tf_profile.compare_backends(network, (X, Y), backends=["torch"])
    rows = {row[0]: row[1:] for row in found.table().rows}
    assert found.variants == ("torch", "torch bare")
    assert [cell is not None for cell in rows["Keras' loop adds"]] == [True, False]
    assert rows["retraces"] == ("0", "0")
    assert "xla_launches" not in rows

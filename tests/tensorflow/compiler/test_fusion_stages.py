"""HLO before and after fusion: a real step in a process of its own, and a process that fails in each way."""

import re
import subprocess
import sys
import tempfile

import keras
import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.compiler import xla_fusion_dump as module
from pytest_tfperf.compiler.step_calls import Calls, calls_recorded
from pytest_tfperf.compiler.xla_fusion_dump import fusion_stages
from pytest_tfperf.errors import CaptureError

X = tf.ones((8, 4))


@pytest.fixture(scope="module", autouse=True)
def kernels():
    tf.function(lambda x: x + 1, jit_compile=True)(1.0)  # as every profile has done before


def calls_of(step, size=1):
    step()
    with calls_recorded() as calls:
        step()
        calls.end_step(size)
    return calls


def instructions(module):
    return [op for part in module.computations.values() for op in part.instructions.values()]


def fusions(module):
    return sum(op.opcode == "fusion" for op in instructions(module))


@pytest.fixture(scope="module")
def dense():
    weights, bias = tf.Variable(tf.random.normal((4, 16))), tf.Variable(tf.zeros(16))
    inner = tf.function(lambda y: tf.nn.relu(y + bias) * 2)

    @tf.function(jit_compile=True)
    def dense(x):
        weights.assign_sub(0.1 * weights)
        return tf.reduce_sum(inner(x @ weights), axis=1)

    return dense


@pytest.fixture(scope="module")
def stages(dense, tmp_path_factory, processes):
    """Of a step that calls two functions; the folder's name has a space in it."""

    @tf.function
    def normalised(
        image, kernel
    ):  # the CPU's library takes such means, before the pass named fusion
        hidden = tf.nn.conv2d(image, kernel, 2, "SAME")
        mean, variance = tf.nn.moments(hidden, [0, 1, 2])
        return (hidden - mean) / variance

    image, kernel = tf.ones((8, 64, 64, 3)), tf.ones((3, 3, 3, 32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("a folder")))
        return fusion_stages(calls_of(lambda: (dense(X), normalised(image, kernel))), {}, 120)


@pytest.mark.full
def test_each_function_has_its_stages(stages, dense):
    assert sorted(stage.name for stage in stages) == ["dense", "normalised"]
    assert [fusions(stage.before_module) for stage in stages] == [0, 0]
    assert all(fusions(stage.after_module) > 0 for stage in stages)
    stage = next(stage for stage in stages if stage.name == "dense")
    optimised = dense.experimental_get_compiler_ir(X)(stage="optimized_hlo")
    assert fusions(stage.after_module) == optimised.count(" fusion(") > 0
    sizes = {op.shape.dimensions for op in instructions(stage.before_module)}
    assert {(8, 4), (4, 16)} <= sizes


@pytest.mark.full
def test_a_keras_model_that_trains(processes):
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]
    )
    model.compile("adam", "mse", jit_compile=True)
    data = tf.data.Dataset.from_tensor_slices((np.ones((16, 4), "f"), np.ones((16, 1), "f"))).batch(
        8, drop_remainder=True
    )
    calls = calls_of(lambda: model.fit(data, shuffle=False, verbose=0), size=2)
    (stage,) = fusion_stages(calls, {"batch": 8}, 120)
    # all of it but fetching
    assert (stage.name, fusions(stage.before_module)) == ("multi_step_on_iterator", 0)
    assert fusions(stage.after_module) > 3


UNCOMPILED = {
    "unknown": (lambda: Calls(why="it is not known"), "it is not known"),
    "no step": (Calls, "the step calls no tf.function"),
    "no call": (lambda: calls_of(lambda: None), "the step calls no tf.function"),
    "nothing": (
        lambda: calls_of(lambda: tf.function(lambda x: x)(X)),
        "the step calls no tf.function that computes",
    ),
    "Python": (
        lambda: calls_of(
            lambda: tf.function(lambda x: tf.py_function(lambda y: y, [x], tf.float32))(X)
        ),
        "EagerPyFunc",
    ),
}


def test_what_cannot_be_compiled_is_said():
    for calls, words in UNCOMPILED.values():
        match = f"no HLO before and after fusion.*{re.escape(words)}"
        with pytest.raises(CaptureError, match=match):
            fusion_stages(calls(), {}, 10)


FAILING = [
    (
        "import sys; print('\\n'.join(map(str, range(20))), file=sys.stderr); sys.exit(3)",
        r"failed with status 3:\n  10\n  11\n(.*\n)*  19\Z",
    ),
    ("import os; os.kill(os.getpid(), 9)", r"failed with status -9\Z"),
    (
        "import time, sys; print('compiling', file=sys.stderr, flush=True); time.sleep(60)",
        r"takes longer than 0\.5 s",
    ),
]


@pytest.mark.full
def test_a_process_that_fails_is_said_with_its_last_words(dense, monkeypatch, processes):
    run, calls = subprocess.run, calls_of(lambda: dense(X))
    for script, words in FAILING:
        monkeypatch.setattr(
            module.subprocess,
            "run",
            lambda command, script=script, **options: run(
                [sys.executable, "-c", script], **options
            ),
        )
        with pytest.raises(CaptureError, match="compiling the step again " + words):
            fusion_stages(calls, {}, 0.5 if "sleep" in script else 60)


def test_flags_of_the_user_stay(monkeypatch, tmp_path):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert module._environment(tmp_path)["XLA_FLAGS"].startswith(
        f' --xla_dump_to="{tmp_path}/dump" '
    )
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1")
    assert module._environment(tmp_path)["XLA_FLAGS"].startswith("--xla_a=1 --xla_dump_to=")
    (tmp_path / "flags").write_text("--xla_b=2\n")
    monkeypatch.setenv("XLA_FLAGS", str(tmp_path / "flags"))
    assert module._environment(tmp_path)["XLA_FLAGS"].startswith("--xla_b=2\n --xla_dump_to=")


def test_a_dump_without_a_pass_that_fuses_is_said(tmp_path):
    names = [
        "module_0000.f.0000.passes.after_a.before_b.txt",
        "module_0000.f.before_optimizations.txt",
    ]
    for dumped in (names, []):
        with pytest.raises(
            CaptureError,
            match="XLA dumped nothing around a fusion pass when it compiled f again",
        ):
            module._stage("f", tmp_path, dumped)

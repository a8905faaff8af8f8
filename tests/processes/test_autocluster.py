"""What XLA does in tests with autocluster=True, counted by hand: the real thing, in processes with TensorFlow's flags."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import pytest

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]
SUITE = """
import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

FEW = dict(warmup=2, steps=4, trace_steps=3)
ONES = tf.ones((64, 64))
v1 = tf.compat.v1

def chain(x):  # more than the four ops that make a cluster
    return tf.tanh(tf.exp(tf.sin(x) + 1) * 2)

def test_stays(tf_profile):
    assert tf_profile(tf.function(chain), [ONES] * 4, **FEW).xla_clusters == 0

def in_session(tf_profile, level, name):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (64, 64))
        y = chain(x)
    options = v1.OptimizerOptions(global_jit_level=level)
    config = v1.ConfigProto(graph_options=v1.GraphOptions(optimizer_options=options))
    with v1.Session(graph=graph, config=config) as session:
        tf_profile(lambda: session.run(y, {x: np.ones((64, 64), np.float32)}), name=name, **FEW)

def clusters_of(call):  # as TensorFlow itself counts them, in the graphs that it runs
    context.context().clear_kernel_cache()
    context.enable_run_metadata()
    call()
    graphs = context.export_run_metadata().partition_graphs
    context.disable_run_metadata()
    return sum(node.op == "_XlaRun" for graph in graphs for node in graph.node)

@pytest.mark.tfperf(autocluster=True)
def test_counts(tf_profile):
    profile = lambda name, step, data: tf_profile(step, data, name=name, **FEW)
    profile("plain", tf.function(chain), [ONES] * 4)

    @tf.function
    def with_strings(x):
        return chain(tf.strings.to_number(tf.strings.as_string(chain(x))))

    profile("strings", with_strings, [ONES] * 4)

    @tf.function
    def left_out(x):
        x = chain(x)
        with tf.xla.experimental.jit_scope(compile_ops=False):
            x = tf.matmul(x, x)
        return chain(x)

    profile("left out", left_out, [ONES] * 4)

    @tf.function
    def scope(x):
        with tf.xla.experimental.jit_scope():
            x = chain(x)
        return chain(x)

    profile("scope", scope, [ONES] * 4)
    in_session(tf_profile, v1.OptimizerOptions.ON_1, "session on")
    in_session(tf_profile, v1.OptimizerOptions.DEFAULT, "session")

    def of_any_shape():
        return tf.function(chain, input_signature=[tf.TensorSpec((None, None))])

    profile("ever new shapes", of_any_shape(), [tf.ones((n, n)) for n in range(8, 60)])
    profile("two shapes", of_any_shape(), [tf.ones((8, 8)), tf.ones((9, 9))] * 2)
    model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    x, y = np.ones((400, 8), np.float32), np.ones((400, 1), np.float32)
    fit = tf_profile.fit(model, x, y, name="fit", batch_size=8, epochs=9, verbose=0, warmup=2, trace_steps=3)
    assert fit.xla_clusters == clusters_of(lambda: model.fit(x[:8], y[:8], batch_size=8, verbose=0))

@pytest.mark.tfperf(autocluster=True, xla_clusters=2)
def test_limit(tf_profile):
    tf_profile(tf.function(chain), [ONES] * 4, **FEW)
"""
# clusters and launches in a step, compilations after the first step
AUTOCLUSTERED = {
    "plain": (1, 1, 0),
    "strings": (2, 2, 0),
    "left out": (2, 2, 0),
    "scope": (1, 1, 0),
    "session on": (1, 1, 0),
    "session": (1, 1, 0),
    "ever new shapes": (
        0,
        0,
        0,
    ),  # compiled for the first shape; TensorFlow's own kernels run the others
    "two shapes": (1, 1, 1),
    "fit": (2, 2, 0),  # the optimizer's, and the model's
}
ASKED_FOR = dict.fromkeys(AUTOCLUSTERED, (0, 0, 0)) | {"scope": (1, 1, 0), "session on": (1, 1, 0)}


def run(folder, flags, *arguments):
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name != "TF_XLA_FLAGS"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore",
        "--tfperf-report=run.json",
        *arguments,
    ]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment | flags | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
    )
    tests = {test["key"]: test for test in json.loads((folder / "run.json").read_text())["tests"]}
    return SimpleNamespace(output=done.stdout, status=done.returncode, tests=tests)


def counted(test):
    """xla_clusters, xla_launches and xla_compiles of each profile."""
    names = ("xla_clusters", "xla_launches", "xla_compiles")
    return {
        profile["name"]: tuple(profile["metrics"][name]["value"] for name in names)
        for profile in test["profiles"]
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("autocluster")
    (folder / "test_suite.py").write_text(SUITE)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return folder


@pytest.fixture(scope="module")
def recorded(folder):
    """All tests, recorded."""
    return run(folder, {}, "--tfperf-update", "--junitxml=junit.xml")


@pytest.fixture(scope="module")
def compared(folder, recorded):
    """One of them with a flag of the user's, compared with what was recorded."""
    flags = {"TF_XLA_FLAGS": "--tf_xla_auto_jit=0"}
    return run(
        folder, flags, "-n1", "--tfperf-baseline", "--tfperf-only=structural", "-v", "-k", "counts"
    )


def test_what_is_clustered_is_counted(recorded):
    assert counted(recorded.tests["test_counts"]) == AUTOCLUSTERED


def test_a_broken_limit_shows_where_the_run_began(recorded, folder):
    assert recorded.status == 1
    assert "test_suite.py ..P" in recorded.output
    assert "xla_clusters is 1, not 2 (xla_clusters=2)" in recorded.output
    assert "tfperf: 0 checks passed, 1 failed" in recorded.output
    assert ET.parse(folder / "junit.xml").getroot().find("testsuite").get("failures") == "1"


def test_the_flags_are_in_the_record_of_the_test_alone(recorded):
    flags = {
        key: test["environment"]["setting"]["tf_xla_flags"] for key, test in recorded.tests.items()
    }
    ours = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"
    assert flags == {"test_stays": "", "test_counts": ours, "test_limit": ours}


def test_baselines_are_written_where_the_run_began(recorded, folder):
    assert "baseline: 10 entries written for 2 passing tests" in recorded.output
    entries = json.loads((folder / "__tfperf__" / "test_suite.json").read_text())
    assert "test_counts/two shapes" in str(entries)


@pytest.mark.nightly
def test_a_flag_of_the_user_s_wins_and_is_said(compared):
    """With auto_jit=0 only what the program itself asks for is clustered: a scope, a session with a level."""
    assert counted(compared.tests["test_counts"]) == ASKED_FOR
    said = "TF_XLA_FLAGS had --tf_xla_auto_jit=0, which autocluster=True left (--tf_xla_auto_jit=2 is its own)"
    assert all(said in profile["notes"] for profile in compared.tests["test_counts"]["profiles"])
    assert f"test_counts/fit: {said}" in compared.output  # the last of those that it concerns


@pytest.mark.nightly
def test_the_baseline_is_compared_in_the_process_and_the_flags_are_what_changed(compared):
    """The process is that of an xdist worker's test here."""
    assert compared.status == 1
    checks = compared.tests["test_counts"]["checks"]
    [lost] = [
        one for one in checks if one["metric"] == "xla_clusters" and one["profile"] == "plain"
    ]
    assert lost["sentence"].startswith("XLA no longer compiles AddV2, Exp, Mul, Sin, Tanh")
    assert lost["sentence"].endswith(": xla_clusters fell from 1 to 0")
    assert (
        "changed besides: tf_xla_flags --tf_xla_auto_jit=2 --tf_xla_cpu_global_jit → "
        in compared.output
    )

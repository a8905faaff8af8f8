"""Padding as a user meets it: a tf.function and a Keras model under limits, for the TPU that is named."""

import json

import pytest

from pytest_tfperf.runs import Run

MODEL = """
import keras

def build(channels):
    layers = [keras.layers.Conv2D(channels, 3, padding="same", activation="relu") for _ in range(2)]
    model = keras.Sequential([keras.Input((32, 32, 3)), *layers, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model

def images(batch):
    return np.zeros((6 * batch, 32, 32, 3), "float32"), np.zeros(6 * batch)

@pytest.mark.tfperf(max_padding_overhead="10%", tpu="v6e")
def test_fit(tf_profile):
    profile = tf_profile.fit(build(20), *images(100), batch_size=100, verbose=0, warmup=1, trace_steps=2)
    assert profile.tables["padding"].title == "Padding on a TPU v6e (predicted)"
    arrays = profile.tables["padding"].records()
    activations = [row for row in arrays if row["shape"].startswith("f32[100,32,32,")]
    logical, padded = (sum(row[key] for row in activations) for key in ("bytes", "padded_bytes"))
    assert (logical, padded) == (25804800, 39845888)
    assert round(padded / logical - 1, 6) == 0.544127
    assert all(row["line"].startswith("test_suite.py:") for row in activations)
"""


@pytest.mark.full
def test_a_keras_model_fails_its_limit_with_line_and_sizes(suite):
    suite.gives(
        MODEL,
        "*padding_overhead is between 5* % and 5* % on a TPU v6e (predicted; only a compiler for TPUs decides the layouts), above the limit of 10 % *",
        "  where: most in convolution *Conv2D* at test_suite.py:*: f32*100,32,32,20* takes f32*128,32,32,24*{0,3,2,1:T(8,128)}",
        "  try: 100 → 128, 20 → 24: saves 4.19 MiB",
        failed=1,
    )


FUNCTION = """
@tf.function
def step(x, w):
    return tf.matmul(x, w)

def data(m, n):
    return [(tf.ones((m, 1024)), tf.ones((1024, n)))] * 3

@pytest.mark.tfperf(max_padding_overhead="10%", **STEP_ARGUMENTS)
def test_aligned(tf_profile):
    assert tf_profile(step, data(128, 128), unpack=True).padding_overhead == 0

@pytest.mark.tfperf(max_padding_overhead="10%", max_mxu_padding_overhead=0, **STEP_ARGUMENTS)
def test_open(tf_profile):
    tf_profile(step, data(128, 9), unpack=True)
"""


def test_between_the_bounds_a_limit_is_unknown(suite, processes):
    suite.write(FUNCTION)
    result = suite("--tfperf-report=run.json", "-o", "tfperf_tpu=v4")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*mxu_padding_overhead is * on a TPU v4 (predicted), above the limit of 0 % *"]
    )
    run = Run.from_json(json.loads((suite.path / "run.json").read_text()), "run.json")
    verdicts = [(check.metric, check.verdict.value) for test in run.tests for check in test.checks]
    assert verdicts == [
        ("padding_overhead", "PASS"),
        ("padding_overhead", "UNKNOWN"),
        ("mxu_padding_overhead", "FAIL"),
    ]


UNASKED = """
from pytest_tfperf import UnknownMetric

@tf.function
def step(x, w):
    return tf.transpose(tf.matmul(x, w))

DATA = [(tf.ones((128, 1024)), tf.ones((1024, 9)))] * 3
NAMES = ["op_guide_findings", "padding_overhead", "mxu_padding_overhead"]

def asked(tf_profile):
    profile = tf_profile(step, DATA, unpack=True, **STEP_ARGUMENTS)
    found = [name for name in NAMES if profile.value(name).is_asked]
    for name in set(NAMES) - set(found):
        with pytest.raises(UnknownMetric, match="it is about TPUs, .* neither tpu= "):
            getattr(profile, name)
    return found

def test_nothing(tf_profile, pytestconfig):
    assert asked(tf_profile) == (NAMES if pytestconfig.getini("tfperf_tpu") else [])

@pytest.mark.tfperf(max_retraces=0)
def test_another_limit(tf_profile):
    assert asked(tf_profile) == []

@pytest.mark.tfperf(tpu="v5e")
def test_generation(tf_profile):
    assert asked(tf_profile) == NAMES

@pytest.mark.tfperf(max_op_guide_findings=9)
def test_findings(tf_profile):
    assert asked(tf_profile) == NAMES[:1]

@pytest.mark.tfperf(ignore_findings="TRANSPOSE")
def test_ignored(tf_profile):
    assert asked(tf_profile) == NAMES[:1]

@pytest.mark.tfperf(max_padding_overhead=99)
def test_padding(tf_profile):
    assert asked(tf_profile) == NAMES[1:]
"""
ALL = {"op_guide_findings", "padding_overhead", "mxu_padding_overhead"}


def test_metrics_about_tpus_are_recorded_where_something_asks_for_them(suite, processes):
    def recorded():
        [file] = (suite.path / "__tfperf__").glob("*.json")
        tests = json.loads(file.read_text())["tests"]
        assert {test["program"]["retraces"] for test in tests.values()} == {0}
        return {name: ALL & set(test["program"]) for name, test in tests.items()}

    suite.write(UNASKED)
    suite("--tfperf-update").assert_outcomes(passed=6)
    assert recorded() == {
        "test_nothing": set(),
        "test_another_limit": set(),
        "test_generation": ALL,
        "test_findings": {"op_guide_findings"},
        "test_ignored": {"op_guide_findings"},
        "test_padding": ALL - {"op_guide_findings"},
    }
    only = ("-k", "nothing", "-o", "tfperf_tpu=v4")
    suite("--tfperf-update", *only).assert_outcomes(passed=1, deselected=5)
    assert recorded()["test_nothing"] == ALL


def test_a_generation_that_there_is_not_is_told_the_nearest(suite):
    suite.gives(
        "@pytest.mark.tfperf(tpu='v6')\ndef test_it(tf_profile): tf_profile(lambda: 1, **STEP_ARGUMENTS)\n",
        "*tpu: 'v6' is not a TPU generation; did you mean 'v6e'?*",
        errors=1,
    )
    assert "tfperf_tpu: 'v9' is not a TPU generation" in "\n".join(
        suite("-o", "tfperf_tpu=v9").errlines
    )

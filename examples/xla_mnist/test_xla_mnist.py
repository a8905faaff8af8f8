"""A training step as one XLA executable, launched once a step and never compiled again."""

import shutil

import pytest
import softmax
import tensorflow as tf


@pytest.fixture(scope="module")
def data():
    return (
        tf.data.Dataset.from_tensor_slices(softmax.digits())
        .batch(softmax.BATCH, drop_remainder=True)
        .cache()
        .prefetch(2)
    )


@pytest.fixture(scope="module")
def batch(data):
    return next(iter(data))


@pytest.mark.tfperf(xla_clusters=0, xla_launches=0, max_xla_coverage=0, max_retraces=0)
def test_without_xla_every_op_runs_by_itself(tf_profile, data, tmp_path):
    profile = tf_profile(softmax.training_step(jit_compile=False), data)
    assert profile.fusions == 0
    assert profile.graph_ops > 10
    tf_profile.export(tmp_path / "plain.json.gz")


@pytest.mark.tfperf(
    xla_clusters=1, xla_launches=1, max_xla_compiles=0, min_xla_coverage=1, max_retraces=0
)
def test_with_xla_the_step_is_one_executable(tf_profile, data, tmp_path):
    profile = tf_profile(softmax.training_step(jit_compile=True), data)
    assert profile.fusions >= 1
    tf_profile.export(tmp_path / "xla.json.gz")


def test_pictures_of_the_fusions(tf_profile, data, tmp_path):
    tf_profile(softmax.training_step(jit_compile=True), data)
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    ending = "svg" if shutil.which("dot") else "dot"  # Graphviz draws the picture
    for stage in ("unoptimized", "optimized"):
        tf_profile.export(pictures / f"{stage}.{ending}", stage=stage)
        tf_profile.export(pictures / f"{stage}.txt", stage=stage)
    assert " fusion(" in (pictures / "optimized.txt").read_text()
    assert " fusion(" not in (pictures / "unoptimized.txt").read_text()


def test_speedup_over_plain_tensorflow(tf_profile, batch, record_property):
    plain, compiled = (
        softmax.training_step(jit_compile=False),
        softmax.training_step(jit_compile=True),
    )
    found = tf_profile.compare({"plain": lambda: plain(*batch), "xla": lambda: compiled(*batch)})
    assert found.profiles["plain"].xla_clusters == 0
    assert found.profiles["xla"].xla_clusters == 1
    record_property("comparison", str(found))  # step times and ratio, for pytest --junitxml
    # a loose bound: the gain of XLA depends on the machine
    assert found.speedup("xla", over="plain").low > 0.1

"""`tf_profile.export`: timelines and HLO of what was profiled."""

import gzip
import json
import re

import pytest
import tensorflow as tf

from pytest_tfperf.errors import CaptureError, ExportError

X = tf.ones((16, 16))


@pytest.fixture
def compiled(profile):
    weight = tf.Variable(tf.ones((16, 16)))
    profile(tf.function(lambda: tf.reduce_sum(tf.nn.relu(X @ weight + 1.0)), jit_compile=True))
    return profile


def test_a_timeline(compiled, tmp_path):
    compiled.export(tmp_path / "t.json.gz")
    events = json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))["traceEvents"]
    assert any(
        "matmul" in event.get("name", "").lower() or "dot" in event.get("name", "")
        for event in events
    )


@pytest.mark.full
def test_hlo_at_every_stage(processes, compiled, tmp_path):
    n_fusions = {}
    for stage in ("unoptimized", "before_fusion", "after_fusion", "optimized"):
        compiled.export(tmp_path / f"{stage}.txt", stage=stage)
        n_fusions[stage] = len(re.findall(r" fusion\(", (tmp_path / f"{stage}.txt").read_text()))
    assert n_fusions["unoptimized"] == n_fusions["before_fusion"] == 0
    assert n_fusions["after_fusion"] == n_fusions["optimized"] == compiled.profile.fusions > 0


def test_a_graph_by_its_name(compiled, tmp_path):
    compiled(lambda: X @ X, name="eager")
    compiled.export(str(tmp_path / "step.dot"), name="")
    assert (tmp_path / "step.dot").read_text().startswith("digraph")
    with pytest.raises(CaptureError, match=r"no XLA executable.*jit_compile=True"):
        compiled.export(tmp_path / "eager.dot")
    with pytest.raises(CaptureError, match=r"calls? no tf\.function|called no tf\.function"):
        compiled.export(tmp_path / "eager.dot", stage="unoptimized")


def test_what_cannot_be_exported(profile, tmp_path):
    with pytest.raises(CaptureError, match="made no profile yet"):
        profile.export(tmp_path / "t.json")
    profile(lambda: X @ X, name="one")
    with pytest.raises(CaptureError, match=r"no profile named 'two'.*valid: one"):
        profile.export(tmp_path / "t.json", name="two")
    with pytest.raises(CaptureError, match=r"no stage 'optimised'; did you mean 'optimized'"):
        profile.export(tmp_path / "t.txt", stage="optimised")
    with pytest.raises(ExportError, match="no format has this ending"):
        profile.export(tmp_path / "t.png")

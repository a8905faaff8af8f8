"""Auto-clusters of real steps: what is in them, as counted by hand, and how many ran."""

import json
import os
import subprocess
import sys

import pytest
from helpers.paths import SUITES

from pytest_tfperf.op_types import DYNAMIC, LEFT_OUT, PYTHON, RANDOM, TEXT

SCRIPT = SUITES / "autoclustered.py"
FLAGS = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"
pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]


@pytest.fixture(scope="module")
def steps():
    environment = os.environ | {"TF_XLA_FLAGS": FLAGS, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, SCRIPT], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# steps: how many nodes are in each of their clusters, and why how many nodes are in none
COUNTED = {
    "plain": ([6], {}),  # a block is twice MatMul, Tanh, AddV2
    "split": ([6, 8], {PYTHON: 1}),  # Exp and AddV2 with the second
    # Reshape with the second; StridedSlice, Reshape, Relu, AddV2 with the third
    "split_thrice": ([6, 9, 10], {PYTHON: 1, DYNAMIC: 1}),
    "text": ([6, 6], {TEXT: 2}),
    "merged": ([9], {}),  # with MatMul and Relu of what the user asked for, and AddV2
    "scoped": ([2, 2], {PYTHON: 1}),  # Sin and Mul; Sin and ReverseV2
    "train": ([19], {}),
    "small": ([], {LEFT_OUT: 1}),
    "drawn": ([7], {RANDOM: 1}),
}


def test_nodes_are_in_clusters_as_counted_by_hand(steps):
    for name, (inside, outside) in COUNTED.items():
        step = steps[name]
        assert (step["n_clusters"], sum(step["inside"].values())) == (len(inside), sum(inside)), (
            name
        )
        whys = [op["why"] for op in step["outside"]]
        assert {why: whys.count(why) for why in whys} == outside, name
        assert step["coverage"] == (sum(inside) / (sum(inside) + len(whys))), name


def test_each_cluster_runs_as_an_executable(steps):
    for name in (*COUNTED.keys() - {"small"}, "loop", "keras"):
        assert len(steps[name]["ran"]) == steps[name]["n_clusters"], name
        assert steps[name]["coverage"] is not None, name


def test_what_the_user_asked_for_is_inside_also_in_clusters_of_its_own(steps):
    step = steps["nested"]
    assert (step["inside"], step["outside"]) == ({"MatMul": 3, "Relu": 3}, [])
    assert step["coverage"] == 1.0


def test_ops_are_counted_as_without_clusters(steps):
    assert steps["plain"]["after"] == {"MatMul": 2, "Tanh": 2, "AddV2": 2, "Const": 1}
    assert steps["merged"]["after"]["Relu"] == 1
    assert steps["scoped"]["after"]["Sin"] == 2


def test_looking_changes_nothing(steps):
    for step in steps.values():
        assert step["again"] == step["inside"]


def test_coverage_is_unknown_if_a_cluster_did_not_run_after_shapes_changed(steps):
    step = steps["dynamic"]
    assert (step["n_clusters"], step["ran"], step["coverage"]) == (1, [], None)
    assert step["why"].startswith("1 of 1 auto-clusters did not run in the traced steps")


def test_a_line_of_the_users_is_named(steps):
    lines = SCRIPT.read_text("utf-8").splitlines()
    (op,) = [op for op in steps["split"]["outside"] if op["op_type"] == "EagerPyFunc"]
    assert "tf.py_function" in lines[int(op["line"].removeprefix("autoclustered.py:")) - 1]

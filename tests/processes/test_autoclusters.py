"""Auto-clusters of real steps: what is in each, as counted by hand and as their executables say."""

import json
import os
import subprocess
import sys

import pytest
from helpers.paths import SUITES

from pytest_tfperf.op_types import DYNAMIC, FELL_BACK, LEFT_OUT, PYTHON, RANDOM, TEXT

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
        assert sorted(map(len, step["clusters"])) == inside, name
        whys = [op["why"] for op in step["outside"]]
        assert {why: whys.count(why) for why in whys} == outside, name
        assert step["coverage"] == (sum(inside) / (sum(inside) + len(whys))), name


def test_an_executable_has_the_ops_of_one_cluster(steps):
    for name in (*COUNTED.keys() - {"small"}, "loop", "keras"):
        step = steps[name]
        clusters = list(map(set, step["clusters"]))
        found = [[len(cluster & set(ran)) for cluster in clusters] for ran in step["ran"]]
        each = (name, found, step["clusters"], step["ran"])
        assert all(sum(map(bool, shared)) == 1 for shared in found), each
        assert len(step["ran"]) == len(clusters), name
        assert all(any(shared[n] for shared in found) for n in range(len(clusters))), each


def test_what_the_user_asked_for_is_inside_also_in_clusters_of_its_own(steps):
    step = steps["nested"]
    assert (sum(map(len, step["clusters"])), step["outside"], step["coverage"]) == (6, [], 1.0)


def test_ops_are_counted_as_without_clusters(steps):
    assert steps["plain"]["after"] == {"MatMul": 2, "Tanh": 2, "AddV2": 2, "Const": 1}
    assert steps["merged"]["after"]["Relu"] == 1
    assert steps["scoped"]["after"]["Sin"] == 2


def test_what_auto_clustering_found_is_not_asked_for(steps):
    assert not any(asked for step in steps.values() for asked in step["asked"])


def test_looking_changes_nothing(steps):
    for step in steps.values():
        assert step["again"] == sorted(step["clusters"])


def test_a_cluster_that_did_not_run_after_shapes_changed_is_outside(steps):
    step = steps["dynamic"]
    assert len(step["clusters"]) == 1
    assert (step["ran"], step["coverage"]) == ([], 0.0)
    assert FELL_BACK in step["where"]


def test_a_line_of_the_users_is_named(steps):
    lines = SCRIPT.read_text("utf-8").splitlines()
    (op,) = [op for op in steps["split"]["outside"] if op["op_type"] == "EagerPyFunc"]
    assert "tf.py_function" in lines[int(op["line"].removeprefix("autoclustered.py:")) - 1]

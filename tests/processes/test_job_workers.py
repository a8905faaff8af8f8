"""`tf_profile.workers` of a real MultiWorkerMirroredStrategy on this machine."""

import json

import pytest

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("processes")]

JOB = '''
import json, os, signal, time

import numpy as np
import pytest
import tensorflow as tf

def index():
    return json.loads(os.environ["TF_CONFIG"])["task"]["index"]

def own_loop(tf_profile, happens=lambda n_step: None):
    """A loop with real gradients, in which something may happen in a worker."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        weights = tf.Variable(tf.ones((64, 64)))
    elements = tf.data.Dataset.from_tensors(tf.ones((4, 64))).repeat()
    data = strategy.experimental_distribute_dataset(elements)

    def replica(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.matmul(x, weights) ** 2)
        gradient = tape.gradient(loss, weights)
        context = tf.distribute.get_replica_context()
        weights.assign_sub(1e-4 * context.all_reduce("MEAN", gradient))

    train = tf.function(lambda x: strategy.run(replica, args=(x,)))
    n_steps = iter(range(10**6))

    def step(x):
        train(x)
        happens(next(n_steps))

    return tf_profile(step, data, warmup=5, steps=20, trace_steps=8)
'''

STRAGGLER = """
@pytest.mark.tfperf(max_step_skew="100%")
def test_straggler(tf_profile):
    slow = lambda n_step: time.sleep(0.1 if index() == 1 else 0)
    found = tf_profile.workers(3, lambda: own_loop(tf_profile, slow))
    assert [one.name for one in found] == ["worker 0", "worker 1", "worker 2"]
"""

KERAS_2 = """
def test_fit(tf_profile):
    def fit():
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with strategy.scope():
            model = tf.keras.Sequential([tf.keras.layers.Dense(4)])
            model.compile("sgd", "mse")
        x, y = np.ones((64, 8), "float32"), np.ones((64, 4), "float32")
        return tf_profile.fit(model, x, y, batch_size=8, epochs=20, verbose=0, shuffle=False)

    found = tf_profile.workers(2, fit, name="keras")
    assert [one.name for one in found] == ["keras worker 0", "keras worker 1"]
    assert len(found[0].steps) == len(found[1].steps) > 0
    assert found[0].step_skew >= 0
"""

TROUBLE = """
def test_dies(tf_profile):
    def die(n_step):
        if n_step == 20 and index() == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    tf_profile.workers(2, lambda: own_loop(tf_profile, die))

def test_fails(tf_profile):
    def fail(n_step):
        if n_step == 20 and index() == 0:
            raise ValueError("a bad step")

    tf_profile.workers(2, lambda: own_loop(tf_profile, fail))
"""


def run(pytester, tests):
    pytester.makepyfile(JOB + tests)
    options = ("-Wignore", "-p", "no:cacheprovider", "--tfperf-report=run.json")
    result = pytester.runpytest_subprocess(*options)
    content = json.loads((pytester.path / "run.json").read_text())
    return result, {test["key"]: test for test in content["tests"]}


def test_a_slow_worker_is_named_as_the_cause(pytester):
    result, tests = run(pytester, STRAGGLER)
    result.assert_outcomes(failed=1)
    failed = tests["test_straggler"]
    skews = [one["metrics"]["step_skew"] for one in failed["profiles"]]
    assert len(skews) == 3
    assert all("worker 1 is the slowest: " in skew["detail"]["where"] for skew in skews)
    assert all("Python and the loop (+" in skew["detail"]["where"] for skew in skews)
    steps = [[step["name"] for step in one["steps"]] for one in failed["profiles"]]
    assert steps[0] == steps[1] == steps[2]
    [table, *others] = [one["tables"].get("workers") for one in failed["profiles"]]
    assert others == [None, None]
    columns = [column["key"] for column in table["columns"]]
    rows = [dict(zip(columns, row, strict=True)) for row in table["rows"]]
    work = [row["work"] for row in rows]
    assert work[1] - max(work[0], work[2]) > 0.05  # half of what it sleeps, on a busy machine
    assert min(rows[0]["collective"], rows[2]["collective"]) > 0.05  # they wait for it there
    result.stdout.fnmatch_lines(["*step_skew is *, above the limit of 100 %*"])


def test_keras_2_trains_on_several_workers(pytester, monkeypatch):
    """Keras 3 refuses this strategy."""
    reason = "Keras 2 is not installed: pip install --no-deps 'tf_keras==2.21.*'"
    pytest.importorskip("tf_keras", reason=reason)
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    result, _ = run(pytester, KERAS_2)
    result.assert_outcomes(passed=1)


def test_a_worker_that_fails_or_dies_is_named_and_nothing_hangs(pytester):
    result, _ = run(pytester, TROUBLE)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "*CaptureError: the process of worker 1 ended with SIGKILL*",
            "*CaptureError: worker 0 fails in its process:*",
            "*ValueError: a bad step*",
        ]
    )

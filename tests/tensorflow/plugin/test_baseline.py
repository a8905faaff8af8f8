"""Recording and comparing baselines, on real TensorFlow."""

import json

import pytest

from pytest_tfperf.cli.main import main

pytestmark = pytest.mark.usefixtures("processes")  # git, for the commit of a run

STRUCTURE = """
w = tf.Variable(tf.ones((8, 8)))

@tf.function(jit_compile=True)
def step(x):
    return tf.reduce_sum(tf.matmul(x, w))

def test_step(tf_profile):
    tf_profile(step, DATA, **STEP_ARGUMENTS)
"""


def stored(suite):
    return json.loads((suite.path / "__tfperf__" / "test_suite.json").read_text())


FILES = {}
"""The baseline of STRUCTURE by path: the first test that needs it records it for all of this module."""


@pytest.fixture
def recorded(suite):
    """Write STRUCTURE beside its baseline, and return `suite`."""
    suite.write(STRUCTURE)
    if not FILES:
        suite("--tfperf-update").assert_outcomes(passed=1)
        for path in (suite.path / "__tfperf__").rglob("*.json"):
            FILES[path.relative_to(suite.path)] = path.read_bytes()
    for path, content in FILES.items():
        (suite.path / path).parent.mkdir(parents=True, exist_ok=True)
        (suite.path / path).write_bytes(content)
    return suite


def write_times(suite, times_as_slow=100, step_time=None, n_runs=1):
    """
    Write times into the history that are so many times as long, or a given time.

    Whatever the machine is busy with is then no slow-down: so short a run has noise without bounds that a test could count on.
    """
    for path in suite.path.rglob("timing/*.json"):
        content = json.loads(path.read_text())
        for entry in content["tests"].values():
            for part in (entry["anchor"], *entry["runs"]):
                part["step_time"] = step_time or part["step_time"] * times_as_slow
            entry["runs"] *= n_runs
        path.write_text(json.dumps(content))


def test_update_then_compare_is_green_and_strict_and_only_decide_what_counts(suite):
    suite.write(STRUCTURE)
    update = suite("--tfperf-update")
    update.assert_outcomes(passed=1)
    update.stdout.fnmatch_lines(["tfperf: baseline: 1 entry written for 1 passing test"])
    write_times(suite)
    entry = stored(suite)["tests"]["test_step"]
    assert entry["program"]["eager_ops"] == 0
    assert next(iter(entry["platform"].values()))["xla_clusters"] == 1
    result = suite("--tfperf-baseline")
    result.assert_outcomes(passed=1)
    undecided = "times: not decided in 1 test; `--tfperf-against REF` compares it here"
    lines = ["test_suite.py . *", "tfperf: * checks passed, 1 not decided", undecided]
    result.stdout.fnmatch_lines(lines)
    everything = suite("--tfperf-baseline", "--tfperf-strict", "-v")
    everything.assert_outcomes(passed=1)
    listed = "not decided * step_time is * than the baseline: * to *; 1 of 5 needed runs recorded"
    everything.stdout.fnmatch_lines([listed, undecided])
    structural = suite("--tfperf-baseline", "--tfperf-strict", "--tfperf-only=structural")
    structural.assert_outcomes(passed=1)
    structural.stdout.fnmatch_lines(["tfperf: * checks passed"])
    timing = suite("--tfperf-baseline", "--tfperf-strict", "--tfperf-only=timing")
    timing.assert_outcomes(failed=1)
    timing.stdout.fnmatch_lines(["tfperf: 0 checks passed, 1 not decided"])


def test_a_lost_jit_compile_is_a_regression_that_names_its_ops(recorded):
    recorded.write(STRUCTURE.replace("@tf.function(jit_compile=True)", "@tf.function"))
    result = recorded("--tfperf-baseline", "--tfperf-only=structural", "-v")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "test_step: XLA no longer compiles MatMul, Sum (*): xla_clusters fell from 1 to 0",
            "  where: outside XLA: * (XLA was not requested) at *",
            "  try: jit_compile=True on its tf.function *",
            "  if intended: pytest --tfperf-update",
        ]
    )
    result.stdout.no_fnmatch_line("IMPROVED*")
    result.stdout.fnmatch_lines(
        ["changed *: graph_ops fell from * changed, and not improved, since xla_clusters got worse"]
    )


RETRACED = """
import itertools

@tf.function(jit_compile=True)
def step(x, rate):
    return tf.reduce_sum(x) * rate

count = itertools.count(1)

@pytest.mark.tfperf(max_retraces=0, max_xla_compiles=0)
def test_step(tf_profile):
    tf_profile(lambda x: step(x, RATE), DATA, **STEP_ARGUMENTS)
"""


def test_a_retrace_is_one_message_that_names_what_follows_from_it(suite):
    suite.regresses(
        RETRACED.replace("RATE", "tf.constant(0.1)"),
        RETRACED.replace("RATE", "1 / next(count)"),
        "test_step: retraces is *, above the limit of 0 (max_retraces=0)",
        "  before: 0 in the baseline",
        "  where: traced again: step at test_suite.py:* (rate 1.0 → 0.5*",
        "  so also: xla_compiles 0 → * (above the limit of 0)*",
        "  try: pass rate as a tensor*",
    )


FUSED = """
w, b = tf.Variable(tf.ones((8, 8))), tf.Variable(tf.zeros(8))

@tf.function(jit_compile=JIT)
def step(x):
    return tf.nn.relu(tf.nn.bias_add(tf.matmul(x, w), b))

def test_step(tf_profile):
    tf_profile(step, DATA, **STEP_ARGUMENTS)
"""


@pytest.mark.full
def test_ops_that_grappler_fuses_outside_xla_are_named_as_xla_had_them(suite):
    suite.regresses(
        FUSED.replace("JIT", "True"),
        FUSED.replace("JIT", "False"),
        "test_step: XLA no longer compiles BiasAdd, MatMul, Relu (*): xla_clusters fell from 1 to 0",
    )


@pytest.mark.parametrize(
    ("n_runs", "times_as_slow", "outcome", "said"),
    [
        pytest.param(
            5,
            0.01,
            "failed",
            "test_step is * times slower than the baseline: * to *, limit *",
            marks=pytest.mark.full,
        ),
        (
            5,
            100,
            "passed",
            "test_step *step_time *IMPROVED",
        ),
    ],
)
def test_step_times_are_decided_against_the_history(recorded, n_runs, times_as_slow, outcome, said):
    write_times(recorded, times_as_slow=times_as_slow, n_runs=n_runs)
    result = recorded("--tfperf-baseline")
    result.assert_outcomes(**{outcome: 1})
    confirmed = (
        ["  confirmed in a second process: *s", "  if intended: *"] if outcome == "failed" else []
    )
    result.stdout.fnmatch_lines([said, *confirmed])


SLOW_ONCE = """
import os, time
from pathlib import Path

FIRST = Path(__file__).with_name("first")
SECONDS = 0.2 if "SLOW" in os.environ and not FIRST.exists() else 0.0
FIRST.touch()

def step(x):
    time.sleep(SECONDS)  # the load under test: what befalls one process
    return x + 1

def test_step(tf_profile):
    tf_profile(step, DATA, **STEP_ARGUMENTS)
"""


@pytest.mark.full
def test_a_process_that_is_slow_by_chance_is_no_regression(suite, monkeypatch):
    suite.write(SLOW_ONCE)
    suite("--tfperf-update")
    write_times(suite, step_time=0.04, n_runs=5)
    (suite.path / "first").unlink()
    monkeypatch.setenv("SLOW", "1")
    result = suite("--tfperf-baseline", "--tfperf-report=run.json", "--tfperf-trace-dir=traces")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "INCONCLUSIVE *: step_time is * times slower than the baseline: *; but * in a second process, which *"
        ]
    )
    [test] = json.loads((suite.path / "run.json").read_text())["tests"]
    [timed] = [check for check in test["checks"] if check["metric"] == "step_time"]
    assert timed["detail"]["second"] < 0.04 < 0.2 <= timed["detail"]["after"]
    assert len(list((suite.path / "traces").rglob("*.xplane.pb"))) == 1  # the first process's


def test_a_run_file_of_elsewhere_says_what_a_test_tolerates_and_is_accepted(suite, monkeypatch):
    tolerant = "@pytest.mark.tfperf(max_regression='30%')\ndef test_step"
    suite.write(STRUCTURE.replace("def test_step", tolerant))
    suite("--tfperf-report", "run.json").assert_outcomes(passed=1)
    [test] = json.loads((suite.path / "run.json").read_text())["tests"]
    assert (test["max_regression"], test["shared_cpu"]) == (0.3, False)
    assert not (suite.path / "__tfperf__").exists()
    monkeypatch.chdir(suite.path)
    assert main(["accept", "run.json"]) == 0
    assert main(["compare", "run.json", "run.json"]) == 0
    assert stored(suite)["tests"]["test_step"]["program"]["retraces"] == 0
    suite("--tfperf-baseline", "--tfperf-only=structural").assert_outcomes(passed=1)
    suite("--tfperf-baseline", "--tfperf-report=again.json")
    [test] = json.loads((suite.path / "again.json").read_text())["tests"]
    wanted = {check["metric"]: check["wanted"] for check in test["checks"]}
    assert wanted["step_time"] == "at most 30 % slower"


def test_a_missing_entry_is_red_with_the_command_that_records_it(suite):
    suite.write(STRUCTURE)
    result = suite("--tfperf-baseline")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["test_step: no baseline in __tfperf__/test_suite.json", "*pytest --tfperf-update-new*"]
    )
    suite("--tfperf-baseline", "--tfperf-missing=allow").assert_outcomes(passed=1)
    assert not (suite.path / "__tfperf__").exists()
    suite("--tfperf-update-new").assert_outcomes(passed=1)
    assert set(stored(suite)["tests"]) == {"test_step"}


def test_an_extra_jit_function_is_red_by_its_work_and_shown_by_its_executables(recorded):
    recorded.write(
        STRUCTURE.replace("    tf_profile(step,", "    tf_profile(lambda x: (step(x), extra(x)),")
        + "\n@tf.function(jit_compile=True)\ndef extra(x):\n    return x * 2\n"
    )
    result = recorded("--tfperf-baseline", "--tfperf-only=structural", "-v")
    result.assert_outcomes(failed=1)
    for metric in ("graph_ops", "flops", "python_calls"):
        result.stdout.fnmatch_lines([f"*{metric} rose from * to *"])
    result.stdout.fnmatch_lines(
        [
            "changed *: xla_clusters rose from 1 to 2, which does not gate: *",
            "changed *: xla_launches rose from 1 to 2, which does not gate: *",
        ]
    )


@pytest.mark.full
def test_a_retrace_every_tenth_step_is_red_by_its_own_metric(suite):
    body = """
@tf.function
def step(x, scale):
    return tf.reduce_sum(x) * scale

def test_step(tf_profile):
    calls = iter(range(10_000))
    tf_profile(lambda x: step(x, {scale}), DATA, warmup=5, steps=20, trace_steps=5)
"""
    suite.write(body.format(scale="1"))
    suite("--tfperf-update")
    suite.write(body.format(scale="next(calls) // 10"))
    result = suite("--tfperf-baseline", "--tfperf-only=structural")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*retraces rose from 0 to [34]*",
            "*where: traced again: step at test_*.py:* (scale 0 → 1, scale 1 → 2, scale 2 → 3, and *), in step 10, 20, 30*",
        ]
    )


KERAS = """
import keras

def test_fit(tf_profile):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=True)
    x, y = np.ones(({rows}, 3), "float32"), np.ones(({rows}, 1), "float32")
    tf_profile.fit(model, x, y, batch_size=8, epochs=12, verbose=0, warmup={warmup}, trace_steps=4)
"""


@pytest.mark.full
def test_a_recompilation_by_a_partial_batch_is_red_also_where_it_falls_into_warm_up(suite):
    suite.write(KERAS.format(rows=40, warmup=2))
    suite("--tfperf-update").assert_outcomes(passed=1)
    suite.write(KERAS.format(rows=36, warmup=20))
    result = suite("--tfperf-baseline", "--tfperf-only=structural")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*xla_compiles rose from 0 to 1",
            "*where: compiled: one_step_on_data: argument 0 * argument 1 *",
        ]
    )


def test_a_test_that_fails_or_breaks_a_limit_or_ends_early_is_not_recorded(suite):
    suite.write(
        STRUCTURE
        + """
def test_fails(tf_profile):
    tf_profile(step, DATA, **STEP_ARGUMENTS)
    assert False

@pytest.mark.tfperf(max_xla_launches=0)
def test_breaks(tf_profile):
    tf_profile(step, DATA, **STEP_ARGUMENTS)

def test_ends_early(tf_profile):
    for batch in tf_profile.steps(DATA):
        break
"""
    )
    result = suite("--tfperf-update")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(
        ["  not recorded: test_ends_early: the loop over tf_profile.steps was left after 0 steps*"]
    )
    assert set(stored(suite)["tests"]) == {"test_step"}


def test_update_and_baseline_together_are_a_usage_error(suite):
    suite.write(STRUCTURE)
    result = suite("--tfperf-update", "--tfperf-baseline")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: --tfperf-update records and compares nothing*"])


PIPELINE = """
def added(x):
    return x + CALL

@tf.function
def step(x):
    y = tf.reduce_sum(x * x)
    OP
    return y

def test_step(tf_profile):
    data = tf.data.Dataset.range(64).map(lambda n: tf.cast(n, tf.float32)).map(added)
    tf_profile(step, data.batch(2).prefetch(4).repeat(), **STEP_ARGUMENTS)
"""


def test_a_py_function_and_new_ops_are_named_with_their_lines(suite):
    """Beside a prefetch that hides its time; the map, and the new op, are on lines of their own."""
    before = PIPELINE.replace("CALL", "1.0").replace("OP", "pass")
    suite.write(before)
    suite("--tfperf-update")
    assert stored(suite)["tests"]["test_step"]["pipeline"] == [
        *("Range", "Map", "Map", "Batch", "Prefetch", "Repeat"),
    ]
    suite.write(
        PIPELINE.replace("CALL", "tf.py_function(lambda y: y, [x], tf.float32)").replace(
            "OP", "y = tf.debugging.check_numerics(tf.sin(y), 'y')"
        )
    )
    result = suite("--tfperf-baseline", "--tfperf-only=structural")
    result.assert_outcomes(failed=1)
    lines = (suite.path / "test_suite.py").read_text().splitlines()
    python, op = (
        next(n for n, line in enumerate(lines, 1) if word in line)
        for word in ("py_function", "check_numerics")
    )
    result.stdout.fnmatch_lines(
        [
            "*input_python_stages rose from 0 to 1",
            f"*input stage Map runs Python now: py_function at test_suite.py:{python}",
        ]
    )
    result.stdout.fnmatch_lines(
        [
            "*graph_ops rose from *",
            f"*graph: CheckNumerics 0 → 1 (new, at test_suite.py:{op}), "
            f"Sin 0 → 1 (new, at test_suite.py:{op})*",
        ]
    )

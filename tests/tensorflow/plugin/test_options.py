"""Options and ini values: what they change in a run."""

import json

import pytest

from pytest_tfperf.cli.main import main

STEP = """
def test_step(tf_profile):
    profile = tf_profile(tf.function(lambda x: x + 1), DATA)
    windows = [profile.value("step_time").detail["n_steps"], len(profile.steps), profile.value("retraces").detail["n_steps"]]
    print("windows", windows)
    print("limits", [limit.argument for _, limits in tf_profile._test.results.values() for limit in limits])
"""
INIS = {"tfperf_warmup": "3", "tfperf_steps": "7", "tfperf_trace_steps": "4"}


def as_override(values):
    return [argument for name, value in values.items() for argument in ("-o", f"{name}={value}")]


def test_windows_come_from_the_ini(suite):
    suite.write(STEP)
    result = suite("-rP", *as_override(INIS))
    result.stdout.fnmatch_lines(["windows [[]7, 4, 18[]]"])


def test_limits_come_from_the_ini_and_the_marker_overrides_them(suite):
    suite.write(
        STEP + "\n@pytest.mark.tfperf(max_eager_ops=9)\n" + STEP.replace("test_step", "test_marked")
    )
    result = suite(
        "-rP",
        *as_override(INIS | {"tfperf_limits": "max_eager_ops = 0, max_step_time = 1 ns"}),
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "limits [[]\"max_eager_ops='0'\", \"max_step_time='1 ns'\"[]]",
            "limits [[]'max_eager_ops=9', \"max_step_time='1 ns'\"[]]",
        ]
    )


def test_the_time_limit_comes_from_the_ini_and_a_cut_is_said(suite):
    suite.write(
        """
import time

def test_step(tf_profile):
    profile = tf_profile(lambda: time.sleep(0.05))
    for note in profile.notes:
        print(note)
"""
    )
    result = suite("-rP", *as_override({"tfperf_max_seconds": "1 s"}))
    result.stdout.fnmatch_lines(
        ["timed window: * of 50 steps, cut by 1 s a profile (tfperf_max_seconds)*"]
    )


def test_what_is_written_and_what_is_tolerated_come_from_the_ini(suite, processes):
    suite.write(STEP)
    others = {
        "tfperf_trace_dir": "traces",
        "tfperf_baseline_dir": "kept",
        "tfperf_tpu": "v4",
        "tfperf_max_regression": "7%",
    }
    options = ("--tfperf-update", "--tfperf-report=run.json")
    suite(*options, *as_override(INIS | others)).assert_outcomes(passed=1)
    assert (suite.path / "kept" / "test_suite.json").is_file()
    traces = "test_suite.py__test_step-*/plugins/profile/*/*.xplane.pb"
    assert len(list((suite.path / "traces").glob(traces))) == 1
    [test] = json.loads((suite.path / "run.json").read_text())["tests"]
    assert test["max_regression"] == 0.07


def test_an_option_that_cannot_be_understood_is_a_usage_error(suite):
    suite.write(STEP)
    for arguments, said in (
        (["--tfperf-min-checks=x"], "*--tfperf-min-checks: 'x' is not a whole number*"),
        (
            ["--tfperf-report=run.pdf"],
            "*--tfperf-report run.pdf: the file ending must be one of .json, .html, .md, .csv*",
        ),
    ):
        result = suite(*arguments)
        assert result.ret == pytest.ExitCode.USAGE_ERROR, arguments
        result.stderr.fnmatch_lines([said])


def test_min_checks_fails_a_run_without_any_profiled_test_unless_it_only_collects(suite):
    suite.write("def test_nothing():\n    pass\n")
    assert suite("--tfperf-min-checks=1").ret == 1
    assert suite("--tfperf-min-checks=1", "--co").ret == 0


def test_a_run_file_is_written_and_shown_again(suite, processes, capsys):
    suite.write("\n@pytest.mark.tfperf(max_eager_ops=0)\n" + STEP)
    enough = as_override(INIS | {"tfperf_min_checks": "1"})
    assert suite("--tfperf-report=out/run.json", *enough).ret == 0
    capsys.readouterr()
    assert main(["show", str(suite.path / "out" / "run.json")]) == 0
    shown = capsys.readouterr().out
    assert "test_step" in shown
    assert "tfperf: 1 check passed" in shown


@pytest.mark.imports("keras")
def test_disabled_runs_each_step_once_and_skips_its_test(suite):
    suite.write(
        """
import keras
n_calls = []

def test_call(tf_profile):
    tf_profile(n_calls.append, DATA)

def test_loop(tf_profile):
    for batch in tf_profile.steps(DATA):
        n_calls.append(batch)

def test_loop_without_elements(tf_profile):
    for batch in tf_profile.steps([]):
        n_calls.append(batch)

def test_fit(tf_profile):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    counting = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: n_calls.append(1))
    tf_profile.fit(model, np.ones((32, 3)), np.ones((32, 1)), batch_size=4, epochs=3, verbose=0, callbacks=[counting])

@pytest.mark.tfperf(max_eager_ops=0)
def test_alone():
    n_calls.append(1)

def test_each_ran_once():
    assert len(n_calls) == 4
"""
    )
    result = suite("--tfperf-disable", "-rs")
    result.assert_outcomes(skipped=5, passed=1)
    result.stdout.fnmatch_lines(
        ["*tfperf is disabled (--tfperf-disable): the step ran once and was not profiled"]
    )


def test_a_trace_folder_that_cannot_be_written_fails_the_test_and_says_so(suite):
    suite.write(STEP)
    (suite.path / "file").write_text("")
    result = suite("--tfperf-trace-dir=file/below", *as_override(INIS))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*CaptureError: the trace cannot be kept in *file/below*see --tfperf-trace-dir"]
    )

"""Runs with pytest-xdist, from the outside; a stand-in measures, all else is real."""

import json
import os

import pytest
from helpers.paths import TESTS
from helpers.runs_within import MANY, measure_with_stand_in

pytestmark = pytest.mark.usefixtures("processes")
DIES = """
import os
import signal

import pytest

from pytest_tfperf.machine.locks import held

@pytest.mark.tfperf(max_retraces=3)
@pytest.mark.parametrize("n", range(6))
def test_step(tf_profile, n):
    with held(["cpu"], print):
        if n == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        tf_profile(0.5, retraces=n)
"""


ALWAYS = "-p", "no:cacheprovider", "--tfperf-report=run.json"


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs pytest in a process of its own, and gives what it printed and the tests of its run file by their names."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TMPDIR", str(pytester.path))

    def run(*arguments):
        options = "-p", "helpers.fake_profiler", *ALWAYS
        return said(pytester, pytester.runpytest_subprocess(*options, *arguments))

    return run


@pytest.fixture
def run_here(pytester, monkeypatch):
    """The same without workers, in this process."""
    measure_with_stand_in(monkeypatch)
    return lambda *arguments: said(pytester, pytester.runpytest_inprocess(*ALWAYS, *arguments))


def said(pytester, done):
    tests = json.loads((pytester.path / "run.json").read_text())["tests"]
    assert len({test["nodeid"] for test in tests}) == len(tests)
    return done, {test["key"]: test for test in tests}


def decided(test):
    """What is the same however tests are spread: structure, and what is said of it."""
    values = [
        [(name, value["value"]) for name, value in profile["metrics"].items()]
        for profile in test["profiles"]
    ]
    checks = [
        (check["profile"], check["metric"], check["verdict"], check["message"])
        for check in test["checks"]
    ]
    return (
        test["nodeid"],
        test["file"],
        test["outcome"],
        values,
        [check for check in checks if check[1] != "step_time"],
    )


def test_forty_tests_say_the_same_however_they_are_spread(run, run_here, pytester):
    pytester.makepyfile(test_a=MANY.format(first=0), test_b=MANY.format(first=20))
    alone, expected = run_here()
    # of 14 in a row 4 are odd and 0 to 3 beyond a multiple of 7
    alone.assert_outcomes(passed=12, failed=28)
    done, found = run("-n2")
    assert {key: decided(test) for key, test in found.items()} == {
        key: decided(test) for key, test in expected.items()
    }
    assert done.ret == alone.ret
    checks = [check for test in found.values() for check in test["checks"]]
    times = {check["verdict"] for check in checks if check["metric"] == "step_time"}
    assert times == {"PASS"}


SPANS = """
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent

@pytest.fixture(autouse=True)
def span(request):
    start = time.monotonic()
    yield
    with (HERE / "spans").open("a") as file:
        print("tf_profile" in request.fixturenames, start, time.monotonic(), file=file)

@pytest.mark.parametrize("n", range(12))
def test_plain(n):
    time.sleep(0.1 + n % 3 * 0.05)

@pytest.mark.tfperf(max_step_time="0.6 s", max_input_bound="5%")
@pytest.mark.parametrize("n", range(6))
def test_profiled(tf_profile, n):
    time.sleep(0.05)
    tf_profile(0.5, input_bound=0.04 if n else 0.957)
"""


@pytest.mark.parametrize(
    "way",
    [
        ["-n2"],
        pytest.param(["-n4", "--dist=worksteal"], marks=pytest.mark.nightly),
        pytest.param(["-n2", "--dist=each"], marks=pytest.mark.nightly),
    ],
)
def test_profiled_tests_run_alone_and_their_limits_are_decided(run, pytester, monkeypatch, way):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    pytester.makepyfile(SPANS)
    done, found = run(*way)
    n_times = 2 if "--dist=each" in way else 1
    done.assert_outcomes(passed=17 * n_times, failed=n_times)
    assert {
        (check["metric"], check["verdict"], key)
        for key, test in found.items()
        for check in test["checks"]
        if check["verdict"] != "PASS"
    } == {("input_bound", "FAIL", "test_profiled[0]")}
    assert not any(test["shared_cpu"] for test in found.values())
    lines = [line.split() for line in (pytester.path / "spans").read_text().splitlines()]
    spans = [(alone == "True", float(first), float(last)) for alone, first, last in lines]
    beside = [
        one[0] or other[0]
        for i, one in enumerate(spans)
        for other in spans[:i]
        if one[1] < other[2] and other[1] < one[2]
    ]
    assert len(spans) == 18 * n_times
    assert beside
    assert not any(beside)


WAITS = """
import time

import pytest

def test_long():
    time.sleep(4)

@pytest.mark.timeout(2)
@pytest.mark.tfperf(max_step_time="1 s")
def test_waits(tf_profile):
    tf_profile(0.5)
"""


@pytest.mark.nightly
def test_waiting_for_other_workers_does_not_count_towards_a_time_limit(run, pytester):
    pytester.makepyfile(WAITS)
    done, found = run("-n2", "-p", "timeout")
    done.assert_outcomes(passed=2)
    assert [check["verdict"] for check in found["test_waits"]["checks"]] == ["PASS"]


UNSEEN = """
import pytest

@pytest.fixture
def own(request):
    return request.getfixturevalue("tf_profile")

@pytest.mark.parametrize("limit", ["max_step_time", "max_retraces"])
def test_unseen(own, limit, request):
    own(0.5, retraces=0)
"""


@pytest.mark.full
def test_where_nobody_could_see_that_a_test_profiles_its_limits_on_times_are_unknown(
    run, run_here, pytester
):
    pytester.makepyfile(UNSEEN)
    broken = ["-o", "tfperf_limits=max_step_time = 400 ms"]
    done, _ = run("-n2", *broken)
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(
        [
            "*step_time is 500 ms, limit 400 ms *: other workers may have used the CPU; run with -n 0*"
        ]
    )
    done, _ = run("-n2", *broken, "--tfperf-only=structural")
    done.assert_outcomes(passed=2)
    done, _ = run_here(*broken)
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(["*step_time is 500 ms, above the limit of 400 ms*"])
    kept = ["-o", "tfperf_limits=max_step_time = 500 ms"]  # others can only make it longer
    done, _ = run("-n2", *kept)
    done.assert_outcomes(passed=2)


@pytest.mark.full
def test_a_worker_that_is_killed_costs_its_own_test_only_and_leaves_no_lock(
    run, run_here, pytester
):
    pytester.makepyfile(DIES)
    run_here(
        "--tfperf-update",
        "--deselect=test_a_worker_that_is_killed_costs_its_own_test_only_and_leaves_no_lock.py::test_step[2]",
    )
    done, found = run("-n2", "--tfperf-baseline", "--tfperf-only=structural")
    assert sorted(found) == [f"test_step[{n}]" for n in (0, 1, 3, 4, 5)]
    assert {key: test["outcome"] for key, test in found.items() if test["outcome"] != "passed"} == {
        "test_step[4]": "failed",
        "test_step[5]": "failed",
    }
    done.stdout.fnmatch_lines(["*worker 'gw?' crashed while running*test_step?2?*"])
    assert "unused baseline" not in done.stdout.str()


UNLIKE = """
import os

import pytest

@pytest.mark.tfperf(max_retraces=0)
def test_step(tf_profile):
    tf_profile(0.5, retraces=int(os.environ["PYTEST_XDIST_WORKER"] == "gw0"))

def test_alike(tf_profile):
    tf_profile(0.5, retraces=2)
"""


@pytest.mark.nightly
def test_what_fails_in_one_worker_of_several_that_run_it_is_not_recorded(run, pytester):
    pytester.makepyfile(UNLIKE)
    done, found = run("-n2", "--dist=each", "--tfperf-update")
    done.assert_outcomes(passed=3, failed=1)
    assert {key: test["outcome"] for key, test in found.items()} == {
        "test_step": "failed",
        "test_alike": "passed",
    }
    [file] = pytester.path.glob("__tfperf__/*.json")
    assert list(json.loads(file.read_text())["tests"]) == ["test_alike"]


TIMED = """
import pytest

@pytest.mark.tfperf(max_eager_ops=1, max_step_time="10 s")
@pytest.mark.parametrize("n", range(2))
def test_step(tf_profile, n):
    tf_profile(0.5, eager_ops=n)

def test_plain():
    pass
"""


@pytest.mark.full
def test_the_controller_writes_baselines_and_times_are_decided(run, pytester):
    pytester.makepyfile(test_suite=TIMED)
    done, _ = run("-n2", "--tfperf-update")
    done.assert_outcomes(passed=3)
    [file] = pytester.path.glob("__tfperf__/*.json")
    assert sorted(json.loads(file.read_text())["tests"]) == ["test_step[0]", "test_step[1]"]
    done, _ = run("-n2", "--tfperf-baseline")
    done.assert_outcomes(passed=3)
    done.stdout.fnmatch_lines(
        [
            "tfperf: comparing with the stored baseline; a profiled test runs while the other workers wait",
            "tfperf: * checks passed, 2 not decided",
            "times: not decided in 2 tests; `--tfperf-against REF` compares them here",
        ]
    )
    done, _ = run("-n2", "--tfperf-baseline", "-o", "tfperf_max_regression=5%")
    done.assert_outcomes(passed=3)
    done.stdout.fnmatch_lines(
        [
            "INCONCLUSIVE test_step[[]?], test_step[[]?]: step_time is not decided: 1 of 5 needed runs recorded",
            "tfperf: * checks passed, 2 not decided",
        ]
    )
    done.stdout.re_match_lines([r"(?=.*I.*I)[I.]{3} +\["])


SEES = """
import os

SEEN = os.environ["CUDA_VISIBLE_DEVICES"]

def test_sees({arguments}):
    assert SEEN == {at_import}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == {in_test}
    {profiles}

def test_sees_too({arguments}):
    test_sees({arguments})
"""
SHARE = """{"gw0": "0,2", "gw1": "1"}[os.environ["PYTEST_XDIST_WORKER"]]"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "at_import", "in_test", "ini"),
    [
        ("tf_profile", SHARE, SHARE, "tfperf_steps = 50"),
        (
            "tf_profile",
            f"('0,1,2' if __name__ == 'test_a' else {SHARE})",
            SHARE,
            "",
        ),  # the first file's tests are collected before the second
        ("", "'0,1,2'", "'0,1,2'", ""),
    ],
    ids=["an ini value", "a profiled test", "a suite without"],
)
def test_gpus_are_shared_out_where_a_run_profiles(
    pytester, monkeypatch, arguments, at_import, in_test, ini
):
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    pytester.makeini(f"[pytest]\n{ini}")
    profiles = "tf_profile(0.5)" if arguments else ""
    text = SEES.format(arguments=arguments, at_import=at_import, in_test=in_test, profiles=profiles)
    pytester.makepyfile(test_a=text, test_b=text)
    done = pytester.runpytest_subprocess(
        "-p", "helpers.fake_profiler", "-p", "no:cacheprovider", "-n2", "--dist=loadfile"
    )
    done.assert_outcomes(passed=4)
    assert ("3 GPUs are shared out among 2 workers" in done.stdout.str()) is bool(ini)


REAL = """
import pytest
import tensorflow as tf

FEW = dict(warmup=2, steps=4, trace_steps=3)

@pytest.mark.tfperf(max_retraces=1, max_step_time="1 min")
@pytest.mark.parametrize("n", range(4))
def test_step(tf_profile, n):
    step = tf.function(lambda x, number: x * number)
    tf_profile(step, [(tf.ones(4), number % (n + 1)) for number in range(12)], **FEW)
"""


@pytest.mark.full
def test_workers_profile_real_tensorflow(pytester):
    """A function is traced for each number, and so n times after the first step."""
    pytester.makepyfile(REAL)
    done, found = said(pytester, pytester.runpytest_subprocess("-n2", "-Wignore", *ALWAYS))
    done.assert_outcomes(passed=2, failed=2)
    metrics = {key: test["profiles"][0]["metrics"] for key, test in found.items()}
    assert {key: values["retraces"]["value"] for key, values in metrics.items()} == {
        f"test_step[{n}]": n for n in range(4)
    }
    checks = [(one["metric"], one["verdict"]) for test in found.values() for one in test["checks"]]
    assert checks.count(("step_time", "PASS")) == 4
    assert checks.count(("retraces", "FAIL")) == 2

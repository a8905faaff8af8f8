"""
Other plugins and kinds of tests beside profiled ones: the same said of them in a plain run, in workers, in processes of their own,
and in both versions of a paired run. A fake measures, all else is real.
"""

import json
import sys

import pytest
from helpers.paired_project import INI, Project
from helpers.paths import TESTS
from helpers.reruns import AGAIN as RUNS_ALL_AGAIN

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]
MODEL = "HERE = {here}\n"
CONFTEST = """
import json

def pytest_sessionfinish(session):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    option = session.config.option
    if reporter is not None and getattr(option, "tfperf_child", None) is None:
        found = {kind: sorted({one.nodeid.partition("::")[2] for one in reports}) for kind, reports in reporter.stats.items() if kind}
        (session.config.rootpath / "said.json").write_text(json.dumps(found))
"""
KINDS = """
import asyncio, os, random, sys, unittest
import model
import pytest

pytestmark = pytest.mark.tfperf(max_retraces=0, autocluster="OWN" in os.environ)
RUNS = []

def test_good(tf_profile):
    tf_profile(1.0, retraces=0)
    if "OWN" in os.environ or "AGAINST" in os.environ:
        assert sys.gettrace() is None
        assert not [name for name in os.environ if name.startswith("COVERAGE_")]

def test_gets_better(tf_profile):
    RUNS.append(1)
    tf_profile(1.0, retraces=0 if len(RUNS) > 1 else 3)

def test_skips(tf_profile):
    tf_profile(1.0, retraces=3)
    pytest.skip("not today")

def test_gives_up(tf_profile):
    tf_profile(1.0, retraces=3)
    pytest.xfail("not yet")

@pytest.mark.xfail(strict=True)
def test_expected(tf_profile):
    tf_profile(1.0, retraces=3)

def test_subtests(tf_profile, subtests):
    for n in range(2):
        with subtests.test(n=n):
            tf_profile(1.0, str(n), retraces=0)
            assert n == 0

@pytest.mark.asyncio
async def test_async(tf_profile):
    await asyncio.sleep(0)
    tf_profile(1.0, retraces=3)

class TestCase(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def profiler(self, tf_profile):
        self.tf_profile = tf_profile

    def test_unit(self):
        for n in range(2):
            with self.subTest(n=n):
                self.tf_profile(1.0, str(n), retraces=0)
        assert self.tf_profile._test.results

class TestGroup:
    @pytest.mark.parametrize("n", [0, pytest.param(1, marks=pytest.mark.tfperf(max_retraces=1))])
    def test_in_class(self, tf_profile, benchmark, n):
        tf_profile(1.0, retraces=1)
        benchmark(int)

def test_by_chance(tf_profile):
    rows = random.randrange(10**9)
    tf_profile(1.0, workload={"inputs": [], "batch": rows}, retraces=0)
"""
ONCE = {
    "passed": ["TestCase::test_unit", "TestGroup::test_in_class[1]", "test_by_chance", "test_good"],
    "failed": ["TestGroup::test_in_class[0]", "test_async", "test_gets_better", "test_subtests"],
    "skipped": ["test_skips"],
    "xfailed": ["test_expected", "test_gives_up"],
}
AGAIN = {
    **ONCE,
    "passed": sorted([*ONCE["passed"], "test_gets_better"]),
    "failed": [name for name in ONCE["failed"] if name != "test_gets_better"],
    "rerun": ONCE["failed"],
}
OTHERS = ["asyncio", "benchmark", "pytest_cov", "randomly", "rerunfailures", "timeout"]
ALL = [
    *(word for name in OTHERS for word in ("-p", name)),
    "-o",
    "asyncio_default_fixture_loop_scope=function",
    "--cov=model",
    "--reruns=1",
    "--timeout=60",
    "--benchmark-min-rounds=1",
    "--benchmark-max-time=0.001",
]


def project_of(folder, suite):
    there = {
        "conftest.py": CONFTEST,
        "test_suite.py": suite,
        ".coveragerc": "[run]\npatch = subprocess\n",
        "src/model.py": MODEL.format(here=False),
    }
    return Project(folder, there, {"src/model.py": MODEL.format(here=True)})


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    return project_of(tmp_path_factory.mktemp("kinds"), KINDS)


def said(project):
    found = json.loads((project.path / "said.json").read_text())
    return {
        kind: names
        for kind, names in found.items()
        if not kind.startswith(("subtests", "deselected", "warnings"))
    }


FEW = [
    "test_good",
    "test_gets_better",
    "test_skips",
    "test_expected",
    "test_subtests",
    "test_async",
]  # a process is a second


NIGHTLY = pytest.mark.nightly


@pytest.mark.parametrize(
    ("arguments", "options", "expected"),
    [
        ([], {}, AGAIN),
        # pytest-benchmark warns that it does nothing there
        pytest.param(["-p", "xdist", "-n2", "-W", "default"], {}, AGAIN, marks=NIGHTLY),
        pytest.param(
            ["-k", " or ".join(FEW)],
            {"OWN": "1"},
            {kind: [name for name in names if name in FEW] for kind, names in AGAIN.items()},
            marks=NIGHTLY,
        ),
        pytest.param([], {"OWN": "1"}, AGAIN, marks=NIGHTLY),
        pytest.param([], {"AGAINST": "1", "against": "HEAD"}, ONCE, marks=NIGHTLY),
    ],
    ids=["plain", "workers", "own processes", "all own processes", "versions"],
)
def test_all_kinds_of_tests_under_all_plugins_are_what_they_are(
    kinds, arguments, options, expected
):
    run = kinds.run(*ALL, *arguments, **{"against": None, **options})
    assert said(kinds) == expected, run.text
    assert run.status == 1
    tests = {test["key"]: test for test in json.loads(run.file.read_text())["tests"]}
    assert set(tests) == {name for names in expected.values() for name in names}
    assert {name for name, test in tests.items() if test["outcome"] == "failed"} == set(
        expected["failed"]
    )
    assert [
        check["verdict"] for check in tests["test_expected"]["checks"] if check["kind"] == "limit"
    ] == ["FAIL"]
    assert tests["test_skips"]["checks"] == []
    assert (
        "test_suite.py::test_by_chance: its workload" not in run.text
    )  # NEW, did the versions draw each for itself
    assert "model.py" in run.text.partition("tests coverage")[2]


SLOW = """
import os, time
from contextlib import nullcontext
import pytest
from pytest_tfperf.machine.locks import held

def measuring():
    # what a profile does; the coordinator of a paired run holds the lock
    return nullcontext() if "AGAINST" in os.environ else held(["cpu"], print)

pytestmark = pytest.mark.tfperf(autocluster="OWN" in os.environ)

def test_slow(tf_profile):
    if "AGAINST" in os.environ:
        tf_profile(1.0, during=lambda n: time.sleep(60))
    with measuring():
        time.sleep(60)

@pytest.mark.timeout(0)
def test_next(tf_profile):
    with measuring():  # which waits for ever, where the lock is left
        pass
    tf_profile(1.0)
"""


VERSIONS = {"AGAINST": "1", "against": "HEAD"}


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    return project_of(tmp_path_factory.mktemp("slow"), SLOW)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        pytest.param("signal", {}, id="signal, plain", marks=NIGHTLY),
        pytest.param("thread", {}, id="thread, plain"),
        pytest.param("signal", {"OWN": "1"}, id="signal, own process", marks=NIGHTLY),
        pytest.param("thread", {"OWN": "1"}, id="thread, own process", marks=NIGHTLY),
        pytest.param("signal", VERSIONS, id="signal, versions", marks=NIGHTLY),
        pytest.param("thread", VERSIONS, id="thread, versions", marks=NIGHTLY),
    ],
)
def test_a_limit_of_time_leaves_nothing(slow, method, options):
    options = {"against": None, **options}
    run = slow.run(
        "-p", "timeout", "--timeout=2", f"--timeout-method={method}", **options
    )  # and nothing is left of it
    assert run.status == 1
    assert "Timeout" in run.text
    assert "INTERNALERROR" not in run.text
    if method == "thread":
        assert "short test summary" not in run.text  # it ends the run at once
        run = slow.run("-p", "timeout", "-k", "test_next", **options)
        assert run.status == 0, run.text
    else:  # on a busy machine the limit strikes while the test's process starts: an error at its setup
        assert said(slow) in [
            {how: ["test_slow"], "passed": ["test_next"]} for how in ("failed", "error")
        ], run.text


@pytest.mark.nightly
def test_a_limit_of_time_in_a_worker_costs_its_test(slow):
    run = slow.run(
        "-p",
        "timeout",
        "--timeout=2",
        "--timeout-method=thread",
        "-p",
        "xdist",
        "-n2",
        against=None,
    )
    assert said(slow) == {"failed": ["test_slow"], "passed": ["test_next"]}, run.text


@pytest.mark.nightly
def test_a_process_that_dies_when_its_test_runs_again_fails_it(tmp_path):
    body = """
import os
import pytest

RUNS = []

@pytest.mark.tfperf(autocluster=True)
def test_dies(tf_profile):
    RUNS.append(1)
    if len(RUNS) > 1:
        os._exit(7)
    assert 0
"""
    project = project_of(tmp_path, body)
    run = project.run("-p", "rerunfailures", "--reruns=2", against=None)
    assert (run.status, said(project)) == (1, {"rerun": ["test_dies"], "error": ["test_dies"]})
    assert "exit status 7 in the setup of a test in a process of its own" in run.text


TWICE = """
import model
import pytest

@pytest.mark.tfperf(max_retraces=0)
def test_fails(tf_profile):
    tf_profile(1.0, retraces=int(model.HERE))

def test_next(tf_profile):
    tf_profile(1.0)
"""


def test_a_version_that_runs_a_test_again_is_refused(tmp_path):
    project = project_of(tmp_path, TWICE)
    (project.path / "conftest.py").write_text(CONFTEST + RUNS_ALL_AGAIN)
    run = project.run()
    assert run.status == 1
    assert "the working tree's process runs the test again after its verdict" in run.text
    assert "error" in said(project)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        pytest.param([], {}, marks=NIGHTLY),
        pytest.param(["-p", "xdist", "-n2"], {}, marks=NIGHTLY),
        pytest.param([], {"against": "HEAD"}, marks=NIGHTLY),
    ],
    ids=["plain", "workers", "versions"],
)
def test_what_failed_is_run_first_or_alone_and_the_first_failure_stops(
    tmp_path, arguments, options
):
    project = project_of(tmp_path, TWICE)
    (project.path / "pytest.ini").write_text(INI.replace("-p no:cacheprovider", ""))
    for more, expected in [
        ([], {"failed": ["test_fails"], "passed": ["test_next"]}),
        (["--lf"], {"failed": ["test_fails"]}),
        *(
            [] if arguments else [(["-x"], {"failed": ["test_fails"]})]
        ),  # the other worker has gone on by then
    ]:
        run = project.run(*arguments, *more, **{"against": None, **options})
        assert said(project) == expected, run.text
        assert run.status in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)


@pytest.mark.nightly
def test_the_debugger_shows_the_profiles_and_what_is_broken(inside):
    inside.makepyfile(BROKEN)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tfperf",
        "-p",
        "helpers.fake_profiler",
        "--pdb",
    ]
    done = inside.run(
        *command,
        stdin=b"p [check.metric for check in broken]\np [one.name for one, _ in test.results.values()]\nq\n",
    )
    done.stdout.fnmatch_lines(
        [
            "*retraces is 3, above the limit of 0*",
            "*entering PDB*",
            "(Pdb) [[]'retraces'*",
            "(Pdb) [[]'odd'*",
        ]
    )


BROKEN = """
import pytest

@pytest.mark.tfperf(max_retraces=0)
def test_broken(tf_profile):
    tf_profile(1.0, "odd", retraces=3)
"""


@pytest.fixture
def inside(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=":")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return pytester


def test_a_test_whose_subtests_fail_is_not_recorded(inside):
    inside.makepyfile(
        """
def test_some(tf_profile, subtests):
    with subtests.test():
        tf_profile(1.0)
        assert 0
"""
    )
    done = inside.runpytest_subprocess(
        "-p", "tfperf", "-p", "helpers.fake_profiler", "--tfperf-update"
    )
    done.stdout.fnmatch_lines(["tfperf: baseline: 0 entries written for 0 passing tests"])
    assert not (inside.path / "__tfperf__").exists()


@pytest.mark.nightly
def test_benchmarks_are_saved_by_the_run_itself_alone(inside):
    inside.makepyfile(
        """
import pytest

@pytest.mark.tfperf(autocluster=True)
def test_there(tf_profile, benchmark):
    tf_profile(1.0)
    benchmark(int)

def test_here(benchmark):
    benchmark(int)
"""
    )
    options = [
        "--benchmark-autosave",
        "--benchmark-json=all.json",
        "--benchmark-min-rounds=1",
        "--benchmark-max-time=0.001",
    ]
    done = inside.runpytest_subprocess(
        "-p", "tfperf", "-p", "helpers.fake_profiler", "-p", "benchmark", *options
    )
    done.assert_outcomes(passed=2)
    files = [*inside.path.glob(".benchmarks/*/*.json"), inside.path / "all.json"]
    assert [
        [one["name"] for one in json.loads(file.read_text())["benchmarks"]] for file in files
    ] == [["test_here"]] * 2

"""Tests that run in a process of their own: the same reports as without, whatever becomes of the process. No TensorFlow in them."""

import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from contextlib import suppress

import pytest
from helpers.processes import until

pytestmark = pytest.mark.usefixtures("processes")

# a test is profiled if it uses the fixture; this one does nothing
CONFTEST = """
import pytest

@pytest.fixture
def tf_profile():
    pass
"""
PRELUDE = """
import os, signal, subprocess, sys, time, warnings
import pytest

pytestmark = pytest.mark.tfperf(autocluster=True)

def in_own_process():
    return "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit" in os.environ.get("TF_XLA_FLAGS", "")

"""


class Suite:
    def __init__(self, pytester):
        self.pytester, self.path = pytester, pytester.path
        pytester.makeconftest(CONFTEST)

    def write(self, body, name="test_suite"):
        self.pytester.makepyfile(**{name: PRELUDE + body})

    def __call__(self, *arguments):
        return self.pytester.runpytest_inprocess("-p", "tfperf", *arguments)


@pytest.fixture
def suite(pytester, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # to start fast
    monkeypatch.delenv("TF_XLA_FLAGS", raising=False)
    return Suite(pytester)


OUTCOMES = """
def test_pass(tf_profile, tmp_path):
    (tmp_path / "file").write_text("")
    assert in_own_process()
    assert not {"tensorflow", "keras"} & set(sys.modules)
    assert os.environ["PYTEST_CURRENT_TEST"] == "test_suite.py::test_pass (call)"
    warnings.warn("mind the gap")

def test_fail(tf_profile):
    print("to be seen")
    assert sorted("ab") == ["a", "c"]

def test_skip(tf_profile):
    pytest.skip("not today")

@pytest.mark.xfail(strict=True)
def test_expected(tf_profile):
    assert 0

@pytest.mark.xfail(strict=True)
def test_unexpected(tf_profile):
    pass

@pytest.fixture
def broken():
    raise ValueError("no such thing")

def test_error(broken, tf_profile):
    pass

class TestGroup:
    def test_in_class(self, tf_profile, record_property):
        record_property("colour", "red")

def test_without_the_fixture():
    assert not in_own_process()
"""


def test_every_outcome_is_that_of_a_test_that_stays(suite):
    suite.write(OUTCOMES)
    result = suite("--junitxml=junit.xml", "-rs")
    result.assert_outcomes(passed=3, failed=2, skipped=1, xfailed=1, errors=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "test_suite.py .FsxFE..*",
            ">       raise ValueError(*no such thing*)",
            '>       assert sorted("ab") == [[]"a", "c"[]]',
            "E         At index 1 diff: 'b' != 'c'",
            "*Captured stdout call*",
            "to be seen",
            "*XPASS(strict)*",
            "test_suite.py::test_pass",
            "*UserWarning: mind the gap",
            "SKIPPED * test_suite.py:*: not today",
        ]
    )
    suites = ET.parse(suite.path / "junit.xml").getroot().find("testsuite")
    assert {name: suites.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "8",
        "failures": "2",
        "errors": "1",
        "skipped": "2",
    }
    assert suites.find("testcase[@name='test_in_class']/properties/property").attrib == {
        "name": "colour",
        "value": "red",
    }
    cached = json.loads((suite.path / ".pytest_cache/v/cache/lastfailed").read_text())
    assert sorted(cached) == [
        f"test_suite.py::test_{name}" for name in ("error", "fail", "unexpected")
    ]


@pytest.mark.full
def test_a_test_is_found_by_any_parameter(suite):
    suite.write(
        """
@pytest.mark.parametrize("text", ["a[b]::c", "ü ", "", "x/y"])
def test_parameter(tf_profile, text):
    assert in_own_process()
"""
    )
    suite().assert_outcomes(passed=4)


@pytest.mark.full
@pytest.mark.skipif(pytest.version_tuple < (9,), reason="pytest has subtests from version 9 on")
def test_a_test_fails_with_its_subtests(suite):
    suite.write(
        "def test_it(tf_profile, subtests):\n    for n in range(3):\n        with subtests.test(n=n): assert n == 1\n"
    )
    result = suite()
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["contains 2 failed subtests"])


@pytest.mark.full
def test_last_failed_and_exitfirst_work_on_the_reports(suite):
    suite.write(
        "def test_a(tf_profile): pass\ndef test_b(tf_profile): assert 0\ndef test_c(tf_profile): assert 0\n"
    )
    suite("-x").assert_outcomes(passed=1, failed=1)
    suite("--lf").assert_outcomes(failed=1)
    suite("--lf", "--pdb").assert_outcomes(failed=1)


@pytest.mark.full
def test_options_of_a_conftest_and_its_hooks_arrive(suite):
    suite.write(
        """
def test_it(tf_profile, request):
    assert (request.config.getoption("--colour"), request.config.getini("python_functions")) == ("red", ["test_*", "try_*"])
    assert request.node.get_closest_marker("added")
    assert str(request.config.invocation_params.dir) == os.getcwd()
    assert sys.argv == ARGV
"""
        + f"ARGV = {sys.argv!r}\n"
    )
    suite.pytester.makeconftest(
        CONFTEST
        + """
def pytest_addoption(parser):
    parser.addoption("--colour")
    parser.addoption("--half", action="store_true")

def pytest_configure(config):
    config.addinivalue_line("markers", "added")

def pytest_collection_modifyitems(items, config):
    for item in items:
        item.add_marker("added")
    if config.getoption("--half"):
        items[:] = items[len(items) // 2 :]  # as plugins do that share a suite among machines
"""
    )
    arguments = (
        "--colour=red",
        "-o",
        "python_functions=test_* try_*",
        "--strict-markers",
        "-p",
        "no:cacheprovider",
        "-k",
        "test_it",
    )
    suite(*arguments).assert_outcomes(passed=1)
    suite.write("def test_other(tf_profile): pass", "test_another")
    suite("--half").assert_outcomes(failed=1)  # test_it, without its options
    assert not (suite.path / "-c").exists()


@pytest.mark.full
def test_no_process_is_started_where_tests_do_not_run(suite, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    suite.write("def test_it(tf_profile): pass\n")
    for argument in ("--collect-only", "--setup-only", "--setup-plan"):
        assert suite(argument).ret == 0, argument


def test_a_process_that_dies_fails_its_test_alone(suite):
    """Outside of the body its death is an error."""
    suite.write(
        """
def test_killed(tf_profile): os.kill(os.getpid(), signal.SIGKILL)
def test_aborts(tf_profile): os.abort()
def test_exits(tf_profile): os._exit(0)

@pytest.fixture
def deadly(request):
    if request.node.name == "test_setup":
        os._exit(7)
    yield
    os._exit(8)

def test_setup(deadly, tf_profile): pass
def test_teardown(deadly, tf_profile): pass
def test_next(tf_profile): pass
"""
    )
    result = suite("--junitxml=junit.xml")
    result.assert_outcomes(passed=2, failed=3, errors=2)
    result.stdout.fnmatch_lines(
        [
            "test_suite.py FFFE.E.*",
            "exit status 7 in the setup of *",
            "exit status 8 in the teardown of *",
            "SIGKILL in the call of a test in a process of its own (autocluster=True)",
            "SIGABRT in the call of *",
            "  its stderr:",
            "  Current thread*",
            "  * in test_aborts",
            "exit status 0 in the call of *",
        ]
    )
    found = ET.parse(suite.path / "junit.xml").getroot().find("testsuite")
    assert (found.get("failures"), found.get("errors")) == ("3", "2")


@pytest.mark.full
def test_a_conftest_that_fails_in_the_process_alone_is_shown(suite):
    suite.write("def test_it(tf_profile): pass\n")
    suite.pytester.makeconftest(
        CONFTEST + "import os\nif 'TF_XLA_FLAGS' in os.environ: import no_such_module\n"
    )
    result = suite()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["exit status 4 in the setup of *", "  its stderr:", "*No module named 'no_such_module'*"]
    )


@pytest.mark.full
def test_a_test_that_the_process_does_not_collect_is_an_error_that_says_so(suite):
    suite.write(
        "if not in_own_process():\n    def test_it(tf_profile): pass\nelse:\n    raise OSError('changed')\n"
    )
    result = suite()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [
            "the process of a test with autocluster=True has no test of this name:",
            "*OSError: changed*",
        ]
    )


@pytest.mark.full
def test_other_tests_of_the_file_that_cannot_be_collected_do_not_matter(suite):
    suite.write(
        "def test_it(tf_profile): pass\n\nclass TestBad:\n    @pytest.mark.tfperf(max_wrong=1)\n    def test_no(self): pass\n"
    )
    suite("--continue-on-collection-errors").assert_outcomes(passed=1, errors=1)


@pytest.mark.full
def test_a_folder_may_have_brackets_in_its_name(suite):
    suite.write("def test_it(tf_profile): pass\n")
    folder = suite.path / "a[b]::c"
    folder.mkdir()
    (suite.path / "test_suite.py").rename(folder / "test_suite.py")
    suite().assert_outcomes(passed=1)


@pytest.mark.full
def test_what_earlier_tests_set_up_is_torn_down_where_it_was(suite):
    suite.write(
        """
@pytest.fixture(scope="module")
def kept():
    yield os.getpid()
    if not in_own_process():
        raise ValueError("torn down here")

def test_stays(kept): pass
def test_leaves(kept, tf_profile): assert kept == os.getpid()
"""
    )
    suite.write("def test_stays(): pass\n", "test_then")
    result = suite("-v")
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at teardown of test_leaves*",
            "E*ValueError: torn down here",
            "ERROR test_suite.py::test_leaves*",
        ]
    )


@pytest.mark.full
def test_a_test_that_ends_the_run_ends_it(suite):
    suite.write("def test_it(tf_profile): pytest.exit('enough')\ndef test_next(): assert 0\n")
    result = suite()
    result.assert_outcomes()
    result.stdout.fnmatch_lines(["*enough*"])
    assert result.ret == pytest.ExitCode.INTERRUPTED


@pytest.mark.full
def test_under_xdist_reports_reach_the_controller(suite):
    suite.write(
        """
@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("n", range(2))
def test_it(tf_profile, n, worker_id):
    assert in_own_process()
    assert worker_id.startswith("gw")
    warnings.warn("mind the gap")

def test_fails(tf_profile):
    assert 0

def test_skips(tf_profile):
    pytest.skip("not today")

def test_stays():
    assert not in_own_process()
"""
    )
    result = suite.pytester.runpytest_subprocess(
        "-p", "tfperf", "-p", "xdist", "-n2", "--dist=loadgroup", "--junitxml=junit.xml", "-rs"
    )
    result.assert_outcomes(passed=3, failed=1, skipped=1, warnings=2)
    result.stdout.fnmatch_lines(["SKIPPED * not today"])
    assert len(ET.parse(suite.path / "junit.xml").getroot().findall("testsuite/testcase")) == 5


@pytest.mark.full
def test_output_passes_through_where_nothing_is_captured(suite):
    suite.write(
        "def test_it(tf_profile):\n    print('to be seen', flush=True)\n    os.write(1, b'of the system\\n')\n"
    )
    result = suite.pytester.runpytest_subprocess("-p", "tfperf", "-s")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*to be seen", "of the system"])
    assert result.stdout.str().count("test session starts") == 1


def run_to_the_end_of_all(suite, *arguments):
    """Exit status and output of a run, when nothing that it started has its output open any more; what is left in its temporary folder."""
    temporary = suite.path / "temporary"
    temporary.mkdir()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tfperf",
        "-s",
        f"--basetemp={suite.path / 'base'}",
        *arguments,
    ]
    done = subprocess.run(
        command,
        cwd=suite.path,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    with suppress(AssertionError):  # the cleanup process ends last
        until(lambda: not list(temporary.iterdir()))
    return done.returncode, done.stdout, list(temporary.iterdir())


@pytest.mark.full
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_interrupted_or_killed_leaves_nothing_behind(suite, sent):
    suite.write(
        f"""
@pytest.fixture
def tidy():
    yield
    print("tidied up")

def test_it(tidy, tf_profile):
    os.kill(os.getppid(), {sent})
    while True:
        time.sleep(0.01)

def test_next(tf_profile): print("went on")
"""
    )
    status, output, left = run_to_the_end_of_all(suite)
    assert status == (2 if sent == signal.SIGINT else -9)
    assert "tidied up" in output
    assert "went on" not in output
    assert left == []


@pytest.mark.full
def test_what_a_test_started_ends_with_its_process(suite):
    suite.write("def test_it(tf_profile): subprocess.Popen(['sleep', '600'])\n")
    status, _, left = run_to_the_end_of_all(suite)
    assert (status, left) == (0, [])


@pytest.mark.full
def test_a_failure_of_the_process_asks_nothing_of_hooks_that_know_the_item(suite):
    suite.write("def test_it(tf_profile): os._exit(3)\n")
    suite.pytester.makeconftest(
        CONFTEST + "def pytest_runtest_makereport(item, call): return item.no_such_attribute\n"
    )
    suite().assert_outcomes(errors=1)


def test_a_plugin_that_fails_a_test_for_its_time_ends_the_process(suite):
    suite.write(
        """
def test_it(tf_profile):
    open("running", "w").close()
    time.sleep(600)

def test_next(tf_profile): pass
"""
    )
    suite.pytester.makeconftest(
        CONFTEST
        + """
import os, signal

def too_long(*_):
    if os.path.exists("running"):
        pytest.fail("took too long")
    signal.setitimer(signal.ITIMER_REAL, 0.1)

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    if item.name == "test_it" and "TF_XLA_FLAGS" not in os.environ:
        signal.signal(signal.SIGALRM, too_long)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
    return (yield)
"""
    )
    result = suite()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["took too long", "  the process of a test with autocluster=True had not answered"]
    )


@pytest.mark.full
def test_a_file_of_flags_that_is_not_there_is_an_error(suite, monkeypatch):
    monkeypatch.setenv("TF_XLA_FLAGS", "nowhere")
    suite.write("def test_it(tf_profile): pass\n")
    result = suite()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["TF_XLA_FLAGS names a file that cannot be read: *No such file or directory: 'nowhere'"]
    )

"""`tfperf bisect` in processes: whatever becomes of pytest, the status is 0, 1 or 125."""

import os
import shutil
import signal
import subprocess
import sys

import pytest
from helpers.git_repository import git, write
from helpers.paired_project import Project
from helpers.processes import until, with_variable

pytestmark = [
    pytest.mark.usefixtures("processes"),
    pytest.mark.skipif(shutil.which("git") is None, reason="needs git"),
]
HEAD = "import os, signal, sys\nimport pytest\n"
GOOD = f"""{HEAD}
@pytest.mark.tfperf(max_retraces=0)
def test_a(tf_profile):
    tf_profile(1.0, retraces=0)
"""
BAD = GOOD.replace("1.0, retraces=0", "1.0, retraces=2")
N_COMMITS, PLANTED = 30, 19
BISECT = [
    sys.executable,
    "-m",
    "pytest_tfperf.cli.main",
    "bisect",
    "--",
    "-p",
    "helpers.fake_profiler",
]


def run(project, *arguments, **variables):
    """Status and output of a run."""
    done = subprocess.run(
        [*BISECT, *arguments],
        cwd=project.path,
        env=project.environment("bisect", **variables),
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path, {"test_step.py": GOOD}, {})


def test_a_bad_commit_has_status_1(project):
    write(project.path, {"test_step.py": BAD})
    found, output = run(project)
    assert found == 1, output
    assert "tfperf: status 1 for git bisect: bad, retraces FAIL in test_a" in output


# what a test file holds, the status of its run, and why; the reasons of results are in tests/unit/report/test_bisect_status.py
ENDINGS = [
    (GOOD, 0, "status 0 for git bisect: good"),
    (GOOD + "    os._exit(0)\n", 125, "status 125 for git bisect: pytest ended with exit status 0"),
    (
        GOOD + "    os.kill(os.getpid(), signal.SIGSEGV)\n",
        125,
        "status 125 for git bisect: pytest ended with SIGSEGV",
    ),
    (GOOD + "    pytest.exit('no more', returncode=200)\n", 125, "pytest's status 200"),
    ("import none_such\n", 125, "the run did not come to its end (pytest's status 2)"),
    ("", 125, "the run did not come to its end (pytest's status 5)"),
]


@pytest.mark.full
def test_however_pytest_ends_the_status_is_one_of_three(project):
    for text, status, why in ENDINGS:
        write(project.path, {"test_step.py": text})
        found, output = run(project)
        assert found == status, (text, output)
        assert why in output, text


@pytest.mark.full
def test_a_run_that_cannot_begin_is_not_tested(project):
    for conftest, arguments, why in [
        ("import none_such\n", (), "pytest ended with exit status 4"),
        ("def pytest_collection_modifyitems(): 1 / 0\n", (), "pytest's status 3"),
        ("", ("--no-such-option",), "pytest ended with exit status 4"),
        ("", ("--tfperf-against=none",), "pytest ended with exit status 4"),
    ]:
        write(project.path, {"conftest.py": conftest})
        found, output = run(project, *arguments)
        assert found == 125, (conftest, arguments, output)
        assert why in output, (conftest, arguments)


@pytest.mark.full
def test_workers_run_the_tests_too(project):
    write(project.path, {"test_step.py": BAD})
    found, output = run(project, "-p", "xdist", "-n2")
    assert (found, output.count("for git bisect")) == (1, 1), output


@pytest.mark.nightly
def test_a_signal_to_end_it_ends_the_run_and_the_search(project, tmp_path):
    begun = tmp_path / "begun"
    text = f"\nimport time\ndef test_b():\n    open({str(begun)!r}, 'w').close()\n    time.sleep(100)\n"
    write(project.path, {"test_step.py": HEAD + text})
    process = subprocess.Popen(
        BISECT,
        cwd=project.path,
        env=project.environment("ended"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(begun.exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM  # above 127, git bisect stops
    until(lambda: not with_variable("TFPERF_TEST_RUN", "ended"))


@pytest.mark.nightly
def test_git_bisect_finds_a_planted_slow_down_among_thirty_commits(tmp_path):
    """Two commits between cannot be imported, which bisect skips; the first and the last are named good and bad."""
    steps = (
        HEAD
        + "import model\n@pytest.mark.tfperf(max_regression='5%')\ndef test_a(tf_profile): tf_profile(model.SECONDS)\n"
    )
    one = Project(tmp_path, {"test_step.py": steps, "src/model.py": "SECONDS = 1.0\n"}, {})
    git(one.path, "tag", "good")
    for n in range(2, N_COMMITS + 1):
        seconds = 1.0 if n < PLANTED else 2.0
        broken = "import none_such\n" if n in (8, 16) else ""
        write(one.path, {"src/model.py": f"{broken}SECONDS = {seconds}\nN = {n}\n"})
        git(one.path, "commit", "-qam", f"change {n}")
    git(one.path, "bisect", "start", "HEAD", "good")
    done = subprocess.run(
        ["git", "bisect", "run", *BISECT, "-q", "--tfperf-against=good"],
        cwd=one.path,
        env={**one.environment("git"), "GIT_CONFIG_GLOBAL": os.devnull},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is the first bad commit" in done.stdout, done.stdout
    assert f"change {PLANTED}\n" in done.stdout.partition("is the first bad commit")[2]
    assert "tfperf: status 0 for git bisect: good" in done.stdout
    assert "tfperf: status 1 for git bisect: bad, step_time REGRESSION in test_a" in done.stdout
    git(one.path, "bisect", "reset")

"""`--tfperf-exit bisect` in processes: whatever becomes of pytest, the status is 0, 1 or 125."""

import os
import signal
import subprocess
import sys

import pytest
from helpers.git_repository import git, write
from helpers.paired_project import Project
from helpers.processes import until, with_variable

HEAD = "import os, signal, sys\nimport pytest\n"
GOOD = f"""{HEAD}
@pytest.mark.tfperf(max_retraces=0)
def test_a(tf_profile):
    tf_profile(1.0, retraces=0)
"""
BAD = GOOD.replace("1.0, retraces=0", "1.0, retraces=2")
N_COMMITS, PLANTED = 30, 19


def run(project, *arguments, **variables):
    """Status and output of a run."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "helpers.fake_profiler",
            "--tfperf-exit=bisect",
            *arguments,
        ],
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


ENDINGS = (
    (GOOD, 0, "good"),
    (BAD, 1, "bad, retraces FAIL in test_a"),
    (GOOD + "    os._exit(0)\n", 125, "pytest ended with exit status 0: status 125"),
    ("import none_such\n", 125, "the run did not come to its end (pytest's status 2)"),
)


@pytest.mark.parametrize(
    ("text", "status", "why"),
    [
        *ENDINGS,
        *(pytest.param(*one, marks=pytest.mark.slow) for one in [
        (GOOD + "    assert 0\n", 125, "a test failed for another reason than its performance"),
        (GOOD + "def test_b(): assert 0\n", 125, "a test failed for another reason"),
        (GOOD.replace("max_retraces=0", "max_regression='5%'"), 125, "step_time INCONCLUSIVE in test_a"),
        ("def test_plain(): pass\n", 125, "no profiled test ran that checks anything"),
        ("", 125, "the run did not come to its end (pytest's status 5)"),
        (GOOD.replace("max_retraces", "max_none"), 125, "pytest's status 2"),
        (GOOD + "    os.kill(os.getpid(), signal.SIGSEGV)\n", 125, "pytest ended with SIGSEGV: status 125"),
        (GOOD + "    pytest.exit('no more', returncode=200)\n", 125, "pytest's status 200"),
        ]),
    ],
)  # fmt: skip
def test_what_a_test_does_decides_the_status(project, text, status, why):
    write(project.path, {"test_step.py": text})
    found, output = run(project)
    assert found == status, output
    assert f"tfperf: status {status} for git bisect: {why}" in output or why in output


@pytest.mark.parametrize(
    ("conftest", "arguments", "why"),
    [
        ("import none_such\n", (), "pytest ended with exit status 4: status 125"),
        ("def pytest_collection_modifyitems(): 1 / 0\n", (), "pytest's status 3"),
        ("", ("--no-such-option",), "pytest ended with exit status 4: status 125"),
        ("", ("--tfperf-against=none",), "pytest ended with exit status 4: status 125"),
        ("", ("no_such_file.py",), "exit status 4"),
    ],
)
def test_a_run_that_cannot_begin_is_not_tested(project, conftest, arguments, why):
    write(project.path, {"conftest.py": conftest})
    found, output = run(project, *arguments)
    assert found == 125, output
    assert why in output


def test_without_the_option_the_status_is_that_of_pytest(project):
    write(project.path, {"conftest.py": "import none_such\n"})
    found, output = run(project, "--tfperf-exit=pytest")
    assert (found, "git bisect" in output) == (4, False)


def test_workers_run_the_tests_too(project):
    write(project.path, {"test_step.py": BAD})
    found, output = run(project, "-p", "xdist", "-n2")
    assert (found, output.count("for git bisect")) == (1, 1), output


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGTERM, 125),
        pytest.param(
            *(signal.SIGKILL, -signal.SIGKILL),
            marks=pytest.mark.skipif(sys.platform != "linux", reason="a death signal is Linux's"),
        ),
    ],
)
def test_a_signal_to_end_it_reaches_the_run(project, tmp_path, number, status):
    begun = tmp_path / "begun"
    text = f"\nimport time\ndef test_b():\n    open({str(begun)!r}, 'w').close()\n    time.sleep(100)\n"
    write(project.path, {"test_step.py": HEAD + text})
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "helpers.fake_profiler", "--tfperf-exit=bisect"],
        cwd=project.path,
        env=project.environment("ended"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(begun.exists)
    process.send_signal(number)
    assert process.wait(60) == status
    until(lambda: not with_variable("TFPERF_TEST_RUN", "ended"))


@pytest.mark.slow
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
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "helpers.fake_profiler",
        "--tfperf-against=good",
        "--tfperf-exit=bisect",
    ]
    done = subprocess.run(
        ["git", "bisect", "run", *command],
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

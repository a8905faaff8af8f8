"""Nothing is left of a paired run, however it ends: no process, no temporary file, no change in the working tree."""

import os
import re
import signal

import pytest
from helpers.paired_project import Project, picture
from helpers.processes import until

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]


@pytest.fixture(autouse=True)
def ahead(monkeypatch):
    """The second pair of processes waits while the first has turns."""
    monkeypatch.setenv("TFPERF_TEST_AHEAD", "1")


# what a test does in a turn, and where; in a child process when it collects
SUITE = """
import os, pathlib, signal, subprocess, sys, time
import pytest

PLACE = os.environ.get("PLACE")
HERE = os.path.exists("here")
STARTED = []

def wait(place):
    if place == PLACE:
        pathlib.Path(os.environ["SIGN"]).write_text("")
        time.sleep(600)

if "pytest_tfperf.turns.child_plugin" in sys.modules:
    wait("collecting here" if HERE else "collecting there")
signal.signal(signal.SIGUSR1, lambda *_: pytest.fail("too slow", pytrace=False))  # as plugins for time limits do

@pytest.fixture
def used():
    yield
    with open(os.environ.get("TORN_DOWN", os.devnull), "a") as file:
        file.write("here " if HERE else "there ")

def test_first(tf_profile, used):
    STARTED.append(subprocess.Popen(["sleep", "600"]))
    def during(n):
        if n == 3:
            wait("turn here" if HERE else "turn there")
    tf_profile(1.0, during=during)
    wait("ending here" if HERE else "ending there")

def test_plain():
    if PLACE == "crash":
        os.abort()
    wait("plain")

def test_slower(tf_profile):
    def during(n):
        if n == 3:
            wait("slower here" if HERE else "slower there")
    tf_profile(1.2 if HERE else 1.0, during=during)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    one = Project(tmp_path_factory.mktemp("left"), {"test_suite.py": SUITE}, {"here": ""})
    before = picture(one.path)
    yield one
    assert picture(one.path) == before


@pytest.fixture
def start(project, tmp_path):
    """A run that has come to a place, where it waits."""

    def start(place, *arguments):
        run = project.start(
            "-v",
            *arguments,
            PLACE=place,
            SIGN=str(tmp_path / "sign"),
            TORN_DOWN=str(tmp_path / "torn down"),
        )
        until((tmp_path / "sign").exists)
        assert run.cleanup()
        return run

    return start


@pytest.mark.parametrize(
    "place",
    [
        "turn there",
        "plain",
        pytest.param("turn here", marks=pytest.mark.nightly),
        pytest.param("collecting there", marks=pytest.mark.nightly),
    ],
)
def test_interrupted(start, place, tmp_path):
    run = start(place)
    os.kill(run.process.pid, signal.SIGINT)
    run.ended()
    if place != "collecting there":
        assert sorted((tmp_path / "torn down").read_text().split()) == [
            "here",
            "there",
        ]  # as fixtures are after any Ctrl-C
    assert run.status == pytest.ExitCode.INTERRUPTED
    assert "KeyboardInterrupt" in run.text


@pytest.mark.parametrize(
    ("place", "number"),
    [
        ("turn here", signal.SIGKILL),
        pytest.param("turn there", signal.SIGKILL, marks=pytest.mark.nightly),
        pytest.param("turn there", signal.SIGTERM, marks=pytest.mark.nightly),
    ],
)
def test_the_coordinator_is_killed(start, place, number):
    run = start(place)
    assert (
        len(run.processes()) == 7
    )  # the cleanup, two pairs of children, and what the test has started in the first
    os.kill(run.process.pid, number)
    assert run.ended().status == -number


@pytest.mark.nightly
def test_the_coordinator_crashes(project):
    assert project.run(PLACE="crash").status == -signal.SIGABRT


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("place", "victims"),
    [("turn here", ["tree"]), ("turn there", ["ref"]), ("turn there", ["tree", "ref"])],
)
def test_a_version_is_killed(start, place, victims):
    run = start(place, "-k", "test_first")
    for victim in victims:
        os.kill(run.child(victim), signal.SIGKILL)
    run.ended()
    assert run.status == 1
    assert "ended with SIGKILL" in (
        run.text if "tree" in victims else run.checks("test_first")["", "against"][1]
    )


@pytest.mark.nightly
def test_the_cleanup_is_killed(start):
    run = start("plain")
    os.kill(run.cleanup(), signal.SIGKILL)
    os.kill(run.process.pid, signal.SIGINT)
    assert run.ended().status == pytest.ExitCode.INTERRUPTED


@pytest.mark.nightly
def test_the_coordinator_is_killed_while_a_second_pair_runs(project):
    run = project.start("-k", "test_slower")
    until(lambda: len(run.processes()) == 5)  # the cleanup and two pairs
    os.kill(run.process.pid, signal.SIGKILL)
    assert run.ended().status == -signal.SIGKILL


@pytest.mark.parametrize(
    ("place", "who"),
    [
        ("turn here", "the working tree's process"),
        ("ending there", "the process on HEAD"),
        pytest.param("turn there", "the process on HEAD", marks=pytest.mark.nightly),
        pytest.param(
            "collecting there",  # they collect at the same time
            "(the working tree's process|the process on HEAD)",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_limit_of_time_names_the_awaited_process(start, place, who):
    run = start(place, "-k", "test_first")
    os.kill(run.process.pid, signal.SIGUSR1)
    run.ended()
    assert run.status == 1
    assert re.search(f"^too slow\n  {who} had not answered$", run.text, re.MULTILINE)
    assert run.text.count("\ntoo slow\n") == 1

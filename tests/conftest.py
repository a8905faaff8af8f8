"""Tests say themselves what GitHub Actions they run in, and what other plugins: none, where they say nothing."""

import gc
import os
import re
import signal
import subprocess
import sys
import tempfile
from multiprocessing.process import BaseProcess

import hypothesis
import msgspec  # noqa: F401 - pytester removes modules that its test imported first
import pytest
from helpers.paths import TESTS

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# TensorFlow's default depends on the processor, and with it what Grappler fuses and who allocates.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

hypothesis.settings.register_profile("busy machine", deadline=None)
hypothesis.settings.load_profile("busy machine")

ADDOPTS = "PYTEST_ADDOPTS"
_WORKER = (
    "PYTEST_XDIST_WORKER",
    "PYTEST_XDIST_WORKER_COUNT",
    "PYTEST_XDIST_TESTRUNUID",
)  # what tests start is none


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):  # in the background of a shell; what tests start is to hear Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ[ADDOPTS] = _without_neighbours(config)
    if hasattr(config, "workerinput"):
        _use_own_temporary_folder(config)
    os.environ["XDG_CACHE_HOME"] = str(config._tmp_path_factory.getbasetemp() / "cache")
    if os.environ.get("CI"):
        os.environ["TFPERF_TESTS_IN_CI"] = "1"
    # CI and BUILD_NUMBER change what pytest itself prints, the last ones how wide and in which colours.
    for name in (
        "CI",
        "BUILD_NUMBER",
        "GITHUB_ACTIONS",
        "GITHUB_STEP_SUMMARY",
        "GITHUB_WORKSPACE",
        "COLUMNS",
        "FORCE_COLOR",
        "NO_COLOR",
        *_WORKER,
    ):
        os.environ.pop(name, None)


def _use_own_temporary_folder(config):
    """Keep the locks of a worker from those of another: no test of this suite judges a time."""
    folder = config._tmp_path_factory.getbasetemp() / "tmp"
    folder.mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)


@pytest.fixture
def pytester(pytester, pytestconfig, monkeypatch):
    """pytest's own, which forgets the options of the environment."""
    monkeypatch.setenv(ADDOPTS, _without_neighbours(pytestconfig))
    return pytester


def _without_neighbours(config):
    """No plugins but xdist in the runs that tests start; importing Hypothesis takes as long as all of pytest."""
    others = [option for option in config.getini("addopts") if option.startswith("-pno:")]
    return " ".join([*others, "-pno:hypothesispytest"])


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Let the garbage collector walk nothing of what is imported and collected, neither now nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


LATER_TIERS = {"not full and not nightly": "full|nightly", "full and not nightly": "nightly"}
FILE_OF = r"^pytestmark = (?:\[\n(?: .*\n)*? )?.*\bmark\.(?:%s)\b"


def pytest_ignore_collect(collection_path, config):
    """Leave files of later tiers unread in the fast and the full one: their packages need not be installed."""
    later = LATER_TIERS.get(config.option.markexpr)
    if later and collection_path.suffix == ".py":
        text = collection_path.read_text(encoding="utf-8")
        return bool(re.search(FILE_OF % later, text, re.MULTILINE)) or None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark tests of TensorFlow by their folder, and those that start processes by the fixture that lets them."""
    for item in items:
        if item.path.is_relative_to(TESTS / "tensorflow"):
            item.add_marker("tf")
        if "processes" in item.fixturenames:
            item.add_marker("process")


@pytest.fixture(scope="session")
def processes():
    """Tests that start processes ask for this; others fail as soon as they start one."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Let no test start a process that does not say so, but for the shell script that stands for Graphviz's dot."""
    with pytest.MonkeyPatch.context() as patch:
        if not {"processes", "fake_graphviz"} & set(item.fixturenames):
            patch.setattr(subprocess.Popen, "__init__", _started)
            patch.setattr(os, "fork", _started)
            patch.setattr(BaseProcess, "start", _started)
        return (yield)


def _started(*arguments, **options):
    pytest.fail("a test that starts a process uses the fixture `processes`")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item):
    """
    Destroy the test's iterators of tf.data while they are young.

    The destructor sometimes waits for as long as the iterator has lived, up to a minute: TensorFlow wakes the thread that
    optimises the pipeline before it marks it as cancelled (core/framework/cancellation.cc, model.cc). What survives is frozen,
    so that the next collection walks new objects only.
    """
    if item.get_closest_marker("tf"):
        gc.collect()
        gc.freeze()


@pytest.fixture
def place(tmp_path):
    """The baseline files of one test file."""
    from pytest_tfperf.baseline.store import Place

    return Place.of("tests/test_model.py", tmp_path, None)


@pytest.fixture
def cleanup():
    """A cleanup process, ended with the test."""
    from pytest_tfperf.turns.cleanup import Cleanup

    one = Cleanup()
    yield one
    one.close()


@pytest.fixture
def fake_graphviz(monkeypatch, tmp_path_factory):
    """Put a shell script on PATH in place of Graphviz's dot, and return its folder."""

    def put(script):
        folder = tmp_path_factory.mktemp("bin")
        (folder / "dot").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "dot").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=":")
        return folder

    return put


@pytest.fixture
def profile():
    """A `tf_profile` of real TensorFlow in this process, with windows of 3, 12 and 6 steps."""
    from helpers.profilers import profiler as new_profiler

    profiler = new_profiler({"warmup": 3, "steps": 12, "trace_steps": 6})
    yield profiler
    profiler.close()


PRELUDE = """
import numpy as np
import pytest
import tensorflow as tf

DATA = [tf.ones((8, 8))] * 4
STEP_ARGUMENTS = dict(warmup=2, steps=4, trace_steps=3)
"""


@pytest.fixture(scope="session")
def tensorflow_loaded():
    """Load TensorFlow before `pytester` takes note of the modules, since it removes later ones."""
    import keras  # noqa: F401
    import tensorflow  # noqa: F401

    import pytest_tfperf.plugin.conclude
    import pytest_tfperf.plugin.fixture  # noqa: F401


@pytest.fixture
def suite(tensorflow_loaded, pytester, monkeypatch):
    """Write a test file with the usual imports, then run pytest on it in this process."""
    monkeypatch.setenv("COLUMNS", "80")
    # what else the machine does is no matter of these tests
    monkeypatch.setattr("pytest_tfperf.machine.conditions.share_lost", lambda *_: 0.0)

    def write(body, name="test_suite"):
        pytester.makepyfile(**{name: PRELUDE + body})

    def run(*arguments):
        result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-W", "ignore", *arguments)
        for name in [name for name in vars(sys) if name.startswith("last_")]:
            delattr(sys, name)  # a failure's frames hold iterators of tf.data
        gc.collect()
        return result

    def gives(body, *lines, **outcomes):
        """Tests of this body have these outcomes, and lines like these are among those printed, in this order."""
        write(body)
        result = run()
        result.assert_outcomes(**outcomes)
        result.stdout.fnmatch_lines(lines)
        return result

    def regresses(before, after, *lines):
        """A test that is recorded with one body fails with the other, and lines like these are printed."""
        write(before)
        run("--tfperf-update").assert_outcomes(passed=1)
        write(after)
        result = run("--tfperf-baseline", "--tfperf-only=structural")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(lines)

    run.write, run.gives, run.regresses = write, gives, regresses
    run.path = pytester.path
    return run

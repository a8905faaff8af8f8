"""Tests say themselves what GitHub Actions they run in, and what other plugins: none, where they say nothing."""

import os
import signal

import pytest

ADDOPTS = "PYTEST_ADDOPTS"
_WORKER = (
    "PYTEST_XDIST_WORKER",
    "PYTEST_XDIST_WORKER_COUNT",
    "PYTEST_XDIST_TESTRUNUID",
)  # what tests start is none


def pytest_configure(config):
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):  # in the background of a shell; what tests start is to hear Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ[ADDOPTS] = _without_neighbours(config)
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", *_WORKER):
        os.environ.pop(name, None)


@pytest.fixture
def pytester(pytester, pytestconfig, monkeypatch):
    """pytest's own, which forgets the options of the environment."""
    monkeypatch.setenv(ADDOPTS, _without_neighbours(pytestconfig))
    return pytester


def _without_neighbours(config):
    return " ".join(option for option in config.getini("addopts") if option.startswith("-pno:"))

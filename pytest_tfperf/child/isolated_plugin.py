"""
The pytest plugin that runs one test in a process of its own, and writes its reports where `own_process` reads them.

It is loaded by name, in that process alone.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, TextIO

import pytest

from pytest_tfperf.child.base_plugin import Reporting, run_only, silenced
from pytest_tfperf.child.isolated_test import EVENTS, TASK
from pytest_tfperf.child.reports import GRACE_S, names_in_file


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the task is, and its reports are written."""
    parser.addoption("--tfperf-own-process", metavar="FOLDER", help=argparse.SUPPRESS)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """Before stdin is captured: end when it says so, or ends because whoever holds its other end was killed."""
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    threading.Thread(
        target=_end_with,
        args=(lifeline, early_config.known_args_namespace.tfperf_own_process),
        daemon=True,
    ).start()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """Ask for this one test and nothing else."""
    folder = Path(config.option.tfperf_own_process)
    task = json.loads((folder / TASK).read_text("utf-8"))
    run_only(config, [task["file"]], task["basetemp"], task["argv"], task["options"])
    if task["workerinput"] is not None:
        config.workerinput, config.workeroutput = task["workerinput"], {}  # type: ignore[attr-defined]
    with (folder / EVENTS).open("w", encoding="utf-8", buffering=1) as events, silenced(config):
        config.pluginmanager.register(_OneTest(config, task["names"], events))
        return (yield)


class _OneTest(Reporting):
    """Leaves one test of those that are collected, and writes what is to be known of it."""

    def __init__(self, config: pytest.Config, names: list[str], events: TextIO) -> None:
        super().__init__(config)
        self._names = names
        self._events = events

    def send(self, **event: Any) -> None:
        """One JSON object a line."""
        self._events.write(json.dumps(event, default=str) + "\n")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        """The test, whatever else the options of the run select."""
        found = [item for item in items if names_in_file(item) == self._names]
        yield
        items[:] = found[:1]
        if not found:
            why = "\n".join(
                [
                    "the process of its own that autocluster=True gives a test did not collect it",
                    *self.errors.values(),
                ]
            )
            self.send(missing=why)


def _end_with(lifeline: int, folder: str) -> None:
    """Wait until a pipe says that this process is to end, or ends itself; then do so in order, or else at once."""
    if not os.read(lifeline, 1):
        atexit.register(shutil.rmtree, folder, ignore_errors=True)  # nobody else is left to do it
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(GRACE_S)
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL) if hasattr(os, "killpg") else os._exit(1)

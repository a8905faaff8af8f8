"""Start pytest in a child process, as this run was started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_tfperf.child.cleanup import Cleanup
from pytest_tfperf.child.messages import Task
from pytest_tfperf.child.process import ChildProcess, Launch
from pytest_tfperf.values import Json

PLUGIN = "pytest_tfperf.child.server"
OPTION = "--tfperf-child"

# with these in the environment every Python that starts is covered (coverage, control.py)
_FROM_COVERAGE = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
_SAME_OPTIONS = ("randomly_seed",)
_MOST_OWN_ARGUMENTS = 4  # that `PytestRun.command` puts before those of this run

SAME_ENVIRONMENT = {
    "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # of JAX
}
"""Variables of children whose times are compared; they must share GPU memory and hash alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PytestRun(Launch):
    """A run of pytest in a child process that collects some files and runs the tests it is told."""

    root: Path
    """Folder that node keys and `files` start from."""
    files: Sequence[str]
    """Test files to collect; those that do not exist are left out."""
    path: Sequence[str]
    """The `sys.path` that pytest starts with."""
    arguments: Sequence[str]
    """Arguments of pytest."""
    options: Mapping[str, Any]
    """Options that override those of the arguments, by their names in `config.option`."""
    basetemp: str | None = None
    """Base folder of `tmp_path`; None for pytest's own."""
    worker: Json | None = None
    """The `workerinput` of xdist, if this process is one of its workers."""
    is_covered: bool = False
    """True if pytest-cov is loaded, which the child must not start."""
    is_coordinated: bool = True
    """True if profiles take turns and are judged by this process."""
    extension: tuple[str, Json] | None = None
    """A module with an `extension` function, and the data that it is called with."""
    python: str | None = None
    """Path of another Python that runs it; None for the one of this process."""

    def command(self, fd: int) -> list[str]:
        """Return the command that runs pytest."""
        start = (
            f"import sys; sys.path[:] = {[str(entry) for entry in self.path]!r}; "
            "import pytest; sys.exit(pytest.main())"
        )
        uncovered = ["--no-cov"] if self.is_covered else []
        flags = interpreter_flags(other=self.python is not None)
        own = [*uncovered, "-p", PLUGIN, f"{OPTION}={fd}"]
        return [self.python or sys.executable, *flags, "-c", start, *own, *self.arguments]

    def task(self, scratch: Path) -> Task:
        """Return the first message to the process."""
        return Task(
            root=str(self.root),
            files=list(self.files),
            basetemp=self.basetemp,
            argv=sys.argv,
            options=self.options,
            workerinput=self.worker,
            coordinated=self.is_coordinated,
            extension=self.extension,
            scratch=str(scratch),
        )


def same_run(config: pytest.Config, label: str, root: Path, files: Sequence[str]) -> PytestRun:
    """
    Return a run with the path, arguments, folder and environment of this one.

    Args:
        config: The configuration of this run.
        label: Name of the process in messages.
        root: Folder that node keys and `files` start from.
        files: Test files to collect.
    """
    factory = getattr(config, "_tmp_path_factory", None)
    return PytestRun(
        label=label,
        root=root,
        files=files,
        path=tuple(sys.path),
        arguments=invocation_arguments(config),
        folder=Path(config.invocation_params.dir),
        environment={**uncovered_environment(), **SAME_ENVIRONMENT},
        options=_same_options(config),
        basetemp=str(factory.mktemp("child")) if factory else None,
        worker=getattr(config, "workerinput", None),
        is_covered=config.pluginmanager.hasplugin("pytest_cov"),
    )


def start_pytest(run: PytestRun, cleanup: Cleanup) -> ChildProcess:
    """
    Start the process; it collects while others start, and `await_collected` waits for it.

    Raises:
        PairedError: If it cannot be started, has ended, or does not read its task.
    """
    child = ChildProcess(run, cleanup)
    try:
        child.send(run.task(cleanup.folder))
        child.is_awaited = True
    except BaseException:
        child.kill()
        raise
    return child


def invocation_arguments(config: pytest.Config) -> list[str]:
    """Return the arguments of this run; in a child process without those that its parent added."""
    arguments = [str(argument) for argument in config.invocation_params.args]
    own = [
        index
        for index, argument in enumerate(arguments[:_MOST_OWN_ARGUMENTS])
        if argument.startswith(f"{OPTION}=")
    ]
    return arguments[own[0] + 1 :] if own else arguments


def interpreter_flags(other: bool = False) -> list[str]:
    """Return the flags of this Python that a child has too; another one may not know -P."""
    # as multiprocessing does
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [flag for flag in flags if not (other and flag == "-P")]


def is_child(config: pytest.Config) -> bool:
    """Return whether this process was started by `start_pytest`."""
    return getattr(config.option, "tfperf_child", None) is not None


def shows_output(config: pytest.Config) -> bool:
    """Return whether tests of this run print to the terminal, as with `-s`."""
    return getattr(config.option, "capture", "no") != "fd"


def uncovered_environment() -> dict[str, str]:
    """Return the environment without what lets coverage follow Python into child processes."""
    return {name: value for name, value in os.environ.items() if name not in _FROM_COVERAGE}


def _same_options(config: pytest.Config) -> dict[str, Any]:
    """Return the options that this run drew at random, such as the seed of pytest-randomly."""
    return {
        name: getattr(config.option, name) for name in _SAME_OPTIONS if hasattr(config.option, name)
    }

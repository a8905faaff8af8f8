"""Parent side of a child process: start it, talk to it, stop it and end it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_tfperf.errors import PairedError
from pytest_tfperf.machine.cores import pin_threads, pinned
from pytest_tfperf.turns.cleanup import Cleanup
from pytest_tfperf.turns.cleanup_script import GRACE_S
from pytest_tfperf.turns.messages import (
    Channel,
    Collected,
    Doing,
    FromChild,
    Message,
    Part,
    Play,
    Reported,
    Run,
    Stopped,
    Task,
    Warned,
)
from pytest_tfperf.values import Json

READY_S = 600.0
"""Seconds that a child may take to answer by default: it collects, compiles and trains in them."""
_STOP_S, _STOP_POLL_S = 1.0, 0.0002
_STOPPED = sum(getattr(os, name, 0) for name in ("WSTOPPED", "WEXITED", "WNOHANG", "WNOWAIT"))
# seconds between two looks whether the process has ended: what it started may hold its connection
_GLANCE_S = 1.0
_OUTPUT_LINES = 12
_OTHER_NAMES = (
    "  collected a second time, the tests have other names; "
    "see that parameters and their ids are the same each time"
)


def can_start_processes() -> bool:
    """Return whether this system can stop processes and let them go on."""
    return hasattr(signal, "SIGSTOP") and hasattr(os, "killpg")


class ProcessLost(PairedError):
    """A child process ended, or did not answer in time and was ended."""

    def __init__(self, label: str, how: str, output: str) -> None:
        super().__init__(f"{label} {how}{output}")
        self.status = how.removeprefix("ended with ")
        """How it ended: an exit status, a signal, or that it did not answer."""
        self.output = output
        """The last lines that it printed."""


class RunStopped(PairedError):
    """A child process stopped its run before it had collected, as pytest.exit does."""

    def __init__(self, label: str, why: str, output: str) -> None:
        super().__init__(f"{label} stopped before it had collected: {why}{output}")
        self.why = why


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a child process starts, and how it is treated."""

    label: str
    folder: Path
    environment: Mapping[str, str]
    """Environment variables, all of them."""
    cores: Sequence[int] = ()
    """Cores that the process is pinned to; empty for any."""
    shows_output: bool = False
    """True if it prints where this process does; else its output is kept for messages."""
    pauses: bool = True
    """True if the process is stopped while nobody waits for it."""
    patience_s: float | None = None
    """Longest wait for an answer, in seconds; None for READY_S."""

    @abstractmethod
    def command(self, fd: int) -> list[str]:
        """Return the command of the process, which finds its socket to this one at `fd`."""


class ChildProcess:
    """
    A process, in a group of its own, that runs tests which this one names. Raises: PairedError.

    If it pauses, it stands still after `next_event` until the next call. `reports` and `warnings`
    are what it sent of the running test, and `doing` what it said last of a long task. `is_awaited`
    tells that it has not answered its task or a call of `next_event`, also one that was given up.
    """

    def __init__(self, launch: Launch, cleanup: Cleanup) -> None:
        self.label = launch.label
        self.reports: list[Json] = []
        self.warnings: list[Warned] = []
        self.collected: frozenset[str] = frozenset()
        self.profiled: tuple[str, ...] = ()
        self.has_ended = False
        self.is_awaited = False
        self.doing = Doing()
        self._errors: Mapping[str, str] = {}
        self._next: FromChild | None = None
        self._pauses, self._patience_s = launch.pauses, launch.patience_s
        self._cleanup = cleanup
        with ExitStack() as unless_started:  # a time limit or Ctrl-C may end this at any line
            self._output = unless_started.enter_context(tempfile.TemporaryFile())
            ours, theirs = socket.socketpair()
            self._channel = Channel[FromChild](ours, FromChild, READY_S)
            unless_started.callback(self._channel.close)
            try:
                with theirs, pinned(launch.cores):
                    self._process = self._start(launch, theirs.fileno())
            except OSError as error:
                raise PairedError(
                    f"{self.label} cannot be started in {launch.folder}: {error}"
                ) from error
            unless_started.callback(self.kill)
            cleanup.watch(self._process.pid)
            unless_started.pop_all()

    def _start(self, launch: Launch, fd: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            launch.command(fd),
            stdin=subprocess.DEVNULL,
            stdout=None if launch.shows_output else self._output,
            stderr=None if launch.shows_output else subprocess.STDOUT,
            cwd=launch.folder,
            env=dict(launch.environment),
            pass_fds=[fd],
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Id of the process, and of its group."""
        return self._process.pid

    @property
    def status(self) -> str:
        """Exit status, or the signal that ended it; call after its end."""
        return _status(self._process.returncode)

    def await_collected(self, test: str | None = None) -> None:
        """Wait until it has collected, also `test` if given. Raises: PairedError."""
        message = self.next_event()
        if not isinstance(message, Collected):
            why = message.why if isinstance(message, Stopped) else f"it sent {message}"
            error = RunStopped(self.label, why, self.output())
            self.kill()
            raise error
        self.collected, self.profiled = frozenset(message.tests), tuple(message.profiled)
        self._errors = message.errors
        if test is not None:
            self.require(test)

    def require(self, test: str) -> None:
        """Demand that it has collected a test. Raises: PairedError, with the errors of its file."""
        if test not in self.collected:
            why = self.errors_of(test) or _OTHER_NAMES
            raise PairedError(f"{self.label} has no test of this name:\n{why}")

    def errors_of(self, test: str) -> str:
        """Return the collection errors of a test's file, and of the folders that hold it."""
        file = test.partition("::")[0]
        return "\n".join(
            text
            for node, text in self._errors.items()
            if file == node or file.startswith(f"{node}/") or node in ("", ".")
        )

    def send(self, message: Message) -> None:
        """Send a message, and let it go on. Raises: ProcessLost if it ended or does not read."""
        self._signal(signal.SIGCONT)  # or it could not read a long message
        try:
            self._channel.send(message)
        except EOFError as error:
            raise self._lost() from error
        except TimeoutError as error:
            raise self._hung(READY_S) from error

    def run(self, test: str, following: str | None = None, part: Part | None = None) -> None:
        """Name the test that it is to run; see `messages.Run`. Raises: as `send`."""
        self.reports, self.warnings = [], []
        self.send(Run(test=test, following=following, part=part))

    def end_turns(self) -> None:
        """Tell a profile that waits for turns that there are no more. Raises: as `send`."""
        if self._next is None:
            self.send(Play(turn=None))

    def put_back(self, event: FromChild) -> None:
        """Return this event again from the next call of `next_event`."""
        self._next = event

    def next_event(self, seconds: float | None = None) -> FromChild:
        """
        Let it run until it sends an event that wants an answer; keep its reports and warnings.

        It has `seconds`, or the patience of its launch if that is less. Raises: ProcessLost.
        """
        patience_s = READY_S if self._patience_s is None else self._patience_s
        seconds = patience_s if seconds is None else min(seconds, patience_s)
        try:
            return self.event_within(seconds)
        except TimeoutError as error:
            raise self._hung(seconds) from error

    def event_within(self, seconds: float, watch: Callable[[], object] = lambda: None) -> FromChild:
        """
        Return the next event as `next_event` does; without one the process goes on.

        `watch` is called about each second, and may raise; a message `Doing` names another wait
        than `seconds`. Raises: ProcessLost, TimeoutError.
        """
        if self._next is not None:
            event, self._next = self._next, None
            return event
        self.is_awaited = True
        self._signal(signal.SIGCONT)
        try:
            while True:
                event = self._receive(seconds, watch)
                if isinstance(event, Reported):
                    self.reports.append(event.report)
                elif isinstance(event, Warned):
                    self.warnings.append(event)
                elif isinstance(event, Doing):
                    self.doing, seconds = event, event.seconds
                else:
                    self.is_awaited = False
                    return event
        except EOFError as error:
            raise self._lost() from error
        finally:
            if not self.has_ended and self._pauses:
                self._stop()

    def move_to(self, cores: Sequence[int]) -> None:
        """Pin all its threads to these cores; empty for any."""
        pin_threads(self.pid, cores)

    def dismiss(self) -> None:
        """Let it end in order, which `close` awaits."""
        if not self.has_ended:
            self._channel.close()
            self._signal(signal.SIGCONT)

    def close(self, grace_s: float | None = None) -> None:
        """End it in order, within `grace_s` or the default, or else at once."""
        if self.has_ended:
            return
        self.dismiss()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S if grace_s is None else grace_s)
        self.kill()

    def interrupt(self, grace_s: float | None = None) -> None:
        """End it as Ctrl-C does, with fixtures torn down, or else at once; `grace_s` as `close`."""
        if not self.has_ended:
            self._signal(signal.SIGINT)
        self.close(grace_s)

    def kill(self) -> None:
        """End it at once, with all that it has started."""
        if self.has_ended:
            return
        self.has_ended = True
        self._channel.close()
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._cleanup.forget(self._process.pid)
        self._output.close()

    def output(self) -> str:
        """Return the last lines that it printed, each on a line of its own, or nothing."""
        if self._output.closed:
            return ""
        self._output.seek(0)
        return _excerpt(self._output.read().decode(errors="replace"))

    def _receive(self, seconds: float, watch: Callable[[], object]) -> FromChild:
        deadline = time.monotonic() + seconds
        while True:
            ended = self._process.poll() is not None
            try:
                return self._channel.receive(min(_GLANCE_S, max(0.0, deadline - time.monotonic())))
            except TimeoutError:
                if ended:
                    raise EOFError("the process has ended") from None
                if time.monotonic() >= deadline:
                    raise
                watch()

    def _lost(self) -> ProcessLost:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S)
        code = self._process.poll()
        how = "closed its connection" if code is None else f"ended with {_status(code)}"
        error = ProcessLost(self.label, how, self.output())
        self.kill()
        return error

    def _hung(self, seconds: float) -> ProcessLost:
        error = ProcessLost(self.label, f"did not answer within {seconds:.0f} s", self.output())
        self.kill()
        return error

    def _stop(self) -> None:
        """Stop it, and wait until all its threads stand still: a busy machine takes a moment."""
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + _STOP_S
        # it may have ended, and macOS has no waitid before Python 3.13
        with suppress(ChildProcessError, AttributeError):
            while (
                time.monotonic() < deadline
                and os.waitid(os.P_PID, self._process.pid, _STOPPED) is None
            ):
                time.sleep(_STOP_POLL_S)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _status(code: int) -> str:
    """Return an exit status as text, or the name of the signal that a negative one stands for."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _excerpt(output: str) -> str:
    """Return the lines from where faulthandler shows the line that crashed, else the last ones."""
    lines = output.rstrip().splitlines()
    if not lines:
        return ""
    crash = (n for n, line in enumerate(lines) if line.startswith("Current thread"))
    start = next(crash, max(len(lines) - _OUTPUT_LINES, 0))
    shown = ["its stderr:", *lines[start : start + _OUTPUT_LINES]]
    return "".join(f"\n  {line}" for line in shown)


PLUGIN = "pytest_tfperf.turns.child_plugin"
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

    task: Task
    path: Sequence[str]
    arguments: Sequence[str]
    is_covered: bool = False
    """True if pytest-cov is loaded, which the child must not start."""
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


def same_run(config: pytest.Config, label: str, root: Path, files: Sequence[str]) -> PytestRun:
    """Return a run with the path, arguments, folder and environment of this one."""
    factory = getattr(config, "_tmp_path_factory", None)
    return PytestRun(
        label=label,
        task=Task(
            root=str(root),
            files=list(files),
            argv=sys.argv,
            options=_same_options(config),
            basetemp=str(factory.mktemp("child")) if factory else None,
            workerinput=getattr(config, "workerinput", None),
        ),
        path=tuple(sys.path),
        arguments=invocation_arguments(config),
        folder=Path(config.invocation_params.dir),
        environment={**uncovered_environment(), **SAME_ENVIRONMENT},
        is_covered=config.pluginmanager.hasplugin("pytest_cov"),
    )


def start_pytest(run: PytestRun, cleanup: Cleanup) -> ChildProcess:
    """Start the process, which collects until `await_collected` is called. Raises: PairedError."""
    child = ChildProcess(run, cleanup)
    try:
        child.send(msgspec.structs.replace(run.task, scratch=str(cleanup.folder)))
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

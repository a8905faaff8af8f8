"""A side as its referee sees it: a process that is stopped whenever it is not its turn."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_tfperf.child.channel import Channel
from pytest_tfperf.child.cleanup import Janitor
from pytest_tfperf.child.reports import (
    GRACE_S,
    alike_options,
    excerpt,
    given_arguments,
    kill,
    pytest_command,
    status_text,
    uncovered_environment,
)
from pytest_tfperf.child.server import PLUGIN
from pytest_tfperf.errors import PairedError
from pytest_tfperf.machine.cores import pinned

READY_S = 600.0
"""How long a side may take to answer where it is not told how long: it collects, compiles and trains meanwhile."""
_STOP_S, _STOP_POLL_S = 1.0, 0.0002
_STOPPED = sum(getattr(os, name, 0) for name in ("WSTOPPED", "WEXITED", "WNOHANG", "WNOWAIT"))
_GLANCE_S = 1.0  # what a process has started may keep its connection open when it is no more: it is looked after this often


class Lost(PairedError):
    """A process ended, or did not answer in time; it is no more."""


class Player:
    """
    A process that plays turns, in a process group of its own.

    `command` gives what is run, told the file descriptor of the socket that it has. `label` names it in messages; `reports` and
    `warnings` are what it has sent of the running test. After `next_event` it stands still until the next call; `is_awaited` says
    that it has not answered one, also where that was given up.

    Raises:
        PairedError: If it cannot be started.
    """

    def __init__(
        self,
        label: str,
        command: Callable[[int], Sequence[str]],
        cwd: Path,
        environment: Mapping[str, str],
        cores: Sequence[int],
        janitor: Janitor,
        shows_output: bool = False,
    ) -> None:
        self.label = label
        self.reports: list[Any] = []
        self.warnings: list[Any] = []
        self.collected: frozenset[str] = frozenset()
        self.profiled: tuple[str, ...] = ()
        self._errors: dict[str, str] = {}
        self.has_ended = False
        self.is_awaited = False
        self._next: dict[str, Any] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - until it is killed
        self._janitor = janitor
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours)
        try:
            with theirs, pinned(cores):
                self._process = subprocess.Popen(
                    command(theirs.fileno()),
                    stdin=subprocess.DEVNULL,
                    stdout=None if shows_output else self._output,
                    stderr=None if shows_output else subprocess.STDOUT,
                    cwd=cwd,
                    env=dict(environment),
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except OSError as error:
            self._channel.close()
            self._output.close()
            raise PairedError(f"{label} cannot be started in {cwd}: {error}") from error
        janitor.watch(self._process.pid)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def await_collected(self, seconds: float | None = None) -> None:
        """
        Wait until it has collected what it was told to: its tests are then in `collected`, those that are profiled in `profiled`.

        Raises:
            PairedError: If it ended, or was not ready in time.
        """
        event = self.next_event(seconds)
        if "collected" not in event:
            error = PairedError(
                f"{self.label} stopped before it had collected: {event.get('stopped')}{self.output()}"
            )
            self.kill()
            raise error
        self.collected, self.profiled, self._errors = (
            frozenset(event["collected"]),
            tuple(event["profiled"]),
            event["errors"],
        )

    def errors_of(self, test: str) -> str:
        """What could not be collected of a test's file, or of the folders that it is in."""
        file = test.partition("::")[0]
        return "\n".join(
            text
            for node, text in self._errors.items()
            if file == node or file.startswith(f"{node}/") or node in ("", ".")
        )

    def say(self, **message: Any) -> None:
        """
        Answer what it has asked last, or name a test, and let it go on; what it does then is for `next_event`.

        Raises:
            PairedError: If it has ended, or does not listen.
        """
        self._signal(signal.SIGCONT)  # it could not take in a long message otherwise
        try:
            self._channel.send(READY_S, **message)
        except EOFError as error:
            raise self._lost() from error
        except TimeoutError as error:
            raise self._hung(READY_S) from error

    def run(self, test: str, following: str | None, part: Mapping[str, Any] | None = None) -> None:
        """Name the test that it is to run, and what its part is if it runs it for one variant. Raises: as `say`."""
        self.reports, self.warnings = [], []
        self.say(run=test, next=following, part=part)

    def end_turns(self) -> None:
        """Answer a profile that waits for turns that there are no more. Raises: as `say`."""
        if self._next is None:
            self.say(turn=None)

    def put_back(self, event: dict[str, Any]) -> None:
        """Give this event again when it is asked for the next."""
        self._next = event

    def next_event(self, seconds: float | None = None) -> dict[str, Any]:
        """
        Let it go on until it says something that wants an answer, and then stop it; reports and warnings are kept.

        Raises:
            PairedError: If it ended, or said nothing for so long (None: READY_S, which is the most); then it is ended.
        """
        seconds = READY_S if seconds is None else min(seconds, READY_S)
        if self._next is not None:
            event, self._next = self._next, None
            return event
        self.is_awaited = True
        self._signal(signal.SIGCONT)
        try:
            while True:
                event = self._receive(seconds)
                if "report" in event:
                    self.reports.append(event["report"])
                elif "warning" in event:
                    self.warnings.append(event["warning"])
                else:
                    self.is_awaited = False
                    return event
        except EOFError as error:
            raise self._lost() from error
        except TimeoutError as error:
            raise self._hung(seconds) from error
        finally:
            if not self.has_ended:
                self._stop()

    def close(self) -> None:
        """End it in order, or else at once."""
        if self.has_ended:
            return
        self._channel.close()
        self._signal(signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S)
        self.kill()

    def interrupt(self) -> None:
        """End it as Ctrl-C does, so that its fixtures are torn down and what its libraries remove at exit is removed; or else at once."""
        if not self.has_ended:
            self._signal(signal.SIGINT)
        self.close()

    def kill(self) -> None:
        """End it at once, with all that it has started."""
        if self.has_ended:
            return
        self.has_ended = True
        self._channel.close()
        kill(self._process)
        self._janitor.forget(self._process.pid)
        self._output.close()

    def output(self) -> str:
        """The last lines that it has printed, each on a line of its own, or nothing."""
        if self._output.closed:
            return ""
        self._output.seek(0)
        return excerpt(self._output.read().decode(errors="replace"))

    def _receive(self, seconds: float) -> dict[str, Any]:
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

    def _lost(self) -> Lost:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S)
        code = self._process.poll()
        how = "closed its connection" if code is None else f"ended with {status_text(code)}"
        error = Lost(f"{self.label} {how}{self.output()}")
        self.kill()
        return error

    def _hung(self, seconds: float) -> Lost:
        error = Lost(f"{self.label} did not answer within {seconds:.0f} s{self.output()}")
        self.kill()
        return error

    def _stop(self) -> None:
        """Stop it, and wait until each of its threads stands still: on a busy machine that is not at once."""
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + _STOP_S
        with suppress(
            ChildProcessError, AttributeError
        ):  # it has ended; macOS has no waitid before Python 3.13
            while (
                time.monotonic() < deadline
                and os.waitid(os.P_PID, self._process.pid, _STOPPED) is None
            ):
                time.sleep(_STOP_POLL_S)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


ALIKE = {
    "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
}


def start_side(
    config: pytest.Config,
    label: str,
    janitor: Janitor,
    cores: Sequence[int],
    *,
    root: Path,
    files: Sequence[str],
    tree: Mapping[str, Any] | None = None,
    path: Sequence[str] | None = None,
    arguments: Sequence[str] | None = None,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    shows_output: bool = False,
) -> Player:
    """
    A process that collects these files below the root; path, arguments, folder and environment are this run's unless others are given.

    It does so from now on, while others start; `await_collected` waits for it.

    Raises:
        PairedError: If it cannot be started, has ended, or does not listen.
    """
    given = given_arguments(config) if arguments is None else arguments
    player = Player(
        label,
        lambda fd: pytest_command(
            config,
            sys.path if path is None else path,
            ["-p", PLUGIN, f"--tfperf-side={fd}", *given],
        ),
        Path(config.invocation_params.dir) if cwd is None else cwd,
        {**uncovered_environment(), **ALIKE} if environment is None else environment,
        cores,
        janitor,
        shows_output=shows_output,
    )
    factory = getattr(config, "_tmp_path_factory", None)
    player.say(
        root=str(root),
        files=list(files),
        basetemp=str(factory.mktemp("paired")) if factory else None,
        argv=sys.argv,
        options=alike_options(config),
        tree=tree,
        scratch=str(janitor.folder),
        workerinput=getattr(config, "workerinput", None),
    )
    return player

"""
Child processes that run a test of this process again, and calls in a test that they answer.

Each process of a call runs the test up to that call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import msgspec
import pytest

from pytest_tfperf.errors import CaptureError, PairedError
from pytest_tfperf.machine.locks import Exclusive
from pytest_tfperf.turns.child_plugin import CoordinatedServer
from pytest_tfperf.turns.cleanup import Cleanup
from pytest_tfperf.turns.messages import Answer, Failed, FromChild, Measured, Part, Stopped
from pytest_tfperf.turns.names import file_of, node_key
from pytest_tfperf.turns.pytest_child import ChildProcess, PytestRun, same_run, start_pytest
from pytest_tfperf.turns.reports import last_lines, report_from

__tracebackhide__ = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A child process to start."""

    who: str
    """Name of what it runs for, in messages: `variant 'a'`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables besides those of this process."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `PytestRun` that differ from this run."""
    task: Mapping[str, Any] = field(default_factory=dict)
    """Fields of its `Task` that do."""


def test_key(item: pytest.Item) -> str:
    """Return the node key of a test in its children."""
    return node_key(item, item.config.rootpath)


@contextmanager
def children(
    item: pytest.Item, specs: Sequence[Spec], grace_s: float | None = None
) -> Iterator[list[ChildProcess]]:
    """Start processes that run a test of this process again; see `running`."""
    with closing(Cleanup()) as cleanup:
        runs = [_run_of(item, spec) for spec in specs]
        with running(runs, test_key(item), cleanup, grace_s) as started:
            yield started


@contextmanager
def running(
    runs: Sequence[PytestRun], test: str, cleanup: Cleanup, grace_s: float | None = None
) -> Iterator[list[ChildProcess]]:
    """
    Start processes that collect at the same time, and await them. Raises: PairedError.

    They end with the context: in order, or after an error as with Ctrl-C.
    """
    started: list[ChildProcess] = []
    try:
        for run in runs:
            started.append(start_pytest(run, cleanup))
        with naming_awaited(started):
            for child in started:
                child.await_collected(test)
            yield started
    except BaseException:
        for child in started:
            child.interrupt(grace_s)
        raise
    for child in started:
        child.close()


@contextmanager
def naming_awaited(processes: Collection[ChildProcess]) -> Iterator[None]:
    """Add the process that was waited for to the message of a time limit within the context."""
    try:
        yield
    except pytest.fail.Exception as error:  # plugins for time limits raise it
        awaited = [one for one in processes if one.is_awaited and not one.has_ended]
        lines = "".join(f"\n  {one.label} had not answered{one.output()}" for one in awaited)
        raise pytest.fail.Exception(f"{error}{lines}", pytrace=False) from None


def _run_of(item: pytest.Item, spec: Spec) -> PytestRun:
    root = item.config.rootpath
    run = same_run(item.config, f"the process of {spec.who}", root, [file_of(item)])
    environment = {**run.environment, **spec.environment}
    task = msgspec.structs.replace(run.task, **spec.task)
    return replace(run, **{"environment": environment, "task": task, **spec.changes})


class Calls:
    """
    The calls of one test, of `compare` or of `workers`, which child processes answer.

    Each process runs the test again, up to the call that it is for. There it answers the earlier
    calls as they were answered here.
    """

    def __init__(
        self,
        item: pytest.Item,
        name: str,
        announce: Callable[[str], None],
        exclusive: Exclusive,
    ) -> None:
        self.item, self.name, self.announce = item, name, announce
        self._exclusive = exclusive
        self._earlier: list[Answer | Failed] = []

    def run(self, child: ChildProcess, name: str, profile: str | None = None) -> None:
        """Let a process run the test up to this call; see `messages.Part`."""
        part = Part(call=self.name, name=name, profile=profile, earlier=tuple(self._earlier))
        child.run(test_key(self.item), part=part)

    def answered(self, measure: Callable[[], Answer]) -> Answer:
        """Answer a call by `measure`, and keep it. Raises: CaptureError, AssertionError."""
        try:
            with self._exclusive(self.announce):  # for all processes
                answer = measure()
        except (CaptureError, PairedError, AssertionError) as error:  # the test may expect it
            failed = Failed(message=str(error), is_assertion=isinstance(error, AssertionError))
            self._earlier.append(failed)
            raise _error_of(failed) from None
        finally:
            self.announce("")
        self._earlier.append(answer)
        return answer

    def ended_early(self, child: ChildProcess, spec: Spec, event: FromChild) -> CaptureError:
        """Return why a process has come to the end of the test before its profile was made."""
        if isinstance(event, Stopped):
            return CaptureError(f"{spec.who} stopped the run in its process: {event.why}")
        for report in [report_from(self.item, data) for data in child.reports]:
            if report.failed:
                # each on its own: TensorFlow prints more lines than are shown
                printed = (f"{title}:\n{text}" for title, text in report.sections if text.strip())
                parts = map(last_lines, (report.longreprtext, *printed))
                return CaptureError("\n".join([f"{spec.who} fails in its process:", *parts]))
            if report.skipped:
                return CaptureError(f"{spec.who} is skipped in its process: {report.longreprtext}")
        return CaptureError(
            f"the process of {spec.who} came to the end of the test without this call of "
            f"{self.name}: run again, a test must take the same way"
        )


class Replay:
    """Answers calls in a process of `Calls`, up to the one that the process is for."""

    def __init__(self, server: CoordinatedServer, part: Part) -> None:
        self._server, self.part = server, part
        self._earlier = list(part.earlier)

    def earlier(self, names: Mapping[str, str]) -> Answer | None:
        """
        Return the answer of a call, or None if it is the one that the process is for.

        `names` are those of its profiles, by the part that makes each. Raises: CaptureError,
        AssertionError.
        """
        if self._earlier:
            answer = self._earlier.pop(0)
            if isinstance(answer, Failed):
                raise _error_of(answer)
            return answer
        wanted = self.part.profile or self.part.name
        if names.get(self.part.name) != wanted:
            raise CaptureError(
                f"run again, this call of {self.part.call} has other profiles: "
                f"{', '.join(names.values())} and no {wanted}"
            )
        return None

    def end(self, answer: Measured) -> NoReturn:
        """Send the profile, and end the test when the others have theirs."""
        self._server.ask(answer)
        pytest.exit("this process has done its work")


def _error_of(failed: Failed) -> CaptureError | AssertionError:
    """Return the error of a call, as the test sees it in every process."""
    return AssertionError(failed.message) if failed.is_assertion else CaptureError(failed.message)

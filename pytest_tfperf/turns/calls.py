"""Calls in a test that child processes answer, each of which runs the test again up to the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

import pytest

from pytest_tfperf.errors import CaptureError, PairedError
from pytest_tfperf.machine.locks import Exclusive
from pytest_tfperf.turns.child_plugin import CoordinatedServer
from pytest_tfperf.turns.children import test_key
from pytest_tfperf.turns.messages import Answer, Failed, Measured, Part
from pytest_tfperf.turns.pytest_child import ChildProcess

__tracebackhide__ = True


class Calls:
    """
    The calls of one test, of `compare` or of `workers`, which child processes answer.

    Each process runs the test again, up to the call that it is for. There it answers the earlier
    calls as they were answered here.

    Args:
        item: The test.
        name: Name of the call.
        announce: Shows what runs.
        exclusive: Keeps other processes from measuring meanwhile.
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
        """
        Answer a call by what `measure` returns, and keep it.

        Raises:
            CaptureError: If a process fails.
        """
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


class Replay:
    """
    Answers calls in a process of `Calls`, up to the one that the process is for.

    Args:
        server: This process.
        part: What it runs the test for.
    """

    def __init__(self, server: CoordinatedServer, part: Part) -> None:
        self._server, self.part = server, part
        self._earlier = list(part.earlier)

    def earlier(self, names: Mapping[str, str]) -> Answer | None:
        """
        Return the answer of a call, or None if it is the one that the process is for.

        Args:
            names: Names of the call's profiles, by the name of the part that makes each.

        Raises:
            CaptureError: If that call failed, or has not the part that this process is.
            AssertionError: If the call found different outputs.
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

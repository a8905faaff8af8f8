"""The context of `tf_profile.trace()`: a trace whose steps the test brackets itself."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

import pytest

from pytest_tfperf.capture.loop import Bracketed
from pytest_tfperf.capture.sessions import Session
from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.compiler.step_calls import Calls, calls_recorded
from pytest_tfperf.errors import CaptureError, TraceError
from pytest_tfperf.plugin.profiles import Profiles

__tracebackhide__ = True
DISABLED = "tfperf is disabled (--tfperf-disable): the step ran once and was not profiled"


class BracketedTrace:
    """
    Traces what runs in its context.

    It is a class since a generator's context would show frames of contextlib in tracebacks.
    """

    def __init__(self, profiles: Profiles, name: str, wanted: Wanted, disabled: bool) -> None:
        self._profiles = profiles
        self._name = name
        self._wanted = wanted
        self._disabled = disabled
        self._contexts = ExitStack()
        self._session: Session | None = None
        self._calls = Calls()

    def __enter__(self) -> Bracketed:
        if not self._disabled:
            with ExitStack() as contexts:
                self._session = contexts.enter_context(self._profiles.session())
                self._calls = contexts.enter_context(calls_recorded())
                self._contexts = contexts.pop_all()
        return Bracketed(self._calls)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._contexts.__exit__(kind, error, traceback)
        if error is not None:
            return
        if self._session is None:
            pytest.skip(DISABLED)
        try:
            self._profiles.finish_bare(self._session.stop(), self._name, self._calls, self._wanted)
        except TraceError:
            raise CaptureError(
                "no step found in this trace: bracket each in `with t.step():`,"
                " t being what tf_profile.trace() gives"
            ) from None

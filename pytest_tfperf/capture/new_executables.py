"""Which XLA executables were compiled in steps after the first: from sessions before and after, since each lists all that are alive."""

from __future__ import annotations

from pathlib import Path

from pytest_tfperf.capture.sessions import Session, read_session
from pytest_tfperf.trace.hlo_modules import live_modules
from pytest_tfperf.trace.xspace import Trace


class Executables:
    """The executables of one profile; those that are compiled while no step runs are not its steps'."""

    def __init__(self, folder: Path) -> None:
        self.late: frozenset[str] | None = None  # compiled after the first step, once that is known
        self._folder = folder
        self._first: frozenset[str] | None = None
        self._outside: frozenset[str] = frozenset()
        self._before_outside: frozenset[str] | None = None

    @property
    def watched(self) -> bool:
        """Whether the first step has ended."""
        return self._first is not None

    @property
    def outside_steps(self) -> bool:
        """Whether what is compiled now is not the steps'."""
        return self._before_outside is not None

    def begin(self, cold: Trace) -> None:
        """The first step has ended with this trace."""
        self._first = live_modules(cold)

    def leave_steps(self) -> None:
        """Until `return_to_steps`, what is compiled is not the steps'."""
        self._before_outside = self._live()

    def return_to_steps(self) -> None:
        """A step begins again."""
        assert self._before_outside is not None
        self._outside |= self._live() - self._before_outside
        self._before_outside = None

    def end(self, last: Trace | None = None) -> None:
        """The steps have ended, with this trace if one ran."""
        assert self._first is not None
        alive = self._live() if last is None else live_modules(last)
        self.late = alive - self._first - self._outside

    def _live(self) -> frozenset[str]:
        """The executables alive now, from a session that records nothing."""
        return live_modules(read_session(Session(self._folder).stop()))

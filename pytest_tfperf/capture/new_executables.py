"""
XLA executables compiled in steps after the first.

Each profiler session lists all executables that are alive, so sessions before and after the steps
show the new ones. JAX reports also those that are freed in between.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pytest_tfperf.capture.sessions import ReadTraces, Session, read_sessions
from pytest_tfperf.frameworks.in_use import traced
from pytest_tfperf.trace.hlo_modules import live_modules
from pytest_tfperf.values import WAITS


class Executables:
    """The executables of one profile; those compiled while no step runs do not count."""

    def __init__(self, folder: Path) -> None:
        self.late: tuple[str, ...] | None = None  # compiled after the first step, None if unknown
        self._folder = folder
        self._first: frozenset[str] | None = None
        self._outside: frozenset[str] = frozenset()
        self._before_outside: frozenset[str] | None = None
        self._reported: Counter[str] = Counter()

    @property
    def watched(self) -> bool:
        """True if the first step has ended."""
        return self._first is not None

    @property
    def outside_steps(self) -> bool:
        """True if executables compiled now do not count."""
        return self._before_outside is not None

    def begin(self, cold: ReadTraces) -> None:
        """Begin after the first step, with its traces; a framework may have started in it."""
        is_complete = all(framework.name in cold for framework in traced())
        self._first = _modules(cold) if is_complete else self._live()

    def compiled(self, module: str) -> None:
        """Count the compilation of a module after the first step, unless no step runs."""
        if self.watched and not self.outside_steps:
            self._reported[module] += 1

    def leave_steps(self) -> None:
        """Stop counting until `return_to_steps`."""
        self._before_outside = self._live()

    def return_to_steps(self) -> None:
        """Count again, since a step begins."""
        assert self._before_outside is not None
        self._outside |= self._live() - self._before_outside
        self._before_outside = None

    def end(self, last: ReadTraces | None = None) -> None:
        """End after the steps, with their traces if there are any."""
        assert self._first is not None
        alive = self._live() if last is None else _modules(last)
        late = alive - self._first - self._outside
        # JAX before 0.8 ends the module of a lambda in an underscore, which reports lack
        listed = Counter(name.rpartition("(")[0].rstrip("_") for name in late)
        freed = (self._reported - listed).elements()
        self.late = (*sorted(late), *freed) if traced() else None

    def _live(self) -> frozenset[str]:
        """Return the executables alive now, from a session that records nothing."""
        return _modules(read_sessions(Session(self._folder).stop()))


def _modules(traces: ReadTraces) -> frozenset[str]:
    every = frozenset().union(*map(live_modules, traces.values()))
    return frozenset(name for name in every if WAITS not in name)

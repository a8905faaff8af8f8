"""
Count the Python functions that a thread calls in each step.

Python 3.12 and later count by sys.monitoring, where each tool has a place of its own. Before, there
is one profiler for each thread (sys.setprofile), and cProfile's counts in C. Both count a generator
at its start and at each resumption, as `ncalls` of cProfile does. Comprehensions are no calls, as
in Python 3.12 and later.
"""

from __future__ import annotations

import cProfile
import re
import sys
import sysconfig
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from threading import get_ident
from time import perf_counter
from types import CodeType
from typing import Any, Protocol

from pytest_tfperf.files import installed_path
from pytest_tfperf.recording import PythonCalls, PythonFunction
from pytest_tfperf.values import Unknown

__tracebackhide__ = True

_OWN_IDS = (3, 4)
"""Tools of sys.monitoring without a meaning of their own (CPython's documentation, PEP 669)."""
_TOOL = "pytest-tfperf"
_TAKEN = "another profiler ({}) is set already, and Python {}.{} has room for one"
_NO_PLACE = "other tools have taken all places of sys.monitoring"
REPLACED = "the step set or removed a profiler (sys.setprofile, cProfile)"
Counts = Sequence[tuple[CodeType, int, float]]
"""Called functions, their calls, and the seconds in their own code."""
_replaced: list[cProfile.Profile] = []
"""Profilers that steps replaced; the end of one would remove whatever profiler there is then."""
_OWN_FOLDER = Path(__file__).parents[1]
_AUTOGRAPH = "__autograph_generated_file"  # tensorflow/python/autograph/pyct/loader.py
_NO_FILE = "<"  # exec and the like
_PARTS = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>"})
"""Names of code that is part of the function around it from Python 3.12 on (PEP 709)."""
_COMPREHENSIONS = re.compile(rf"(\.({'|'.join(_PARTS)}))+$")


class _Profiler(Protocol):
    """Counts calls between `begin` and `end`."""

    why: str | None
    """The reason why it cannot count."""

    def begin(self) -> None:
        """Begin to count from zero."""

    def end(self) -> Counts:
        """Stop; return the counts since `begin`."""

    def close(self) -> None:
        """Give back the profiler's place."""


class CallCounter:
    """
    Counter of the Python functions that this thread calls in each of several steps.

    It counts between `begin` and `end`, only within its context. Functions of this package are
    left out.
    """

    def __init__(self) -> None:
        self._profiler: _Profiler | None = None
        self._why: str | None = None
        self._steps: list[tuple[Counts, int]] = []

    def __enter__(self) -> None:
        self._profiler = _Monitored() if hasattr(sys, "monitoring") else _Profiled()

    def __exit__(self, *_: object) -> None:
        assert self._profiler is not None
        self._profiler.close()
        self._why, self._profiler = self._profiler.why, None

    def begin(self) -> None:
        """Begin a step."""
        if self._profiler is not None:
            self._profiler.begin()

    def end(self, n_steps: int) -> None:
        """End a step that stands for `n_steps`."""
        if self._profiler is not None:
            self._steps.append((self._profiler.end(), n_steps))

    def abort(self) -> None:
        """Discard the step that began."""
        if self._profiler is not None:
            self._profiler.end()

    def found(
        self,
        user_line: Callable[[CodeType], str | None] = lambda _: None,
        of_trees: Collection[CodeType] = (),
    ) -> PythonCalls | Unknown:
        """
        Return the counts of the steps, or why there are none.

        `user_line` gives the first line of a function of the user's, else None; `of_trees` are
        functions that take pytrees apart, and make them.
        """
        if self._why is not None:
            return Unknown(self._why)
        named = [_named(counts) for counts, _ in self._steps]
        sizes = [n_steps for _, n_steps in self._steps]
        totals = (sum(calls for calls, *_ in one.values()) for one in named)
        functions = []
        for name in dict.fromkeys(name for one in named for name in one):
            of_steps = [one[name] for one in named if name in one]
            codes = of_steps[0][2]
            functions.append(
                PythonFunction(
                    name=name,
                    line=min(code.co_firstlineno for code in codes),
                    calls=sum(calls for calls, *_ in of_steps) / sum(sizes),
                    self_s=_usual_s([one.get(name) for one in named], sizes),
                    place=next(filter(None, map(user_line, codes)), ""),
                    of_trees=not codes.isdisjoint(of_trees),
                )
            )
        functions.sort(key=lambda one: (-one.calls, one.name))
        return PythonCalls(steps=tuple(zip(totals, sizes, strict=True)), functions=tuple(functions))


def _usual_s(
    of_steps: Sequence[tuple[int, float, set[CodeType]] | None], sizes: Sequence[int]
) -> float:
    """Return a function's own seconds a step, without a pause of the thread in one of the steps."""
    called = [(one[1] / n, n) for one, n in zip(of_steps, sizes, strict=True) if one is not None]
    return median(each_s for each_s, _ in called) * sum(n for _, n in called) / sum(sizes)


def _named(counts: Counts) -> dict[str, tuple[int, float, set[CodeType]]]:
    """Return calls, seconds and code of each function by its name, without this package's."""
    found: dict[str, tuple[int, float, set[CodeType]]] = {}
    for code, calls, self_s in sorted(counts, key=lambda one: one[0].co_name in _PARTS):
        name = function_name(code)
        if name is not None and code.co_name in _PARTS:  # sorted behind what they are part of
            name = _COMPREHENSIONS.sub("", name)
            n_calls, seconds, codes = found.get(name, (0, 0.0, {code}))
            found[name] = n_calls, seconds + self_s, codes
        elif name is not None:
            n_calls, seconds, codes = found.get(name, (0, 0.0, set[CodeType]()))
            found[name] = n_calls + calls, seconds + self_s, codes | {code}
    return found


class _Profiled:
    """Counts by cProfile, in the thread's only place for a profiler."""

    def __init__(self) -> None:
        self.why: str | None = None
        self._profile: cProfile.Profile | None = None

    def begin(self) -> None:
        """Begin to count, unless another profiler watches this thread."""
        other: Any = sys.getprofile()
        if other is not None:
            name = getattr(other, "__qualname__", type(other).__qualname__)
            self.why = self.why or _TAKEN.format(name, *sys.version_info[:2])
            return
        self._profile = cProfile.Profile(subcalls=False, builtins=False)
        self._profile.enable()

    def end(self) -> Counts:
        """Stop; leave a profiler that the step set as it is."""
        profile, self._profile = self._profile, None
        if profile is None:
            return ()
        now: Any = sys.getprofile()
        if now is not profile:
            self.why = self.why or REPLACED
            _replaced.append(profile)
            return ()
        profile.disable()
        return [
            (entry.code, entry.callcount, entry.inlinetime)
            for entry in profile.getstats()
            if isinstance(entry.code, CodeType)
        ]

    def close(self) -> None:
        """Stop."""
        self.end()


@dataclass(slots=True)
class _Entry:
    """A function that was called."""

    code: CodeType
    calls: int = 0
    self_s: float = 0.0


class _Monitored:
    """Counts by sys.monitoring, whose events come from all threads."""

    def __init__(self) -> None:
        self._monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
        free = [tool for tool in _OWN_IDS if self._monitoring.get_tool(tool) is None]
        self.why = None if free else _NO_PLACE
        self._tool = free[0] if free else None
        self._thread: int | None = None  # that is counted now
        self._entries: dict[int, _Entry] = {}
        self._stack: list[_Entry] = []
        self._last = 0.0  # end of the last event
        if self._tool is not None:
            self._monitoring.use_tool_id(self._tool, _TOOL)
            self._register(self._entered, self._left)

    def begin(self) -> None:
        """Begin to count this thread."""
        self._entries, self._stack = {}, []
        self._last, self._thread = perf_counter(), get_ident()

    def end(self) -> Counts:
        """Stop."""
        self._thread = None
        return [(one.code, one.calls, one.self_s) for one in self._entries.values()]

    def close(self) -> None:
        """Stop, and free the place."""
        self._thread = None
        if self._tool is not None:
            self._monitoring.set_events(self._tool, 0)
            self._register(None, None)
            self._monitoring.free_tool_id(self._tool)
            self._tool = None

    def _register(self, entered: Any, left: Any) -> None:
        events = self._monitoring.events
        ways_in = (events.PY_START, events.PY_RESUME, events.PY_THROW)
        ways_out = (events.PY_RETURN, events.PY_YIELD, events.PY_UNWIND)
        for callback, ways in ((entered, ways_in), (left, ways_out)):
            for event in ways:
                self._monitoring.register_callback(self._tool, event, callback)
        if entered is not None:
            self._monitoring.set_events(self._tool, sum((*ways_in, *ways_out)))

    def _entered(self, code: CodeType, *_: object) -> None:
        if get_ident() != self._thread:
            return
        if self._stack:
            self._stack[-1].self_s += perf_counter() - self._last
        entry = self._entries.get(id(code))  # code compares by value, which takes long
        if entry is None:
            entry = self._entries[id(code)] = _Entry(code)
        entry.calls += 1
        self._stack.append(entry)
        self._last = perf_counter()

    def _left(self, *_: object) -> None:
        if get_ident() != self._thread or not self._stack:
            return
        self._stack.pop().self_s += perf_counter() - self._last
        self._last = perf_counter()


def function_name(code: CodeType) -> str | None:
    """
    Return a name such as `keras/src/ops/numpy.py:add`, None for a function of this package.

    Python 3.10 does not tell the class or function around it.
    """
    file = shown_file(code.co_filename)
    name = getattr(code, "co_qualname", code.co_name).replace(".<locals>", "")
    return None if file is None else f"{file}:{name}"


@cache
def shown_file(file: str) -> str | None:
    """
    Return a path relative to site-packages, the standard library or its project's packages.

    So it is the same in every checkout.
    It is None for a file of this package.
    """
    path = Path(file)
    if file.startswith(_NO_FILE):
        return file
    if _AUTOGRAPH in file:
        return "<autograph>"
    if path.is_relative_to(_OWN_FOLDER):
        return None
    installed = installed_path(file)
    if installed is not None:
        return installed
    for key in ("stdlib", "platstdlib"):
        folder = Path(sysconfig.get_path(key))
        for root in (folder, folder.resolve()):
            if path.is_relative_to(root):
                return path.relative_to(root).as_posix()
    return path.relative_to(_above_packages(path)).as_posix()


def _above_packages(path: Path) -> Path:
    """Return the folder above the outermost package of a module, or the root of its checkout."""
    folder = path.parent
    while (folder / "__init__.py").is_file() and not (folder / ".git").exists():
        folder = folder.parent
    return folder

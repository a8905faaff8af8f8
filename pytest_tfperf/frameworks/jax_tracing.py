"""Report the traces of JAX functions and their causes as they happen, without a profiler."""

from __future__ import annotations

import inspect
import logging
import re
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pytest_tfperf.frameworks.jax_explanations import (
    FORGOTTEN,
    change_in,
    explained_function,
    explained_place,
    is_first_trace,
)
from pytest_tfperf.frameworks.jax_framework import loaded_jax
from pytest_tfperf.values import WAITS

_WITHIN = "DynamicJaxprTrace"
"""The kind of the trace in which a function becomes a program (jax/_src/interpreters)."""
_TRACED = "/jax/core/compile/jaxpr_trace_duration"
"""The event that ends each trace of a function (jax/_src/dispatch.py)."""
_LOGGERS = (
    "jax._src.interpreters.partial_eval",
    "jax._src.compiler",
    "jax._src.compilation_cache",
)
"""Loggers of the explanations of cache misses."""
_EXPLAINS_FIRST = (0, 9)
"""The oldest JAX that explains a trace before it begins; older ones explain it afterwards."""
_EXPLAINS = (_LOGGERS[0], "explain")
"""The module and the function that explain a trace."""
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MISS, _OTHER_MISS = "TRACING CACHE MISS", "PERSISTENT COMPILATION CACHE MISS"
_seen: dict[tuple[str, str], list[Callable[[], Any]]] = {}
"""References to the functions that the last watch saw, by name and place of definition."""
Report = Callable[[str, str], None]
"""Receives the name of a traced function, and the change since its last trace ("": none)."""


@contextmanager
def jax_traces_reported_to(report: Report) -> Iterator[bool]:
    """
    Call `report` within the context each time JAX traces a function, if JAX is loaded.

    A trace within another one does not count. JAX explains each miss of its cache of traces in its
    log (`jax_explain_cache_misses`). These messages are read, and shown only if the user asked for
    them. The result is False, and nothing is reported, if JAX is not loaded or lacks what this
    needs.
    """
    jax, unregister = loaded_jax(), unregistration()
    if jax is None or unregister is None or not _open_traces():
        yield False
        return
    if not explains_first(str(jax.__version__)):
        with _listening(jax, unregister, lambda name: report(name, "")):
            yield True
        return
    explained = _Explanations(bool(jax.config.jax_explain_cache_misses), report)
    with _listening(jax, unregister, explained.traced), explained.read(jax.config):
        yield True


def users_traced() -> Mapping[str, int]:
    """
    Return the number of functions of the user that the last watch saw, by their names.

    Functions of one place count once if each is gone before the next is traced. The result is empty
    for JAX that explains no trace before it begins, as before 0.9.
    """
    found: Counter[str] = Counter()
    for (name, _), functions in _seen.items():
        found[name] += len(functions)
    return found


def unregistration() -> Callable[[Any], None] | None:
    """Return the function that ends the listening to durations of JAX, None if there is none."""
    private = sys.modules.get("jax._src.monitoring")
    # public from JAX 0.8.3 on; older ones have the private one alone
    return getattr(private, "unregister_event_duration_listener", None) or getattr(
        private, "_unregister_event_duration_listener_by_callback", None
    )


def explains_first(version: str) -> bool:
    """Return whether a version of JAX explains a trace before it begins."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is None or tuple(map(int, numbers.groups())) >= _EXPLAINS_FIRST


@contextmanager
def _listening(
    jax: Any, unregister: Callable[[Any], None], traced: Callable[[str], None]
) -> Iterator[None]:
    """Pass the name of each traced function on, but those traced within others."""

    def listen(event: str, _: float, **of: Any) -> None:
        name = str(of.get("fun_name") or "function")
        if event == _TRACED and name != WAITS and _WITHIN not in _open_traces():
            traced(name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield
    finally:
        unregister(listen)


def _open_traces() -> tuple[str, ...]:
    """
    Return the kinds of the traces that this thread is in, the innermost first.

    The last one is evaluation; derivatives and `vmap` are traces of their own. It is empty if JAX
    does not tell.
    """
    # private: the current trace (JAX 0.6 to 0.10)
    trace = getattr(getattr(sys.modules.get("jax._src.core"), "trace_ctx", None), "trace", None)
    found = []
    while trace is not None:
        found.append(type(trace).__name__)
        trace = getattr(trace, "parent_trace", None)
    return tuple(found)


class _Explanations(logging.Filter):
    """
    The explanations of cache misses, as a filter, which sees records before any handler.

    Args:
        are_wanted: True if the user asked to see them.
        report: Receives each trace.
    """

    def __init__(self, are_wanted: bool, report: Report) -> None:
        super().__init__()
        self._are_wanted, self._report = are_wanted, report
        self._last, self._change = "", ""
        self._is_reported = False

    @contextmanager
    def read(self, config: Any) -> Iterator[None]:
        """Let JAX explain, and read it."""
        _seen.clear()
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self)
        config.update("jax_explain_cache_misses", True)
        try:
            yield
        finally:
            config.update("jax_explain_cache_misses", self._are_wanted)
            for name in _LOGGERS:
                logging.getLogger(name).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Take an explanation; return whether the record is to be shown."""
        text = record.getMessage()
        if not text.startswith((_MISS, _OTHER_MISS)):
            return True
        if text.startswith(_MISS) and _WITHIN not in (traces := _open_traces()):
            function = _explained()
            change = change_in(text, _positional(function))
            self._last, self._change = text, FORGOTTEN if _was_traced(text, function) else change
            # JAX 0.10 has no event of a trace under a derivative or vmap
            self._is_reported = len(traces) > 1
            if self._is_reported:
                self._report(explained_function(text), self._change)
        return self._are_wanted

    def traced(self, name: str) -> None:
        """Report a trace with its explanation, if there is one, unless that was reported."""
        text, self._last = self._last, ""
        change = self._change if explained_function(text) == name else ""
        is_reported, self._is_reported = self._is_reported, False
        if not (is_reported and len(_open_traces()) > 1):
            self._report(name, change)


def _was_traced(explanation: str, function: Any) -> bool:
    """Note the function of an explanation; return whether JAX has forgotten its traces."""
    key = explained_function(explanation), explained_place(explanation)
    alive = [one for one in _seen.setdefault(key, []) if one() is not None]
    code = getattr(function, "__code__", None)
    if code is None or f"{code.co_filename}:{code.co_firstlineno}" != key[1]:
        return False  # JAX's own form of it, as under a derivative
    others = [one for one in alive if one() is not function]
    _seen[key] = [*others, weakref.ref(function)]
    return is_first_trace(explanation) and len(others) < len(alive)


def _explained() -> Any:
    """Return the function that JAX is explaining, None if that is unknown."""
    # private: the caller that logs has the function (`explain` in partial_eval.py, JAX 0.9 to 0.10)
    frame = inspect.currentframe()
    while (
        frame is not None and (frame.f_globals.get("__name__"), frame.f_code.co_name) != _EXPLAINS
    ):
        frame = frame.f_back
    return frame.f_locals.get("fun") if frame else None


def _positional(function: Any) -> list[str]:
    """
    Return the positional parameters of a function; empty if they are unknown.

    An explanation has the numbers of arguments alone.
    """
    try:
        found = inspect.signature(function).parameters.values() if callable(function) else ()
    except (TypeError, ValueError):  # a function in C without a signature
        return []
    return [one.name for one in found if one.kind in _POSITIONAL]

"""Report the traces of JAX functions and their causes as they happen, without a profiler."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pytest_tfperf.frameworks.jax_framework import loaded_jax
from pytest_tfperf.text import and_more, elide

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
_MISS, _OTHER_MISS = "TRACING CACHE MISS", "PERSISTENT COMPILATION CACHE MISS"
_FUNCTION = re.compile(r"(?:\n  for |never seen function:\n    )(?P<name>\S+) (?:defined at|id=)")
_REDEFINED = "a new function of a line that was traced before: define it once"
_TYPES = re.compile(r"\* at (?P<path>.+?), now (?P<now>.+?) and before (?P<before>\S+)")
_STATIC = re.compile(
    r"\* at input path \[\d+\](?P<path>\S+), now .*?Static\(val=(?P<now>.*?)\) and before "
    r".*?Static\(val=(?P<before>.*?)\),"
)
_NEST = re.compile(r"\* at input path (?P<path>\S+), now (?P<change>.+)")
_URL = re.compile(r"https?://\S+")
_MOST_CHANGES, _LONGEST = 3, 60

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
        if event == _TRACED and _WITHIN not in _open_traces():
            traced(str(of.get("fun_name") or "function"))

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
        self._last = ""
        self._is_reported = False

    @contextmanager
    def read(self, config: Any) -> Iterator[None]:
        """Let JAX explain, and read it."""
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
            self._last = text
            # JAX 0.10 has no event of a trace under a derivative or vmap
            self._is_reported = len(traces) > 1
            if self._is_reported:
                self._report(explained_function(text), change_in(text))
        return self._are_wanted

    def traced(self, name: str) -> None:
        """Report a trace with its explanation, if there is one, unless that was reported."""
        text, self._last = self._last, ""
        is_reported, self._is_reported = self._is_reported, False
        if not (is_reported and len(_open_traces()) > 1):
            self._report(name, change_in(text) if explained_function(text) == name else "")


def explained_function(explanation: str) -> str:
    """Return the name of the function that an explanation is of."""
    found = _FUNCTION.search(explanation)
    return found["name"] if found else "function"


def change_in(explanation: str) -> str:
    """
    Return the change that JAX's explanation of a cache miss names, as `x f32[8] → f32[5]`.

    It is empty for the first trace of a function (`explain` in
    jax/_src/interpreters/partial_eval.py).
    """
    if "defined on the same line" in explanation:
        return _REDEFINED
    text = _URL.sub("", explanation)
    static = [_shown(found, "static argument ") for found in _STATIC.finditer(text)]
    typed = [_shown(found) for found in _TYPES.finditer(text) if "input path" not in found[0]]
    nested = [
        f"argument {found['path']}: {found['change']}"
        for found in _NEST.finditer(text)
        if "Static(" not in found[0]
    ]
    if changes := [*static, *typed, *nested]:
        return and_more([elide(change, 2 * _LONGEST) for change in changes], _MOST_CHANGES)
    return _rest(text)


def _shown(found: re.Match[str], kind: str = "") -> str:
    before, now = (elide(found[key], _LONGEST) for key in ("before", "now"))
    return f"{kind}{found['path']} {before} → {now}"


def _rest(text: str) -> str:
    """Return the last line of an explanation of another kind, empty for a first trace."""
    lines = [line.strip(" *:") for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or "never seen function" in text:
        return ""
    return elide(lines[-1], 2 * _LONGEST)

"""Report the traces of JAX functions and their causes as they happen, without a profiler."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pytest_tfperf.frameworks.jax_framework import loaded_jax
from pytest_tfperf.text import and_more, elide

_TRACED = "/jax/core/compile/jaxpr_trace_duration"
"""The event that ends each trace of a function (jax/_src/dispatch.py)."""
_LOGGERS = (
    "jax._src.interpreters.partial_eval",
    "jax._src.pjit",
    "jax._src.compiler",
    "jax._src.compilation_cache",
)
"""Loggers of the explanations; the second has them in older versions."""
_MISS, _OTHER_MISS = "TRACING CACHE MISS", "PERSISTENT COMPILATION CACHE MISS"
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

    JAX explains each miss of its cache of traces in its log (`jax_explain_cache_misses`). These
    messages are read, and shown only if the user asked for them. The result is False, and nothing
    is reported, if JAX is not loaded or has no such event.
    """
    jax = loaded_jax()
    if jax is None or not hasattr(jax.monitoring, "unregister_event_duration_listener"):
        yield False
        return
    explained = _Explanations(bool(jax.config.jax_explain_cache_misses))

    def traced(event: str, _: float, **of: Any) -> None:
        if event == _TRACED:
            report(str(of.get("fun_name") or "function"), explained.take())

    jax.monitoring.register_event_duration_secs_listener(traced)
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(explained)
    jax.config.update("jax_explain_cache_misses", True)
    try:
        yield True
    finally:
        jax.config.update("jax_explain_cache_misses", explained.are_wanted)
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(explained)
        jax.monitoring.unregister_event_duration_listener(traced)


class _Explanations(logging.Filter):
    """The last explanation of a cache miss; a filter, which sees records before any handler."""

    def __init__(self, are_wanted: bool) -> None:
        super().__init__()
        self.are_wanted = are_wanted
        self._last = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep an explanation; return whether the record is to be shown."""
        text = record.getMessage()
        if not text.startswith((_MISS, _OTHER_MISS)):
            return True
        if text.startswith(_MISS):
            self._last = text
        return self.are_wanted

    def take(self) -> str:
        """Return the change that the last explanation names, once."""
        text, self._last = self._last, ""
        return change_in(text)


def change_in(explanation: str) -> str:
    """
    Return the change that JAX' explanation of a cache miss names, as `x f32[8] → f32[5]`.

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

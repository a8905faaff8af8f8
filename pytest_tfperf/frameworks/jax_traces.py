"""Report what JAX traces, why, and what it compiles, as it happens and without a profiler."""

from __future__ import annotations

import inspect
import logging
import re
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any
from weakref import WeakSet

from pytest_tfperf.frameworks.framework import at_least
from pytest_tfperf.frameworks.jax import loaded_jax
from pytest_tfperf.function_traces import (
    CONTEXT,
    DTYPE,
    EYE,
    FIRST,
    FORGOTTEN,
    FUNCTION_ARGUMENT,
    KERAS_COMPILE,
    LENGTH,
    NEW_FUNCTION,
    OBJECT,
    SHAPE,
    SHARDING,
    STATIC,
    STRUCTURE,
    UNKNOWN,
    WEAK_TYPE,
    Change,
    Report,
    axes_of,
)
from pytest_tfperf.replaced import replaced
from pytest_tfperf.text import elide
from pytest_tfperf.values import WAITS

_WITHIN = "DynamicJaxprTrace"
"""The kind of the trace in which a function becomes a program (jax/_src/interpreters)."""
_TRACED = "/jax/core/compile/jaxpr_trace_duration"
"""The event that ends each trace of a function (jax/_src/dispatch.py)."""
_EXECUTABLE_COMPILED = "/jax/core/compile/backend_compile_duration"
"""The event that ends each compilation of an executable (jax/_src/dispatch.py)."""
_NO_LETTER = re.compile(r"[^A-Za-z0-9_.-]")
_LOGGERS = ("jax._src.compiler", "jax._src.compilation_cache")
"""Loggers of the explanations of misses of the compilation cache."""
_EXPLAINS_FIRST = (0, 9)
"""The oldest JAX that explains a trace before it begins; older ones explain it afterwards."""
_EXPLAINS = ("jax._src.interpreters.partial_eval", "explain")
"""The module and the function that explain a trace."""
_COMPARES = "diff_tracing_cache_keys"
"""Its function that compares two traces; it builds the user's pytrees anew, of other leaves."""
_UNLIKE = (4, 0)
"""The severity and the number of differences of traces that JAX cannot compare."""
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MISS, _OTHER_MISS = "TRACING CACHE MISS", "PERSISTENT COMPILATION CACHE MISS"
_CLOSEST = "For the closest previous key:"
_KERAS = "/keras/src/"
_COMPILED = Change(KERAS_COMPILE, "model.compile was called again")
_NOT_SEEN = Change(
    UNKNOWN, "what changed is not known: it was traced for other arguments before this profile"
)
# the texts are those of `explain` in jax/_src/interpreters/partial_eval.py, and of
# `equality_errors_pytreedef` in jax/_src/tree_util.py (JAX 0.9 to 0.11)
_FUNCTION = re.compile(
    r"(?:\n  for |never seen function:\n    )(?P<name>\S+) "
    r"(?:id=\d+ )?(?:defined at (?P<place>[^\n]+))?"
)
_DIFFERENCE = re.compile(
    r"\n  \* (?:at )?(?P<at>[^\n]+?)(?:,| differs:) now (?P<now>.+?)(?=\n  \* |$(?!\n))", re.S
)
_NEVER_SEEN = "never seen function"
"""Part of an explanation of a function without an earlier trace."""
_NODE = "input path "
_STATIC = re.compile(r"\.Static'> with pytree metadata Static\(val=(.*)\)$", re.S)
_METADATA = re.compile(r"<class '(?:[^']*\.)?(?!dict')([^'.]+)'> with pytree metadata (.*)$", re.S)
_SIZE = re.compile(r" (?:with \d+ child(?:ren)?|of length \d+)$")
_KEYS = re.compile(r"symmetric difference of key sets: \{(.*)\}$")
_PATH = re.compile(r"\[(?P<part>[01])\]\[(?P<key>\d+|'[^']*')\](?P<rest>.*)$")
_ALL_ARGUMENTS = {"[0]": "its positional arguments", "[1]": "its keyword arguments"}
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_WEAK = {"{weak_type=True}": " (weakly typed)", "{weak_type=False}": ""}
_TYPE = re.compile(r"(?P<dtype>\w+)\[(?P<sizes>[^\]]*)\](?P<rest>.*)", re.S)
_URL = re.compile(r"https?://\S+")
_FIRST_TRACE = Change(FIRST, "for the first time")
_NEW = Change(NEW_FUNCTION, "a new function of a line that was traced before", "jax.jit function")
_FORGOTTEN = Change(FORGOTTEN, "JAX had forgotten its traces, as after jax.clear_caches()")
_WHOLE = {
    "defined on the same line": _NEW,
    _NEVER_SEEN: _FIRST_TRACE,
    "explanation unavailable": Change(
        UNKNOWN, "JAX does not say what changed; from 0.11 on it names no static argument"
    ),
}
"""Explanations that name no difference, by what they contain."""
_CONTEXT = "Tracing context doesn't match"
_LONGEST = 60
_seen: dict[tuple[str, str], list[Callable[[], Any]]] = {}
"""References to the functions that the last watch saw, by name and place of definition."""


@contextmanager
def jax_traces_reported_to(report: Report) -> Iterator[bool]:
    """
    Call `report` within the context each time JAX traces a function, if JAX is loaded.

    A trace within another one does not count. JAX explains each miss of its cache of traces to its
    logger (`jax_explain_cache_misses`). These messages are read, whatever the logger's level, and
    shown only if the user asked for them. The result is False, and nothing is reported, if JAX is
    not loaded or lacks what this needs.
    """
    jax, unregister = loaded_jax(), _unregistration()
    if jax is None or unregister is None or not _open_traces():
        yield False
        return
    if not at_least(str(jax.__version__), _EXPLAINS_FIRST):
        with _listening(jax, unregister, lambda name: report(name, ())):
            yield True
        return
    explains = sys.modules.get(_EXPLAINS[0])
    if not hasattr(explains, "logger") or not hasattr(explains, _COMPARES):
        yield False
        return
    explained = _Explanations(explains, bool(jax.config.jax_explain_cache_misses), report)
    with _listening(jax, unregister, explained.traced), explained.read(jax.config):
        yield True


@contextmanager
def jax_compilations_reported_to(report: Callable[[str], None]) -> Iterator[None]:
    """
    Call `report` within the context with the module of each executable that JAX compiles.

    Nothing is reported if JAX is not loaded, or lacks what this needs.
    """
    jax, unregister = loaded_jax(), _unregistration()
    if jax is None or unregister is None:
        yield
        return

    def compiled(event: str, _: float, **of: Any) -> None:
        name = str(of.get("fun_name") or "executable")
        if event == _EXECUTABLE_COMPILED and WAITS not in name:
            report(module_name(name))

    jax.monitoring.register_event_duration_secs_listener(compiled)
    try:
        yield
    finally:
        unregister(compiled)


def module_name(function: str) -> str:
    """Return the name of the module of a function in an event, `jit(<lambda>)` → `jit__lambda`."""
    name = function.replace("(", "_", 1).removesuffix(")") if "(" in function else f"jit_{function}"
    return _NO_LETTER.sub("_", name).rstrip("_")


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


def _unregistration() -> Callable[[Any], None] | None:
    """Return the function that ends the listening to durations of JAX, None if there is none."""
    private = sys.modules.get("jax._src.monitoring")
    # public from JAX 0.8.3 on; older ones have the private one alone
    return getattr(private, "unregister_event_duration_listener", None) or getattr(
        private, "_unregister_event_duration_listener_by_callback", None
    )


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


class _Explanations:
    """
    The explanations of cache misses, in the place of the logger that JAX tells them to.

    `are_wanted` says that the user asked to see them; `report` receives each trace.
    """

    def __init__(self, explains: Any, are_wanted: bool, report: Report) -> None:
        self._explains, self._logger = explains, explains.logger
        self._are_wanted, self._report = are_wanted, report
        self._last = ""
        self._changes: tuple[Change, ...] = ()
        self._is_reported = False
        self._codes: set[Any] = set()
        self._models: WeakSet[Any] = WeakSet()
        self._keys: dict[int, tuple[Callable[[], Any], list[Any]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)

    @contextmanager
    def read(self, config: Any) -> Iterator[None]:
        """Let JAX explain, and read it."""
        _seen.clear()
        loggers = [logging.getLogger(name) for name in _LOGGERS]
        for logger in loggers:
            logger.addFilter(self._is_shown)
        self._explains.logger = self
        config.update("jax_explain_cache_misses", True)
        compare = _guarded(getattr(self._explains, _COMPARES))
        try:
            with replaced(self._explains, _COMPARES, compare):
                yield
        finally:
            config.update("jax_explain_cache_misses", self._are_wanted)
            self._explains.logger = self._logger
            for logger in loggers:
                logger.removeFilter(self._is_shown)

    def _is_shown(self, record: logging.LogRecord) -> bool:
        return self._are_wanted or not record.getMessage().startswith(_OTHER_MISS)

    def log(self, level: int, text: str) -> None:
        """Take an explanation, and show it if the user asked for it."""
        if text.startswith(_MISS) and _WITHIN not in (traces := _open_traces()):
            self._last, self._changes = text, self._explained(text)
            # JAX 0.10 has no event of a trace under a derivative or vmap
            self._is_reported = len(traces) > 1
            if self._is_reported:
                self._report(explained_function(text), self._changes)
        if self._are_wanted:
            self._logger.log(level, text, stacklevel=2)

    def traced(self, name: str) -> None:
        """Report a trace with its explanation, if there is one, unless that was reported."""
        text, self._last = self._last, ""
        changes = self._changes if explained_function(text) == name else ()
        is_reported, self._is_reported = self._is_reported, False
        if not (is_reported and len(_open_traces()) > 1):
            self._report(name, changes)

    def _explained(self, text: str) -> tuple[Change, ...]:
        """Return the changes since an earlier trace that this watch saw, or why there are none."""
        frame = _explaining()
        values: Mapping[str, Any] = frame.f_locals if frame else {}
        function = values.get("fun")
        is_forgotten = _was_traced(text, function)
        code = getattr(function, "__code__", None)
        is_known = code in self._codes if code else _NEW in changes_in(text)
        self._codes.add(code)
        earlier = self._earlier(function)
        try:  # private: `explain` of JAX 0.9 to 0.11
            compare = frame.f_globals[_COMPARES] if frame else None
            context = frame.f_globals["config"].trace_context() if frame else None
            types = (values["in_avals"], values["debug_info"], *values["context"])
            key: Any = (context, types, {})
            is_seen = bool(earlier)
            candidates = [] if _NEVER_SEEN in text else [*(earlier or values["keys"])]
            earlier.append(key)
            if len(candidates) > 1 and not is_seen:
                return (_NOT_SEEN,)
            if compare is not None and candidates:
                found = (compare(key, one) for one in reversed(candidates))
                nearest = min(found, key=lambda one: one[:-1])  # by severity, the text is last
                text = f"{text.partition(_CLOSEST)[0]}{_CLOSEST}\n  {nearest[-1]}"
        except (AttributeError, KeyError, TypeError, ValueError):
            earlier.clear()
        if is_forgotten:
            return (_FORGOTTEN,)
        if _NEVER_SEEN not in text:
            return changes_in(text, _positional(function))
        model = getattr(function, "__self__", None)
        is_of_keras = model is not None and _KERAS in _explained_place(text)
        is_compiled = is_of_keras and model in self._models
        if is_of_keras:
            self._models.add(model)
        return (_COMPILED if is_compiled else _NEW if is_known else _FIRST_TRACE,)

    def _earlier(self, function: Any) -> list[Any]:
        """Return the keys of the traces of a function that this watch saw, to which it adds."""
        if function is None:
            return []
        alive, keys = self._keys.get(id(function), (lambda: None, []))
        if alive() is not function:
            alive, keys = weakref.ref(function), []
            self._keys[id(function)] = alive, keys
        return keys


def _guarded(compare: Callable[..., Any]) -> Callable[..., Any]:
    """Return a comparison of traces that answers also where a pytree of the user's fails in it."""

    def guarded_compare(*keys: Any) -> Any:
        try:
            return compare(*keys)
        except Exception as error:
            said = f"what changed is not known: comparing the arguments raised {error!r}"
            return (*_UNLIKE, said)

    return guarded_compare


def _was_traced(explanation: str, function: Any) -> bool:
    """Note the function of an explanation; return whether JAX has forgotten its traces."""
    key = explained_function(explanation), _explained_place(explanation)
    alive = [one for one in _seen.setdefault(key, []) if one() is not None]
    code = getattr(function, "__code__", None)
    if code is None or f"{code.co_filename}:{code.co_firstlineno}" != key[1]:
        return False  # JAX's own form of it, as under a derivative
    others = [one for one in alive if one() is not function]
    _seen[key] = [*others, weakref.ref(function)]
    return _NEVER_SEEN in explanation and len(others) < len(alive)


def _explaining() -> FrameType | None:
    """Return the frame in which JAX explains a trace, None if that is unknown."""
    # private: the caller that logs has the function (`explain` in partial_eval.py, JAX 0.9 to 0.10)
    frame = inspect.currentframe()
    while (
        frame is not None and (frame.f_globals.get("__name__"), frame.f_code.co_name) != _EXPLAINS
    ):
        frame = frame.f_back
    return frame


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


def explained_function(explanation: str) -> str:
    """Return the name of the function that an explanation is of."""
    found = _FUNCTION.search(explanation)
    return found["name"] if found else "function"


def _explained_place(explanation: str) -> str:
    """Return the file and line that define the function that an explanation is of."""
    found = _FUNCTION.search(explanation)
    return (found and found["place"]) or ""


def changes_in(explanation: str, parameters: Sequence[str] = ()) -> tuple[Change, ...]:
    """Return the changes that JAX's explanation of a cache miss names, as `x f32[8] → f32[5]`."""
    text = _URL.sub("", explanation)
    changes: list[Change] = []
    for found in _DIFFERENCE.finditer(text):
        now, _, before = found["now"].partition(" and before ")
        if found["at"].startswith(_NODE):
            before, _, why = before.partition(", so ")
            changes.append(_of_node(found["at"].removeprefix(_NODE), before, now, why, parameters))
        elif _CONTEXT in text:
            setting = f"the setting {found['at']} {_type(before)} → {_type(now)}"
            changes.append(Change(CONTEXT, setting, found["at"]))
        else:
            changes += _of_types(found["at"], before, now)
    if changes:
        return tuple(one._replace(text=elide(one.text, 2 * _LONGEST)) for one in changes)
    if _CONTEXT in text:
        setting = "a setting of JAX changed, in jax.config or by a context manager"
        return (Change(CONTEXT, setting, "that setting"),)
    whole = (change for part, change in _WHOLE.items() if part in text)
    rest = _rest(text)
    return (next(whole, None) or Change(UNKNOWN, rest),) if rest else ()


def _of_types(path: str, before: str, now: str) -> list[Change]:
    """Return the changes of an argument's type: that of the dtype, the shape and others."""
    text = f"{path} {_type(before)} → {_type(now)}"
    was, is_now = (_TYPE.match(one.strip().replace("({})", "")) for one in (before, now))
    if not was or not is_now:
        return [Change(STRUCTURE, text, path)]
    changes = []
    if was["dtype"] != is_now["dtype"]:
        changes.append(Change(DTYPE, text, path))
    if was["sizes"] != is_now["sizes"]:
        sizes = (tuple(filter(None, one["sizes"].split(","))) for one in (was, is_now))
        changes.append(Change(SHAPE, text, axes_of(path, *sizes)))
    if was["rest"] != is_now["rest"] and "weak_type" in was["rest"] + is_now["rest"]:
        changes.append(Change(WEAK_TYPE, text, path))
    elif was["rest"] != is_now["rest"]:
        changes.append(Change(SHARDING, text, path))
    return changes or [Change(UNKNOWN, text, path)]


def _type(text: str) -> str:
    """Return a type or value; JAX adds `({})` for the layout of an array over no devices."""
    text = elide(text.strip().replace("({})", ""), _LONGEST)
    for weak, words in _WEAK.items():
        text = text.replace(weak, words)
    return text


def _of_node(path: str, before: str, now: str, why: str, parameters: Sequence[str]) -> Change:
    """
    Return the change of an argument's structure; JAX describes the nodes, and says why they differ.

    The path is `[0]` for all positional arguments, `[1]` for all keywords.
    """
    argument = _argument(path, parameters)
    was, is_now = _STATIC.search(before), _STATIC.search(now)
    if was and is_now:
        return _of_values(f"static {argument}:", argument, was[1], is_now[1])
    was, is_now = _METADATA.search(before), _METADATA.search(now)
    if was and is_now:
        return _of_values(f"{argument}: the metadata of {was[1]}:", argument, was[2], is_now[2])
    if keys := _KEYS.search(why):
        return Change(STRUCTURE, f"{argument}: keys differ by {keys[1]}", argument)
    is_longer = path not in _ALL_ARGUMENTS and _SIZE.sub("", before) == _SIZE.sub("", now)
    return Change(LENGTH if is_longer else STRUCTURE, f"{argument}: {before} → {now}", argument)


def _argument(path: str, parameters: Sequence[str]) -> str:
    """Return the name of an argument and the path in it, as `argument batch['image']`."""
    found = _PATH.match(path)
    if not found:
        return _ALL_ARGUMENTS.get(path, f"argument {path}")
    key = found["key"].strip("'")
    if found["part"] == "0" and int(key) < len(parameters):
        key = parameters[int(key)]
    return f"argument {key}{found['rest']}"


def _of_values(said: str, argument: str, before: str, now: str) -> Change:
    """Return the change of a static value; objects that differ by their address alone are new."""
    before, now = (" ".join(value.split()) for value in (before, now))
    plain = _ADDRESS.sub("", now)
    if plain != _ADDRESS.sub("", before):
        values = " → ".join(elide(value, _LONGEST) for value in (before, now))
        return Change(STATIC, f"{said} {values}", argument)
    is_function = plain.startswith(("<function", "<bound method", "functools.partial(<function"))
    how = "which does not equal the one before" if plain != now else EYE
    text = f"{said} another {elide(plain, _LONGEST)}, {how}"
    return Change(FUNCTION_ARGUMENT if is_function else OBJECT, text, argument)


def _rest(text: str) -> str:
    """Return the last line of an explanation of another kind."""
    lines = [line.strip(" *:") for line in text.splitlines() if line.strip()]
    return elide(lines[-1], 2 * _LONGEST) if len(lines) > 1 else ""

"""Say in plain words what JAX's explanation of a cache miss names as the cause of a new trace."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_tfperf.function_traces import (
    CONTEXT,
    DTYPE,
    EYE,
    FIRST,
    FUNCTION_ARGUMENT,
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
    axes_of,
)
from pytest_tfperf.function_traces import FORGOTTEN as FORGOTTEN_KIND
from pytest_tfperf.text import and_more, elide, plural

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
_NODE = "input path "
_STATIC = re.compile(r"\.Static'> with pytree metadata Static\(val=(.*)\)$", re.S)
_KIND = re.compile(r"<class '(?:[^']*\.)?([^'.]+)'>|(list|tuple)(?= of length)")
_SIZE = re.compile(r"(?:with (?P<children>\d+) child(?:ren)?|of length (?P<length>\d+))$")
_METADATA = " with pytree metadata "
_KEYS = re.compile(r"symmetric difference of key sets: \{(.*)\}$")
_KEY = re.compile(r"'[^']*'|\"[^\"]*\"|[^\s,()\[\]]+")
_PATH = re.compile(r"\[(?P<part>[01])\](?:\[(?P<key>\d+|'[^']*')\](?P<rest>.*))?$")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_WEAK = {"{weak_type=True}": " (weakly typed)", "{weak_type=False}": ""}
_TYPE = re.compile(r"(?P<dtype>\w+)\[(?P<sizes>[^\]]*)\](?P<rest>.*)", re.S)
_URL = re.compile(r"https?://\S+")
FIRST_TRACE = Change(FIRST, "for the first time")
NEW = Change(NEW_FUNCTION, "a new function of a line that was traced before", "jax.jit function")
FORGOTTEN = Change(FORGOTTEN_KIND, "JAX had forgotten its traces, as after jax.clear_caches()")
_WHOLE = {
    "defined on the same line": NEW,
    _NEVER_SEEN: FIRST_TRACE,
    "Debug info doesn't match": Change(STRUCTURE, "the names of its arguments changed"),
    "explanation unavailable": Change(
        UNKNOWN, "JAX does not say what changed; from 0.11 on it names no static argument"
    ),
}
"""Explanations that name no difference, by what they contain."""
_CONTEXT = "Tracing context doesn't match"
_MOST_CHANGES, _LONGEST = 3, 60


def explained_function(explanation: str) -> str:
    """Return the name of the function that an explanation is of."""
    found = _FUNCTION.search(explanation)
    return found["name"] if found else "function"


def explained_place(explanation: str) -> str:
    """Return the file and line that define the function that an explanation is of."""
    found = _FUNCTION.search(explanation)
    return (found and found["place"]) or ""


def is_first_trace(explanation: str) -> bool:
    """Return whether JAX knows no earlier trace of the function."""
    return _NEVER_SEEN in explanation


def changes_in(explanation: str, parameters: Sequence[str] = ()) -> tuple[Change, ...]:
    """
    Return the changes that JAX's explanation of a cache miss names, as `x f32[8] → f32[5]`.

    Args:
        explanation: The explanation.
        parameters: Names of the function's positional parameters, as far as they are known.
    """
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
    Return the change of an argument's structure.

    Args:
        path: Its path, `[0]` of all positional arguments, `[1]` of all keywords.
        before: The former node, as JAX describes it.
        now: The new node.
        why: What JAX says of the two.
        parameters: Names of positional parameters.
    """
    was, is_now = _STATIC.search(before), _STATIC.search(now)
    argument = _argument(path, parameters)
    if was and is_now:
        return _of_values(f"static {argument}:", argument, was[1], is_now[1], STATIC)
    n_before, n_now = _size(before), _size(now)
    if path == "[0]" and n_before is not None and n_now is not None:
        text = f"{plural(n_now, 'positional argument')}, before {n_before}"
        return Change(STRUCTURE, text, "its arguments")
    keys = _KEYS.search(why)
    if keys and n_before is not None and n_now is not None:
        found = _KEY.findall(keys[1])
        if path == "[1]":
            names = and_more(sorted(key.strip("'") for key in found), _MOST_CHANGES)
            return Change(STRUCTURE, f"other keyword arguments: {names}", "its keyword arguments")
        text = f"{argument}: a dict {_of_keys(found, n_now - n_before)}"
        return Change(STRUCTURE, text, argument)
    return _of_kinds(argument, before, now)


def _argument(path: str, parameters: Sequence[str]) -> str:
    """Return the name of an argument and the path in it, as `argument batch['image']`."""
    found = _PATH.match(path)
    if not found or not found["key"]:
        return f"argument {path}"
    key = found["key"]
    if found["part"] == "1":
        return f"argument {key.strip(chr(39))}{found['rest']}"
    name = parameters[int(key)] if int(key) < len(parameters) else key
    return f"argument {name}{found['rest']}"


def _of_values(said: str, argument: str, before: str, now: str, kind: str) -> Change:
    """
    Return the change of a static value; objects that differ by their address alone are new.

    Args:
        said: The start of its text.
        argument: The argument that holds it.
        before: The former value.
        now: The new one.
        kind: The kind of a change of the value itself.
    """
    before, now = (" ".join(value.split()) for value in (before, now))
    plain = _ADDRESS.sub("", now)
    shown = elide(plain, _LONGEST)
    if plain != _ADDRESS.sub("", before):
        values = " → ".join(elide(value, _LONGEST) for value in (before, now))
        return Change(kind, f"{said} {values}", argument)
    is_function = plain.startswith(("<function", "<bound method", "functools.partial(<function"))
    how = "which does not equal the one before" if plain != now else EYE
    return Change(
        FUNCTION_ARGUMENT if is_function else OBJECT, f"{said} another {shown}, {how}", argument
    )


def _of_keys(keys: Sequence[str], growth: int) -> str:
    """
    Return the change of a dict's keys.

    Args:
        keys: The keys that one of both dicts has.
        growth: The number of new keys, less that of lost ones.
    """
    named = and_more(sorted(keys), _MOST_CHANGES)
    noun = "the key" if len(keys) == 1 else "the keys"
    if abs(growth) != len(keys):
        return f"gained or lost {noun} {named}"
    return f"{'gained' if growth > 0 else 'lost'} {noun} {named}"


def _of_kinds(argument: str, before: str, now: str) -> Change:
    """Return the change of a node's type, size or metadata."""
    kind, other = _kind(before), _kind(now)
    was, is_now = before.partition(_METADATA)[2], now.partition(_METADATA)[2]
    if was and kind == "dict":
        old, new = _KEY.findall(was), _KEY.findall(is_now)
        lost = and_more([key for key in old if key not in new], _MOST_CHANGES)
        gained = and_more([key for key in new if key not in old], _MOST_CHANGES)
        text = f"a dict has {gained} for the key {lost}" if gained else "a dict has other keys"
        return Change(STRUCTURE, f"{argument}: {text}", argument)
    if was:
        said = f"{argument}: the metadata of {kind}:"
        return _of_values(said, argument, was, is_now, STATIC)
    sizes = _size(before), _size(now)
    if None in sizes or kind != other:
        text = f"{_with_article(kind)} became {_with_article(other)}"
        return Change(STRUCTURE, f"{argument}: {text}", argument)
    text = f"{_with_article(kind)} of {sizes[0]} became one of {sizes[1]}"
    return Change(LENGTH, f"{argument}: {text}", argument)


def _kind(node: str) -> str:
    found = _KIND.search(node)
    return (found[1] or found[2]) if found else ""


def _size(node: str) -> int | None:
    found = _SIZE.search(node)
    return int(found["children"] or found["length"]) if found else None


def _with_article(kind: str) -> str:
    """Return a kind of node with its article; a leaf has no kind."""
    if kind in ("", "NoneType"):
        return "None" if kind else "an array or number"
    return f"{'an' if kind[0] in 'AEIOUaeiou' else 'a'} {kind}"


def _rest(text: str) -> str:
    """Return the last line of an explanation of another kind."""
    lines = [line.strip(" *:") for line in text.splitlines() if line.strip()]
    return elide(lines[-1], 2 * _LONGEST) if len(lines) > 1 else ""

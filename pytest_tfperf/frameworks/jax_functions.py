"""The compiled functions of JAX in this process: those of JAX itself, and those of the user."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_tfperf.frameworks.jax_framework import function_type
from pytest_tfperf.frameworks.jax_tracing import users_traced
from pytest_tfperf.values import WAITS

_WRAPS_USERS = "jax._src.pmap"
"""The module of JAX whose compiled functions are those that users pass to `jax.pmap`."""


def own_functions() -> dict[str, bool]:
    """
    Return the functions that JAX itself compiles, as `jax.numpy.add`, of all that are alive.

    Returns:
        Whether the user compiles a function of the same name, by name.
    """
    functions = [(name, is_own) for name, is_own, _ in _alive()]
    users = {name for name, is_own in functions if not is_own} | set(users_traced())
    return {name: name in users for name, is_own in functions if is_own}


def users_functions() -> Mapping[str, int]:
    """
    Return the number of the user's compiled functions of each name.

    They are the places of those alive, or those that the last watch of traces saw, if more.
    """
    alive = {(name, place) for name, is_own, place in _alive() if not is_own and name != WAITS}
    return Counter(name for name, _ in alive) | Counter(users_traced())


def _alive() -> Iterator[tuple[str, bool, str]]:
    """Yield the name of each compiled function, whether it is one of JAX itself, and its place."""
    kind = function_type()
    for function in [one for one in gc.get_objects() if type(one) is kind]:
        module = str(getattr(function, "__module__", ""))
        is_own = module.partition(".")[0] == "jax" and module != _WRAPS_USERS
        yield str(getattr(function, "__name__", "")), is_own, _place(function)


def _place(function: Any) -> str:
    """Return where a function is defined, as `file:line`; its number if it has no code."""
    code = getattr(getattr(function, "__wrapped__", None), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else str(id(function))

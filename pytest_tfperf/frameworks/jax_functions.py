"""The functions that JAX itself compiles in this process, apart from those of the user."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pytest_tfperf.frameworks.jax_tracing import users_traced

_WRAPS_USERS = "jax._src.pmap"
"""The module of JAX whose compiled functions are those that users pass to `jax.pmap`."""


def own_functions(alive: Iterable[Any]) -> dict[str, bool]:
    """
    Return the functions that JAX itself compiles, as `jax.numpy.add`.

    Args:
        alive: Compiled functions, those of the user too.

    Returns:
        Whether the user compiles a function of the same name, by name.
    """
    own, users = set[str](), set(users_traced())
    for function in alive:
        module = str(getattr(function, "__module__", ""))
        is_own = module.partition(".")[0] == "jax" and module != _WRAPS_USERS
        (own if is_own else users).add(str(getattr(function, "__name__", "")))
    return {name: name in users for name in own}

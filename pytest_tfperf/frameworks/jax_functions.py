"""The functions that JAX itself compiles in this process, apart from those of the user."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable
from types import CodeType
from typing import Any

from pytest_tfperf.frameworks.jax_tracing import users_traced

_WRAPS_USERS = "jax._src.pmap"
"""The module of JAX whose compiled functions are those that users pass to `jax.pmap`."""
_OF_TREES = ("tree_flatten", "tree_flatten_with_keys", "tree_unflatten", "__init__")
"""Methods of a class that is registered as a pytree."""


def own_functions(alive: Iterable[Any]) -> dict[str, bool]:
    """
    Return the functions that JAX itself compiles and Python may have called, as `jax.numpy.add`.

    A function of the user may have the name of one of them, which a trace then does not tell apart.
    JAX keeps in each function how its calls with such arguments go on. So the name is the user's
    if only functions of the user were ever called.

    Args:
        alive: Compiled functions, those of the user too.

    Returns:
        Whether the user compiles a function of the same name, by name.
    """
    own, users = defaultdict[str, bool](bool), defaultdict[str, bool](bool)  # called, by name
    users.update(dict.fromkeys(users_traced(), False))  # nothing tells of those that are gone
    for function in alive:
        is_own = _is_own(function)
        found = own if is_own else users
        found[str(getattr(function, "__name__", ""))] |= _was_called(function, if_unknown=is_own)
    return {name: name in users for name in own if own[name] or not users.get(name)}


def tree_code() -> Collection[CodeType]:
    """Return the Python code with which JAX takes registered pytrees apart, and makes them."""
    # private: the registry that `jax.tree_util.register_pytree_node` fills (0.4 to 0.11)
    registry = getattr(sys.modules.get("jax._src.tree_util"), "_registry", {})
    functions = [
        function
        for kind, entry in list(registry.items())
        for function in (*entry, *(vars(kind).get(name) for name in _OF_TREES))
    ]
    inner = (getattr(function, "__func__", function) for function in functions)
    return {one.__code__ for one in inner if isinstance(getattr(one, "__code__", None), CodeType)}


def _is_own(function: Any) -> bool:
    """
    Return whether JAX itself compiles a function, and not the user, who may compile one of JAX's.

    None of its own has another compiled function in it, as `jax.jit(jax.grad(jnp.sum))` has (0.10).
    """
    module = str(getattr(function, "__module__", ""))
    inner = getattr(function, "__wrapped__", None)
    while inner is not None and not isinstance(inner, type(function)):
        inner = getattr(inner, "__wrapped__", None)
    return module.partition(".")[0] == "jax" and module != _WRAPS_USERS and inner is None


def _was_called(function: Any, *, if_unknown: bool) -> bool:
    """Return whether Python has called a compiled function, outside of the traces of others."""
    # private: the number of entries of its cache of calls (jaxlib 0.4 to 0.11)
    n_entries = getattr(function, "_cache_size", None)
    return if_unknown if n_entries is None else n_entries() > 0

"""The functions that JAX itself compiles in this process, apart from those of the user."""

from __future__ import annotations

import gc

from pytest_tfperf.frameworks.jax_framework import function_type
from pytest_tfperf.frameworks.jax_tracing import users_traced

_WRAPS_USERS = "jax._src.pmap"
"""The module of JAX whose compiled functions are those that users pass to `jax.pmap`."""


def own_functions() -> dict[str, bool]:
    """
    Return the functions that JAX itself compiles, as `jax.numpy.add`, of all that are alive.

    Returns:
        Whether the user compiles a function of the same name, by name.
    """
    kind = function_type()
    own, users = set[str](), set(users_traced())
    # an object refers to its class; reading all objects takes three times as long
    for function in [one for one in gc.get_referrers(kind) if type(one) is kind]:
        module = str(getattr(function, "__module__", ""))
        is_own = module.partition(".")[0] == "jax" and module != _WRAPS_USERS
        (own if is_own else users).add(str(getattr(function, "__name__", "")))
    return {name: name in users for name in own}

"""Whose a name is that JAX and the user both give to a compiled function."""

import pytest

from pytest_tfperf.frameworks import jax_functions


class Function:
    def __init__(self, module, name, calls):
        self.__module__, self.__name__ = module, name
        if calls is not None:
            self._cache_size = lambda: calls


@pytest.mark.parametrize("traced", [(), ("solve",)])
def test_a_name_of_both_is_the_user_s_if_only_his_function_was_called(monkeypatch, traced):
    monkeypatch.setattr(jax_functions, "users_traced", lambda: dict.fromkeys(traced, 1))
    both = True  # a trace does not tell them apart
    cases = [  # calls of JAX's function and of the user's
        (0, 1, {}),
        (1, 1, {"solve": both}),
        (1, 0, {"solve": both}),
        (0, 0, {"solve": both}),
        (None, None, {"solve": both}),  # this version of JAX does not count
    ]
    for own, users, found in cases:
        functions = [
            Function("jax.numpy.linalg", "solve", own),
            Function("test_it", "solve", users),
        ]
        for order in (functions, functions[::-1]):
            assert jax_functions.own_functions(order) == found, (own, users)


def test_a_function_of_jax_that_the_user_compiles_again_is_the_user_s(monkeypatch):
    monkeypatch.setattr(jax_functions, "users_traced", dict)
    own = Function("jax.numpy", "dot", 0)

    def mapped():
        """As `jax.vmap` returns it."""

    mapped.__wrapped__ = own
    for inner in (own, mapped):
        again = Function("jax.numpy", "dot", 1)
        again.__wrapped__ = inner
        assert jax_functions.own_functions([own, again]) == {}, inner
    own._cache_size = lambda: 1
    assert jax_functions.own_functions([own, again]) == {"dot": True}


def test_a_name_of_jax_alone_is_its_own(monkeypatch):
    monkeypatch.setattr(jax_functions, "users_traced", lambda: {"gone": 1})
    own = [Function("jax._src.numpy.ufuncs", name, 0) for name in ("add", "gone")]
    users = [Function("test_it", "step", 2), Function("jax._src.pmap", "mapped", 1)]
    assert jax_functions.own_functions([*own, *users]) == {"add": False, "gone": True}

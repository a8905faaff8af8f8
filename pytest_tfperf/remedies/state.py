"""The state that a step changes: found from its code, and put back."""

from __future__ import annotations

import functools
import random
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from pytest_tfperf.capture.state import is_restorable, restored
from pytest_tfperf.frameworks.jax import loaded_jax
from pytest_tfperf.frameworks.tensorflow import loaded_tensorflow

_DEPTH = 4  # of functions and containers that are looked through
_MOST_ITEMS = 1000  # of a container
_MOST_BYTES = 2**26  # of an array of NumPy that is copied

_LIBRARIES = frozenset(
    {"builtins", "functools", "jax", "jaxlib", "keras", "numpy", "tensorflow", "tf_keras"}
)

_SEEDS = ("StateVar", "seed_generator_state")
"""Names of the states of tf.random.Generator and of keras.random.SeedGenerator."""

Undo = Callable[[], None]


@contextmanager
def kept_state(step: Any, named: Any) -> Iterator[Callable[[], None]]:
    """
    Keep the state that a step reaches; put it back at the end, also after an error.

    That is: variables, models, optimizers and random generators, containers, arrays of NumPy, and
    the names outside of its functions that these set. The global generators of Python and NumPy
    belong to it.

    Args:
        step: The step.
        named: What the user names besides, as `restore=` of `tf_profile`.

    Yields:
        A function that puts the state back before the end.
    """
    things, undos = _reached(step)
    saved = [[*things], *([named] if named is not None else [])]

    def restore() -> None:
        stack.close()
        for undo in undos:
            undo()
        keep()

    def keep() -> None:
        for one in saved:
            stack.enter_context(restored(one))

    with ExitStack() as stack:
        keep()
        try:
            yield restore
        finally:
            stack.close()
            for undo in undos:
                undo()


def variables_of(step: Any) -> list[Any]:
    """Return the variables of TensorFlow that a step reaches, each once."""
    tf = loaded_tensorflow()
    if tf is None:
        return []
    found: dict[int, Any] = {}
    for thing in _reached(step)[0]:
        own = [thing] if hasattr(thing, "assign") else getattr(thing, "variables", ())
        for variable in own() if callable(own) else own:
            found.setdefault(id(variable), variable)
    return list(found.values())


def seeds_of(step: Any) -> list[Any]:
    """Return the variables of TensorFlow and Keras that random generators of a step draw from."""
    return [one for one in variables_of(step) if str(getattr(one, "name", "")).startswith(_SEEDS)]


def _reached(step: Any) -> tuple[list[Any], list[Undo]]:
    """Return what has variables, and what puts names, containers and arrays back."""
    things: dict[int, Any] = {}
    undos: list[Undo] = [
        functools.partial(random.setstate, random.getstate()),
        functools.partial(np.random.set_state, np.random.get_state()),  # noqa: NPY002 - what users call
    ]
    seen: set[int] = set()

    def visit(value: Any, depth: int) -> None:
        if id(value) in seen or depth > _DEPTH:
            return
        seen.add(id(value))
        if is_restorable(value):
            things[id(value)] = value
        elif hasattr(getattr(value, "state", None), "assign"):  # tf.random.Generator, of Keras
            visit(value.state, depth)
        elif isinstance(value, np.random.Generator):
            bits = value.bit_generator
            undos.append(functools.partial(setattr, bits, "state", bits.state))
        elif isinstance(value, np.ndarray):
            undos.extend(_undo_array(value))
        elif isinstance(value, (list, dict)) and len(value) <= _MOST_ITEMS:
            undos.append(_undo_container(value))
            for one in list(value.values() if isinstance(value, dict) else value):
                visit(one, depth + 1)
        elif isinstance(value, tuple):
            for one in value:
                visit(one, depth + 1)
        elif isinstance(value, functools.partial):
            visit((value.func, value.args, value.keywords), depth)
        elif isinstance(value, types.MethodType):
            visit((value.__self__, value.__func__), depth)
        elif isinstance(value, types.FunctionType):
            for _, one, put in references(value):
                if not isinstance(one, types.ModuleType):
                    undos.append(functools.partial(_put_back, put, one, with_copies(one)))
                    visit(one, depth + 1)
            visit(value.__defaults__ or (), depth + 1)
        elif function := getattr(value, "python_function", getattr(value, "__wrapped__", None)):
            visit(function, depth)
        elif is_users_object(value):
            visit(vars(value), depth + 1)

    visit(step, 0)
    return list(things.values()), undos


def references(
    function: types.FunctionType,
) -> Iterator[tuple[str, Any, Callable[[Any], None]]]:
    """Yield the names outside of a function that it uses: name, value, and what sets it."""
    code, scope = function.__code__, function.__globals__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # it is empty
            continue
        yield name, value, functools.partial(setattr, cell, "cell_contents")
    for name in sorted({*all_names(code)} & scope.keys()):  # in one order in all processes
        yield name, scope[name], functools.partial(scope.__setitem__, name)


def all_names(code: types.CodeType) -> Iterator[str]:
    """Yield the names in a function and in the functions within it."""
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from all_names(one)


def _put_back(put: Callable[[Any], None], value: Any, copied: Any) -> None:
    """Put the value of a name back where a step has set it, or donated an array in it."""
    is_own = isinstance(value, (list, dict))  # which is put back itself
    put(with_copies(copied) if not is_own and _is_donated(value) else value)


def is_users_object(value: Any) -> bool:
    """Return whether an object may hold the state of a step: one of a class of the user's."""
    is_plain = hasattr(value, "__dict__") and not isinstance(value, (type, types.ModuleType))
    return is_plain and not is_of_library(type(value))


def is_of_library(thing: Any) -> bool:
    """Return whether a class, function or module is one of a framework or of Python's own."""
    module = str(getattr(thing, "__module__", None) or getattr(thing, "__name__", ""))
    return module.partition(".")[0] in _LIBRARIES


def _undo_array(array: Any) -> list[Undo]:
    """Return what puts the values of an array back; nothing of a large or a read-only one."""
    if array.nbytes > _MOST_BYTES or not array.flags.writeable or array.dtype.hasobject:
        return []
    return [functools.partial(np.copyto, array, array.copy())]


def _undo_container(container: Any) -> Undo:
    """Return what puts the items of a list or dict back."""
    is_dict = isinstance(container, dict)
    items = dict(container if is_dict else enumerate(container))
    saved = {name: with_copies(one) for name, one in items.items()}

    def undo() -> None:
        before = _kept(items, saved)
        if is_dict:
            for name in container.keys() - before.keys():
                del container[name]
            for name, one in before.items():
                container[name] = one  # `update` of a Counter would add it
        else:
            container[:] = before.values()

    return undo


def _kept(items: dict[Any, Any], saved: dict[Any, Any]) -> dict[Any, Any]:
    """Return items, with copies in place of arrays that a step has donated."""
    return {
        name: with_copies(saved[name]) if _is_donated(one) else one for name, one in items.items()
    }


def _is_donated(value: Any) -> bool:
    """Return whether a step has given an array of JAX in a value to XLA."""
    jax = loaded_jax()
    if jax is None:
        return False
    arrays = [one for one in _flat(value)[0] if isinstance(one, jax.Array)]
    return any(one.is_deleted() for one in arrays if not isinstance(one, jax.core.Tracer))


def with_copies(value: Any) -> Any:
    """Return a value with copies of JAX's arrays in it, which a step may donate to XLA."""
    jax = loaded_jax()
    if jax is None:
        return value
    leaves, tree = _flat(value)
    if not any(isinstance(leaf, jax.Array) for leaf in leaves):
        return value
    copies = [leaf.copy() if isinstance(leaf, jax.Array) else leaf for leaf in leaves]
    return jax.tree_util.tree_unflatten(tree, copies)


def _flat(value: Any) -> Any:
    """Return the leaves and the structure that JAX sees in a value."""
    tree: Any = loaded_jax().tree_util  # type: ignore[union-attr]
    try:
        return tree.tree_flatten(value)
    except (TypeError, ValueError):  # keys of a dict that have no order
        return tree.tree_flatten(value, is_leaf=lambda _: True)

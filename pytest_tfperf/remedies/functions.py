"""The compiled functions that a step calls: found by their names, seen at work, and replaced."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_tfperf.frameworks.jax import function_type, loaded_jax
from pytest_tfperf.frameworks.tensorflow import loaded_tensorflow
from pytest_tfperf.remedies.remedy import Call, DoesNotApply, NotTried
from pytest_tfperf.remedies.state import (
    all_names,
    is_of_library,
    is_users_object,
    kept_state,
    references,
)
from pytest_tfperf.remedies.turns import Turns

_DEPTH = 4  # of functions, objects and containers that are looked through
_MOST_ITEMS = 1000  # of a container
_WATCHED = 6  # first steps whose calls are seen: enough for sizes that change in most steps
_NOT_REACHED = "the step calls no compiled function by a name that can be replaced"

IsOne = Callable[[Any], bool]
Leaf = tuple[Any, ...]
"""Shape and dtype name of an array, or the one value of another argument."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A name by which code reaches a function."""

    function: Any
    put: Callable[[Any], None]


@dataclass(slots=True)
class Use:
    """What the calls of one function had as arguments in the first steps."""

    function: Any
    calls: list[Mapping[str, Sequence[Leaf]]] = field(default_factory=list)
    """The leaves of each argument, by its name, in each call."""
    returned: list[Sequence[Leaf]] = field(default_factory=list)
    """The leaves of what each call returned."""
    flows: dict[str, bool] = field(default_factory=dict)
    """Whether an argument is what the call before returned, in each call but the first."""

    def values(self, argument: str) -> list[Sequence[Leaf]]:
        """Return the leaves of an argument in each call that has it."""
        return [call[argument] for call in self.calls if argument in call]

    @property
    def arguments(self) -> list[str]:
        """The names of all arguments."""
        return list(dict.fromkeys(name for call in self.calls for name in call))


def is_function(value: Any) -> bool:
    """Return whether a value is a tf.function."""
    tf = loaded_tensorflow()
    return tf is not None and isinstance(value, tf.types.experimental.PolymorphicFunction)


def is_jitted(value: Any) -> bool:
    """Return whether a value is a function that jax.jit compiles."""
    return loaded_jax() is not None and isinstance(value, function_type())


def with_functions(call: Call, is_one: IsOne, changed: Callable[[Any], Any]) -> Call:
    """Return the call with changed functions: its step, or those that it reaches while it runs."""
    if is_one(call.step):
        return replace(call, step=like(call.step, changed(call.step)))
    places = _places(call.step, is_one)
    if not places:
        raise NotTried(_NOT_REACHED)
    new = {id(place.function): changed(place.function) for place in places}

    @contextmanager
    def during() -> Iterator[None]:
        with call.during():
            try:
                for place in places:
                    place.put(new[id(place.function)])
                yield
            finally:
                for place in places:
                    place.put(place.function)

    return replace(call, during=during)


def uses_of(call: Call, is_one: IsOne, kind: str = "uses") -> list[Use]:
    """Return how the first steps call the functions that they reach; state is put back."""
    found: list[Use] | None = call.seen.get(kind)
    if found is None:
        uses: dict[int, Use] = {}

        def watched(function: Any) -> Callable[..., Any]:
            return _watched(function, uses.setdefault(id(function), Use(function)))

        try:
            changed = with_functions(call, is_one, watched)
            with kept_state(call.step, call.restore):
                Turns(changed).first_outputs(_WATCHED)
        except NotTried:
            pass
        found = call.seen[kind] = [use for use in uses.values() if use.calls]
    return found


def used(
    call: Call, is_one: IsOne, has: Callable[[Use], Any], is_seen: bool = True
) -> dict[int, Any]:
    """Return what a remedy would change of each function, by its id."""
    uses = uses_of(call, is_one)
    if not uses and is_seen:
        raise NotTried(_NOT_REACHED)
    found = {id(use.function): change for use in uses if (change := has(use))}
    if not found:
        raise DoesNotApply("the functions that the step calls have nothing to change")
    return found


def like(step: Any, changed: Callable[..., Any]) -> Callable[..., Any]:
    """Return a changed step that takes elements as the first one does."""

    def run(*args: Any) -> Any:
        return changed(*args)

    run.python_function = getattr(step, "python_function", step)  # type: ignore[attr-defined]
    return run


def code_of(function: Any) -> Any:
    """Return the code object of a function below what wraps it, None without one."""
    function = inspect.unwrap(getattr(function, "python_function", function))
    return getattr(function, "__code__", None)


def where(function: Any) -> str:
    """Return the line of a function in the user's code, and two spaces."""
    from pytest_tfperf.compiler.source_lines import line_of_code

    line = line_of_code(code_of(function))
    return f"{line}  " if line else ""


def within(call: Call, context: Callable[[], AbstractContextManager[Any]]) -> Call:
    """Return the call whose turns run in a further context."""

    @contextmanager
    def during() -> Iterator[None]:
        with call.during(), context():
            yield

    return replace(call, during=during)


def _watched(function: Any, use: Use) -> Callable[..., Any]:
    """Return a function that notes the arguments of each call."""
    names = Names(function)
    last: list[Any] = []

    @functools.wraps(getattr(function, "python_function", function))
    def run(*args: Any, **kwargs: Any) -> Any:
        given = {name: _flat(value, function) for name, value in names.of(args, kwargs).items()}
        if last:
            before = {id(leaf) for leaf in last}
            for name, leaves in given.items():
                arrays = [leaf for leaf in leaves if hasattr(leaf, "shape")]
                is_it = bool(arrays) and all(id(leaf) in before for leaf in arrays)
                use.flows[name] = use.flows.get(name, True) and is_it
        use.calls.append({name: [*map(_leaf, leaves)] for name, leaves in given.items()})
        output = function(*args, **kwargs)
        last[:] = _flat(output, function)
        use.returned.append([*map(_leaf, last)])
        return output

    return run


class Names:
    """The parameters of a function, for arguments of its calls."""

    def __init__(self, function: Any) -> None:
        try:
            function = getattr(function, "python_function", function)
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            parameters = ()  # type: ignore[assignment]
        self._rest = ""
        self._positional = []
        for one in parameters:
            if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD):
                self._positional.append(one.name)
            elif one.kind is one.VAR_POSITIONAL:
                self._rest = one.name

    def at(self, place: int) -> str:
        """Return the name of a positional argument; those of `*args` are `args[0]` and so on."""
        n = len(self._positional)
        return self._positional[place] if place < n else f"{self._rest}[{place - n}]"

    def of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name."""
        return {**{self.at(place): one for place, one in enumerate(args)}, **kwargs}


def _flat(value: Any, function: Any) -> list[Any]:
    """Return the leaves of an argument or output, as the function's framework sees them."""
    tf, jax = loaded_tensorflow(), loaded_jax()
    if tf is not None and (jax is None or is_function(function)):
        return list(tf.nest.flatten(value))
    return list(jax.tree_util.tree_leaves(value)) if jax is not None else [value]


def _leaf(value: Any) -> Leaf:
    """Return shape and dtype of an array, or a number or text itself, or the type of the rest."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        sizes = getattr(shape, "as_list", lambda: list(shape))()
        return (tuple(sizes), getattr(dtype, "name", str(dtype)))
    return (value if isinstance(value, (bool, int, float, str, type(None))) else type(value),)


def _places(step: Any, is_one: IsOne) -> list[_Place]:
    """Return the places in which the code of a step finds functions."""
    found: list[_Place] = []
    seen: set[int] = set()

    def hold(value: Any, put: Callable[[Any], None], depth: int) -> None:
        """Note a function of the user's, as jax.nn.relu is none; look through other values."""
        if is_one(value) and not is_of_library(getattr(value, "python_function", value)):
            with suppress(AttributeError, TypeError, ValueError):  # of frozen objects
                put(value)
                found.append(_Place(value, put))
        else:
            visit(value, depth)

    def visit(value: Any, depth: int) -> None:
        if id(value) in seen or depth > _DEPTH:
            return
        seen.add(id(value))
        if isinstance(value, functools.partial):
            for one in (value.func, *value.args, *value.keywords.values()):
                visit(one, depth)
        elif isinstance(value, types.MethodType):
            visit(value.__func__, depth)
            visit(value.__self__, depth)
        elif isinstance(value, types.FunctionType):
            for one, put in _names_in(value):
                hold(one, put, depth + 1)
        elif isinstance(value, (list, dict)) and len(value) <= _MOST_ITEMS:
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, one in list(items):
                hold(one, functools.partial(value.__setitem__, key), depth + 1)
        elif is_users_object(value):
            for owner in (value, type(value)):
                for name, one in list(vars(owner).items()):
                    hold(one, functools.partial(setattr, owner, name), depth + 1)

    visit(step, 0)
    return found


def _names_in(function: types.FunctionType) -> Iterator[tuple[Any, Callable[[Any], None]]]:
    """Yield what a function refers to outside of it, and how another thing takes its place."""
    names = set(all_names(function.__code__))
    for _, value, put in references(function):
        if not isinstance(value, types.ModuleType):
            yield value, put
        elif not is_of_library(value):
            for attribute in names & vars(value).keys():
                yield vars(value)[attribute], functools.partial(setattr, value, attribute)

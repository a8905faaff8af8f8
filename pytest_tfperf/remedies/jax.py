"""Remedies of the step of JAX: what jax.jit compiles, how often, and how exactly it computes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_tfperf.frameworks.framework import JAX
from pytest_tfperf.frameworks.in_use import has_accelerators
from pytest_tfperf.frameworks.jax import loaded_jax
from pytest_tfperf.remedies.functions import (
    Use,
    is_jitted,
    like,
    used,
    uses_of,
    where,
    with_functions,
    within,
)
from pytest_tfperf.remedies.remedy import Call, NotTried, Remedy
from pytest_tfperf.text import and_more

_FEW = 3
_BFLOAT16 = "BF16_BF16_F32"
"""Products of bfloat16, summed in float32 (jax.lax.DotAlgorithmPreset, JAX 0.5 and newer)."""


class _OfJax(Remedy):
    """A remedy of a step of JAX."""

    kind = "step"

    def applies(self, call: Call) -> bool:
        """Return whether JAX runs the step, and not Keras on it."""
        return call.framework == JAX and call.keras is None


class _OfFunctions(_OfJax):
    """A remedy of functions of jax.jit, by what their arguments are in the first steps."""

    is_seen = False
    """Whether the profile has seen the functions at work."""

    def change(self, use: Use) -> Any:
        """Return what would be changed of a function; something empty if nothing."""
        raise NotImplementedError

    def changed(self, function: Any, change: Any) -> Callable[..., Any]:
        """Return a changed function."""
        raise NotImplementedError

    def text(self, change: Any) -> str:
        """Return the code to type for one function."""
        raise NotImplementedError

    def apply(self, call: Call) -> Call:
        """Return the call with those functions changed."""
        changes = used(call, is_jitted, self.change, self.is_seen)

        def changed(function: Any) -> Any:
            change = changes.get(id(function))
            return self.changed(function, change) if change else function

        return with_functions(call, is_jitted, changed)

    def write(self, call: Call) -> str:
        """Return the code to type for each function."""
        found = ((use.function, self.change(use)) for use in uses_of(call, is_jitted))
        return "; ".join(f"{where(one)}{self.text(change)}" for one, change in found if change)


class OneJit(_OfJax):
    """One jax.jit around the step."""

    name = "@jax.jit"

    def applies(self, call: Call) -> bool:
        """Return whether it is a step of JAX that is not one compiled function."""
        return super().applies(call) and not hasattr(call.step, "lower")

    def apply(self, call: Call) -> Call:
        """Return the call with a compiled function."""
        jax: Any = loaded_jax()
        return replace(call, step=like(call.step, jax.jit(call.step)))

    def write(self, call: Call) -> str:
        """Return the decorator."""
        return f"{where(call.step)}@jax.jit"


class _OfCompilations(_OfFunctions):
    """A remedy of functions that are compiled again and again."""

    is_seen = True

    def applies(self, call: Call) -> bool:
        """Return whether the profile has seen that."""
        again = call.number("retraces") or call.number("xla_compiles")
        return super().applies(call) and bool(again)


class Traced(_OfCompilations):
    """Arrays in place of static arguments that change."""

    name = "arrays in place of static arguments"

    def change(self, use: Use) -> list[str]:
        """Return static arguments that are another number in some calls."""
        return [
            name
            for name in use.arguments
            if name in _static(use.function)
            and _all_numbers(use.values(name))
            and len({leaves[0] for leaves in use.values(name)}) > 1
        ]

    def changed(self, function: Any, change: Any) -> Callable[..., Any]:
        """Return a function that does not compile for each of their values."""
        return _rejitted(function, static=_static(function) - set(change))

    def text(self, change: Any) -> str:
        """Return what is no static argument."""
        return f"take {_quoted(change)} out of static_argnames"


class _OfCalls(_OfFunctions):
    """A remedy of functions whose arguments the step chooses."""

    def applies(self, call: Call) -> bool:
        """Return whether the step calls such functions: one that is one takes what data give."""
        return super().applies(call) and not is_jitted(call.step)


class Static(_OfCalls):
    """Static arguments for Python's numbers that never change."""

    name = "static arguments for numbers that do not change"

    def change(self, use: Use) -> list[str]:
        """Return arguments that are the same number in all calls."""
        return [
            name
            for name in use.arguments
            if name not in _static(use.function)
            and len(use.values(name)) > 1
            and _all_numbers(use.values(name))
            and len({leaves[0] for leaves in use.values(name)}) == 1
        ]

    def changed(self, function: Any, change: Any) -> Callable[..., Any]:
        """Return a function that XLA compiles for these numbers."""
        return _rejitted(function, static=_static(function) | set(change))

    def text(self, change: Any) -> str:
        """Return the argument of jax.jit."""
        return f"jax.jit(…, static_argnames=({_quoted(change)},))"


class Donated(_OfCalls):
    """Buffers of arguments that take results, where each call gets what the last one returned."""

    name = "donate_argnums"

    def change(self, use: Use) -> list[str]:
        """Return arguments that are results of the call before."""
        taken = _static(use.function) | _names(use.function, "donate")
        return [name for name, flows in use.flows.items() if flows and name not in taken]

    def changed(self, function: Any, change: Any) -> Callable[..., Any]:
        """Return a function that reuses its own results; of the user's arrays it takes copies."""
        jax: Any = loaded_jax()
        donate = _names(function, "donate") | set(change)
        donating = _rejitted(function, static=_static(function), donate=donate)
        own: dict[int, Any] = {}

        def spared(value: Any) -> Any:
            return jax.tree_util.tree_map(
                lambda leaf: leaf if id(leaf) in own or not hasattr(leaf, "copy") else leaf.copy(),
                value,
            )

        parameters = list(inspect.signature(function).parameters)
        places = [parameters.index(name) for name in change if name in parameters]

        def run(*args: Any, **kwargs: Any) -> Any:
            given = list(args)
            for place in places:
                if place < len(given):
                    given[place] = spared(given[place])
                elif parameters[place] in kwargs:
                    kwargs[parameters[place]] = spared(kwargs[parameters[place]])
            output = donating(*given, **kwargs)
            own.clear()
            own.update((id(leaf), leaf) for leaf in jax.tree_util.tree_leaves(output))
            return output

        return run

    def write(self, call: Call) -> str:
        """Return the code to type, and what it takes."""
        return f"{super().write(call)}, if nothing else reads them later"

    def text(self, change: Any) -> str:
        """Return the argument of jax.jit."""
        return f"jax.jit(…, donate_argnames=({_quoted(change)},))"


class PaddedToPowers(_OfCompilations):
    """Sizes that change, padded to powers of two."""

    name = "sizes padded to powers of two"

    def size(self, n: int, largest: int) -> int:  # noqa: ARG002 - the other one's
        """Return the size in place of n."""
        return 1 << max(n - 1, 0).bit_length()

    def change(self, use: Use) -> Any:
        """Return the axes whose sizes change, in groups that have one size in each call."""
        groups: dict[tuple[int, ...], list[tuple[str, int, int]]] = {}
        for name in use.arguments:
            for place, leaves in enumerate(_side_by_side(use.values(name))):
                for axis, sizes in enumerate(zip(*(leaf[0] for leaf in leaves), strict=True)):
                    if len(set(sizes)) > 1:
                        groups.setdefault(sizes, []).append((name, place, axis))
        return groups

    def changed(self, function: Any, change: Any) -> Callable[..., Any]:
        """Return a function that pads its arguments, and cuts its results."""
        return _Padded(function, change, self.size)

    def text(self, change: Any) -> str:
        """Return what is to be padded."""
        axes = [f"axis {axis} of {name}" for group in change.values() for name, _, axis in group]
        return f"pad {and_more(axes, _FEW)} to {self.name.rpartition(' to ')[2]}"


class PaddedToLargest(PaddedToPowers):
    """Sizes that change, padded to the largest that was seen."""

    name = "sizes padded to the largest"

    def size(self, n: int, largest: int) -> int:
        """Return the size in place of n."""
        return max(n, largest)


class Precision(_OfJax):
    """Products of matrices in bfloat16."""

    name = f"jax_default_matmul_precision={_BFLOAT16!r}"
    code = f'jax.config.update("jax_default_matmul_precision", "{_BFLOAT16}")'
    computes_differently = "different: it multiplies in bfloat16"

    def applies(self, call: Call) -> bool:
        """Return whether a device may multiply faster so: XLA's CPUs do not."""
        jax = loaded_jax()
        return (
            super().applies(call)
            and has_accelerators()
            and jax is not None
            and jax.config.jax_default_matmul_precision != _BFLOAT16
        )

    def apply(self, call: Call) -> Call:
        """Return the call with that precision."""
        jax: Any = loaded_jax()
        return within(call, lambda: _precision(jax))


REMEDIES: tuple[Remedy, ...] = (
    Traced(),
    PaddedToPowers(),
    PaddedToLargest(),
    OneJit(),
    Donated(),
    Static(),
    Precision(),
)
"""Those of a cause that the profile has seen come first."""


def _precision(jax: Any) -> AbstractContextManager[None]:
    found: AbstractContextManager[None] = jax.default_matmul_precision(_BFLOAT16)
    return found


_Places = Mapping[int, Mapping[int, int]]
"""By the number of a leaf and by axis: the group that has its size."""


class _Padded:
    """A function whose arguments are padded with zeros, and whose results are cut again."""

    def __init__(
        self,
        function: Any,
        groups: Mapping[tuple[int, ...], Sequence[tuple[str, int, int]]],
        size: Callable[[int, int], int],
    ) -> None:
        jax: Any = loaded_jax()
        self._function, self._size, self._trees = function, size, jax.tree_util
        self._groups = list(groups.values())
        self._largest = [max(sizes) for sizes in groups]
        self._places: dict[Any, tuple[list[tuple[int, int]], _Places]] = {}
        """By the structure of the arguments: the first leaf and axis of each group, and all."""
        self._cut: list[list[int | None]] | None = None
        """Per leaf of a result and per axis of it: the group of its size; empty if none has one."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, tree = self._trees.tree_flatten((args, kwargs))
        found = self._places.get(tree)
        if found is None:
            found = self._places[tree] = self._placed(tree)
        firsts, places = found
        sizes = [leaves[leaf].shape[axis] for leaf, axis in firsts]
        self._largest = [*map(max, sizes, self._largest)]
        wanted = [*map(self._size, sizes, self._largest)]
        padded = _changed(leaves, places, sizes, wanted, _padded)
        if self._cut is None:
            self._cut = self._cuts(padded, tree, wanted)
        output = self._called(self._function, padded, tree)
        if not self._cut:
            return output
        results, tree = self._trees.tree_flatten(output)
        cut = [
            leaf
            if all(group is None for group in axes)
            else np.asarray(leaf)[tuple(slice(None if g is None else sizes[g]) for g in axes)]
            for leaf, axes in zip(results, self._cut, strict=True)
        ]
        return self._trees.tree_unflatten(tree, cut)

    def _called(self, function: Callable[..., Any], leaves: Sequence[Any], tree: Any) -> Any:
        args, kwargs = self._trees.tree_unflatten(tree, leaves)
        return function(*args, **kwargs)

    def _placed(self, tree: Any) -> tuple[list[tuple[int, int]], _Places]:
        """Return which leaves of a call's arguments change, and the group of each axis."""
        bind = inspect.signature(self._function).bind
        numbers = self._called(bind, range(tree.num_leaves), tree).arguments
        firsts: list[tuple[int, int]] = []
        places: dict[int, dict[int, int]] = {}
        for group, axes in enumerate(self._groups):
            found = [
                (self._trees.tree_leaves(numbers[name])[place], axis) for name, place, axis in axes
            ]
            firsts.append(found[0])
            for leaf, axis in found:
                places.setdefault(leaf, {})[axis] = group
        return firsts, places

    def _cuts(
        self, padded: Sequence[Any], tree: Any, wanted: Sequence[int]
    ) -> list[list[int | None]]:
        """Return which axes of the results have the size of a group: those that grow with it."""
        _, places = self._places[tree]

        def shapes_for(sizes: Sequence[int]) -> list[tuple[int, ...]]:
            given = _changed(padded, places, wanted, sizes, _described)
            found = self._called(self._function.eval_shape, given, tree)
            return [tuple(one.shape) for one in self._trees.tree_leaves(found)]

        shapes = shapes_for(wanted)
        cuts: list[list[int | None]] = [[None] * len(shape) for shape in shapes]
        for group, size in enumerate(wanted):
            larger = [2 * one if place == group else one for place, one in enumerate(wanted)]
            for cut, *pair in zip(cuts, shapes, shapes_for(larger), strict=True):
                for axis, (before, after) in enumerate(zip(*pair, strict=True)):
                    if before == after:
                        continue
                    if (before, after) != (size, 2 * size):
                        raise NotTried(f"a result has {before} where its arguments have {size}")
                    cut[axis] = group
        return cuts if any(group is not None for cut in cuts for group in cut) else []


def _changed(
    leaves: Sequence[Any],
    places: _Places,
    sizes: Sequence[int],
    wanted: Sequence[int],
    change: Callable[[Any, Sequence[int]], Any],
) -> list[Any]:
    """Return leaves with those that have axes of a group changed to another shape."""
    found = list(leaves)
    for leaf, axes in places.items():
        shape = list(leaves[leaf].shape)
        for axis, group in axes.items():
            if shape[axis] != sizes[group]:
                both = sorted((shape[axis], sizes[group]))
                raise NotTried(f"sizes that were equal at first differ later: {both}")
            shape[axis] = wanted[group]
        found[leaf] = change(leaves[leaf], shape)
    return found


def _described(leaf: Any, shape: Sequence[int]) -> Any:
    """Return what JAX takes in place of an array of this shape."""
    jax: Any = loaded_jax()
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(leaf.dtype))


def _padded(leaf: Any, shape: Sequence[int]) -> Any:
    """Return an array of this shape; by NumPy, since JAX compiles a padding for each size."""
    array = np.asarray(leaf)
    found = np.zeros(shape, array.dtype)
    found[tuple(map(slice, array.shape))] = array
    return found


def _side_by_side(calls: Sequence[Sequence[Any]]) -> Iterator[list[Any]]:
    """Yield what one leaf is in each call, of arrays that have one rank and dtype in all."""
    if len({len(leaves) for leaves in calls}) == 1:
        for leaves in zip(*calls, strict=True):
            kinds = {(len(one[0]), one[1]) if len(one) == 2 else None for one in leaves}
            if len(kinds) == 1 and None not in kinds:
                yield list(leaves)


def _all_numbers(calls: Sequence[Sequence[Any]]) -> bool:
    """Return whether an argument is one of Python's numbers in each call."""
    return all(
        len(leaves) == 1 and len(leaves[0]) == 1 and isinstance(leaves[0][0], (int, float))
        for leaves in calls
    )


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _static(function: Any) -> set[str]:
    """Return the names of static arguments."""
    return _names(function, "static")


def _names(function: Any, kind: str) -> set[str]:
    """Return the names of arguments that a jax.jit was told to be static or donated."""
    info = _told(function)
    parameters = list(inspect.signature(function).parameters)
    numbers = getattr(info, f"{kind}_argnums")
    return {parameters[n] for n in numbers if n < len(parameters)} | {
        *getattr(info, f"{kind}_argnames")
    }


def _told(function: Any) -> Any:
    """Return what a jax.jit was told. Raises: NotTried, if this version of JAX does not tell it."""
    info = getattr(function, "_jit_info", None)  # private (JAX 0.6 to 0.11)
    if not hasattr(info, "static_argnums") or not hasattr(info, "donate_argnames"):
        raise NotTried("this version of JAX does not tell the arguments of a jax.jit")
    return info


def _rejitted(
    function: Any, static: Collection[str], donate: Collection[str] | None = None
) -> Callable[..., Any]:
    """Return a function with other static arguments, and other donated ones if they are named."""
    jax: Any = loaded_jax()
    info = _told(function)
    shardings = (*info.in_shardings_leaves, *info.out_shardings_leaves)
    is_own = all(type(one).__name__ == "UnspecifiedValue" for one in shardings)
    if not is_own or info.device is not None or info.backend is not None:
        raise NotTried("a jax.jit with shardings or a device is not made anew")
    found: Callable[..., Any] = jax.jit(
        function.__wrapped__,
        static_argnames=sorted(static),
        donate_argnames=sorted(_names(function, "donate") if donate is None else donate),
        keep_unused=info.keep_unused,
        inline=info.inline,
        compiler_options=dict(info.compiler_options_kvs) or None,
    )
    return found

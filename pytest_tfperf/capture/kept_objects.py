"""Find the lists, dicts, sets and deques of this process that hold more after each step."""

from __future__ import annotations

import gc
import math
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from time import perf_counter
from types import CellType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any
from weakref import ReferenceType

import numpy as np

from pytest_tfperf.compiler.source_lines import line_of_code, user_line_of
from pytest_tfperf.quantities import digits
from pytest_tfperf.recording import Kept
from pytest_tfperf.text import and_more

_CONTAINERS = frozenset({list, dict, set, deque, OrderedDict, defaultdict})
_ARRAYS = {
    ("numpy", "ndarray"): "NumPy array",
    ("tensorflow", "EagerTensor"): "tensor",
    ("tensorflow", "ResourceVariable"): "tf.Variable",
    ("jaxlib", "ArrayImpl"): "jax.Array",
    ("jax", "ArrayImpl"): "jax.Array",
    ("torch", "Tensor"): "torch.Tensor",
}
_NOT_OF_ONE_OBJECT = (ModuleType, type, CodeType, FrameType, ReferenceType)
_FEWEST = 3
"""Objects that a container has more, at least."""
_LOOKED_AT, _SAMPLED = 20, 4
"""Containers that are looked into, those that grew by most objects, and objects of each."""
_MOST_VISITED = 300_000
"""Objects that are visited to size those of one container; visiting them takes 0.3 s."""
_LONGEST_S = 5.0
_HOPS = 3
"""Containers around a container up to the variable that holds all of them."""


class Containers:
    """The lengths of all containers of this process at one moment; reading them takes 0.1 s."""

    def __init__(self, n_calls: int) -> None:
        self.n_calls = n_calls
        found = _containers()
        self._ids = np.fromiter(map(id, found), np.int64, len(found))
        self._lengths = np.fromiter(map(len, found), np.int64, len(found))

    def kept(self, n_steps: int, least: float) -> tuple[Kept, ...]:
        """Return the containers that hold `least` bytes a step more now, the largest first."""
        gc.collect()
        before = dict(zip(self._ids.tolist(), self._lengths.tolist(), strict=True))
        grown = [(len(one) - before.get(id(one), len(one)), one) for one in _containers()]
        grown = [pair for pair in grown if pair[0] >= _FEWEST]
        grown.sort(key=lambda pair: -pair[0])
        deadline = perf_counter() + _LONGEST_S
        found = [_kept(one, n, n_steps, least, deadline) for n, one in grown[:_LOOKED_AT]]
        return tuple(sorted((one for one in found if one), key=lambda one: -one.size))


def _containers() -> list[Any]:
    """Return all containers; Python's collector leaves out a dict that holds no other object."""
    objects = gc.get_objects()
    types = {kind for kind in set(map(type, objects)) if kind in _CONTAINERS or _is_users(kind)}
    holders = [one for one in objects if type(one) in types or type(one) is CellType]
    dicts = {id(one): one for one in gc.get_referents(*holders) if type(one) is dict}
    found = [one for one in holders if type(one) in _CONTAINERS]
    return found + [one for one in dicts.values() if not gc.is_tracked(one)]


def _is_users(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return bool(file and user_line_of(file, 1))


def _kept(container: Any, n_more: int, n_steps: int, least: float, deadline: float) -> Kept | None:
    """
    Describe what a container holds more, by its newest objects.

    What its oldest object refers to as well is not theirs. None if they have less than `least`
    bytes a step, it takes too long to tell, or no variable holds the container.
    """
    if perf_counter() > deadline:
        return None
    values = container.values() if isinstance(container, dict) else container
    in_order = iter(values) if isinstance(container, set) else reversed(values)
    newest = list(islice(in_order, min(_SAMPLED, n_more)))
    oldest = next(iter(values), None) if len(container) > n_more else None
    seen = {id(container)}
    if sum(1 for _ in _visited([oldest], seen)) > _MOST_VISITED:
        return None
    size, of_arrays, arrays = 0, 0, Counter[str]()
    for n, one in enumerate(_visited(newest, seen)):
        if n >= _MOST_VISITED:
            return None
        title, n_bytes = _array(one, seen) or ("", _sizeof(one))
        size += n_bytes
        of_arrays += n_bytes if title else 0
        arrays[title] += 1
    each = n_more / len(newest) / n_steps
    place = _place(container, _HOPS, deadline) if size * each >= least else ""
    if not place:
        return None
    is_array = 2 * of_arrays > size
    if is_array:
        arrays.pop("", 0)
    else:
        arrays = Counter(type(one).__name__ for one in newest)
    held = [f"{digits(n * each)} {title}" for title, n in arrays.most_common()]
    return Kept(
        kind=type(container).__name__,
        place=place,
        holds=and_more(held, 2),
        is_array=is_array,
        is_model=any(map(_is_model, newest)),
        size=size * each,
    )


def _visited(objects: Iterable[Any], seen: set[int]) -> Iterator[Any]:
    """Yield objects and what they refer to, each once, without code, modules and classes."""
    waiting, n_visited = list(objects), 0
    while waiting and n_visited <= _MOST_VISITED:
        one = waiting.pop()
        # isinstance() asks a weakref.proxy for the class of its object, which may be dead
        if id(one) in seen or issubclass(type(one), _NOT_OF_ONE_OBJECT):
            continue
        seen.add(id(one))
        n_visited += 1
        yield one
        if type(one) is FunctionType:  # its globals are of a module
            waiting += filter(None, (one.__closure__, one.__defaults__, one.__dict__))
        else:
            waiting += gc.get_referents(one)


def _array(one: Any, seen: set[int]) -> tuple[str, int] | None:
    """Return type and shape of an array with its bytes, or None of another object."""
    name = _ARRAYS.get((type(one).__module__.partition(".")[0], type(one).__name__))
    if name is None:
        return None
    dtype, shape = one.dtype, tuple(one.shape)
    size = f"{getattr(dtype, 'name', dtype)}[{','.join(map(str, shape))}]"
    whole = one
    while isinstance(whole, np.ndarray) and isinstance(whole.base, np.ndarray):
        whole = whole.base
    if whole is not one:
        is_new = id(whole) not in seen
        seen.add(id(whole))
        of = f"{whole.dtype.name}[{','.join(map(str, whole.shape))}]"
        return f"{name} {size} (a view of the whole {of})", whole.nbytes * is_new
    each = getattr(dtype, "itemsize", 0) or getattr(dtype, "size", 0)
    return f"{name} {size}", math.prod(shape) * int(each)


def _sizeof(one: Any) -> int:
    try:
        return sys.getsizeof(one)
    except Exception:  # a __sizeof__ of the user's
        return 0


def _is_cache(one: Any) -> bool:
    return type(one).__name__ == "_lru_cache_wrapper"


def _is_model(one: Any) -> bool:
    return any(
        base.__name__ == "Model" and base.__module__.partition(".")[0] in ("keras", "tf_keras")
        for base in type(one).__mro__
    )


def _place(one: Any, hops: int, deadline: float, around: Collection[int] = ()) -> str:
    """
    Return the variable or attribute that holds an object, and of what: `history of train (a.py:3)`.

    Local variables are those of this thread's functions. Empty if there is none within some hops.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        line = line_of_code(frame.f_code)
        for name, value in frame.f_locals.items() if line else ():
            if value is one and frame.f_code.co_name != "<module>":
                return f"{name} of {frame.f_code.co_name} ({line})"
        frame = frame.f_back
    if perf_counter() > deadline:  # each look at all objects takes long where these are many
        return ""
    holders = [ref for ref in gc.get_referrers(one) if id(ref) not in around]
    around = {*around, id(holders)}
    for holder in holders:
        if cached := getattr(holder, "__wrapped__", None) if _is_cache(holder) else None:
            line = line_of_code(getattr(cached, "__code__", None))
            return f"cache of {cached.__qualname__.replace('.<locals>', '')} ({line})"
        if (type(holder) is CellType and (found := _of_cell(holder))) or (
            found := _attribute(holder, one)
        ):
            return found
    for holder in holders if hops else ():
        if type(holder) in _CONTAINERS or type(holder) is tuple:
            keys = holder.items() if isinstance(holder, dict) else ()
            key = next((f"[{key!r:.20}]" for key, value in keys if value is one), "[…]")
            name, of, whole = _place(holder, hops - 1, deadline, around).partition(" of ")
            if of:
                return f"{name}{key}{of}{whole}"
    return ""


def _of_cell(cell: CellType) -> str:
    """Return the variable that a cell is, of a function that uses it."""
    for closure in gc.get_referrers(cell):
        for function in gc.get_referrers(closure) if type(closure) is tuple else ():
            if type(function) is FunctionType and function.__closure__ is closure:
                cells = list(map(id, function.__closure__ or ()))
                name = function.__code__.co_freevars[cells.index(id(cell))]
                line = line_of_code(function.__code__)
                place = f" ({line})" if line else ""
                return f"{name} of {function.__qualname__.replace('.<locals>', '')}{place}"
    return ""


def _attribute(holder: Any, one: Any) -> str:
    """Return the attribute or global variable of a holder that is an object, empty without one."""
    owners = gc.get_referrers(holder) if type(holder) is dict else [holder]
    for owner in owners:
        if type(owner) in _CONTAINERS or isinstance(owner, (tuple, FrameType, CellType)):
            continue
        kind = owner if isinstance(owner, type) else type(owner)
        names = getattr(owner, "__dict__", {})
        if type(holder) is dict and names is not holder and kind is not owner:
            continue
        slots = [slot for base in kind.__mro__ for slot in vars(base).get("__slots__", ())]
        values = [*names.items(), *((slot, getattr(owner, slot, None)) for slot in slots)]
        name = next((name for name, value in values if value is one), None)
        if name is None:
            continue
        if isinstance(owner, ModuleType):
            return f"{name} of module {owner.__name__}"
        line = line_of_code(getattr(vars(kind).get("__init__"), "__code__", None))
        return f"{name} of {kind.__qualname__.replace('.<locals>', '')}" + (
            f" ({line})" if line else ""
        )
    return ""

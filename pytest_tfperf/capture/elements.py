"""Elements of the data, kept for a look at them after the windows: those that traced steps consumed, or a sample of the same data."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from pytest_tfperf.capture.batch_rows import NOTHING_TO_PAD, could_be_padded
from pytest_tfperf.tf_runtime import load_tensorflow

_MOST, _MOST_BYTES, _MOST_S = 20, 64 << 20, 1.0
_ONCE = "the data are a generator, which would be used up by a look at them; pass a tf.data.Dataset, arrays or a PyDataset"
_UNKNOWN = "the loop's data are neither a tf.data.Dataset nor arrays nor a PyDataset, so they cannot be looked at again"


@dataclass(slots=True)
class Elements:
    """Elements of the data, by reference, or why there are none; `sampled` are those that the data gave again after the steps."""

    data: Any = None
    kept: list[Any] = field(default_factory=list)
    why: str | None = "the steps were given no data"
    sampled: bool = False


def elements_to_keep(element: Any) -> int:
    """How many elements like this one are kept: at most 20, and 64 MiB, but one."""
    size = sum(map(_bytes, load_tensorflow().nest.flatten(element)))
    return max(1, min(_MOST, _MOST_BYTES // max(size, 1)))


def sample_again(
    call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Elements:
    """
    The first batches of what a Keras loop was given, which shows its data to nobody: at most 20, and no more after a second.

    Only data that can be started again are, as a further epoch would, and a pipeline only if it could pad. A pipeline that shuffles
    gives other batches than the steps had, and goes on in its sequence of random numbers.
    """
    try:
        given = inspect.signature(call).bind(*args, **kwargs).arguments
        data: Any = given.get("x", kwargs.get("x", args[0] if args else None))
        if hasattr(data, "__next__"):
            return Elements(why=_ONCE)
        if hasattr(data, "element_spec") and not could_be_padded(data.element_spec, data):
            return Elements(why=NOTHING_TO_PAD)
        batches = _again(data, given.get("y", kwargs.get("y")), given.get("batch_size") or 32)
        if batches is None:
            return Elements(why=_UNKNOWN)
        return Elements(data=data, kept=_for_a_second(batches), why=None, sampled=True)
    except Exception as error:  # whatever the user's data do when they are looked at once more
        return Elements(
            why=f"the data could not be looked at again: {type(error).__name__}: {error!s:.80}"
        )


def _again(data: Any, labels: Any, batch: int) -> Iterable[Any] | None:
    if hasattr(data, "element_spec"):
        return data  # type: ignore[no-any-return]
    if (
        hasattr(data, "__getitem__")
        and hasattr(data, "__len__")
        and not hasattr(data, "shape")
        and not isinstance(data, (list, tuple, dict))
    ):
        return (data[index] for index in range(len(data)))
    arrays = {key: value for key, value in (("x", data), ("y", labels)) if value is not None}
    leaves = load_tensorflow().nest.flatten(arrays)
    if not leaves or not all(
        hasattr(leaf, "shape") and hasattr(leaf, "__getitem__") for leaf in leaves
    ):
        return None
    return _slices(arrays, leaves[0].shape[0], batch)


def _slices(arrays: Any, n_rows: int, batch: int) -> Iterator[Any]:
    nest = load_tensorflow().nest
    return (
        nest.map_structure(lambda leaf, at=start: leaf[at : at + batch], arrays)
        for start in range(0, n_rows, batch)
    )


def _for_a_second(batches: Iterable[Any]) -> list[Any]:
    until, most, kept = perf_counter() + _MOST_S, _MOST, list[Any]()
    for element in batches:
        kept.append(element)
        if len(kept) == 1:
            most = elements_to_keep(element)
        if len(kept) >= most or perf_counter() > until:
            break
    return kept


def _bytes(leaf: Any) -> int:
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        return 0
    n_elements = (
        leaf.shape.num_elements() if hasattr(leaf.shape, "num_elements") else math.prod(leaf.shape)
    )
    return int(n_elements or 0) * int(getattr(leaf.dtype, "itemsize", None) or leaf.dtype.size)

"""Elements of the input data, kept for analysis after the windows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from pytest_tfperf.frameworks.in_use import leaves

MOST_ELEMENTS = 20
_MOST_BYTES = 64 << 20


@dataclass(slots=True)
class Elements:
    """Elements of the input data, by reference."""

    data: Any = None
    """The data that they come from."""
    kept: list[Any] = field(default_factory=list)
    """The elements."""
    why: str | None = "the steps were given no data"
    """Reason why there are none."""
    sampled: bool = False
    """Whether they were drawn from the data again, after the steps."""


def elements_to_keep(element: Any) -> int:
    """Return the number of elements like this one to keep: up to 20 and 64 MiB, at least one."""
    size = sum(map(_n_bytes, leaves(element)))
    return max(1, min(MOST_ELEMENTS, _MOST_BYTES // max(size, 1)))


def _n_bytes(leaf: Any) -> int:
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        return 0
    if hasattr(leaf.shape, "num_elements"):
        n_elements = leaf.shape.num_elements()
    else:
        n_elements = math.prod(leaf.shape)
    return int(n_elements or 0) * int(getattr(leaf.dtype, "itemsize", None) or leaf.dtype.size)

"""Nested elements and outputs: their leaves, and the same nest of other leaves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def loaded_tensorflow() -> Any | None:
    """Return the module `tensorflow` if something has imported it."""
    return sys.modules.get("tensorflow")


def leaves(nest: Any) -> list[Any]:
    """Return the leaves of a nest, in the order of the first framework that is loaded."""
    if (tf := loaded_tensorflow()) is not None:
        return list(tf.nest.flatten(nest))
    if "jax" in sys.modules:
        return list(sys.modules["jax"].tree_util.tree_leaves(nest))
    return list(sys.modules["keras"].tree.flatten(nest))  # under PyTorch


def mapped(function: Callable[[Any], Any], nest: Any) -> Any:
    """
    Return a nest with a function's results as leaves.

    Args:
        function: Takes a leaf.
        nest: The nest.
    """
    if (tf := loaded_tensorflow()) is not None:
        return tf.nest.map_structure(function, nest)
    if "jax" in sys.modules:
        return sys.modules["jax"].tree_util.tree_map(function, nest)
    return sys.modules["keras"].tree.map_structure(function, nest)

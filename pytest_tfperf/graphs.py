"""Graph reachability."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, KeysView
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def reached(start: Iterable[Key], successors: Callable[[Key], Iterable[Key]]) -> KeysView[Key]:
    """
    Collect all nodes that can be reached from some nodes, these included.

    Args:
        start: The nodes to search from.
        successors: The nodes directly behind a node; called once for each node.

    Returns:
        The nodes in the order of a depth-first search that takes the last successor first.
    """
    found: dict[Key, None] = {}
    waiting = list(start)
    while waiting:
        key = waiting.pop()
        if key not in found:
            found[key] = None
            waiting += successors(key)
    return found.keys()

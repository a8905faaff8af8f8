"""What is reached in a graph: computations by their callers, instructions by their users."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, KeysView
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def reached(start: Iterable[Key], beyond: Callable[[Key], Iterable[Key]]) -> KeysView[Key]:
    """The starts and all that is reached from them, by what lies directly beyond each; in the order of a search, the last first."""
    found: dict[Key, None] = {}
    waiting = list(start)
    while waiting:
        key = waiting.pop()
        if key not in found:
            found[key] = None
            waiting += beyond(key)
    return found.keys()

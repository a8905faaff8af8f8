"""Hold off Python's garbage collector during timed blocks."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# New containers that one block may leave before the collector runs within it after all: 50 to
# 100 MB of small objects.
_MOST_YOUNG = 500_000
# A full collection is due when the objects have grown by a quarter since the last one, which is
# Python's own rule (CPython, gcmodule.c: long_lived_pending > long_lived_total / 4).
_GROWTH = 1.25


@contextmanager
def garbage_held_off() -> Iterator[Callable[[], None]]:
    """
    Hold off Python's garbage collector within the context, unless a block would fill the memory.

    The result is a function to call between blocks. It collects what Python would have collected
    by then. A full collection takes a tenth of a second, in which input buffers fill, so it runs
    only if the memory needs it, and not at the beginning.

    Only the threshold changes. The user's gc.enable(), gc.disable() and gc.freeze() keep their
    meaning, also within the context. A disabled collector stays disabled, and a threshold that the
    user sets within the context stays.
    """
    before = gc.get_threshold()
    if not gc.isenabled() or not before[0]:
        yield lambda: None
        return
    held = (max(_MOST_YOUNG, before[0]), *before[1:])
    gc.set_threshold(*held)
    try:
        yield _collector(before[0])
    finally:
        if gc.get_threshold() == held:
            gc.set_threshold(*before)


def _collector(young: int) -> Callable[[], None]:
    """
    Return a function that collects garbage when Python would have done so.

    Args:
        young: Number of new containers after which the young generations are collected.
    """
    most = _GROWTH * sys.getallocatedblocks()

    def collect() -> None:
        nonlocal most
        if not gc.isenabled() or gc.get_count()[0] <= young:
            return
        gc.collect(1)
        # Walks all memory of Python, for 0.2 ms in which an input pipeline runs on untimed.
        if sys.getallocatedblocks() > most:
            gc.collect()
            most = _GROWTH * sys.getallocatedblocks()

    return collect

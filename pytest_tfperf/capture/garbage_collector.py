"""Python's garbage collector, held off while something is timed."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Containers that one block may leave before the collector runs within it all the same: 50 to 100 MB of small objects.
_MOST_YOUNG = 500_000
# A full collection is due when the objects have grown by a quarter since the last, Python's own rule (CPython, gcmodule.c:
# long_lived_pending > long_lived_total / 4).
_GROWTH = 1.25


@contextmanager
def garbage_held_off() -> Iterator[Callable[[], None]]:
    """
    Within the context Python's garbage collector does not run by itself, unless a single block would fill the memory.

    Gives what is to be called between blocks: it collects what Python would have collected by then. A full collection, in whose
    tenth of a second input buffers fill, is made only where the memory needs it, and not to begin with. Held off by the
    threshold, so that the user's own gc.enable(), gc.disable() and gc.freeze() keep their meaning, also within; a collector that is off
    stays off, and a threshold that the user sets within stays.
    """
    before = gc.get_threshold()
    if not gc.isenabled() or not before[0]:
        yield lambda: None
        return
    held = (max(_MOST_YOUNG, before[0]), *before[1:])
    gc.set_threshold(*held)
    try:
        yield _sweeper(before[0])
    finally:
        if gc.get_threshold() == held:
            gc.set_threshold(*before)


def _sweeper(young: int) -> Callable[[], None]:
    """Collects the young generations when so many containers are new, and then all of them if the objects have grown by a quarter."""
    most = _GROWTH * sys.getallocatedblocks()

    def sweep() -> None:
        nonlocal most
        if not gc.isenabled() or gc.get_count()[0] <= young:
            return
        gc.collect(1)
        if (
            sys.getallocatedblocks() > most
        ):  # walks through all memory of Python's, for 0.2 ms in which an input pipeline runs on untimed
            gc.collect()
            most = _GROWTH * sys.getallocatedblocks()

    return sweep

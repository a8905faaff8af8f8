"""Record the memory of the process in the windows of a profile."""

from __future__ import annotations

import gc
from array import array

from pytest_tfperf.frameworks.in_use import gpu_bytes, tensor_bytes
from pytest_tfperf.machine.process_memory import (
    Resident,
    most_growth,
    read_held,
    read_resident,
    reset_most,
)
from pytest_tfperf.recording import UNSEEN, MemorySamples
from pytest_tfperf.stats.slope import slope_with_interval
from pytest_tfperf.values import Unknown


class MemoryUse:
    """Readings of the memory: before and after the windows, and between timed blocks."""

    def __init__(self) -> None:
        self.bound: int | Unknown = UNSEEN
        self._before: Resident | Unknown = UNSEEN
        self._why: Unknown | None = None
        self._may_collect, self._first_call = False, 0
        # arrays of numbers, since objects would count as growth
        self._n_steps, self._heap = array("q"), array("q")
        self._python, self._mapped, self._devices = array("q"), array("q"), array("q")
        self._tensors = array("q")

    def begin(self) -> None:
        """Read the memory before the first step."""
        reset_most()
        self._before = read_resident()

    def end(self) -> None:
        """Bound the memory of the steps since `begin`."""
        self.bound = most_growth(self._before, read_resident())

    def begin_timed(self, first_call: int = 0) -> None:
        """Discard the samples of an earlier timed window, before one behind `first_call` calls."""
        self._first_call = first_call
        self._may_collect = gc.isenabled() and bool(gc.get_threshold()[0]) and not _any_frozen()
        columns = (self._n_steps, self._heap, self._python, self._mapped, self._devices)
        for column in (*columns, self._tensors):
            del column[:]

    def sample(self, n_steps: int) -> None:
        """Read the memory after `n_steps` of the timed window, without young garbage."""
        if self._may_collect:
            _clear_garbage()
        held, on_devices, of_tensors = read_held(), gpu_bytes(), tensor_bytes()
        if isinstance(held, Unknown):
            self._why = held
            return
        self._n_steps.append(n_steps)
        self._heap.append(held.heap)
        self._python.append(held.python)
        self._mapped.append(held.mapped)
        if on_devices is not None:
            self._devices.append(on_devices)
        if of_tensors is not None:
            self._tensors.append(of_tensors)

    @property
    def most_growth(self) -> float:
        """Bytes that the process may have held more after a step, by the slope of the samples."""
        columns = (self._heap, self._python, self._mapped, self._devices)
        held = [sum(each) for each in zip(*filter(None, columns), strict=True)]
        slope = slope_with_interval(self._n_steps, held, 0.99)
        return 0.0 if slope is None else slope.high

    @property
    def n_samples(self) -> int:
        """The number of samples of the timed window."""
        return len(self._n_steps)

    @property
    def samples(self) -> MemorySamples | Unknown:
        """The samples of the last timed window, or why there are none."""
        if self._why is not None or not self._n_steps:
            return self._why or UNSEEN
        return MemorySamples(
            n_steps=tuple(self._n_steps),
            heap=tuple(self._heap),
            python=tuple(self._python),
            mapped=tuple(self._mapped),
            devices=tuple(self._devices),
            tensors=tuple(self._tensors),
            first_call=self._first_call,
        )


def _any_frozen() -> bool:
    """Return whether the user has frozen objects; Python counts them one by one."""
    return gc.get_freeze_count() > 0


def _clear_garbage() -> None:
    """
    Collect young garbage, and free what Python keeps for reuse.

    Neither is growth. A tuple made from a generator leaves one tuple on a free list, of up to 2000
    for each length (CPython, Objects/tupleobject.c), and only a full collection clears these. It
    takes microseconds while all objects are frozen.
    """
    gc.collect(1)
    gc.freeze()
    gc.collect()
    gc.unfreeze()

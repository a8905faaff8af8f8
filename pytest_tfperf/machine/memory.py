"""The memory of this process, as allocators and the system tell it, and its record in a profile."""

from __future__ import annotations

import functools
import gc
import os
import re
from array import array
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_tfperf.frameworks.in_use import accelerator_bytes, tensor_bytes
from pytest_tfperf.machine.conditions import control_groups, processes_of, text_of
from pytest_tfperf.recording import UNSEEN, MemorySamples
from pytest_tfperf.stats.slope import slope_with_interval
from pytest_tfperf.values import Unknown

_ROOT = Path("/")
_PROBES = 20
_PROBE_BYTES = 1 << 20
_COUNTED_LATE = 1 << 20
"""Bytes by which the system's readings of one moment may differ: it counts by CPU."""
_FIELDS = (
    "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"  # mallinfo(3)
)
_NO_HEAP = "the C heap does not tell what it holds; that needs Linux with glibc 2.33 or later"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heap:
    """A reading of glibc's malloc, over all its arenas."""

    held: int
    """Bytes that the program holds."""
    free: int
    """Bytes that malloc keeps for reuse."""
    taken: int
    """Bytes that malloc has taken from the system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A reading of the memory that the process holds."""

    heap: int
    """Bytes of the C heap."""
    python: int
    """Bytes of Python's small objects."""
    mapped: int
    """Bytes of other private mappings that it may write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """A reading of the memory that the system gives this process."""

    now: int
    """Bytes in memory."""
    most: int
    """Most bytes that were in memory since the last `reset_most`."""
    swapped: int
    """Bytes that the system has swapped out."""
    reusable: int
    """Bytes that malloc keeps for reuse."""


def read_heap() -> Heap | Unknown:
    """Return what malloc holds, or why that is unknown."""
    read = _mallinfo()
    if read is None:
        return Unknown(_NO_HEAP)
    found = read()
    return Heap(
        held=found.uordblks + found.hblkhd,
        free=found.fordblks,
        taken=found.arena + found.hblkhd,
    )


def read_held(root: Path = _ROOT) -> Held | Unknown:
    """
    Return the memory that the process holds, or why it is unknown.

    The mappings are the sixth field of /proc/self/statm, in pages (Linux, proc_pid_statm(5)). It
    holds the C heap and Python's arenas, which are left out.
    """
    heap, python = read_heap(), _python_bytes()
    if isinstance(heap, Unknown):
        return heap
    try:
        pages = int((root / "proc/self/statm").read_text("ascii").split()[5])
    except (OSError, ValueError, IndexError):
        return Unknown("the system does not show the mappings of this process")
    if python is None:
        return Unknown("Python's allocator does not tell what it holds")
    small, arenas = python
    mapped = pages * os.sysconf("SC_PAGE_SIZE") - heap.taken - arenas
    return Held(heap=heap.held, python=small, mapped=mapped)


def read_resident(root: Path = _ROOT) -> Resident | Unknown:
    """
    Return the memory that the system gives this process, or why it is unknown.

    Source: VmRSS, VmHWM and VmSwap of /proc/self/status, in KiB (Linux, proc_pid_status(5)).
    """
    heap = read_heap()
    if isinstance(heap, Unknown):
        return heap
    text = text_of(root / "proc/self/status")
    kib = {name: int(size) for name, size in re.findall(r"^Vm(\w+):\s+(\d+) kB$", text, re.M)}
    if not {"RSS", "HWM", "Swap"} <= kib.keys():
        return Unknown("the system does not show the resident set of this process")
    return Resident(
        now=kib["RSS"] << 10,
        most=kib["HWM"] << 10,
        swapped=kib["Swap"] << 10,
        reusable=heap.free,
    )


def reset_most(root: Path = _ROOT) -> None:
    """
    Let the most bytes in memory start from those of now, where the system permits that.

    Source: a 5 written to /proc/self/clear_refs resets VmHWM (Linux, proc_pid_clear_refs(5)).
    """
    with suppress(OSError):
        (root / "proc/self/clear_refs").write_text("5", "ascii")


def most_growth(before: Resident | Unknown, after: Resident | Unknown) -> int | Unknown:
    """
    Return a bound on the bytes that code between two readings held at once, or why there is none.

    The code may also have used what malloc kept for reuse before.
    """
    for one in (before, after):
        if isinstance(one, Unknown):
            return one
    assert isinstance(before, Resident)
    assert isinstance(after, Resident)
    if before.swapped or after.swapped:
        return Unknown("the system swapped memory out, so the resident set does not tell")
    if after.most <= before.most and before.most - before.now > _COUNTED_LATE:
        return Unknown(
            "the process held more memory before the profile, and the system shows only the most "
            "that it ever held"
        )
    return max(after.most - before.now, 0) + before.reusable


# of a control group: its limit, its use, and the pages of files in it that are freed when needed
_GROUP_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def available_bytes(root: Path = _ROOT) -> int | None:
    """
    Return the bytes that new processes may take; None if the system does not show them.

    They are those of the system, or of a control group of this process that has fewer. Source:
    MemAvailable (Linux, proc_meminfo(5)); Documentation/admin-guide/cgroup-v2.rst and
    cgroup-v1/memory.rst.
    """
    kib = re.search(r"^MemAvailable:\s+(\d+) kB$", text_of(root / "proc/meminfo"), re.M)
    if kib is None:
        return None
    left = [int(kib[1]) << 10]
    for group in control_groups("memory", root):
        for of_limit, of_use, of_files in _GROUP_FILES:
            limit, used = text_of(group / of_limit).strip(), text_of(group / of_use).strip()
            if limit.isdecimal() and used.isdecimal():
                files = re.search(rf"^{of_files} (\d+)$", text_of(group / "memory.stat"), re.M)
                left.append(int(limit) - int(used) + (int(files[1]) if files else 0))
    return max(min(left), 0)


def private_bytes(groups: Collection[int], root: Path = _ROOT) -> int:
    """
    Return the bytes in memory of the processes of some groups, without pages of files.

    Source: fields 2 and 3 of /proc/PID/statm, in pages (Linux, proc_pid_statm(5)).
    """
    pages = 0
    for folder, _ in processes_of(groups, root):
        fields = text_of(folder / "statm").split()
        pages += int(fields[1]) - int(fields[2]) if fields else 0
    return pages * os.sysconf("SC_PAGE_SIZE")


@functools.cache
def _mallinfo() -> Callable[[], Any] | None:
    """Return glibc's mallinfo2, or None if it is missing or another allocator is used."""
    import ctypes

    class Mallinfo2(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS.split()]

    try:
        read = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError, TypeError):  # TypeError: Windows
        return None
    read.argtypes, read.restype = [], Mallinfo2

    def sees_a_probe() -> bool:
        before = read()
        probe = bytearray(_PROBE_BYTES)
        after = read()
        grown = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd
        return bool(grown >= len(probe))

    # a preloaded allocator serves each probe unseen; what another thread frees hides one of them
    return read if any(sees_a_probe() for _ in range(_PROBES)) else None


def _python_bytes() -> tuple[int, int] | None:
    """
    Return the bytes that Python's small objects hold, and those of their arenas, or None.

    Source: the text of sys._debugmallocstats (CPython, Objects/obmalloc.c), which goes to stderr;
    the function behind it writes to any file.
    """
    write = _debug_malloc_stats()
    if write is None:
        return None
    text = write()
    held = re.search(rb"^# bytes in allocated blocks\s*=\s*([\d,]+)$", text, re.M)
    arenas = re.search(rb"^\d+ arenas \* \d+ bytes/arena\s*=\s*([\d,]+)$", text, re.M)
    if held is None or arenas is None:
        return None
    return int(held[1].replace(b",", b"")), int(arenas[1].replace(b",", b""))


@functools.cache
def _debug_malloc_stats() -> Callable[[], bytes] | None:
    """Return a function that returns the statistics of Python's allocator, or None."""
    import ctypes

    try:
        c, write = ctypes.CDLL(None), ctypes.pythonapi._PyObject_DebugMallocStats
        stream, close, free = c.open_memstream, c.fclose, c.free
    except (OSError, AttributeError, TypeError):
        return None
    stream.restype = ctypes.c_void_p
    for function in (close, free, write):
        function.argtypes = [ctypes.c_void_p]

    def read() -> bytes:
        text, size = ctypes.c_void_p(), ctypes.c_size_t()
        file = stream(ctypes.byref(text), ctypes.byref(size))
        write(file)
        close(file)
        try:
            return ctypes.string_at(text, size.value)
        finally:
            free(text)

    return read


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
        held, on_devices, of_tensors = read_held(), accelerator_bytes(), tensor_bytes()
        if isinstance(held, Unknown):
            self._why = held
            return
        if isinstance(on_devices, Unknown):
            self._why = on_devices
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

"""
TensorFlow's log in C++: its threshold, raised for a while.

The profiler writes five lines of information to stderr in each session.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_WARNING = 1  # absl::LogSeverityAtLeast::kWarning, absl/base/log_severity.h
# The functions of absl/log/globals.h in the Itanium C++ ABI. Each release of Abseil has its own
# inline namespace, such as lts_20250814.
_GET = re.compile(rb"_ZN4absl12lts_\d{8,10}11MinLogLevelEv\0")
_SET = re.compile(rb"_ZN4absl12lts_\d{8,10}14SetMinLogLevelENS0_18LogSeverityAtLeastE\0")


@contextmanager
def information_hidden() -> Iterator[None]:
    """Log warnings and errors only meanwhile, if this build of TensorFlow allows it."""
    threshold = _threshold()
    if threshold is None:
        yield
        return
    read, write = threshold
    before = read()
    write(max(before, _WARNING))
    try:
        yield
    finally:
        write(before)


@functools.cache
def _threshold() -> tuple[Callable[[], int], Callable[[int], object]] | None:
    """Return the functions that read and set the threshold, or None where they are not exported."""
    folder = Path(str(sys.modules["tensorflow"].__file__)).parent
    for path in sorted(folder.glob("libtensorflow_framework.*")):
        with suppress(OSError, ValueError, AttributeError):
            names = _exported(path)
            if names is not None:
                library = ctypes.CDLL(str(path))  # it is loaded already
                read, write = (library[name] for name in names)
                write.argtypes, write.restype = [ctypes.c_int], None
                return read, write
    return None


def _exported(path: Path) -> tuple[str, str] | None:
    """Return the names of both functions in a library's table of symbols."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        found = [pattern.search(content) for pattern in (_GET, _SET)]
        first, last = (match and match[0][:-1].decode() for match in found)
        return (first, last) if first and last else None

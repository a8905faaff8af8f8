"""
The bytes of a trace file, plain or compressed by gzip, and the limits on what it may hold.

A compressed trace is known by its first two bytes, whatever its name: no XSpace begins so, since
wire type 7 does not exist.

The profiler writes one trace for each host, with a plane for each device and some ten others. The
largest hosts have 16 devices; a trace with all hosts of a pod would have thousands of planes.
"""

from __future__ import annotations

import gzip
import mmap
import os
import re
import zlib
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pytest_tfperf.errors import TraceError
from pytest_tfperf.files import open_regular
from pytest_tfperf.protobuf import PADDING, Buffer, Message

MOST_PLANES = 10_000
"""Planes of a trace, empty ones too: a second of decoding."""
MOST_DEVICES = 1024
"""GPUs and TPU cores with events in a trace; each costs some 3 ms."""
_DEVICE = re.compile(r"/device:(GPU|TPU):\d+\Z")
_MAGIC = b"\x1f\x8b"  # RFC 1952
_MAPPED = 2 << 30
"""
Bytes from which on a file is mapped, not read: only the parts that are looked at take memory.

A smaller one is read, since a mapped file that another process shortens ends this one.
"""
_AT_ONCE = 1 << 20  # bytes
MOST_BYTES = 2 << 30
"""Bytes of a decompressed trace, which are held in memory; protobuf writes no larger message."""
MOST_RATIO = 100
"""
Decompressed bytes for each compressed one; traces have 2 to 7, and gzip can make 1,032 of one.

Small files may be of any ratio, up to `_ALWAYS` bytes.
"""
_ALWAYS = 64 << 20


def refuse_many_planes(path: str, n_planes: int) -> None:
    """Raise a TraceError if a trace has more than `MOST_PLANES`."""
    if n_planes > MOST_PLANES:
        raise TraceError(
            f"trace {path}: {n_planes:,} planes, and at most {MOST_PLANES:,} are read; a host's"
            " trace has some twenty, and that of a whole pod thousands"
        )


def refuse_many_devices(path: str, names: Iterable[str]) -> None:
    """Raise a TraceError if more than `MOST_DEVICES` are among the names of planes with events."""
    n_devices = sum(_DEVICE.match(name) is not None for name in names)
    if n_devices > MOST_DEVICES:
        raise TraceError(
            f"trace {path}: {n_devices:,} GPUs and TPU cores with events, and at most"
            f" {MOST_DEVICES:,} are read; a trace is of one host, which has at most 16"
        )


def read_message(path: Path) -> Message:
    """Read a trace file; TraceError if it cannot be read, is too large, or packed and damaged."""
    try:
        with open_regular(path) as file:
            magic, size = file.read(len(_MAGIC)), os.fstat(file.fileno()).st_size
            file.seek(0)
            raw, size = (_decompressed if magic == _MAGIC else _plain)(file, size, str(path))
    except OSError as error:
        raise TraceError(f"trace {path}: cannot be read: {error.strerror or error}") from error
    return Message(raw, str(path), size)


def message_of(raw: bytes, path: str) -> Message:
    """Return the message in a trace file's bytes, decompressed; `path` is for error messages."""
    if not raw.startswith(_MAGIC):
        return Message(raw, path)
    content, size = _decompressed(BytesIO(raw), len(raw), path)
    return Message(content, path, size)


def _plain(file: BinaryIO, size: int, _: str) -> tuple[Buffer, int]:
    """Read or map a file; as `_decompressed` does."""
    behind = -size % mmap.PAGESIZE  # bytes of the last page, which are zero
    if size >= _MAPPED and behind >= PADDING:
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), size
    buffer = np.empty(size + PADDING, np.uint8).data  # NumPy asks for large pages
    size = file.readinto(buffer[:size])  # type: ignore[attr-defined]
    buffer[size : size + PADDING] = bytes(PADDING)
    return buffer, size


def _decompressed(file: BinaryIO, packed: int, path: str) -> tuple[Buffer, int]:
    """Decompress a file, which may be cut, damaged or made to fill the memory."""
    most = min(max(MOST_RATIO * packed, _ALWAYS), MOST_BYTES)
    buffer = bytearray()
    try:
        with gzip.GzipFile(fileobj=file) as content:
            while chunk := content.read(_AT_ONCE):
                buffer += chunk
                if len(buffer) > most:
                    raise TraceError(
                        f"trace {path}: {packed:,} bytes become more than {most:,} when they are"
                        f" decompressed, and at most {MOST_RATIO} for each and {MOST_BYTES:,} in"
                        " all are read; if the trace is yours, decompress it with gunzip"
                    )
    except EOFError as error:
        raise TraceError(
            f"trace {path}: the compressed file ends after {packed:,} bytes, before its content"
            " does; copy it again"
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(
            f"trace {path}: the compressed file is damaged ({error}); copy it again"
        ) from error
    size = len(buffer)
    buffer += bytes(PADDING)
    return buffer, size

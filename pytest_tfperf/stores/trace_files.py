"""
Traces at URLs of any file system that fsspec reaches, and their shards.

A trace is known by a fingerprint of what its file system tells: address, size, time and checksum.
Of a web server that tells neither time nor checksum, each look at a trace has its own.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import fsspec

from pytest_tfperf.errors import StoreError
from pytest_tfperf.files import open_regular
from pytest_tfperf.stores.objects import blaming, find, is_of, without_secret
from pytest_tfperf.trace.logdir import ENDING, PACKED

_RUN = re.compile(r"(.*/plugins/profile/[^/]+)/([^/]+?)\.xplane\.pb(?:\.gz)?")
_GLOB = re.compile(r"[*?\[]")
_SHARD = re.compile(r"(\d{1,6})/(\d{1,6})")
# names in file systems of fsspec: local, memory, s3fs, gcsfs, adlfs, http
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_SUMS = ("ETag", "etag", "md5Hash", "crc32c", "content_md5", "generation", "ino")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """One trace where it lies."""

    name: str
    """Address without a password, which messages and rules have."""
    files: Any
    """The file system."""
    path: str
    size: int
    """Size in bytes."""
    fingerprint: str
    """Hash of what the file system tells, which changes with the content."""
    modified: float
    """Time of the last change in seconds since 1970, or of the look if that is unknown."""

    @property
    def is_local(self) -> bool:
        """True for a file of this machine."""
        return is_of(self.files, "file")

    def read(self) -> bytes:
        """Return the whole content, or raise an error of any class that the file system has."""
        if self.is_local:
            with open_regular(Path(self.path)) as file:
                return file.read()
        return bytes(self.files.cat_file(self.path))


def run_and_host(name: str) -> tuple[str, str]:
    """Return run and host of a trace in XProf's layout; two empty texts elsewhere."""
    found = _RUN.fullmatch(name)
    return (found[1], found[2]) if found else ("", "")


def is_glob(url: str) -> bool:
    """Return whether an address has characters that stand for others."""
    return _GLOB.search(url) is not None


def find_trace_files(urls: Sequence[str]) -> list[TraceFile]:
    """
    Find the traces at addresses, each once, in the order of their names.

    An address is a trace, a folder with traces at any depth below, or a glob such as
    `s3://bucket/jobs/**/*.xplane.pb`; one without a trace raises StoreError.
    """
    found: dict[str, TraceFile] = {}
    for url in urls:
        shown = without_secret(url)
        with blaming(f"{shown} cannot be listed"):
            files, root = fsspec.core.url_to_fs(url)
            files.invalidate_cache()
            listed = [_trace_file(files, path, info) for path, info in _listed(files, root)]
        if not listed:
            raise StoreError(
                f"no trace at {shown}; give a trace, a folder, or a glob such as "
                f"'s3://bucket/jobs/**/*{ENDING}'"
            )
        found |= {trace.name: trace for trace in listed}
    return [found[name] for name in sorted(found)]


def parse_shard(text: str) -> tuple[int, int]:
    """Read `3/64`, the third of 64 parts, or raise StoreError."""
    found = _SHARD.fullmatch(text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise StoreError(f"shard {text!r} is not of the form 3/64, from 1/64 to 64/64")
    return int(found[1]), int(found[2])


def of_shard(traces: Sequence[TraceFile], number: int, n_shards: int) -> list[TraceFile]:
    """Return the traces of a shard from 1 on, by a hash of their addresses."""
    return [trace for trace in traces if int(_digest(trace.name), 16) % n_shards == number - 1]


def _listed(files: fsspec.AbstractFileSystem, root: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if is_glob(root):
        found = files.glob(root, detail=True)
    else:
        info = files.info(root)
        if info["type"] == "file":
            yield root, info
            return
        below = find(files, root)
        found = {path: info for path, info in below.items() if path.endswith((ENDING, PACKED))}
    yield from ((path, info) for path, info in found.items() if info["type"] == "file")


def _trace_file(files: fsspec.AbstractFileSystem, path: str, info: dict[str, Any]) -> TraceFile:
    name = path if is_of(files, "file") else without_secret(files.unstrip_protocol(path))
    facts = {key: str(info[key]) for key in (*_TIMES, *_SUMS) if info.get(key) is not None}
    size, now = int(info.get("size") or 0), time.time()
    told = json.dumps([name, size, facts or now], sort_keys=True)
    modified = next((_seconds(info[key]) for key in _TIMES if info.get(key)), None)
    return TraceFile(
        name=name,
        files=files,
        path=path,
        size=size,
        fingerprint=_digest(told),
        modified=now if modified is None else modified,
    )


def _seconds(told: Any) -> float | None:
    """Return a time of a file system in seconds; None for a form that is not known."""
    if isinstance(told, str):
        try:
            told = datetime.fromisoformat(told.replace("Z", "+00:00"))
        except ValueError:
            return None
    if isinstance(told, datetime):
        return told.timestamp()
    return float(told) if isinstance(told, (int, float)) else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]

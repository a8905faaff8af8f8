"""Addresses of the processes of a job that serve the profiler."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from pytest_tfperf.errors import CaptureError

__tracebackhide__ = True

_SCHEME = "grpc"
_EXAMPLE = "write it as grpc://HOST:PORT, such as grpc://localhost:6009"


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that serves the profiler."""

    host: str
    """Name or address of its machine; an IPv6 address without brackets."""
    port: int
    """Port of the profiler server."""

    @property
    def address(self) -> str:
        """Host and port, as messages name the worker."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def target(self) -> str:
        """
        The address as a URI of gRPC, whose scheme says that it has a host and a port.

        Without a scheme gRPC takes some names of machines for one, such as unix, dns and ipv4.
        """
        return f"dns:///{quote(self.address, safe='[]:')}"

    @property
    def file_stem(self) -> str:
        """Name of its trace file without the ending, as XProf's own capture has it."""
        return re.sub(r"[^\w.-]", "_", f"{self.host}_{self.port}")


def read_workers(text: str) -> tuple[Worker, ...]:
    """
    Read addresses that commas separate.

    Raises:
        CaptureError: If one is no address, or is named twice.
    """
    workers = tuple(_read_worker(part.strip()) for part in text.split(","))
    for n, worker in enumerate(workers):
        if worker in workers[:n]:
            raise CaptureError(f"{worker.address} is named twice; name each worker once")
    return workers


def _read_worker(text: str) -> Worker:
    """
    Read one address, with or without its scheme.

    Raises:
        CaptureError: If it cannot be read as one.
    """
    scheme, separator, _ = text.partition("://")
    if separator and scheme != _SCHEME:
        raise CaptureError(f"{text} is no address of a profiler server; {_EXAMPLE}")
    try:
        parts = urlsplit(text if separator else f"{_SCHEME}://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise CaptureError(f"{text!r} lacks a host or a port from 1 to 65535; {_EXAMPLE}")
    if parts.path or parts.query or parts.fragment or parts.username is not None:
        raise CaptureError(f"{text} has more than a host and a port; {_EXAMPLE}")
    return Worker(host, port)

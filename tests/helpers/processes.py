"""Processes and what they leave, as the kernel tells."""

import os
import resource
import socket
import time
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 60


def unused_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def until(condition, patience_s=PATIENCE_S):
    """What a condition gives when it holds; that it never does is a failure."""
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return found


def state(pid):
    """`R` runs, `S` sleeps, `T` is stopped; nothing of a process that is no more."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    letter = status.rpartition(") ")[2][0]
    return "" if letter in "ZX" else letter


@contextmanager
def files_of_at_most(n_bytes):
    """Within the context no file grows beyond this, as on a disk that fills up: pytest's own output does not either, if it is a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def with_variable(name, value):
    """The processes whose environment has this, but for this one."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                variables = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if f"{name}={value}".encode() in variables:
                found.append(int(folder.name))
    return sorted(pid for pid in found if state(pid))

"""A child process without pytest: plain Python that sends messages to its parent."""

import sys
from dataclasses import dataclass
from pathlib import Path

from pytest_tfperf.turns.messages import Task
from pytest_tfperf.turns.pytest_child import Launch

_PRELUDE = """
import os, signal, socket, subprocess, sys, time
sys.path[:] = PATH
from pytest_tfperf.turns.messages import Channel
from pytest_tfperf.turns.messages import *
from pytest_tfperf.turn import Ready
channel = Channel(socket.socket(fileno=FD), ToChild)
send = channel.send
def receive():
    try:
        return channel.receive()
    except EOFError:
        return None
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted(Launch):
    """Starts a process that runs `code`; its `receive()` gives None after the end."""

    code: str

    def command(self, fd):
        prelude = _PRELUDE.replace("PATH", repr(sys.path)).replace("FD", str(fd))
        return [sys.executable, "-S", "-c", prelude + self.code]


def scripted(code, label="the one on main", folder=Path(), **launch):
    """Return how a process starts that runs `code`."""
    return Scripted(code=code, label=label, folder=folder, **{"environment": {}, **launch})


def task(*files):
    """Return a task that names some files and nothing else."""
    return Task(root="", files=files, argv=[])

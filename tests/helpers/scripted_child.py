"""A child process without pytest: plain Python that sends events to its parent."""

import sys
from pathlib import Path

from pytest_tfperf.child.process import Launch

_PRELUDE = """
import json, os, signal, socket, subprocess, sys, time
channel = socket.socket(fileno=FD)
lines = channel.makefile()
def send(**message):
    channel.sendall(json.dumps(message).encode() + b"\\n")
def receive():
    return json.loads(lines.readline() or "null")
"""


def scripted(code, label="the one on main", folder=Path(), **launch):
    """Return how a process starts that runs `code`; its `receive()` gives None after the end."""

    def command(fd):
        return [sys.executable, "-S", "-c", _PRELUDE.replace("FD", str(fd)) + code]

    return Launch(label=label, command=command, folder=folder, **{"environment": {}, **launch})

"""
End processes and remove a folder after the process that started this script was killed.

It runs without site-packages: `python -I -S cleanup_script.py FOLDER`. Lines on its stdin add a
process group (`+1234`) or remove one (`-1234`). Its stdin ends when the process that started it
does. Then groups get a SIGINT, and time to tear down the fixtures of their tests.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

GRACE_S = 5.0
"""Seconds that a process may take to end in order when it is asked to."""
_HOUR_S = 3600.0


def main(folder: Path) -> None:
    """Wait for the end of stdin, then end the groups and remove the folder."""

    def keep_young(*_: object) -> None:  # a folder of a day is taken for one that was left
        with suppress(OSError):
            os.utime(folder)

    signal.signal(signal.SIGALRM, keep_young)
    signal.setitimer(signal.ITIMER_REAL, _HOUR_S, _HOUR_S)
    groups: set[int] = set()
    for line in sys.stdin:
        (groups.add if line.startswith("+") else groups.discard)(int(line[1:]))
    for group in groups:
        send(group, signal.SIGCONT)
        send(group, signal.SIGINT)
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and any(send(group, 0) for group in groups):
        time.sleep(0.02)
    for group in groups:
        send(group, signal.SIGKILL)
    remove(folder)


def send(group: int, number: int) -> bool:
    """Send a signal to a process group; return whether there is one."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True


def remove(folder: Path) -> None:
    """Remove a folder, also where processes that are being killed still write into it."""
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

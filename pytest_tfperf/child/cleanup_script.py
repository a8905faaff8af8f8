"""
End processes and remove a folder after the process that started this script has ended.

Runs as a script of its own, without site-packages: `python -I -S cleanup_script.py FOLDER [FD]`.
The descriptor is that of the folder's mark, whose lock tells other runs that it is in use. Lines
on its stdin add a process group (`+1234`), remove one (`-1234`), or ask it to end all at once
(`end`). Its stdin ends when the last process that holds the other end does, as after a kill. Then
groups get a SIGINT first and a few seconds, so that their tests tear down fixtures.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time

END = "end\n"
GRACE_S = 5.0
"""Seconds that a process may take to end in order when it is asked to."""
_POLL_S = 0.02
_MARK = ".gitignore"


def main() -> None:
    """Wait for `end` or the end of stdin, then clean up."""
    groups: set[int] = set()
    is_asked = False
    for line in iter(sys.stdin.readline, ""):
        if line == END:
            is_asked = True
            break
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)
    if not is_asked:
        _interrupt(groups)
    for group in groups:
        _send(group, signal.SIGKILL)
    for lock in sys.argv[2:]:
        os.close(int(lock))  # network file systems keep what is removed while it is open
    _remove(sys.argv[1])


def _interrupt(groups: set[int]) -> None:
    """Interrupt the groups, and wait until they have ended or their time is over."""
    for group in groups:
        _send(group, signal.SIGCONT)
        _send(group, signal.SIGINT)
    deadline = time.monotonic() + GRACE_S
    while any(_runs(group) for group in groups) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _send(group: int, number: int) -> bool:
    """Send a signal, and return whether the group exists."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True


def _runs(group: int) -> bool:
    """Return whether the first process of a group still runs; a zombie, which nobody reaps, not."""
    if not _send(group, 0):
        return False
    try:
        with open(f"/proc/{group}/stat", encoding="utf-8") as file:  # noqa: PTH123 - pathlib is slow to load
            state = file.read().rpartition(")")[2].split()[0]
    except OSError:  # not Linux, or it was reaped while others of its group run
        return True
    return state not in ("Z", "X")


def _remove(folder: str) -> None:
    """Remove a folder, its mark last: by it a later run goes on where this process is killed."""
    for _ in range(50):  # processes that are being killed may still write
        try:
            names = os.listdir(folder)  # noqa: PTH208 - pathlib takes longer to load than all this
        except FileNotFoundError:
            return
        for name in names:
            if name != _MARK:
                shutil.rmtree(f"{folder}/{name}", ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.1 * os.path.exists(folder))  # noqa: PTH110


if __name__ == "__main__":
    main()

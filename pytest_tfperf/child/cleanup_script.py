"""
End processes and remove a folder after the process that started this script has ended.

Runs as a script of its own, without site-packages: `python -I -S cleanup_script.py FOLDER FD FD`.
The descriptors are those of the folder, which another user may have renamed meanwhile, and of its
mark, whose lock tells other runs that it is in use. Lines on its stdin add a process group
(`+1234`), remove one (`-1234`), or ask it to end all at once (`end`). Its stdin ends when the last
process that holds the other end does, as after a kill. Then groups get a SIGINT first and a few
seconds, so that their tests tear down fixtures.
"""

from __future__ import annotations

import os
import signal
import sys
import time

if __name__ == "__main__":  # without the paths of site-packages, -I and -S
    sys.path.append(os.path.abspath(f"{__file__}/../../.."))  # noqa: PTH100 - pathlib is slow to load

from pytest_tfperf.removal import clear

END = "end\n"
GRACE_S = 5.0
"""Seconds that a process may take to end in order when it is asked to."""
_POLL_S = 0.02
_MARK = ".gitignore"


class Groups:
    """The process groups to end, each with the start of its first process."""

    def __init__(self) -> None:
        self._starts: dict[int, str | None] = {}

    def read(self, line: str) -> None:
        """
        Add or remove the group that a line names.

        Nothing is done for any other line, or one that was cut as its process was killed. Groups 0
        and 1 are left out: signals to these reach this process's own group, and all processes.
        """
        change, number = line[:1], line[1:-1]
        if not (line.endswith("\n") and number.isdecimal() and int(number) > 1):
            return
        if change == "+":
            self._starts[int(number)] = _started(int(number))
        elif change == "-":
            self._starts.pop(int(number), None)

    def interrupt(self) -> None:
        """Interrupt the groups, and wait until they have ended or their time is over."""
        for group in self._starts:
            self._send(group, signal.SIGCONT)
            self._send(group, signal.SIGINT)
        deadline = time.monotonic() + GRACE_S
        while [group for group in list(self._starts) if self._runs(group)]:
            if time.monotonic() >= deadline:
                return
            time.sleep(_POLL_S)

    def kill(self) -> None:
        """Kill the groups that are left."""
        for group in self._starts:
            self._send(group, signal.SIGKILL)

    def _send(self, group: int, number: int) -> bool:
        """Send a signal, and return whether the group exists."""
        # no group gets the id of one that exists, and no process that of a group
        if _started(group) not in (None, self._starts[group]):
            return False
        try:
            os.killpg(group, number)
        except OSError:
            return False
        return True

    def _runs(self, group: int) -> bool:
        """Return whether the first process of a group runs; zombies, which nobody reaps, do not."""
        if not self._send(group, 0):
            del self._starts[group]  # its id may be another's soon
            return False
        return _fields(group)[:1] not in (["Z"], ["X"])


def main() -> None:
    """Wait for `end` or the end of stdin, then clean up."""
    groups = Groups()
    is_asked = False
    for line in iter(sys.stdin.readline, ""):
        if line == END:
            is_asked = True
            break
        groups.read(line)
    if not is_asked:
        groups.interrupt()
    groups.kill()
    path, *descriptors = sys.argv[1:]
    opened = int(descriptors[0]) if descriptors else os.open(path, os.O_RDONLY)
    for lock in descriptors[1:]:
        os.close(int(lock))  # network file systems keep what is removed while it is open
    try:
        _remove(path, opened)
    except OSError:  # another run has removed it, or it cannot be
        return


def _started(process: int) -> str | None:
    """Return the time at which a process started; None if there is no such, or not on Linux."""
    fields = _fields(process)
    return fields[19] if fields else None


def _fields(process: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on, as proc(5) numbers them from 3."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()
    except OSError:  # not Linux, or it was reaped
        return []


def _remove(path: str, opened: int) -> None:
    """
    Remove an open folder, its mark last: by it a later run goes on where this process is killed.

    Args:
        path: Path of the folder when it was made.
        opened: Its descriptor.
    """
    for _ in range(50):  # processes that are being killed may still write
        clear(opened, kept=_MARK)
        left = os.listdir(opened)
        if left in ([_MARK], []):
            for mark in left:
                os.unlink(mark, dir_fd=opened)
            if os.path.samestat(os.lstat(path), os.fstat(opened)):
                os.rmdir(path)  # noqa: PTH106
            return
        time.sleep(0.1)


if __name__ == "__main__":
    main()

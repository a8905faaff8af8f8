"""Keep a core from idling while steps take turns on it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_tfperf.machine.conditions import has_quota
from pytest_tfperf.machine.cores import pinnable_cores

_SCRIPT = """
import os, sys
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while os.getppid() == int(sys.argv[1]):
    for _ in range(100_000):
        pass
"""


@contextmanager
def core_kept_awake(root: Path = Path("/")) -> Iterator[None]:
    """
    Run an idle task beside this process within the context, if both have one core.

    A virtual core that idles may go on at another pace. So steps that wait, for input or between
    epochs, change their pace from turn to turn: the task reduced the error of a process pair of a
    small Keras fit from 4.6 to 1.6 %. It has the policy SCHED_IDLE: it runs only while the steps do
    not. It belongs to this process's group, which is
    stopped as a whole, and to its session, since Linux compares priorities within a session alone
    (sched(7), autogroups).

    With several cores there is none: it would take the other hyperthread from the step's threads.
    Nor is there one under a CPU quota, which it would use up, or where the system refuses it.

    Args:
        root: Folder of Linux' /proc and /sys.
    """
    task = None if len(pinnable_cores()) != 1 or has_quota(root) else _started()
    try:
        yield
    finally:
        if task is not None:
            task.kill()
            task.wait()


def _started() -> subprocess.Popen[bytes] | None:
    """Start the task; return None if that is refused."""
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SCRIPT, str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None

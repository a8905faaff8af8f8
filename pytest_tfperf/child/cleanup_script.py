"""
Ends processes and removes a folder when whoever asked for it is gone, however that came about.

Run as a script of its own, without site-packages: `python -I -S janitor.py FOLDER`. Lines on its stdin name the process groups
that are to be killed (`+1234`), or no longer (`-1234`), or say that it is time (`end`). Its stdin ends when the last process that
holds the other end does.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time

END = "end\n"


def main() -> None:
    """Wait for the word, or the end of stdin; then clean up."""
    groups: set[int] = set()
    for line in iter(sys.stdin.readline, ""):
        if line == END:
            break
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:
            continue  # it has ended by itself
    for _ in range(50):  # what is being killed may still write
        shutil.rmtree(sys.argv[1], ignore_errors=True)
        if not os.path.exists(sys.argv[1]):  # noqa: PTH110 - pathlib takes longer to load than all of this
            return
        time.sleep(0.1)


if __name__ == "__main__":
    main()

"""Progress of long commands on standard error: one line on a terminal, a heartbeat elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_HEARTBEAT_S = 20.0
_REFRESH_S = 0.5
"""Seldom, since doctor measures meanwhile."""
_ERASE = "\r\x1b[2K"


@contextmanager
def shown_progress(
    on_terminal: bool = True, heartbeat_s: float = _HEARTBEAT_S
) -> Iterator[PhaseLine]:
    """Show progress within the context; see `PhaseLine`."""
    progress = PhaseLine(on_terminal, heartbeat_s)
    try:
        yield progress
    finally:
        progress.end()


class PhaseLine:
    """
    The phase that a command is in, with the seconds that are left or have passed.

    Args:
        on_terminal: False to show nothing on a terminal, for commands that end soon.
        heartbeat_s: Seconds between the lines that a file or a pipe gets.
    """

    def __init__(self, on_terminal: bool, heartbeat_s: float) -> None:
        self._is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._every_s = _REFRESH_S if self._is_terminal else heartbeat_s
        self._text, self._began = "", time.monotonic()
        self._seconds: float | None = None
        self._ended, self._writing = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._is_shown = on_terminal or not self._is_terminal
        if self._is_shown:
            self._thread.start()

    def end(self) -> None:
        """Write no more."""
        self.hide()
        self._ended.set()
        if self._is_shown:
            self._thread.join()

    def phase(self, text: str, seconds: float | None = None) -> None:
        """Begin a phase, which takes these seconds if that is known."""
        with self._writing:
            self._text, self._began, self._seconds = text, time.monotonic(), seconds
            if self._is_terminal:
                self._write()

    def hide(self) -> None:
        """Remove the line from the terminal until the next phase begins."""
        with self._writing:
            if self._is_terminal and self._is_shown and self._text:
                self._text = ""
                sys.stderr.write(_ERASE)
                sys.stderr.flush()

    def _beat(self) -> None:
        """Write the line now and then."""
        while not self._ended.wait(self._every_s):
            with self._writing:
                self._write()

    def _write(self) -> None:
        if not self._is_shown or not self._text:
            return
        passed_s = time.monotonic() - self._began
        left_s = 0.0 if self._seconds is None else self._seconds - passed_s
        time_shown = f"{left_s:.0f} s left" if left_s > 0 else f"{passed_s:.0f} s so far"
        line = f"tfperf: {self._text}, {time_shown}"
        if self._is_terminal:
            line = f"{_ERASE}{line[: shutil.get_terminal_size().columns - 1]}"
        sys.stderr.write(line if self._is_terminal else f"{line}\n")
        sys.stderr.flush()

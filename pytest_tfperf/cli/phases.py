"""Progress of long commands on standard error: one line on a terminal, a heartbeat elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.text import Text

from pytest_tfperf.cli.console import new_console

if TYPE_CHECKING:
    from rich.live import Live

_HEARTBEAT_S = 20.0
_REFRESHES = 2
"""Per second; few, since doctor measures meanwhile."""


@contextmanager
def shown_progress(
    on_terminal: bool = True, heartbeat_s: float = _HEARTBEAT_S
) -> Iterator[PhaseLine]:
    """Show progress within the context; see `PhaseLine`."""
    progress = PhaseLine(on_terminal, heartbeat_s)
    progress.start()
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
        self._heartbeat_s = heartbeat_s
        self._text, self._began = "", time.monotonic()
        self._seconds: float | None = None
        self._ended = threading.Event()
        self._live: Live | None = None
        self._thread: threading.Thread | None = None
        console = new_console(sys.stderr)
        if not console.is_terminal or console.is_dumb_terminal:
            self._thread = threading.Thread(target=self._beat, daemon=True)
        elif on_terminal:
            from rich.live import Live  # on a terminal alone

            self._live = Live(
                get_renderable=self._line,
                console=console,
                refresh_per_second=_REFRESHES,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )

    def start(self) -> None:
        """Write lines from now on."""
        if self._thread is not None:
            self._thread.start()

    def end(self) -> None:
        """Write no more."""
        self.hide()
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def phase(self, text: str, seconds: float | None = None) -> None:
        """Begin a phase, which takes these seconds if that is known."""
        self._text, self._began, self._seconds = text, time.monotonic(), seconds
        if self._live is not None:
            self._live.start(refresh=True)

    def hide(self) -> None:
        """Remove the line from the terminal until the next phase begins."""
        if self._live is not None:
            self._live.stop()

    def _line(self) -> Text:
        passed_s = time.monotonic() - self._began
        left_s = 0.0 if self._seconds is None else self._seconds - passed_s
        time_shown = f"{left_s:.0f} s left" if left_s > 0 else f"{passed_s:.0f} s so far"
        line = f"tfperf: {self._text}, {time_shown}"
        return Text(line, style="dim", no_wrap=True, overflow="ellipsis")

    def _beat(self) -> None:
        """Write the line now and then."""
        while not self._ended.wait(self._heartbeat_s):
            if self._text:
                sys.stderr.write(f"{self._line().plain}\n")
                sys.stderr.flush()

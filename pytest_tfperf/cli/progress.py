"""
Progress of long commands on standard error, and the analysis of traces with it.

A terminal shows one line, a file or a pipe gets a heartbeat.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_tfperf.cli.common import GOOD, USAGE, refuse_run_file, say
from pytest_tfperf.errors import TfperfError
from pytest_tfperf.text import plural

if TYPE_CHECKING:
    from pytest_tfperf.metrics.multi_host import AnalysedTrace

_HEARTBEAT_S = 20.0
_REFRESH_S = 0.5
"""Seldom, since doctor measures meanwhile."""
_ERASE = "\r\x1b[2K"
_LARGE = 10_000_000
"""Bytes of traces from which on a terminal shows progress; they take about half a second."""


@contextmanager
def shown_progress(
    on_terminal: bool = True, heartbeat_s: float = _HEARTBEAT_S
) -> Iterator[PhaseLine]:
    """
    Show progress within the context.

    Args:
        on_terminal: False to show nothing on a terminal, for commands that end soon.
        heartbeat_s: Seconds between the lines that a file or a pipe gets.
    """
    progress = PhaseLine(on_terminal, heartbeat_s)
    try:
        yield progress
    finally:
        progress.end()


class PhaseLine:
    """The phase that a command is in, with the seconds that are left or have passed."""

    def __init__(self, on_terminal: bool, heartbeat_s: float) -> None:
        self._is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._is_shown = on_terminal or not self._is_terminal
        self._every_s = _REFRESH_S if self._is_terminal else heartbeat_s
        self._text, self._began = "", time.monotonic()
        self._seconds: float | None = None
        self._ended, self._writing = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._beat, daemon=True)
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


def analyse_traces(
    paths: Iterable[Path], target_step_time_s: float | None = None
) -> tuple[list[AnalysedTrace], list[TfperfError]]:
    """
    Analyse traces; those of one logdir are the hosts of a job.

    Returns:
        What was analysed, and an error for each trace that was not.
    """
    from pytest_tfperf.metrics.multi_host import analyse_job  # numpy: not for tfperf show
    from pytest_tfperf.trace.logdir import find_traces

    analysed: list[AnalysedTrace] = []
    errors: list[TfperfError] = []
    jobs: list[list[Path]] = []
    for path in paths:
        try:
            refuse_run_file(path)
            jobs.append(find_traces(path))
            _name_others(path, jobs[-1])
        except TfperfError as error:
            errors.append(error)
    traces = [trace for job in jobs for trace in job]
    sizes = {trace: trace.stat().st_size for trace in traces if trace.is_file()}
    done: list[Path] = []
    began = time.monotonic()
    with shown_progress(sum(sizes.values()) > _LARGE) as progress:

        def show() -> None:
            whole = sum(sizes.values())
            n_bytes = sum(sizes.get(trace, 0) for trace in done)
            left_s = (time.monotonic() - began) * (whole / n_bytes - 1) if n_bytes else None
            number = f"{len(done)} of {len(traces)} traces, " if len(traces) > 1 else ""
            progress.phase(f"analysing: {number}{whole / 1e6:,.0f} MB", left_s)

        def count(trace: Path) -> None:
            done.append(trace)
            show()

        for job in jobs:
            show()
            found, missing = analyse_job(job, target_step_time_s, count)
            analysed += [replace(one, profile=one.profile.plain()) for one in found]
            errors += missing
    return analysed, errors


def _name_others(path: Path, taken: Sequence[Path]) -> None:
    """Say on stderr that a logdir has other runs than the one that is analysed."""
    from pytest_tfperf.trace.logdir import find_runs

    others = [run for run in find_runs(path) if run != taken[0].parent]
    if others:
        say(
            f"{taken[0].parent} is the newest run; {path} has {plural(len(others), 'other')}, such "
            f"as {others[0]}"
        )


def report_errors(errors: Sequence[TfperfError]) -> int:
    """Print the errors to stderr, and return their exit status: 0 without any."""
    for error in errors:
        say(error)
    return USAGE if errors else GOOD

"""
Progress of long commands on standard error, and the analysis of traces with it.

A terminal shows one line, and a file or a pipe gets a line now and then. No thread writes it, since
`tfperf doctor` measures meanwhile.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_tfperf.cli.common import GOOD, USAGE, say
from pytest_tfperf.errors import TfperfError
from pytest_tfperf.text import plural

if TYPE_CHECKING:
    from pytest_tfperf.metrics.multi_host import AnalysedTrace

_EVERY_S = 20.0
"""Seconds between the lines that a file or a pipe gets."""
_ERASE = "\r\x1b[2K"
_LARGE = 10_000_000
"""Bytes of traces from which on a terminal shows progress; they take about half a second."""


class Progress:
    """The phase that a command is in; files and pipes get a line each `every_s` seconds at most."""

    def __init__(self, on_terminal: bool = True, every_s: float = _EVERY_S) -> None:
        self._is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._is_shown = on_terminal or not self._is_terminal
        self._every_s = 0.0 if self._is_terminal else every_s
        self._written_s = time.monotonic()

    def phase(self, text: str, seconds: float | None = None) -> None:
        """Show a phase, which takes about these seconds if that is known."""
        if not self._is_shown or time.monotonic() - self._written_s < self._every_s:
            return
        self._written_s = time.monotonic()
        line = f"tfperf: {text}" + (f", about {seconds:.0f} s" if seconds else "")
        if self._is_terminal:
            line = f"{_ERASE}{line[: shutil.get_terminal_size().columns - 1]}"
        sys.stderr.write(line if self._is_terminal else f"{line}\n")
        sys.stderr.flush()

    def close(self) -> None:
        """Remove the line from the terminal, until the next phase if another one begins."""
        if self._is_terminal and self._is_shown:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()


def analyse_traces(
    paths: Iterable[Path], target_step_time_s: float | None = None
) -> tuple[list[AnalysedTrace], list[TfperfError]]:
    """Analyse traces, of which one logdir has the hosts of a job; return the errors too."""
    from pytest_tfperf.metrics.multi_host import analyse_job  # numpy: not for tfperf show
    from pytest_tfperf.trace.logdir import find_traces

    analysed: list[AnalysedTrace] = []
    errors: list[TfperfError] = []
    jobs: list[list[Path]] = []
    for path in paths:
        try:
            jobs.append(find_traces(path))
            _name_others(path, jobs[-1])
        except TfperfError as error:
            errors.append(error)
    traces = [trace for job in jobs for trace in job]
    sizes = {trace: trace.stat().st_size for trace in traces if trace.is_file()}
    whole, done, began = sum(sizes.values()), list[Path](), time.monotonic()
    with closing(Progress(whole > _LARGE)) as progress:

        def show(*ended: Path) -> None:
            done.extend(ended)
            n_bytes = sum(sizes.get(trace, 0) for trace in done)
            left_s = (time.monotonic() - began) * (whole / n_bytes - 1) if n_bytes else None
            number = f"{len(done)} of {len(traces)} traces, " if len(traces) > 1 else ""
            progress.phase(f"analysing: {number}{whole / 1e6:,.0f} MB", left_s)

        show()
        for job in jobs:
            found, missing = analyse_job(job, target_step_time_s, show)
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

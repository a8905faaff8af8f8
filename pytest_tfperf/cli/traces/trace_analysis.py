"""Analyse the traces that a command is given, with progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_tfperf.cli.file_kinds import refuse_run_file
from pytest_tfperf.cli.output import GOOD, USAGE
from pytest_tfperf.cli.progress import shown_progress
from pytest_tfperf.errors import TfperfError
from pytest_tfperf.text import for_terminal, plural

if TYPE_CHECKING:
    from pytest_tfperf.metrics.multi_host import AnalysedTrace

_LARGE = 10_000_000
"""Bytes of traces from which on a terminal shows progress; they take about half a second."""


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
    work = _Work([trace for job in jobs for trace in job])
    with shown_progress(work.is_large) as progress:
        for job in jobs:
            progress.phase(work.text, work.left_s)

            def done(trace: Path) -> None:
                work.done(trace)
                progress.phase(work.text, work.left_s)

            found, missing = analyse_job(job, target_step_time_s, done)
            analysed += [replace(one, profile=one.profile.plain()) for one in found]
            errors += missing
    return analysed, errors


def _name_others(path: Path, taken: Sequence[Path]) -> None:
    """Say on stderr that a logdir has other runs than the one that is analysed."""
    from pytest_tfperf.trace.logdir import find_runs

    others = [run for run in find_runs(path) if run != taken[0].parent]
    if others:
        text = (
            f"tfperf: {taken[0].parent} is the newest run; {path} has "
            f"{plural(len(others), 'other')}, such as {others[0]}"
        )
        print(for_terminal(text), file=sys.stderr)


class _Work:
    """The traces to analyse, and the seconds that those left will take."""

    def __init__(self, traces: Sequence[Path]) -> None:
        self._sizes = {trace: trace.stat().st_size for trace in traces if trace.is_file()}
        self._n_traces, self._n_done, self._done_bytes = len(traces), 0, 0
        self._began = time.monotonic()

    @property
    def is_large(self) -> bool:
        """True if the analysis takes long enough to show progress."""
        return sum(self._sizes.values()) > _LARGE

    @property
    def text(self) -> str:
        """The work in words."""
        size_mb = sum(self._sizes.values()) / 1e6
        number = f"{self._n_done} of {self._n_traces} traces, " if self._n_traces > 1 else ""
        return f"analysing: {number}{size_mb:,.0f} MB"

    @property
    def left_s(self) -> float | None:
        """Seconds left by the rate so far; None until a trace is done."""
        if not self._done_bytes:
            return None
        left = sum(self._sizes.values()) - self._done_bytes
        return (time.monotonic() - self._began) * left / self._done_bytes

    def done(self, trace: Path) -> None:
        """Count a trace as analysed."""
        self._n_done += 1
        self._done_bytes += self._sizes.get(trace, 0)


def report_errors(errors: Sequence[TfperfError]) -> int:
    """Print the errors to stderr, and return their exit status: 0 without any."""
    for error in errors:
        print(for_terminal(f"tfperf: {error}"), file=sys.stderr)
    return USAGE if errors else GOOD

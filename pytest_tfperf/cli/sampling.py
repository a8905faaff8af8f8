"""Samples of a long job: traces at an interval, and what changed from one to the next."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_tfperf.cli.console import write_out
from pytest_tfperf.cli.output import GOOD, UNKNOWN
from pytest_tfperf.cli.traces.trace_analysis import analyse_traces, report_errors
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.files import cache_folder, replace_file
from pytest_tfperf.quantities import COUNT, SHARE, format_change
from pytest_tfperf.report.step_verdict import parts_of, steps_title
from pytest_tfperf.results import Profile
from pytest_tfperf.text import and_more
from pytest_tfperf.trace.logdir import host_of, is_run_name

if TYPE_CHECKING:
    from pytest_tfperf.remote.job import CapturedJob

_ENTRY = re.compile(r"\S+ [0-9]{1,20}")
_NOISE, _POINTS = 0.1, 0.02
"""Relative change, and change of a share, below which two short traces do not differ."""
_MOST_CHANGES = 4


class SampledRuns:
    """
    The runs that samples have made in a logdir, also those of earlier commands.

    Their list is in this user's cache. One in the logdir could come with it from another person,
    and name runs of others.

    Args:
        logdir: The logdir.
        n_kept: Number of runs to keep.
    """

    def __init__(self, logdir: Path, n_kept: int) -> None:
        self._runs = logdir / "plugins" / "profile"
        self._n_kept = n_kept
        self._made: list[str] = []

    def add(self, run: Path) -> None:
        """
        List a run, and remove the oldest ones.

        Raises:
            CaptureError: If a run cannot be removed.
        """
        try:
            made = [*self._listed(), f"{run.name} {run.lstat().st_ino}"]
            for entry in made[: -self._n_kept]:
                self._remove(entry)
        except OSError as error:
            raise CaptureError(f"old samples in {self._runs} cannot be removed: {error}") from error
        self._made = made[-self._n_kept :]
        # without a cache, this command knows its own runs
        with suppress(OSError, RuntimeError):
            replace_file(self._list(), "".join(f"{entry}\n" for entry in self._made))

    def _list(self) -> Path:
        """
        Return the file that lists the runs: a name and an inode a line.

        Raises:
            RuntimeError: If this user has no home.
        """
        digest = hashlib.sha256(os.fsencode(self._runs.resolve())).hexdigest()[:16]
        return cache_folder() / "samples" / digest

    def _listed(self) -> list[str]:
        with suppress(OSError, RuntimeError, UnicodeDecodeError):
            lines = self._list().read_text("utf-8").splitlines()
            return [line for line in lines if _ENTRY.fullmatch(line)]
        return self._made

    def _remove(self, entry: str) -> None:
        """Remove a run, unless another folder or a link has taken its name."""
        name, inode = entry.split(" ")
        path = self._runs / name
        with suppress(FileNotFoundError):
            status = path.lstat()
            if is_run_name(name) and stat.S_ISDIR(status.st_mode) and status.st_ino == int(inode):
                shutil.rmtree(path)


def sample(
    samples: SampledRuns,
    every_s: float,
    n_samples: int | None,
    capture: Callable[[], CapturedJob],
    check: Callable[[Sequence[Path]], int],
) -> int:
    """
    Trace a job at an interval, and print a line for each sample.

    A worker that cannot be traced is named, and tried again with the next sample.

    Args:
        samples: The runs.
        every_s: Interval in seconds.
        n_samples: Number of samples; None for no end.
        capture: Traces the job.
        check: Checks traces, and returns an exit status.

    Returns:
        The first exit status of a check that is not 0; else 3 if a worker has no profile.
    """
    statuses: list[int] = []
    before: dict[str, Profile] = {}
    begun = time.monotonic()
    n = 0
    while n_samples is None or n < n_samples:
        time.sleep(max(0.0, begun + n * every_s - time.monotonic()))
        n += 1
        job = capture()
        report_errors(job.errors)
        statuses.append(UNKNOWN if job.errors else GOOD)
        if job.traces:
            samples.add(job.traces[0].parent)
            before, is_whole = _shown(job.traces, before)
            statuses.append(GOOD if is_whole else UNKNOWN)
            statuses.insert(0, check(job.traces))
    return next((status for status in statuses if status), GOOD)


def _shown(traces: Sequence[Path], before: dict[str, Profile]) -> tuple[dict[str, Profile], bool]:
    """Print a line for each worker; return the profiles by worker, and whether all are known."""
    analysed, errors = analyse_traces(traces)
    now = {host_of(Path(one.profile.name)): one.with_traced_times() for one in analysed}
    for worker, profile in now.items():
        parts = ", ".join(f"{part.title} {part.share:.1%}" for part in parts_of(profile)[:3])
        changed = changes(before[worker], profile) if worker in before else []
        since = f"; changed: {and_more(changed, _MOST_CHANGES)}" if changed else ""
        clock = time.strftime("%H:%M:%S")
        write_out(f"{clock} {worker}: {steps_title(profile)}: {parts}{since}")
    report_errors(errors)
    return before | now, not errors


def changes(before: Profile, after: Profile) -> list[str]:
    """Return the metrics that differ, the largest relative change first."""
    found = []
    for name, value in after.metrics.items():
        old, new = before.metrics[name].number, value.number
        if old is None or new is None or old == new:
            continue
        size = abs(new - old) / max(abs(old), abs(new))
        if value.unit == COUNT or (
            abs(new - old) >= _POINTS if value.unit == SHARE else size >= _NOISE
        ):
            found.append((-size, f"{name} {format_change(old, new, value.unit)}"))
    return [text for _, text in sorted(found)]

"""Adding runs made elsewhere, as in CI, to the stored baselines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_tfperf.baseline.record import Recorded, record
from pytest_tfperf.baseline.store import Place, lies_below
from pytest_tfperf.errors import BaselineError
from pytest_tfperf.metric_registry import nearest
from pytest_tfperf.runs import ProfiledTest, Run
from pytest_tfperf.text import elide, one_line


def accept(
    runs: Sequence[Run],
    names: Sequence[str],
    rootdir: Path,
    baseline_dir: Path | None,
    also_noisy: bool = False,
    keeps_times: bool = True,
) -> Recorded:
    """
    Store the tests in these runs that passed, as `--tfperf-update` does.

    The structure is that of the newest run; times of all runs are added.

    Args:
        runs: The runs.
        names: The tests to store, by key or node id; all by default.
        rootdir: The folder that the tests' files are relative to.
        baseline_dir: As `--tfperf-baseline-dir`.
        also_noisy: As `--tfperf-record-noisy`.
        keeps_times: False if a team's history keeps the times.

    Raises:
        BaselineError: If a name is unknown, nothing was profiled, or a file cannot be found, read
            or written; its message says what was written.
    """
    parts = [replace(run, tests=tuple(test for test in run.tests if test.profiles)) for run in runs]
    _check_names(names, [test for part in parts for test in part.tests])
    if names:
        parts = [
            _part(part, lambda test: test.key in names or test.nodeid in names) for part in parts
        ]
    wanted = [test for part in parts for test in part.tests]
    for test in wanted:
        check_environment(test)
    files = sorted({test.file for test in wanted})
    for file in files:
        if Path(file).suffix != ".py" or not lies_below(rootdir / file, rootdir):
            raise BaselineError(
                f"test file {elide(file, 200)!r}: a run file may name Python modules below the "
                f"rootdir {rootdir.resolve()} only; nothing was written"
            )
    absent = [file for file in files if not _is_file(rootdir / file)]
    if absent:
        raise BaselineError(
            f"no test file {one_line(absent[0][:200])} in {rootdir.resolve()}: give the folder "
            "that the tests are below with --rootdir, or the tests to accept by name"
        )
    places = {
        file: replace(Place.of(file, rootdir, baseline_dir), keeps_times=keeps_times)
        for file in files
    }
    return record(
        {place: _of_file(file, parts) for file, place in places.items()},
        only_new=False,
        also_noisy=also_noisy,
    )


def _is_file(path: Path) -> bool:
    """Return whether there is a file; not if its name is longer than names can be."""
    try:
        return path.is_file()
    except OSError:
        return False


def check_environment(test: ProfiledTest) -> None:
    """
    Check that a test says where it ran.

    Raises:
        BaselineError: If it does not, as in a file edited by hand.
    """
    if not {"platform", "machine", "setting"} <= test.environment.keys():
        raise BaselineError(
            f"{one_line(test.nodeid[:200])}: its run does not say on which platform and machine "
            "it ran; take a file of pytest --tfperf-report"
        )


def _check_names(names: Sequence[str], profiled: Sequence[ProfiledTest]) -> None:
    known = dict.fromkeys(name for test in profiled for name in (test.key, test.nodeid))
    for name in names:
        if name not in known:
            raise BaselineError(f"no profiled test {name!r} in these runs; {nearest(name, known)}")
    if not profiled:
        raise BaselineError("no test in these runs was profiled: there is nothing to accept")


def _part(run: Run, wanted: Callable[[ProfiledTest], bool]) -> Run:
    return replace(run, tests=tuple(filter(wanted, run.tests)))


def _of_file(file: str, parts: Sequence[Run]) -> list[Run]:
    return [_part(part, lambda test: test.file == file) for part in parts]

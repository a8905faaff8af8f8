"""The run that pytest adds to a history at its end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_tfperf.alike import alike, named
from pytest_tfperf.errors import TfperfError
from pytest_tfperf.run_history.opening import open_store
from pytest_tfperf.run_history.rows import rows_of
from pytest_tfperf.runs import Run


def add_run(
    run: Run, address: str, project: str, reports: Sequence[Path], also_noisy: bool
) -> tuple[list[str], bool]:
    """
    Add a run to a history, and describe that in sentences.

    Args:
        run: The run.
        address: Address of the store.
        project: Name of the project.
        reports: Reports of the run, of which a run file can be added later.
        also_noisy: Whether later runs are compared with disturbed times too.

    Returns:
        The sentences, and whether the run is in the history.
    """
    try:
        rows = rows_of(run, project, also_noisy)
        open_store(address).append(rows)
    except TfperfError as error:
        return [f"the run is not in the history: {error}; {_later(reports)}"], False
    return [
        f"run {rows.run} {_of_branch(run)} added to the history of {project}",
        *(
            f"  later runs are not compared with {named(keys)}: {why}"
            for keys, why in alike(rows.left_out.items())
        ),
    ], True


def _of_branch(run: Run) -> str:
    return f"of branch {run.branch}" if run.branch else "without a branch (git and CI name none)"


def _later(reports: Sequence[Path]) -> str:
    files = [path for path in reports if path.suffix.lower() == ".json"]
    if files:
        return f"tfperf accept {files[0]} adds it later"
    return "with --tfperf-report run.json, tfperf accept run.json can add it later"

"""The history of a team's runs: its store, the run that pytest adds, and those it compares with."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_tfperf.alike import alike, named
from pytest_tfperf.baseline.history import cores_of, merge_runs, rounded
from pytest_tfperf.baseline.step_time import TimingWords
from pytest_tfperf.baseline.store import Place, entry_key, is_step_time, machine_slug
from pytest_tfperf.errors import BaselineError, StoreError, TfperfError
from pytest_tfperf.metric_registry import MACHINE
from pytest_tfperf.runs import Run
from pytest_tfperf.stores.rows import HistoryStore, MetricRow, Selection, rows_of
from pytest_tfperf.values import Json

_DATABASES = ("postgresql", "postgres")


def open_store(address: str) -> HistoryStore:
    """Open a folder, a URL of fsspec, or postgresql://; a missing package raises StoreError."""
    scheme = address.partition("://")[0].partition("+")[0] if "://" in address else ""
    if scheme in _DATABASES:
        try:
            from pytest_tfperf.stores.postgres import PostgresStore
        except ImportError as error:
            raise _missing(error, "postgresql") from error
        return PostgresStore(address)
    try:
        from pytest_tfperf.stores.object_history import ObjectStore
    except ImportError as error:
        raise _missing(error, "history") from error
    return ObjectStore(address)


def _missing(error: ImportError, extra: str) -> StoreError:
    return StoreError(
        f"the history needs {error.name}: install it with pip install 'pytest-tfperf[{extra}]'"
    )


def add_run(
    run: Run, address: str, project: str, reports: Sequence[Path]
) -> tuple[list[str], bool]:
    """
    Add a run to a history; return sentences on that, and whether the run is in it.

    A run file among the reports can be added later.
    """
    try:
        rows = rows_of(run, project)
        open_store(address).append(rows)
    except TfperfError as error:
        return [f"the run is not in the history: {error}; {_later(reports)}"], False
    tests = {test.key for test in run.tests}
    return [
        f"run {rows.run} {_of_branch(run)} added to the history of {project}",
        *(
            f"  later runs are not compared with {named(keys, tests)}: {why}"
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


class EarlierRuns:
    """
    The runs of a project on one branch: a source of step times, as `Timings` says.

    The rows of a test file and machine class are read once. A store that could not be read is not
    asked again.
    """

    def __init__(self, address: str, project: str, branch: str) -> None:
        self._address, self._project, self._branch = address, project, branch
        self._rows: dict[tuple[str, str], list[MetricRow]] = {}
        self._error: StoreError | None = None

    @property
    def words(self) -> TimingWords:
        """Phrases of messages on it."""
        of_branch = f"on branch {self._branch} with --tfperf-history"
        return TimingWords(
            name="the history",
            record=f"runs of this machine class {of_branch}",
            collect=f"more runs {of_branch}",
            accept=f"pytest --tfperf-update {of_branch}",
        )

    def entry(
        self, place: Place, key: str, machine: Mapping[str, Any], workload: Json, tolerance: float
    ) -> Json | None:
        """Return the entry that the runs would have made: see `Timings`."""
        found = self._read(place.test_file, machine_slug(machine))
        of_profile = [row for row in found if entry_key(row.test, row.profile) == key]
        return recorded_entry(of_profile, workload, tolerance, cores_of(machine))

    def elsewhere(self, place: Place, key: str) -> Iterator[tuple[Json, Json]]:
        """Yield machine class and workload of each entry: see `Timings`."""
        seen = set()
        for row in self._read(place.test_file, ""):
            of_row = (row.machine, row.workload)
            if entry_key(row.test, row.profile) == key and of_row not in seen:
                seen.add(of_row)
                machine, workload = map(_object, of_row)
                yield machine, workload

    def _read(self, file: str, machine_class: str) -> list[MetricRow]:
        if self._error is not None:
            raise BaselineError(str(self._error)) from self._error
        if (file, machine_class) not in self._rows:
            wanted = Selection(
                project=self._project,
                machine_class=machine_class,
                file=file,
                scope=MACHINE,
                branch=self._branch,
                usable=True,
            )
            try:
                self._rows[file, machine_class] = open_store(self._address).rows(wanted)
            except StoreError as error:
                self._error = error
                raise BaselineError(str(error)) from error
        return self._rows[file, machine_class]


def recorded_entry(
    rows: Iterable[MetricRow], workload: Mapping[str, Any], tolerance: float, cores: int
) -> Json | None:
    """
    Return the entry that a timing file would have, had each of these runs been recorded in it.

    The rows are the usable ones of one profile on one machine class, the latest last.
    """
    entry: Json | None = None
    same = json.dumps(dict(workload), sort_keys=True)
    for run in _runs([row for row in rows if row.workload == same]):
        entry = merge_runs(entry, [run], workload, tolerance, cores).entry or entry
    return entry


def _runs(rows: Sequence[MetricRow]) -> list[Json]:
    """Return the metrics of each run that has a step time, as a timing file holds them."""
    runs: dict[str, Json] = {}
    for row in rows:
        known = {"commit": row.commit, "created": f"{row.created.isoformat()}+00:00"}
        run = runs.setdefault(row.run, known)
        if row.value is not None and math.isfinite(row.value):
            run[row.metric] = rounded(row.value)
    return [run for run in runs.values() if is_step_time(run.get("step_time", 0.0))]


def _object(text: str) -> Json:
    """Return a JSON object, empty where the text is no object."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

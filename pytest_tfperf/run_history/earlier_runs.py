"""Step times of earlier runs from a history, in place of the timing files of a baseline."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_tfperf.baseline.step_time import TimingWords
from pytest_tfperf.baseline.store import Place, entry_key, machine_slug
from pytest_tfperf.errors import BaselineError, StoreError
from pytest_tfperf.metric_registry import MACHINE
from pytest_tfperf.run_history.opening import open_store
from pytest_tfperf.run_history.queries import recorded_entry
from pytest_tfperf.run_history.rows import MetricRow
from pytest_tfperf.run_history.stores import Selection
from pytest_tfperf.values import Json


class EarlierRuns:
    """
    The runs of a project on one branch: a source of step times, as `Timings` says.

    The rows of a test file and machine class are read once. A store that could not be read is not
    asked again.

    Args:
        address: Address of the store.
        project: Name of the project.
        branch: The branch.
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
        """
        Return the entry that the runs would have made: see `Timings`.

        Args:
            place: Place of the test file's baseline.
            key: Key of the profile.
            machine: The machine class.
            workload: Workload of the profile that is compared.
            tolerance: The slow-down that the test tolerates.
        """
        found = self._read(place.test_file, machine_slug(machine))
        of_profile = [row for row in found if entry_key(row.test, row.profile) == key]
        return recorded_entry(of_profile, workload, tolerance)

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


def _object(text: str) -> Json:
    """Return a JSON object, empty where the text is no object."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

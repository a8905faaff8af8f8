"""Step times of earlier runs that a profile is compared with: by default, those of timing files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from pytest_tfperf.baseline.store import Place, read_machine, read_times
from pytest_tfperf.errors import BaselineError
from pytest_tfperf.values import Json

UPDATE = "record it with pytest --tfperf-update-new (what is missing) or --tfperf-update (all)"
ACCEPT = "pytest --tfperf-update"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingWords:
    """Phrases of messages on a source of step times."""

    name: str
    """Name of the stored runs in a headline: "the baseline"."""
    record: str
    """Way to store a first run."""
    collect: str
    """Way to store more runs."""
    accept: str
    """Way to accept an intended change."""


class Timings(Protocol):
    """A source of earlier step times."""

    @property
    def words(self) -> TimingWords:
        """Phrases of messages on it."""

    def entry(
        self, place: Place, key: str, machine: Mapping[str, Any], workload: Json, tolerance: float
    ) -> Json | None:
        """
        Return the entry of a profile on a machine class as in a timing file, None if it has none.

        Args:
            place: Place of the test file's baseline.
            key: Key of the profile.
            machine: The machine class.
            workload: Workload of the profile that is compared.
            tolerance: The slow-down that the test tolerates.

        Raises:
            BaselineError: If the source cannot be read.
        """

    def elsewhere(self, place: Place, key: str) -> Iterator[tuple[Json, Json]]:
        """
        Yield machine class and workload of each entry of a profile, on whatever machine.

        Args:
            place: Place of the test file's baseline.
            key: Key of the profile.

        Raises:
            BaselineError: If the source cannot be read.
        """


class TimingFiles:
    """The timing files beside the tests."""

    words = TimingWords(
        name="the baseline",
        record=f"{UPDATE} on this machine",
        collect="pytest --tfperf-update again, or tfperf accept RUN.json of runs like this one",
        accept=ACCEPT,
    )

    def entry(
        self, place: Place, key: str, machine: Mapping[str, Any], workload: Json, tolerance: float
    ) -> Json | None:
        """
        Return the entry in a timing file: see `Timings`.

        Args:
            place: Place of the test file's baseline.
            key: Key of the profile.
            machine: The machine class.
            workload: Workload of the profile that is compared.
            tolerance: The slow-down that the test tolerates.
        """
        del workload, tolerance  # the entry was made with them
        return read_times(place.timing_file(machine)).get(place.timing_key(key))

    def elsewhere(self, place: Place, key: str) -> Iterator[tuple[Json, Json]]:
        """Yield machine class and workload of each entry: see `Timings`."""
        name = place.timing_key(key)
        for path in sorted(place.timing.glob("*.json")) if place.timing.is_dir() else []:
            with suppress(BaselineError):  # a file of another machine decides nothing here
                entry = read_times(path).get(name)
                if entry is not None:
                    yield read_machine(path), entry["workload"]

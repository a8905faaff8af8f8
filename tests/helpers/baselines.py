"""Recording runs into the baselines of one test file, and reading them again."""

from helpers.builders import LAPTOP, run_of

from pytest_tfperf.baseline.record import record
from pytest_tfperf.baseline.store import read_times

OTHER_WORKLOAD = {"inputs": ["float32[16, 4]"], "batch": 16}


def update(place, *records, commit="abc123", only_new=False):
    return [
        (change.key, change.what)
        for change in record({place: [run_of(*records, commit=commit)]}, only_new).entries
    ]


def update_new(place, *records):
    return update(place, *records, only_new=True)


def runs_of(place, key="test_step", environment=LAPTOP):
    return read_times(place.timing_file(environment["machine"]))[place.timing_key(key)]

"""Workers of pytest-xdist: their number, the role of this process, and its use of the CPU."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_tfperf.markers import is_profiled

if TYPE_CHECKING:
    from pytest_tfperf.machine.locks import ReadersWriterLock

_PATIENCE_S = 600.0
"""Seconds that a profiled test waits for the tests of other workers to end."""
_SHARES_CPU = "TFPERF_SHARES_CPU"
"""Environment variable that is set while other workers may use the CPU; children inherit it."""


def is_worker(config: pytest.Config) -> bool:
    """Return whether this process is a worker of pytest-xdist."""
    return hasattr(config, "workerinput")


def is_distributed(config: pytest.Config) -> bool:
    """Return whether this process hands its tests out to workers."""
    return not is_worker(config) and getattr(config.option, "dist", "no") != "no"


def n_workers(config: pytest.Config) -> int:
    """Return the number of workers that run the tests; 0 without pytest-xdist."""
    if is_worker(config):
        return int(config.workerinput["workercount"])  # type: ignore[attr-defined]
    if not is_distributed(config):
        return 0
    return sum(_times(spec) for spec in getattr(config.option, "tx", None) or ())


def share_cpu(config: pytest.Config) -> None:
    """Share the CPU with the other workers; where steps are timed, run profiled tests alone."""
    from pytest_tfperf.turns.pytest_child import is_child

    if n_workers(config) <= 1 or is_child(config):
        return  # a child does as its parent
    os.environ[_SHARES_CPU] = "1"
    if _times_steps_on_cpu(config):
        config.pluginmanager.register(ProfiledAlone(_lock_of_workers(config)))


def shares_cpu() -> bool:
    """Return whether other workers may use the CPU now."""
    return _SHARES_CPU in os.environ


class ProfiledAlone:
    """Plugin of a worker: while it runs a profiled test, the other workers run no test."""

    def __init__(self, lock: ReadersWriterLock) -> None:
        """Run tests under the lock of all workers of the run on this machine."""
        self._lock = lock

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Run a profiled test alone, and others beside each other; no time limit runs meanwhile."""
        if not is_profiled(item):
            with self._lock.shared():
                return (yield)
        with self._lock.alone(_PATIENCE_S) as alone:
            if alone:
                os.environ.pop(_SHARES_CPU, None)  # a fixture may have cleared the environment
            try:
                return (yield)
            finally:
                os.environ[_SHARES_CPU] = "1"


def _lock_of_workers(config: pytest.Config) -> ReadersWriterLock:
    """Return the lock of all workers of this run on this machine."""
    from pytest_tfperf.files import lock_folder
    from pytest_tfperf.machine.locks import ReadersWriterLock

    factory = getattr(config, "_tmp_path_factory", None)
    # pytest-xdist puts the temporary folders of the workers into that of the run
    folder = lock_folder() if factory is None else Path(factory.getbasetemp()).parent
    run = config.workerinput["testrunuid"]  # type: ignore[attr-defined]
    return ReadersWriterLock(folder / f"tfperf-{run}.lock")


def _times_steps_on_cpu(config: pytest.Config) -> bool:
    from pytest_tfperf.machine.gpu_share import visible_gpus

    option = config.option
    return not (option.tfperf_disable or option.tfperf_only == "structural" or visible_gpus())


def _times(spec: str) -> int:
    """
    Return the number of workers of `popen` or `3*popen//python=python3.12` (pytest-xdist,
    workermanage.py, parse_tx_spec_config).
    """
    number, star, _ = spec.partition("*")
    return int(number) if star and number.isdigit() else 1

"""Workers of pytest-xdist: their number, and the role of this process."""

from __future__ import annotations

import pytest


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


def _times(spec: str) -> int:
    """
    Return the number of workers that `popen` or `3*popen//python=python3.12` stands for.

    Source: pytest-xdist, workermanage.py, parse_tx_spec_config.
    """
    number, star, _ = spec.partition("*")
    return int(number) if star and number.isdigit() else 1

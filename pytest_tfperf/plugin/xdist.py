"""The workers of pytest-xdist."""

from __future__ import annotations

import pytest


def n_workers(config: pytest.Config) -> int:
    """How many workers run the tests; 0 without."""
    if hasattr(config, "workerinput"):
        return int(config.workerinput["workercount"])
    if getattr(config.option, "dist", "no") == "no":
        return 0
    return sum(_times(spec) for spec in getattr(config.option, "tx", None) or ())


def _times(spec: str) -> int:
    """How many workers `popen` or `3*popen//python=python3.12` stands for (xdist, workermanage.py: parse_tx_spec_config)."""
    number, star, _ = spec.partition("*")
    return int(number) if star and number.isdigit() else 1

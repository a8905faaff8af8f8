"""Residuals of earlier runs, stored for each machine class in the user's cache folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pytest_tfperf.files import cache_folder, replace_file
from pytest_tfperf.machine.description import hardware
from pytest_tfperf.stats.process_spread import Residuals

FORMAT = 2
_KEPT = 50  # runs of a machine class


def stored_residuals(cores: Sequence[int]) -> Residuals:
    """Return the residuals of earlier runs on this machine class; none if nothing can be read."""
    runs = _read().get(_key(cores), [])
    return sum((Residuals(total=total, degrees=degrees) for total, degrees in runs), Residuals())


def store_residuals(found: Residuals, cores: Sequence[int]) -> None:
    """
    Add the residuals of a run, if it has any.

    A cache that cannot be written is left alone: the constant then serves.
    """
    if not found.degrees:
        return
    stored, key = _read(), _key(cores)
    stored[key] = [*stored.get(key, []), (found.total, found.degrees)][-_KEPT:]
    try:
        replace_file(_path(), json.dumps({"format": FORMAT, "classes": stored}, indent=1))
    except (OSError, RuntimeError):  # as without a home
        return


def _path() -> Path:
    return cache_folder() / "process_spread.json"


def _key(cores: Sequence[int]) -> str:
    where = f"pinned to {len(cores)}" if cores else "any core"
    return f"{hardware()}, {where}"


def _read() -> dict[str, list[tuple[float, float]]]:
    """Return the runs of each machine class; none from a file that this version did not write."""
    try:
        stored = msgspec.json.decode(_path().read_bytes(), type=_Stored)
    except (OSError, msgspec.DecodeError, RuntimeError):
        return {}
    return stored.classes if stored.format == FORMAT else {}


class _Stored(msgspec.Struct):
    format: int
    classes: dict[str, list[tuple[float, float]]]

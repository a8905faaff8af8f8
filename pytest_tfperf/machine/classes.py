"""Differences between machine classes, and their effect on times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_WHY = {
    "accelerators": "the step runs on them",
    "cpu": "another model has another clock, other caches and vector units",
    "cores": "TensorFlow sizes its thread pools by them",
    "tensorflow": "kernels and XLA differ from version to version",
    "system": "another system or architecture runs other code",
}
_OF_THE_HOST = ("cpu", "cores")


def differences(stored: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Return the fields in which two machine classes differ, with their effect on times."""
    fields = [
        name for name in dict.fromkeys([*here, *stored]) if stored.get(name) != here.get(name)
    ]
    on_device = stored.get("accelerators") == here.get("accelerators") not in (None, "none")
    return [
        f"{name}: stored {stored.get(name)}, here {here.get(name)} ({_matters(name, on_device)})"
        for name in fields
    ]


def nearest_class(
    stored: Iterable[Mapping[str, Any]], here: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Return the machine class with the fewest differences, None if there are no classes."""
    return min(stored, key=lambda machine: len(differences(machine, here)), default=None)


def _matters(name: str, on_device: bool) -> str:
    if name not in _WHY:
        return "not known to matter"
    if on_device and name in _OF_THE_HOST:
        return "matters where the device waits for the host, in launches and the input pipeline"
    return f"matters: {_WHY[name]}"

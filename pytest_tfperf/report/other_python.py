"""The other Python of a paired run, and the packages that differ, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_tfperf.text import and_more

_SHOWN = 20  # packages of a report; a run file has all


def changed_packages(packages: Mapping[str, Mapping[str, str | None]]) -> list[str]:
    """Return `tensorflow 2.20.0 → 2.21.0` for each package, the most telling first."""
    return [
        f"{name} {versions['before'] or 'none'} → {versions['after'] or 'none'}"
        for name, versions in packages.items()
    ]


def describe_other_python(environment: Mapping[str, Any], most: int = _SHOWN) -> str:
    """
    Return what a test was compared with, and the packages that differ; empty with one Python.

    Args:
        environment: The environment of a test.
        most: Number of packages that are named.
    """
    other = environment.get("against")
    if other is None:
        return ""
    python = f" ({other['python']})" if other["name"] != other["python"] else ""
    changed = changed_packages(other["packages"])
    return f"{other['name']}{python}: {and_more(changed, most) if changed else 'the same packages'}"

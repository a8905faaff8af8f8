"""A comparison of variants that own their data, each in a process of its own: what is asked of whoever runs these processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pytest_tfperf.results import Profile
from pytest_tfperf.variants.comparison import Comparison
from pytest_tfperf.variants.outputs import Leaves, Tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """
    One call of `compare` with data.

    `profiles` are the names of the variants' profiles, by variant; `tolerance` is that of what the first steps return, None where
    that is not compared; `measure` profiles a variant in this process, and gives what its first step returned, where that is compared.
    """

    profiles: Mapping[str, str]
    max_seconds: float
    tolerance: Tolerance | None
    measure: Callable[[str], tuple[Profile, Leaves]]


Apart = Callable[[Asked], Comparison]
"""Answers such calls; raises CaptureError where a variant fails, AssertionError where outputs differ."""

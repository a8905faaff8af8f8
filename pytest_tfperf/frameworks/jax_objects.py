"""The functions and programs that JAX holds in this process, found in one pass over its objects."""

from __future__ import annotations

import gc
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.frameworks.interface import JAX
from pytest_tfperf.frameworks.jax_framework import function_type
from pytest_tfperf.frameworks.jax_functions import own_functions
from pytest_tfperf.frameworks.jax_programs import JaxPrograms, program_type


@dataclass(frozen=True, slots=True)
class JaxObjects:
    """The functions and programs that JAX held at one time; None without JAX."""

    own_functions: Mapping[str, bool] | None = None
    """Functions that JAX itself compiles; see `own_functions`."""
    programs: JaxPrograms | None = None
    """Compiled programs, which stay alive with them."""


def jax_objects(frameworks: Collection[str]) -> JaxObjects:
    """Return the functions and programs that JAX holds now, if it is one of the frameworks."""
    if JAX not in frameworks:
        return JaxObjects()
    functions, programs = instances(function_type(), program_type())
    return JaxObjects(own_functions(functions), JaxPrograms(programs))


def instances(*kinds: type | None) -> list[list[Any]]:
    """Return the objects of each class that are alive; there is none of None."""
    # an object refers to its class; reading all objects takes three times as long
    found = gc.get_referrers(*(kind for kind in kinds if kind is not None))
    return [[one for one in found if type(one) is kind] for kind in kinds]

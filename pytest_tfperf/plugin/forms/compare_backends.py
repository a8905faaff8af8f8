"""Compare one Keras model under several backends, each in a process of its own."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_tfperf.capture.keras_loops.keras_data import KerasCall
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.bare_training import bare_step
from pytest_tfperf.frameworks.installed import is_installed
from pytest_tfperf.plugin.forms.keras_loop import profile_keras_loop
from pytest_tfperf.plugin.profiles import Profiles
from pytest_tfperf.results import Profile
from pytest_tfperf.values import COMPARISON
from pytest_tfperf.variants.comparison import BARE, Comparison, ComparisonCall
from pytest_tfperf.variants.outputs import Leaves
from pytest_tfperf.variants.steps import profile_names

__tracebackhide__ = True

BACKENDS = ("tensorflow", "jax", "torch")
"""Backends of Keras that can be profiled, by the values of KERAS_BACKEND and their modules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backends:
    """Arguments of `tf_profile.compare_backends`."""

    build: Callable[[], Any]
    """Returns a compiled model."""
    data: Any
    """`(x, y)`, or what `fit` takes as `x`."""
    batch_size: int
    """Examples of a batch."""
    backends: Sequence[str] | None
    """The backends; None for those that are installed."""
    name: str | None
    """Name of the comparison."""


def compare_backends(
    profiles: Profiles,
    profile_step: Callable[..., Profile],
    wanted: Backends,
    options: Mapping[str, Any],
) -> Comparison:
    """
    Compare backends in child processes, or profile one of them in such a child.

    Args:
        profiles: Profiles of the test.
        profile_step: Profiles a step, as `tf_profile` does.
        wanted: The model, its data and the backends.
        options: Limits and numbers of steps of each profile.

    Raises:
        CaptureError: If a backend is not installed or fails, or there is none to compare.
    """
    settings = profiles.settings
    backends = {
        variant: backend
        for backend in chosen_backends(wanted.backends)
        for variant in (backend, backend + BARE)
    }
    names = profile_names(backends, wanted.name)
    if settings.compare_in_processes is None:
        raise CaptureError("compare_backends needs SIGSTOP, which this platform lacks")
    for name in names.values():
        profiles.check_name(name)

    def measure(variant: str) -> tuple[Profile, Leaves]:
        check_backend_runs(backends[variant])
        if variant.endswith(BARE):
            return profile_step(_bare_step(wanted), name=names[variant], **options), {}
        return _fitted(profiles, wanted, names[variant], options), {}

    comparison = settings.compare_in_processes(
        ComparisonCall(
            profiles=names,
            max_seconds=settings.plan.max_seconds,
            tolerance=None,
            measure=measure,
            environments={
                variant: {"KERAS_BACKEND": backend} for variant, backend in backends.items()
            },
        )
    )
    for profile in comparison.profiles.values():
        profiles.add(profile, profiles.wanted(**options))
    profiles.add_table(next(iter(names.values())), COMPARISON, comparison.table())
    return comparison


def chosen_backends(backends: Sequence[str] | None) -> tuple[str, ...]:
    """
    Return the backends to compare.

    Args:
        backends: Those asked for; None for all that are installed, which must be two or more.

    Raises:
        CaptureError: If one is unknown or not installed, or there are too few.
    """
    found = tuple(name for name in BACKENDS if is_installed(name))
    chosen = found if backends is None else tuple(dict.fromkeys(backends))
    if unknown := [name for name in chosen if name not in BACKENDS]:
        raise CaptureError(
            f"Keras has no backend {unknown[0]!r} that can be profiled: {', '.join(BACKENDS)}"
        )
    if missing := [name for name in chosen if name not in found]:
        raise CaptureError(
            f"the backend {missing[0]!r} is not installed: pip install {missing[0]}, or leave it "
            "out of backends="
        )
    if not chosen:
        raise CaptureError(f"compare_backends got no backend; it knows {', '.join(BACKENDS)}")
    if backends is None and len(chosen) == 1:
        raise CaptureError(
            f"compare_backends finds no backend beside {chosen[0]}: install another of "
            f"{', '.join(BACKENDS)}, or give backends=[{chosen[0]!r}] for Keras' loop alone"
        )
    return chosen


def check_backend_runs(backend: str) -> None:
    """
    Check the backend of Keras in this process.

    Raises:
        CaptureError: If it is another one.
    """
    runs_on = importlib.import_module("keras").config.backend()
    if runs_on != backend:
        raise CaptureError(
            f"Keras runs on {runs_on} in the process for {backend}: something sets KERAS_BACKEND "
            "in the test's file or a conftest.py; leave it to compare_backends"
        )


def _fitted(profiles: Profiles, wanted: Backends, name: str, options: Mapping[str, Any]) -> Profile:
    """Profile `fit` of the model."""
    x, y = wanted.data if isinstance(wanted.data, tuple) else (wanted.data, None)
    given = {} if y is None else {"batch_size": wanted.batch_size}
    call = KerasCall.of(wanted.build(), "fit", (x, y), {"verbose": 0, **given})
    taken = profiles.take_name(name)
    return profile_keras_loop(profiles, call, taken, profiles.wanted(**options), stop=True)


def _bare_step(wanted: Backends) -> Callable[[], Any]:
    """Return the training step of the model on its first batch, in the backend's own words."""
    if isinstance(wanted.data, tuple):
        x, y = ([np.asarray(one)[: wanted.batch_size] for one in wanted.data])[:2]
    else:
        x, y = importlib.import_module("keras").tree.map_structure(
            np.asarray, next(iter(wanted.data))[:2]
        )
    model = wanted.build()
    model.train_on_batch(x, y)  # makes the weights, and those of the optimizer
    return bare_step(model, x, y)

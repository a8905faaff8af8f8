"""Compare variants of a step, in this process or each in its own, and backends of Keras."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pytest_tfperf.capture.keras_data import KerasCall
from pytest_tfperf.capture.state import restored
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.in_use import is_installed
from pytest_tfperf.plugin.loops import profile_keras_loop
from pytest_tfperf.plugin.profiles import Profiles
from pytest_tfperf.results import Profile
from pytest_tfperf.values import COMPARISON
from pytest_tfperf.variants.comparison import BARE, Comparison, ComparisonCall
from pytest_tfperf.variants.outputs import Leaves, Tolerance
from pytest_tfperf.variants.steps import FirstOutput, Variant, profile_names
from pytest_tfperf.variants.turns import compare_steps

__tracebackhide__ = True

BACKENDS = ("tensorflow", "jax", "torch")
"""Backends of Keras that can be profiled, by the values of KERAS_BACKEND and their modules."""
_Step = Callable[[], Any]


Options = Mapping[str, Any]
"""Limits and numbers of steps of each profile."""


def compare_in_this_process(
    profiles: Profiles,
    profile_step: Callable[..., Profile],
    variants: Sequence[Variant],
    names: Mapping[str, str],
    tolerance: Tolerance | None,
    options: Options,
) -> Comparison:
    """
    Profile variants without data, and measure them in turns; no tolerance, no check of outputs.
    """
    measured = {
        variant.name: profile_step(variant, name=names[variant.name], **options)
        for variant in variants
    }
    comparison = compare_steps(
        variants,
        measured,
        tolerance,
        profiles.plan.max_seconds,
        profiles.test.announce,
        profiles.test.exclusive,
    )
    profiles.test.add_table(names[variants[0].name], COMPARISON, comparison.table())
    return comparison


def compare_with_data(
    profiles: Profiles,
    profile_step: Callable[..., Profile],
    steps: Mapping[str, Callable[..., Any]],
    data: Mapping[str, Iterable[Any]],
    names: Mapping[str, str],
    tolerance: Tolerance | None,
    unpack: bool | str,
    restore: Any,
    options: Options,
) -> Comparison:
    """
    Compare variants with data in child processes, or profile one in such a child; raises
    CaptureError if this platform cannot stop processes, or a variant fails. No tolerance compares
    no outputs.
    """

    def measure(variant: str) -> tuple[Profile, Leaves]:
        step = steps[variant] if tolerance is None else FirstOutput(steps[variant])
        own = {"name": names[variant], "unpack": unpack, **options}
        with restored(restore):
            profile = profile_step(step, data[variant], **own)
        return profile, getattr(step, "leaves", None) or {}

    return _in_processes(profiles, measure, names, tolerance, {}, options)


def compare_backends(
    profiles: Profiles,
    profile_step: Callable[..., Profile],
    build: Callable[[], Any],
    data: Any,
    batch_size: int,
    backends: Sequence[str] | None,
    name: str | None,
    options: Options,
) -> Comparison:
    """
    Compare backends, None for those installed, in child processes, or profile one in such a child;
    raises CaptureError if one is not installed or fails, or there is none to compare.
    """
    variants = {
        variant: backend
        for backend in chosen_backends(backends)
        for variant in (backend, backend + BARE)
    }
    names = profile_names(variants, name)
    environments = {variant: {"KERAS_BACKEND": backend} for variant, backend in variants.items()}

    def measure(variant: str) -> tuple[Profile, Leaves]:
        check_backend_runs(variants[variant])
        if variant.endswith(BARE):
            step = _bare_step(build, data, batch_size)
            return profile_step(step, name=names[variant], **options), {}
        x, y = data if isinstance(data, tuple) else (data, None)
        given = {} if y is None else {"batch_size": batch_size}
        call = KerasCall.of(build(), "fit", (x, y), {"verbose": 0, **given})
        taken, wanted = profiles.take_name(names[variant]), profiles.wanted(**options)
        return profile_keras_loop(profiles, call, taken, wanted, stop=True), {}

    return _in_processes(profiles, measure, names, None, environments, options)


def _in_processes(
    profiles: Profiles,
    measure: Callable[[str], tuple[Profile, Leaves]],
    names: Mapping[str, str],
    tolerance: Tolerance | None,
    environments: Mapping[str, Mapping[str, str]],
    options: Options,
) -> Comparison:
    """Measure each variant in a process of its own, and keep the profiles and the comparison."""
    wanted = profiles.wanted(**options)
    for name in names.values():
        profiles.free_name(name)
    comparison = profiles.test.compare(
        ComparisonCall(
            profiles=names,
            max_seconds=profiles.plan.max_seconds,
            tolerance=tolerance,
            measure=measure,
            environments=environments,
        )
    )
    for profile in comparison.profiles.values():
        profiles.add(profile, wanted)
    profiles.test.add_table(next(iter(names.values())), COMPARISON, comparison.table())
    return comparison


def chosen_backends(backends: Sequence[str] | None) -> tuple[str, ...]:
    """
    Return the backends to compare, None for two or more that are installed; raises CaptureError if
    one is unknown or not installed, or there are too few.
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
    """Raise CaptureError if the backend of Keras in this process is another one."""
    runs_on = importlib.import_module("keras").config.backend()
    if runs_on != backend:
        raise CaptureError(
            f"Keras runs on {runs_on} in the process for {backend}: something sets KERAS_BACKEND "
            "in the test's file or a conftest.py; leave it to compare_backends"
        )


def _bare_step(build: Callable[[], Any], data: Any, batch_size: int) -> _Step:
    """
    Return the model's training step on its first batch, in the backend's own words: those of the
    guides "Writing a training loop from scratch" for TensorFlow, JAX and PyTorch (keras.io/guides).
    """
    keras = importlib.import_module("keras")
    if isinstance(data, tuple):
        x, y = ([np.asarray(one)[:batch_size] for one in data])[:2]
    else:
        x, y = keras.tree.map_structure(np.asarray, next(iter(data))[:2])
    model = build()
    model.train_on_batch(x, y)  # makes the weights, and those of the optimizer
    step_of = {"tensorflow": _of_tensorflow, "jax": _of_jax, "torch": _of_torch}
    return step_of[str(keras.config.backend())](model, x, y)


def _of_tensorflow(model: Any, x: Any, y: Any) -> _Step:
    tf: Any = sys.modules["tensorflow"]
    x, y = tf.nest.map_structure(tf.convert_to_tensor, (x, y))

    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x, y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    compiled = tf.function(train, jit_compile=bool(model.jit_compile), reduce_retracing=True)
    return lambda: compiled(x, y)


def _of_jax(model: Any, x: Any, y: Any) -> _Step:
    jax = sys.modules["jax"]
    x, y = jax.tree_util.tree_map(jax.numpy.asarray, (x, y))

    def loss_of(trained: Any, others: Any, x: Any, y: Any) -> Any:
        outputs, others = model.stateless_call(trained, others, x, training=True)
        return model.compute_loss(x, y, outputs), others

    def train(state: Any, x: Any, y: Any) -> Any:
        trained, others, optimizer = state
        (loss, others), gradients = jax.value_and_grad(loss_of, has_aux=True)(trained, others, x, y)
        trained, optimizer = model.optimizer.stateless_apply(optimizer, gradients, trained)
        return loss, (trained, others, optimizer)

    compiled = jax.jit(train) if model.jit_compile else train
    state = [
        [variable.value for variable in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
        )
    ]

    def step() -> Any:
        loss, state[:] = compiled(tuple(state), x, y)
        return loss

    return step


def _of_torch(model: Any, x: Any, y: Any) -> _Step:
    torch, keras = sys.modules["torch"], sys.modules["keras"]
    x, y = keras.tree.map_structure(keras.ops.convert_to_tensor, (x, y))
    trained = model.trainable_weights

    def step() -> Any:
        model.zero_grad()
        loss = model.compute_loss(x, y, model(x, training=True))
        loss.backward()
        with torch.no_grad():
            model.optimizer.apply([weight.value.grad for weight in trained], trained)
        return loss

    return step

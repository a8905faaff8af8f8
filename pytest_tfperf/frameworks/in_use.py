"""The frameworks that may run steps in this process, and what is asked of all of them."""

from __future__ import annotations

import importlib
import os
import statistics
import sys
import time
from collections.abc import Collection, Iterable
from typing import Any

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.installed import is_installed
from pytest_tfperf.frameworks.interface import PYTORCH, Framework
from pytest_tfperf.frameworks.jax_framework import Jax, jax_computes, loaded_jax
from pytest_tfperf.frameworks.tensorflow_framework import TensorFlow
from pytest_tfperf.frameworks.tensorflow_runtime import load_tensorflow
from pytest_tfperf.frameworks.torch_framework import PyTorch, keras_runs_on_torch

__tracebackhide__ = True

_TENSORFLOW, _JAX, _PYTORCH = TensorFlow(), Jax(), PyTorch()
_BACKENDS = ("jax", "torch")  # of Keras, which loads them


def in_use() -> tuple[Framework, ...]:
    """
    Return the frameworks that may run steps now.

    TensorFlow is one if it is loaded, JAX from its first device on, and PyTorch if Keras runs on
    it. If there is none, the one that KERAS_BACKEND names is loaded, or TensorFlow.

    Raises:
        CaptureError: If TensorFlow or JAX is too old, or TensorFlow cannot be imported.
    """
    found = _loaded()
    backend = os.environ.get("KERAS_BACKEND")
    if not found and backend in _BACKENDS and is_installed("keras") and is_installed(backend):
        importlib.import_module("keras")
        found = _loaded()
    if not found and is_installed("tensorflow"):
        load_tensorflow()
        found = (_TENSORFLOW,)
    return found


def loaded() -> tuple[Framework, ...]:
    """Return the frameworks in use that are loaded already; none if one of them is refused."""
    try:
        return _loaded()
    except CaptureError:
        return ()


def _loaded() -> tuple[Framework, ...]:
    """
    Return the frameworks that were loaded and may run steps.

    Raises:
        CaptureError: If TensorFlow or JAX is too old.
    """
    found: list[Framework] = []
    if "tensorflow" in sys.modules:
        load_tensorflow()  # refuses old versions
        found.append(_TENSORFLOW)
    if keras_runs_on_torch():
        found.append(_PYTORCH)
    if jax_computes() or (not found and loaded_jax() is not None):
        _JAX.version()  # refuses old versions
        found.append(_JAX)
    return tuple(found)


def check_any_in_use() -> None:
    """
    Refuse to profile a step where nothing can run it.

    Raises:
        CaptureError: If no framework is in use.
    """
    if in_use():
        return
    if is_installed("jax"):
        raise CaptureError("no framework is loaded: import jax before the step is profiled")
    load_tensorflow()  # tells how to install it


def start_devices() -> None:
    """Start devices, thread pools and compilers, so that no first step includes them."""
    for framework in in_use():
        framework.start_devices()
        if framework.can_compile():
            framework.run_compiled()
    synchronise()


def other_frameworks() -> tuple[str, ...]:
    """Return the names of frameworks that may compute in this process and are not profiled."""
    return (PYTORCH,) if "torch" in sys.modules and not keras_runs_on_torch() else ()


def traced() -> tuple[Framework, ...]:
    """Return the frameworks in use whose profilers write traces."""
    return tuple(framework for framework in in_use() if framework.traces)


def untraced_names() -> tuple[str, ...]:
    """Return the names of the frameworks in use that are timed only."""
    return tuple(framework.name for framework in in_use() if not framework.traces)


def named(names: Collection[str]) -> tuple[Framework, ...]:
    """Return the frameworks of these names; those in use if there is no name."""
    return tuple(one for one in (_TENSORFLOW, _JAX, _PYTORCH) if one.name in names) or in_use()


def synchronise(output: Any = None) -> None:
    """Wait for the devices of all frameworks; raise the error of a step with this output."""
    for framework in in_use():
        framework.synchronise()
    if output is not None and _JAX in in_use():
        _JAX.wait_for(output)


def fetch(output: Any) -> None:
    """Copy a step's output to the host, as an inference server does."""
    for framework in in_use():
        framework.fetch(output)


def sync_cost() -> float:
    """Return the seconds of one synchronisation, the median of five."""
    costs = []
    for _ in range(5):
        start = time.perf_counter()
        synchronise()
        costs.append(time.perf_counter() - start)
    return statistics.median(costs)


def least_block(step_s: float, n_left: int | None = None) -> float:
    """
    Return the least seconds of a timed block of steps: 20 ms, or 50 synchronisations if longer.

    Where calls return before their work has ended, Python prepares a step while the one before it
    runs. The first step of a block begins on idle devices, and takes up to twice as long. So a
    block has ten steps there, unless these take half a second or too few are left for ten blocks.

    Args:
        step_s: Seconds of a step.
        n_left: Steps that are left; None if they do not run out.
    """
    n_steps = 10 if n_left is None else min(10, n_left // 10)
    overlapped_s = min(n_steps * step_s, 0.5) if _runs_behind_python() else 0.0
    return max(0.02, 50 * sync_cost(), overlapped_s)


def _runs_behind_python() -> bool:
    """Return whether calls may return before their work has ended: on accelerators, and in JAX."""
    return has_accelerators() or _JAX in in_use()


def has_accelerators() -> bool:
    """Return whether steps may run on a GPU or TPU."""
    return any(framework.accelerators() for framework in in_use())


def n_gpus() -> int:
    """Return the number of GPUs that the frameworks use in this process."""
    return max((framework.n_gpus() for framework in in_use()), default=0)


def gpu_bytes() -> int | None:
    """Return the bytes that the frameworks hold on GPUs, or None without GPUs."""
    return _sum(framework.gpu_bytes() for framework in in_use())


def tensor_bytes() -> int | None:
    """Return the bytes that allocators of frameworks have given out on the CPU, or None."""
    return _sum(framework.tensor_bytes() for framework in in_use())


def _sum(held: Iterable[int | None]) -> int | None:
    known = [number for number in held if number is not None]
    return sum(known) if known else None


def takes_whole_gpus() -> bool:
    """Return whether this process takes all memory of a GPU, which then no other can use."""
    return any(framework.takes_whole_gpus() for framework in in_use())

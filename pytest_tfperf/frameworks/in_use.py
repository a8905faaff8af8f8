"""The frameworks that may run steps in this process, and what is asked of all of them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.framework import PYTORCH, Framework
from pytest_tfperf.frameworks.jax import Jax, jax_computes, load_jax, loaded_jax
from pytest_tfperf.frameworks.tensorflow import TensorFlow, load_tensorflow, loaded_tensorflow
from pytest_tfperf.frameworks.torch import PyTorch, keras_runs_on_torch
from pytest_tfperf.values import Unknown

__tracebackhide__ = True

_TENSORFLOW, _JAX, _PYTORCH = TensorFlow(), Jax(), PyTorch()
_BACKENDS = ("jax", "torch")  # of Keras, which loads them
_NEITHER = (
    "neither TensorFlow nor JAX is installed, and steps need one: pip install tensorflow "
    "(or tensorflow-cpu, the smaller build without GPU support), or pip install jax"
)


def in_use() -> tuple[Framework, ...]:
    """
    Return the frameworks that may run steps now.

    TensorFlow is one if it is loaded, JAX from its first device on, and PyTorch if Keras runs on
    it. If there is none, the one that KERAS_BACKEND names is loaded, or TensorFlow. Raises
    CaptureError if TensorFlow or JAX is too old.
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
    """Return the frameworks that were loaded and may run steps; CaptureError if one is too old."""
    found: list[Framework] = []
    if "tensorflow" in sys.modules:  # also as None, which refuses the import
        load_tensorflow()  # refuses old versions
        found.append(_TENSORFLOW)
    if keras_runs_on_torch():
        found.append(_PYTORCH)
    if jax_computes() or (not found and loaded_jax() is not None):
        _JAX.version()  # refuses old versions
        found.append(_JAX)
    return tuple(found)


def is_installed(module: str) -> bool:
    """Return whether a module is installed, and more of it than a folder that was left over."""
    spec = importlib.util.find_spec(module)
    return spec is not None and spec.origin is not None


def load_installed() -> tuple[tuple[Framework, ...], dict[str, str]]:
    """
    Import the installed frameworks that write traces, for commands that run steps of their own.

    Those that cannot run steps come with the reason, by name. Raises CaptureError if none can.
    """
    found: list[Framework] = []
    refused: dict[str, str] = {}
    loaders: tuple[tuple[str, Framework, Callable[[], Any]], ...] = (
        ("tensorflow", _TENSORFLOW, load_tensorflow),
        ("jax", _JAX, load_jax),
    )
    for module, framework, load in loaders:
        if not is_installed(module):
            continue
        try:
            load()
        except CaptureError as error:
            refused[framework.name] = str(error)
        else:
            found.append(framework)
    if not found:
        raise CaptureError("; ".join(refused.values()) or _NEITHER)
    return tuple(found), refused


def check_any_in_use() -> None:
    """Raise a CaptureError where nothing can run the step that is to be profiled."""
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
        if output is not None:
            framework.wait_for(output)


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
    block has ten steps there, unless these take half a second or too few are left for ten blocks
    (`n_left`; None if they do not run out).
    """
    n_steps = 10 if n_left is None else min(10, n_left // 10)
    overlapped_s = min(n_steps * step_s, 0.5) if _runs_behind_python() else 0.0
    return max(0.02, 50 * sync_cost(), overlapped_s)


def _runs_behind_python() -> bool:
    """Return whether calls may return before their work has ended: on accelerators, and in JAX."""
    return has_accelerators() or any(framework.runs_behind_python for framework in in_use())


def has_accelerators() -> bool:
    """Return whether steps may run on a GPU or TPU."""
    return any(framework.accelerators() for framework in in_use())


def n_gpus() -> int:
    """Return the number of GPUs that the frameworks use in this process."""
    return max((framework.n_gpus() for framework in in_use()), default=0)


def accelerator_bytes() -> int | Unknown | None:
    """Return the bytes that the frameworks hold on devices that are not CPUs, or None without."""
    held = [framework.accelerator_bytes() for framework in in_use()]
    unknown = next((one for one in held if isinstance(one, Unknown)), None)
    return unknown or _sum(one for one in held if not isinstance(one, Unknown))


def tensor_bytes() -> int | None:
    """Return the bytes that allocators of frameworks have given out on the CPU, or None."""
    return _sum(framework.tensor_bytes() for framework in in_use())


def _sum(held: Iterable[int | None]) -> int | None:
    known = [number for number in held if number is not None]
    return sum(known) if known else None


def why_gpus_are_full() -> str:
    """Return why no other process can use the GPUs of this one, and remedies; else nothing."""
    return "; ".join(filter(None, (framework.why_gpus_are_full() for framework in in_use())))


def leaves(nest: Any) -> list[Any]:
    """Return the leaves of a nest, in the order of the first framework that is loaded."""
    if (tf := loaded_tensorflow()) is not None:
        return list(tf.nest.flatten(nest))
    if "jax" in sys.modules:
        return list(sys.modules["jax"].tree_util.tree_leaves(nest))
    return list(sys.modules["keras"].tree.flatten(nest))  # under PyTorch


def mapped(function: Callable[[Any], Any], nest: Any) -> Any:
    """Return a nest with a function's results as leaves, by the first framework that is loaded."""
    if (tf := loaded_tensorflow()) is not None:
        return tf.nest.map_structure(function, nest)
    if "jax" in sys.modules:
        return sys.modules["jax"].tree_util.tree_map(function, nest)
    return sys.modules["keras"].tree.map_structure(function, nest)


class UnfinishedCalls:
    """
    The calls of a step that run behind Python, which are waited for where too many would abort.

    With `fetches` each call is waited for, and its output fetched.
    """

    def __init__(self, fetches: bool = False) -> None:
        self._fetches = fetches
        self._left: int | None = 1  # calls before the next wait; a framework may start in the first

    def ended(self, output: Any = None) -> None:
        """Wait after a call if that is due."""
        if self._fetches:
            for framework in in_use():
                framework.fetch(output)
            return
        if self._left is None:
            return
        self._left -= 1
        if not self._left:
            synchronise()
            bounds = [framework.most_unfinished() for framework in in_use()]
            self._left = min((bound for bound in bounds if bound is not None), default=None)

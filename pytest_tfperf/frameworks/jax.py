"""JAX: import, devices, profiler and marks."""

from __future__ import annotations

import functools
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.framework import JAX, Annotation, Framework, at_least
from pytest_tfperf.values import WAITS, Unknown

__tracebackhide__ = True

T = TypeVar("T")

OLDEST = (0, 6, 1)
"""The oldest JAX whose profiler takes options (`jax.profiler.ProfileOptions`)."""
_UNFINISHED = 8
"""
Calls of a step at most, each of several programs.

A device of XLA on CPUs takes 32 programs at once. Then one of a collective may lack a thread, and
the others wait for it until XLA ends the process: measured with JAX 0.10.2, 2 and 8 devices.
"""
_DEFAULT_POLICY = "float32"
_AS_PLATFORM = ", as with XLA_PYTHON_CLIENT_ALLOCATOR=platform"
_FULL = "JAX gives this process most memory of the GPU: set XLA_PYTHON_CLIENT_PREALLOCATE=false"
_WITHOUT_PREALLOCATION = ("0", "false")


def loaded_jax() -> Any | None:
    """Return the module `jax` if something has imported it; nothing here imports it first."""
    jax = sys.modules.get("jax")
    return jax if hasattr(jax, "jit") else None  # a failed import leaves a part of it


def load_jax() -> Any:
    """Import the module `jax`, which only commands with steps of their own do."""
    try:
        import jax  # noqa: F401
    except ImportError as error:
        raise CaptureError(f"JAX cannot be imported ({error}): pip install jax") from error
    return _jax()


def jax_computes() -> bool:
    """
    Return whether JAX has a device in this process.

    `import tensorflow` loads JAX wherever it is installed (tensorflow/lite/python/util.py), so the
    module alone tells nothing.
    """
    # private: the clients by platform, empty until JAX first computes (JAX 0.4 to 0.11)
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bool(getattr(bridge, "_backends", True))


def why_refused(version: str) -> str | None:
    """Return why a version of JAX is refused, or None; an unknown one is not refused."""
    if at_least(version, OLDEST):
        return None
    return (
        f"pytest-tfperf needs JAX {'.'.join(map(str, OLDEST))} or newer, and this is {version}, "
        "which lacks options of the profiler: pip install --upgrade jax"
    )


class _WithoutJson:
    """
    A session of JAX's profiler that keeps its trace where JAX would export it.

    JAX writes a trace as JSON too, which nothing here reads. That takes more than twice the time of
    all else (JAX 0.10.2, 100 to 10,000 calls).
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._folder: Path | None = None
        self._trace = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def stop_and_export(self, folder: str) -> None:
        """Stop the profiler, and keep its trace."""
        self._trace, self._folder = self._session.stop(), Path(folder)

    def write(self) -> None:
        """Write the trace, unless JAX has written it in another way."""
        if self._folder is not None:
            run = self._folder / "plugins" / "profile" / "run"
            run.mkdir(parents=True)
            (run / f"{platform.node()}.xplane.pb").write_bytes(self._trace)


class Jax(Framework):
    """JAX in this process."""

    name, traces, runs_behind_python = JAX, True, True

    def version(self) -> str:
        """Return its version."""
        return str(_jax().__version__)

    def can_compile(self) -> bool:
        """Return True: nothing changes how JAX compiles."""
        return True

    def run_compiled(self) -> None:
        """Compile a new small function and run it."""
        _apart(lambda: _jax().jit(lambda number: number + 1)(np.float32(1)).block_until_ready())

    def synchronise(self) -> None:
        """
        Wait for all devices of this process, also those that JAX does not choose by itself.

        A device runs programs in the order of their calls, so the end of a last small one is the
        end of all. CPU devices wait for programs of several devices in one of all of them alone.
        """
        with _jax().disable_jit(False):  # the one switch that compiled programs obey
            for running in [program(number) for program, number in _last_programs(_clients())]:
                running.block_until_ready()

    def wait_for(self, output: Any) -> None:
        """Raise the error of the program that made an output; on a GPU its arrays alone hold it."""
        for array in _own_arrays(output):
            array.block_until_ready()

    def most_unfinished(self) -> int | None:
        """Return a bound where programs of several CPU devices run, which JAX aborts beyond 32."""
        devices = _local_devices()
        return _UNFINISHED if len(devices) > 1 and devices[0].platform == "cpu" else None

    def fetch(self, output: Any) -> None:
        """Copy the arrays of an output to the host, and wait for the devices."""
        with _jax().transfer_guard_device_to_host("allow"):
            for array in _own_arrays(output):
                # a key of jax.random has no form on the host
                if isinstance(array.dtype, np.dtype):
                    np.asarray(array)
        self.synchronise()

    def start_trace(self, folder: Path) -> None:
        """Start the profiler, without events of Python."""
        _local_devices()  # which JAX's profiler starts, and does not say why they cannot
        profiler = _jax().profiler
        options = profiler.ProfileOptions()
        options.python_tracer_level = 0
        profiler.start_trace(str(folder), profiler_options=options)
        state = _profile_state()
        if hasattr(getattr(state, "profile_session", None), "stop"):
            state.profile_session = _WithoutJson(state.profile_session)

    def stop_trace(self) -> None:
        """Stop the profiler, and write its trace."""
        session = getattr(_profile_state(), "profile_session", None)
        _jax().profiler.stop_trace()
        if isinstance(session, _WithoutJson):
            session.write()

    def discard_trace(self) -> None:
        """Stop the profiler if it runs."""
        with suppress(RuntimeError):  # no session was running
            _jax().profiler.stop_trace()

    def is_tracing(self) -> bool:
        """Return whether a session of `jax.profiler` runs."""
        return getattr(_profile_state(), "profile_session", None) is not None

    def annotation(self, name: str, metadata: Mapping[str, Any]) -> Annotation:
        """Return an event of `jax.profiler.TraceAnnotation`."""
        event: Annotation = _jax().profiler.TraceAnnotation(name, **metadata)
        return event

    def n_gpus(self) -> int:
        """Return the number of GPUs."""
        return len(_gpus())

    def accelerator_bytes(self) -> int | Unknown | None:
        """Return the bytes in use on GPUs and TPUs; some allocators keep no statistics."""
        others = [device for device in _local_devices() if device.platform != "cpu"]
        held: list[Any] = [(_stats(device) or {}).get("bytes_in_use") for device in others]
        if None in held:
            kind = others[held.index(None)].device_kind
            return Unknown(f"JAX does not tell the memory that it holds on {kind}{_AS_PLATFORM}")
        return sum(map(int, held)) if held else None

    def why_gpus_are_full(self) -> str:
        """Return the remedy, if this process takes most memory of a GPU when it starts."""
        preallocates = os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE", "").lower()
        allocator = os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR", "").lower()
        takes_most = preallocates not in _WITHOUT_PREALLOCATION and allocator != "platform"
        return _FULL if takes_most and _gpus() else ""

    def accelerators(self) -> list[str]:
        """Return the kinds of devices that are not CPUs; it is empty if JAX cannot start them."""
        with suppress(CaptureError):
            return [str(one.device_kind) for one in _local_devices() if one.platform != "cpu"]
        return []

    def precision(self) -> str:
        """
        Return the dtype policy of Keras on JAX, and the settings of JAX, if not the defaults.

        So it is the same whether another test of the process has loaded Keras or not.
        """
        config, keras = _jax().config, getattr(sys.modules.get("keras"), "config", None)
        policy = ""
        if keras is not None and keras.backend() == "jax":
            policy = str(keras.dtype_policy().name)
        policy = "" if policy == _DEFAULT_POLICY else policy
        wide = "x64" if config.jax_enable_x64 else ""
        return " ".join(filter(None, (policy, wide, config.jax_default_matmul_precision or "")))


def _jax() -> Any:
    """Return the module `jax`; CaptureError if it is not whole, or too old."""
    jax = loaded_jax()
    if jax is None:
        raise CaptureError("JAX is not loaded; import it in the test: pip install jax")
    if why := why_refused(str(jax.__version__)):
        raise CaptureError(why)
    return jax


def runs_in_several_processes() -> bool:
    """Return whether this process is one of several that run programs of JAX together."""
    return jax_computes() and int(_jax().process_count()) > 1


def _own_arrays(output: Any) -> list[Any]:
    """Return the arrays in an output that this process holds whole, and that are not donated."""
    jax = _jax()
    try:
        leaves = jax.tree_util.tree_leaves(output)
    except (TypeError, ValueError):  # a dict whose keys have no order
        return []
    return [
        leaf
        for leaf in leaves
        if isinstance(leaf, jax.Array) and leaf.is_fully_addressable and not leaf.is_deleted()
    ]


def _gpus() -> list[Any]:
    return [device for device in _local_devices() if device.platform in ("gpu", "cuda", "rocm")]


def _stats(device: Any) -> Mapping[str, int] | None:
    """Return the statistics of a device's allocator, None without; some raise UNIMPLEMENTED."""
    with suppress(RuntimeError, NotImplementedError):
        return device.memory_stats()  # type: ignore[no-any-return]
    return None


def _profile_state() -> Any:
    """Return where JAX keeps the only profiler session of the process, None if it is not there."""
    # private (JAX 0.4 to 0.11)
    return getattr(sys.modules.get("jax._src.profiler"), "_profile_state", None)


def function_type() -> type:
    """Return the type of the functions that `jax.jit` and JAX itself compile."""
    return type(_jax().jit(len))


def _apart(run: Callable[[], T]) -> T:
    """
    Call a function where no switch of the user's reaches: `jax.disable_jit`, a guard, a mesh.

    Those of a context hold in its thread alone. Those of the process that matter are set here.
    """

    def unguarded() -> T:
        with _jax().disable_jit(False), _jax().transfer_guard("allow"), _nothing_cached():
            return run()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(unguarded).result()


def _nothing_cached() -> AbstractContextManager[Any]:
    """
    Return a context in which no program enters the user's persistent compilation cache.

    The next process would load it, and its check of the profiler would see no compilation.
    """
    # private: the public name sets it for all threads (JAX 0.4 to 0.11)
    config = sys.modules.get("jax._src.config")
    at_least = getattr(config, "persistent_cache_min_compile_time_secs", None)
    return nullcontext() if at_least is None else at_least(float("inf"))


def _clients() -> tuple[Any, ...]:
    """Return the clients of JAX, one for each platform, which starts them."""
    devices, bridge = _local_devices(), sys.modules.get("jax._src.xla_bridge")
    # private, as in `jax_computes`
    found = getattr(bridge, "_backends", None)
    return tuple(found.values()) if found else (devices[0].client,)


@functools.lru_cache(1)  # jax.extend.backend.clear_backends() lets JAX start other clients
def _last_programs(clients: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """Return programs with their arguments: one for each device, and one for all CPU devices."""
    devices = [client.local_devices() for client in clients]
    return _apart(lambda: [program for each in devices if each for program in _made_for(each)])


def _made_for(devices: Sequence[Any]) -> list[tuple[Any, Any]]:
    jax = _jax()

    def wait(numbers: Any) -> Any:
        return numbers + 1  # a sum of one process' devices would hang beside other processes

    wait.__name__ = wait.__qualname__ = WAITS

    numbers = [jax.device_put(np.int32(0), device) for device in devices]
    if len(devices) > 1 and devices[0].platform == "cpu":
        mesh = jax.sharding.Mesh(np.array(devices), ("all",))
        parts = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("all"))
        numbers.append(jax.device_put(np.zeros(len(devices), np.int32), parts))
    return [(jax.jit(wait).lower(number).compile(), number) for number in numbers]


def _local_devices() -> list[Any]:
    """Return the devices of this process, which starts them; CaptureError if they cannot start."""
    try:
        return list(_jax().local_devices())
    except (RuntimeError, AssertionError) as error:  # the latter, without a text, after the first
        _failures.append(str(error).partition("\n")[0])
        platforms = os.environ.get("JAX_PLATFORMS")
        why = next(filter(None, _failures), f"JAX_PLATFORMS={platforms} names none that is here")
        raise CaptureError(f"JAX cannot start its devices: {why}") from None


_failures: list[str] = []
"""What JAX said each time its devices could not start."""

"""
What disturbs NVIDIA GPUs, by NVML: reasons that hold their clocks down, and other processes.

They need `pynvml` (nvidia-ml-py), which is optional. Missing answers are unknown.
"""

from __future__ import annotations

import functools
import importlib
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.frameworks.in_use import n_gpus

_CLOCK_SM = 1  # nvml.h: NVML_CLOCK_SM
# nvml.h: nvmlClocksEventReason* (nvmlClocksThrottleReason* before driver 535). An idle GPU, and
# clocks set by a user, are not among them.
_REASONS: Mapping[int, str] = {
    0x04: "its power limit (SW power cap)",
    0x08: "the hardware (HW slowdown)",
    0x20: "heat (SW thermal slowdown)",
    0x40: "heat (HW thermal slowdown)",
    0x80: "its power supply (HW power brake)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Readings of one GPU; None is unknown."""

    label: str
    """Index or UUID, and model."""
    clock_mhz: int | None
    """Clock of its multiprocessors."""
    reasons: int | None
    """Bits of the reasons that hold its clock down (nvml.h, nvmlClocksEventReason*)."""
    others: int | None
    """Number of other processes with a context on it."""


def read_gpus() -> tuple[Gpu, ...]:
    """Read the NVIDIA GPUs that steps may run on; the result is empty if they are unknown."""
    nvml = _nvml() if n_gpus() else None
    if nvml is None:
        return ()
    handles = _answer(lambda: _handles(nvml, os.environ.get("CUDA_VISIBLE_DEVICES"))) or {}
    return tuple(_read(nvml, name, handle) for name, handle in handles.items())


def gpu_remarks(before: tuple[Gpu, ...], after: tuple[Gpu, ...]) -> tuple[str, ...]:
    """Return remarks on interference with GPUs between two readings, with figures and advice."""
    earlier = {gpu.label: gpu for gpu in before}
    pairs = [(earlier[gpu.label], gpu) for gpu in after if gpu.label in earlier]
    found = [remark(*pair) for pair in pairs for remark in (_held_down, _shared)]
    return tuple(remark for remark in found if remark)


@functools.cache
def _nvml() -> Any:
    """Return the module `pynvml` with NVML running, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # another package of that name emits a warning
        try:
            nvml: Any = importlib.import_module("pynvml")
            nvml.nvmlInit()
        except Exception:  # no package, no driver, another package of that name
            return None
    return nvml


def _handles(nvml: Any, visible: str | None) -> dict[str, Any]:
    """
    Return the handle of every visible GPU by its name.

    CUDA_VISIBLE_DEVICES holds indices or UUIDs, and ends at the first entry that is neither (CUDA
    C++ Programming Guide). An index is NVML's if CUDA_DEVICE_ORDER is PCI_BUS_ID, or all GPUs are
    alike.
    """
    if visible is None:
        return {
            f"GPU {index}": nvml.nvmlDeviceGetHandleByIndex(index)
            for index in range(nvml.nvmlDeviceGetCount())
        }
    handles = {}
    for name in visible.replace(" ", "").split(","):
        if name.isdigit():
            handles[f"GPU {name}"] = nvml.nvmlDeviceGetHandleByIndex(int(name))
        elif name.startswith("GPU-"):
            handles[name] = nvml.nvmlDeviceGetHandleByUUID(name)
        else:
            break
    return handles


def _read(nvml: Any, name: str, handle: Any) -> Gpu:
    model = _answer(lambda: nvml.nvmlDeviceGetName(handle))
    text = model.decode() if isinstance(model, bytes) else model
    reasons = _answer(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    if reasons is None:  # an older driver or package
        reasons = _answer(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    return Gpu(
        label=f"{name} ({text})" if text else name,
        clock_mhz=_answer(lambda: nvml.nvmlDeviceGetClockInfo(handle, _CLOCK_SM)),
        reasons=reasons,
        others=_answer(
            lambda: _others(
                [process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
            )
        ),
    )


def _others(pids: list[int]) -> int:
    """
    Return the number of other processes with a context.

    In a container NVML may give ids of the host; one of them is this process.
    """
    return len(set(pids) - {os.getpid()}) if os.getpid() in pids else max(len(set(pids)) - 1, 0)


def _held_down(before: Gpu, after: Gpu) -> str | None:
    bits = (before.reasons or 0) | (after.reasons or 0)
    reasons = [reason for bit, reason in _REASONS.items() if bits & bit]
    if not reasons:
        return None
    clock = f", at {after.clock_mhz} MHz," if after.clock_mhz else ""
    return (
        f"{after.label}{clock} was held down by {' and '.join(reasons)}: cool it, or lock its "
        "clocks where it can keep them"
    )


def _shared(before: Gpu, after: Gpu) -> str | None:
    n_others = max(before.others or 0, after.others or 0)
    if not n_others:
        return None
    others = "another process has" if n_others == 1 else f"{n_others} other processes have"
    return (
        f"{others} a context on {after.label}: step_time is longer while they compute; give the "
        "test a GPU of its own"
    )


def _answer(ask: Callable[[], Any]) -> Any:
    """Return NVML's answer, or None if it fails."""
    try:
        return ask()
    except Exception:  # NVMLError is a class of the optional package; older packages lack functions
        return None

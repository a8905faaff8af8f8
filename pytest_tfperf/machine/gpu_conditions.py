"""
Clocks of NVIDIA GPUs, what holds them down, and who else uses them: from NVML, where `pynvml` (nvidia-ml-py) is installed.

Nothing depends on it: where it is missing, or an answer is, that is unknown and nothing is said.
"""

from __future__ import annotations

import functools
import importlib
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.tf_runtime import load_tensorflow

_CLOCK_SM = 1  # nvml.h: NVML_CLOCK_SM
_LOCK = "lock its clocks (nvidia-smi --lock-gpu-clocks=MHZ)"
_CLOCK_MATTERS = 0.05  # steps of a boost clock are about 1 %
# nvml.h: nvmlClocksEventReason* (before driver 535 nvmlClocksThrottleReason*). An idle GPU, and clocks that somebody has set, are none.
_REASONS: Mapping[int, str] = {
    0x04: "its power limit (SW power cap)",
    0x08: "the hardware (HW slowdown)",
    0x20: "heat (SW thermal slowdown)",
    0x40: "heat (HW thermal slowdown)",
    0x80: "its power supply (HW power brake)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Readings of one GPU: its `label`, the clock of its multiprocessors, the bits of what holds it down, and other processes on it."""

    label: str
    clock_mhz: int | None
    reasons: int | None
    others: int | None


def read_gpus() -> tuple[Gpu, ...]:
    """The NVIDIA GPUs that TensorFlow may use, as they are now; none where that cannot be known."""
    nvml = _nvml() if load_tensorflow().config.list_physical_devices("GPU") else None
    if nvml is None:
        return ()
    handles = _answer(lambda: _handles(nvml, os.environ.get("CUDA_VISIBLE_DEVICES"))) or {}
    return tuple(_read(nvml, name, handle) for name, handle in handles.items())


def gpu_remarks(before: tuple[Gpu, ...], after: tuple[Gpu, ...]) -> tuple[str, ...]:
    """What is worth to know of the time between two readings, each with its figures and what to do."""
    earlier = {gpu.label: gpu for gpu in before}
    pairs = [(earlier[gpu.label], gpu) for gpu in after if gpu.label in earlier]
    found = [remark(*pair) for pair in pairs for remark in (_clock, _held_down, _shared)]
    return tuple(remark for remark in found if remark)


def clock_remark(
    what: str, before_mhz: float | None, after_mhz: float | None, matters: float, fix: str
) -> str | None:
    """What is worth to know of a clock that was read twice: that it changed by a share that `matters`, and how to `fix` it."""
    if not before_mhz or not after_mhz or abs(after_mhz / before_mhz - 1) < matters:
        return None
    return (
        f"{what} ran at {before_mhz:.0f} MHz when the timed window began and at {after_mhz:.0f} MHz when it ended: "
        f"{fix}, or give it more warm-up (warmup=)"
    )


def _clock(before: Gpu, after: Gpu) -> str | None:
    return clock_remark(after.label, before.clock_mhz, after.clock_mhz, _CLOCK_MATTERS, _LOCK)


def _held_down(before: Gpu, after: Gpu) -> str | None:
    bits = (before.reasons or 0) | (after.reasons or 0)
    reasons = [reason for bit, reason in _REASONS.items() if bits & bit]
    if not reasons:
        return None
    clock = f", at {after.clock_mhz} MHz," if after.clock_mhz else ""
    return f"{after.label}{clock} was held down by {' and '.join(reasons)}: cool it, or lock its clocks where it can keep them"


def _shared(before: Gpu, after: Gpu) -> str | None:
    others = max(before.others or 0, after.others or 0)
    if not others:
        return None
    who = "another process has" if others == 1 else f"{others} other processes have"
    return f"{who} a context on {after.label}: step_time is longer while they compute; give the test a GPU of its own"


@functools.cache
def _nvml() -> Any:
    """The module `pynvml` with NVML running, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # another package of that name warns that it is not this one
        try:
            nvml: Any = importlib.import_module("pynvml")
            nvml.nvmlInit()
        except Exception:  # no package, no driver, another package of that name
            return None
    return nvml


def _handles(nvml: Any, visible: str | None) -> dict[str, Any]:
    """
    The handle of every visible GPU by its name.

    CUDA_VISIBLE_DEVICES holds indices or UUIDs and ends at the first that is neither (CUDA C++ Programming Guide). An index is
    one of NVML's where CUDA_DEVICE_ORDER is PCI_BUS_ID, or all GPUs are alike.
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
    """How many other processes have a context; in a container NVML may tell the host's ids, and one of them is this one."""
    return len(set(pids) - {os.getpid()}) if os.getpid() in pids else max(len(set(pids)) - 1, 0)


def _answer(ask: Callable[[], Any]) -> Any:
    """What NVML answers, or None for whatever keeps it from answering."""
    try:
        return ask()
    except Exception:  # NVMLError is a class of the optional package; older packages lack functions
        return None

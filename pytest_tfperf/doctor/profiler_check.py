"""Check from the traces of two short sessions that a framework's profiler works here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_tfperf.errors import TraceError
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.frameworks.framework import JAX, TENSORFLOW
from pytest_tfperf.metrics.validity import faults
from pytest_tfperf.text import plural
from pytest_tfperf.trace.devices import accelerators
from pytest_tfperf.trace.xspace import Trace

_PERMISSION = (
    "let users profile: 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' in /etc/modprobe.d "
    "and a reboot; a container needs --cap-add=SYS_ADMIN"
)  # developer.nvidia.com, ERR_NVGPUCTRPERM
_NO_PLANE = (
    "{}'s messages on stderr say why it traces no device; on an NVIDIA GPU it needs libcupti "
    f"(pip install '{{}}') and the permission to use it: {_PERMISSION}"
)
_WITH_CUDA = {TENSORFLOW: "tensorflow[and-cuda]", JAX: "jax[cuda12]"}
_UNMARKED = "profiles would miss steps: is this {}, and is the disk of the temporary folder full?"
_VERSIONS = {TENSORFLOW: "a TensorFlow from 2.18 to 2.22", JAX: "a JAX from 0.6.1 to 0.10"}
_INCOMPLETE = (
    "metrics of incomplete traces are unknown; fewer traced steps (trace_steps=) drop fewer events"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCheck:
    """The result of one check of the profiler."""

    framework: str
    """Name of the framework whose profiler was checked."""
    name: str
    """What must work."""
    passed: bool
    """True if it works."""
    found: str
    """What was found."""
    advice: str = ""
    """What to do if it does not work."""


def check_traces(
    framework: str,
    traces: Sequence[Trace],
    n_steps: int,
    n_devices: int,
    admin_only: bool | None,
) -> tuple[SelfCheck, ...]:
    """
    Return the checks of sessions over marked steps.

    Args:
        framework: Name of the framework that ran them.
        traces: The trace of each session.
        n_steps: Marked steps of each session.
        n_devices: Number of accelerators that it has.
        admin_only: True if NVIDIA's driver lets only administrators use its counters; None without
            that driver.
    """
    n_planes = len(accelerators(traces[-1]))
    found = [
        _markers(framework, traces, n_steps),
        _planes(framework, n_planes, n_devices),
        _whole(framework, traces),
    ]
    if admin_only is not None and n_devices:
        found.insert(2, _permission(framework, traces, n_planes, admin_only))
    return tuple(found)


def reads_admin_only(parameters: str) -> bool | None:
    """
    Return whether only administrators may use the counters of GPUs; None if it is not stated.

    Source: `RmProfilingAdminOnly: 1` in /proc/driver/nvidia/params, which is the driver's parameter
    NVreg_RestrictProfilingToAdminUsers.
    """
    values = dict(
        line.replace(" ", "").split(":", 1) for line in parameters.splitlines() if ":" in line
    )
    return {"0": False, "1": True}.get(values.get("RmProfilingAdminOnly", ""))


def _markers(framework: str, traces: Sequence[Trace], n_steps: int) -> SelfCheck:
    counts = [_n_steps(trace) for trace in traces]
    found = (
        f"{n_steps} steps marked in each of {len(traces)} sessions, "
        f"{' and '.join(map(str, counts))} found"
    )
    passed = all(count == n_steps for count in counts)
    return SelfCheck(
        framework=framework,
        name="markers",
        passed=passed,
        found=found,
        advice="" if passed else _UNMARKED.format(_VERSIONS[framework]),
    )


def _n_steps(trace: Trace) -> int:
    try:
        steps = find_steps(trace)
    except TraceError:
        return 0
    return len(steps) if steps.source == "tfperf" else 0


def _planes(framework: str, n_planes: int, n_devices: int) -> SelfCheck:
    if not n_devices:
        return SelfCheck(
            framework=framework,
            name="device plane",
            passed=True,
            found="no accelerator: CPU only",
        )
    found = (
        f"{n_planes or 'none'} in the trace; "
        f"{framework} has {plural(n_devices, 'accelerator')}, the steps ran on one"
    )
    return SelfCheck(
        framework=framework,
        name="device plane",
        passed=n_planes > 0,
        found=found,
        advice="" if n_planes else _NO_PLANE.format(framework, _WITH_CUDA[framework]),
    )


def _permission(
    framework: str, traces: Sequence[Trace], n_planes: int, admin_only: bool
) -> SelfCheck:
    """
    Check the permission by the trace.

    Some systems allow tracing of kernels where they refuse counters (CUPTI since CUDA 10.2).
    """
    refused = any("PRIVILEGES" in error.upper() for trace in traces for error in trace.errors)
    passed = not refused and (n_planes > 0 or not admin_only)
    who = "administrators only (RmProfilingAdminOnly 1)" if admin_only else "every user"
    what = "kernels are traced" if n_planes and not refused else "no kernel is traced"
    return SelfCheck(
        framework=framework,
        name="CUPTI permission",
        passed=passed,
        found=f"{who}; {what}",
        advice="" if passed else _PERMISSION,
    )


def _whole(framework: str, traces: Sequence[Trace]) -> SelfCheck:
    found = list(dict.fromkeys(fault for trace in traces for fault in faults(trace)))
    return SelfCheck(
        framework=framework,
        name="whole traces",
        passed=not found,
        found="; ".join(found) or "no error, no event dropped",
        advice=_INCOMPLETE if found else "",
    )

"""Remarks on interference with the timed window, from readings before and after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pytest_tfperf.machine.conditions import Conditions, read_conditions
from pytest_tfperf.machine.gpu_conditions import Gpu

_MATTERS = 0.05  # share of the cores; a step that keeps all of them busy takes as much longer
_TICKS_S = 0.1  # ten ticks of /proc/stat, whose times come in hundredths of a second
_CLOCK_MATTERS = 0.10  # single readings of a busy core differ by some percent
_GPU_CLOCK_MATTERS = 0.05  # steps of a boost clock are about 1 %
_LOAD = 1.5  # waiting or running threads per core: TensorFlow itself keeps one per core busy
_QUIET = (
    "step_time is longer for it; stop what else runs there, children of the test too, or compare "
    "with --tfperf-against"
)
_FIX_CLOCK = "fix the frequency (cpupower frequency-set --governor performance, turbo off)"
_LOCK_CLOCK = "lock its clocks (nvidia-smi --lock-gpu-clocks=MHZ)"
# nvml.h: nvmlClocksEventReason* (nvmlClocksThrottleReason* before driver 535). An idle GPU, and
# clocks set by a user, are not among them.
_REASONS: Mapping[int, str] = {
    0x04: "its power limit (SW power cap)",
    0x08: "the hardware (HW slowdown)",
    0x20: "heat (SW thermal slowdown)",
    0x40: "heat (HW thermal slowdown)",
    0x80: "its power supply (HW power brake)",
}


@contextmanager
def conditions_noted(notes: list[str]) -> Iterator[None]:
    """Replace the contents of `notes` by remarks on interference within the context."""
    before = read_conditions()
    try:
        yield
    finally:
        notes[:] = remarks(before, read_conditions())


def remarks(before: Conditions, after: Conditions) -> tuple[str, ...]:
    """Return remarks on interference between two readings, with figures and advice."""
    found = (
        _loaded(before, after),
        _stolen(before, after),
        _clock(before, after),
        _heat(before, after),
        _stopped(before, after),
    )
    return tuple(remark for remark in found if remark) + gpu_remarks(before.gpus, after.gpus)


def other_load(before: Conditions, after: Conditions) -> float | None:
    """
    Return the share of the cores that other processes used between two readings.

    It is None if it is unknown, or too small to matter.
    """
    if before.busy_s is None or after.busy_s is None:
        return None
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    share = others / _available(before, after)
    return None if others < _TICKS_S or share < _MATTERS else min(share, 1.0)


def gpu_remarks(before: tuple[Gpu, ...], after: tuple[Gpu, ...]) -> tuple[str, ...]:
    """Return remarks on interference with GPUs between two readings, with figures and advice."""
    earlier = {gpu.label: gpu for gpu in before}
    pairs = [(earlier[gpu.label], gpu) for gpu in after if gpu.label in earlier]
    found = [remark(*pair) for pair in pairs for remark in (_gpu_clock, _held_down, _shared)]
    return tuple(remark for remark in found if remark)


def _loaded(before: Conditions, after: Conditions) -> str | None:
    if after.load is not None and after.load > _LOAD * after.cores:
        return (
            f"the load average was {after.load:.1f} on {after.cores} cores in the timed window: "
            f"{_QUIET}"
        )
    share = other_load(before, after)
    if share is None:
        return None
    return (
        f"other processes used {share:.0%} of the {_cores(after)} in the timed window"
        f"{_interrupted(before, after)}: {_QUIET}"
    )


def _interrupted(before: Conditions, after: Conditions) -> str:
    if before.interruptions is None or after.interruptions is None:
        return ""
    n_switches = after.interruptions - before.interruptions
    return f" ({n_switches} involuntary context switches of this one)"


def _stolen(before: Conditions, after: Conditions) -> str | None:
    if before.stolen_s is None or after.stolen_s is None:
        return None
    stolen = after.stolen_s - before.stolen_s
    share = stolen / _available(before, after)
    if stolen < _TICKS_S or share < _MATTERS:
        return None
    return (
        f"the hypervisor gave {min(share, 1):.0%} of the {_cores(after)} to other machines in the "
        "timed window: times of this machine are comparable in pairs only (--tfperf-against)"
    )


def _clock(before: Conditions, after: Conditions) -> str | None:
    clocks_mhz = before.clock_mhz, after.clock_mhz
    return _clock_remark("the fastest core", clocks_mhz, _CLOCK_MATTERS, _FIX_CLOCK)


def _heat(before: Conditions, after: Conditions) -> str | None:
    if before.hot is None or after.hot is None or after.hot <= before.hot:
        return None
    return (
        f"cores were slowed for heat {after.hot - before.hot} times in the timed window: let the "
        "machine cool, or lower its frequency"
    )


def _stopped(before: Conditions, after: Conditions) -> str | None:
    if before.quota is None or after.quota is None or after.quota[1] <= before.quota[1]:
        return None
    periods, stopped = after.quota[0] - before.quota[0], after.quota[1] - before.quota[1]
    return (
        f"the CPU quota of its container stopped this process in {stopped} of {periods} periods of "
        "the timed window: raise the quota (cpu.max, limits.cpu), or use no more threads "
        "than it allows"
    )


def _available(before: Conditions, after: Conditions) -> float:
    """Return the CPU seconds that all cores had."""
    return max((after.at_s - before.at_s) * after.cores, 1e-9)


def _cores(conditions: Conditions) -> str:
    return f"{conditions.cores} cores" if conditions.cores > 1 else "core"


def _gpu_clock(before: Gpu, after: Gpu) -> str | None:
    clocks_mhz = before.clock_mhz, after.clock_mhz
    return _clock_remark(after.label, clocks_mhz, _GPU_CLOCK_MATTERS, _LOCK_CLOCK)


def _clock_remark(
    name: str, clocks_mhz: tuple[float | None, float | None], matters: float, fix: str
) -> str | None:
    """
    Return a remark if a clock changed by a share that matters.

    Args:
        name: Name of the core or GPU.
        clocks_mhz: Clock before and after the timed window.
        matters: Smallest relevant change, as a share.
        fix: Advice.
    """
    before, after = clocks_mhz
    if not before or not after or abs(after / before - 1) < matters:
        return None
    return (
        f"{name} ran at {before:.0f} MHz when the timed window began and at {after:.0f} MHz when "
        f"it ended: {fix}, or give it more warm-up (warmup=)"
    )


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

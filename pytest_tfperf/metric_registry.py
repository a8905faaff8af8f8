"""Registry of metrics: marker names, report rows, help and docs are generated from `METRICS`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from pytest_tfperf.quantities import BYTES, COUNT, FLOP, RATE, RATIO, SECONDS, SHARE, Unit
from pytest_tfperf.text import and_more

__tracebackhide__ = True

PROGRAM: Final = "program"
PLATFORM: Final = "platform"
MACHINE: Final = "machine"
LOWER: Final = "lower"
HIGHER: Final = "higher"
_MOST_NAMES = 20


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the registry."""

    name: str
    unit: Unit
    """Unit of its values."""
    better: Literal["lower", "higher"] | None
    """`lower`, `higher`, or None if neither is."""
    scope: Literal["program", "platform", "machine"]
    """
    Where a value is the same.

    `program` is every machine, `platform` a device kind and a minor version of the framework,
    `machine` one class of machines.
    """
    meaning: str
    """Short description, for people."""

    @property
    def shown_unit(self) -> str:
        """Unit as people read it: a rate says what it counts, as in `examples/s`."""
        return shown_unit(self.name, self.unit)


_ROWS = (
    Metric(
        "step_time",
        SECONDS,
        LOWER,
        MACHINE,
        "time of a step: median over blocks of block time ÷ steps",
    ),
    Metric(
        "step_cpu_time",
        SECONDS,
        LOWER,
        MACHINE,
        "processor time of a step, of all threads and child processes: median over blocks",
    ),
    Metric(
        "other_load",
        SHARE,
        LOWER,
        MACHINE,
        "share of the CPU cores that other processes, other virtual machines or a CPU quota took "
        "while steps were timed",
    ),
    Metric("step_time_p90", SECONDS, LOWER, MACHINE, "90th percentile of the single steps"),
    Metric("step_time_p99", SECONDS, LOWER, MACHINE, "99th percentile of 300 single steps or more"),
    Metric(
        "first_step_time",
        SECONDS,
        LOWER,
        MACHINE,
        "time of the first step, which traces and compiles",
    ),
    Metric(
        "throughput",
        RATE,
        HIGHER,
        MACHINE,
        "examples per second, gaps between epochs included",
    ),
    Metric(
        "epoch_gap",
        SECONDS,
        LOWER,
        MACHINE,
        "time from the last step of an epoch to the first of the next",
    ),
    Metric(
        "input_bound",
        SHARE,
        LOWER,
        MACHINE,
        "share of the step period that waits for input while no device is busy (on CPUs: no op of "
        "the model runs)",
    ),
    Metric("input_wait", SECONDS, LOWER, MACHINE, "time a step waits for input, on average"),
    Metric(
        "input_capacity",
        RATE,
        HIGHER,
        MACHINE,
        "elements per second that the pipeline delivers with nothing else running",
    ),
    Metric(
        "input_bound_at_target",
        SHARE,
        LOWER,
        MACHINE,
        "input_bound predicted for steps of target_step_time",
    ),
    Metric(
        "input_python_stages",
        COUNT,
        LOWER,
        PROGRAM,
        "stages of the input pipeline that run Python",
    ),
    Metric(
        "host_overhead",
        SHARE,
        LOWER,
        MACHINE,
        "share of the step period with neither device, TensorFlow nor input active",
    ),
    Metric(
        "device_busy", SHARE, HIGHER, MACHINE, "share of the step period in which a device executes"
    ),
    Metric(
        "device_time",
        SECONDS,
        LOWER,
        MACHINE,
        "time that a step executes on its device, the busiest of several; mean of traced steps",
    ),
    Metric(
        "collective_time",
        SHARE,
        LOWER,
        MACHINE,
        "share of the step period in collectives that nothing hides",
    ),
    Metric(
        "step_skew",
        RATIO,
        LOWER,
        MACHINE,
        "own work of the slowest device, host or worker ÷ the median − 1",
    ),
    Metric("xla_clusters", COUNT, None, PLATFORM, "distinct XLA executables run in a step"),
    Metric("xla_launches", COUNT, LOWER, PLATFORM, "executions of XLA executables in a step"),
    Metric(
        "xla_compiles",
        COUNT,
        LOWER,
        PROGRAM,
        "XLA executables compiled in any step after the first",
    ),
    Metric("xla_compile_time", SECONDS, LOWER, MACHINE, "XLA compilation in the first step"),
    Metric(
        "xla_coverage",
        SHARE,
        HIGHER,
        PLATFORM,
        "share of the compute nodes that are inside XLA clusters",
    ),
    Metric("fusions", COUNT, None, PLATFORM, "fusion instructions in the executables of a step"),
    Metric(
        "retraces",
        COUNT,
        LOWER,
        PROGRAM,
        "traces of functions (tf.function, jax.jit) in any step after the first",
    ),
    Metric("eager_ops", COUNT, LOWER, PROGRAM, "ops run eagerly in a step"),
    Metric(
        "python_calls",
        COUNT,
        LOWER,
        PLATFORM,
        "Python functions that a step calls in its own thread",
    ),
    Metric("graph_ops", COUNT, LOWER, PLATFORM, "ops of the graph after Grappler"),
    Metric(
        "graph_reduction", SHARE, HIGHER, PLATFORM, "share of the graph's ops that Grappler removed"
    ),
    Metric("padding_overhead", RATIO, LOWER, PROGRAM, "padded ÷ logical bytes − 1 on a TPU"),
    Metric(
        "mxu_padding_overhead",
        RATIO,
        LOWER,
        PROGRAM,
        "padded ÷ logical matrix-unit FLOPs − 1 on a TPU",
    ),
    Metric(
        "batch_padding", SHARE, LOWER, PROGRAM, "share of the batches' elements that are padding"
    ),
    Metric(
        "op_guide_findings",
        COUNT,
        LOWER,
        PROGRAM,
        "rules of the Cloud TPU op guide that the step breaks",
    ),
    Metric("peak_memory", BYTES, LOWER, PLATFORM, "memory that a step needs at its peak"),
    Metric(
        "memory_growth",
        BYTES,
        LOWER,
        MACHINE,
        "bytes that the process holds more after each step, over the timed window",
    ),
    Metric(
        "half_precision",
        SHARE,
        HIGHER,
        PROGRAM,
        "share of matmul and convolution FLOPs with 16-bit or narrower operands",
    ),
    Metric("flops", FLOP, None, PROGRAM, "floating-point operations of a step"),
    Metric(
        "flops_utilization",
        SHARE,
        HIGHER,
        MACHINE,
        "share of the device's peak FLOP rate that is reached",
    ),
    Metric(
        "host_device_copies", COUNT, LOWER, PLATFORM, "copies between host and device in a step"
    ),
    Metric(
        "host_device_bytes",
        BYTES,
        LOWER,
        PLATFORM,
        "bytes copied between host and device in a step",
    ),
    Metric("kernel_launches", COUNT, LOWER, PLATFORM, "GPU kernels launched in a step"),
    Metric(
        "tensor_core_time",
        SHARE,
        HIGHER,
        MACHINE,
        "share of the eligible kernel time on tensor cores",
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ROWS}
_COUNTED = {"throughput": "examples/s", "input_capacity": "elements/s"}


def shown_unit(metric: str, unit: str) -> str:
    """Return the unit of a metric as people read it, from the unit that JSON has."""
    return _COUNTED.get(metric, unit)


def nearest(name: str, valid: Iterable[str]) -> str:
    """Write the most similar valid name, and the valid ones if they are few or none is similar."""
    names = sorted(valid)
    close = difflib.get_close_matches(name, names, 1)
    if close and len(names) > _MOST_NAMES:
        return f"did you mean {close[0]!r}?"
    meant = f"did you mean {close[0]!r}? " if close else ""
    return f"{meant}valid: {and_more(names, _MOST_NAMES)}"

"""
Evidence that makes each metric known; without it the metric is UNKNOWN, never 0.

docs/reference/metrics.md shows these sentences. tests/unit/metrics/test_absence.py removes the
evidence of each metric.
"""

from __future__ import annotations

from typing import NamedTuple

STEPS, CLOCK, WAITS, STAGES, BATCHES = "steps", "clock", "waits", "stages", "batches"
MEMORY, PARTS, PYTHON, COMPILERS = "memory", "parts", "Python", "compilers"
RUNS, CODE = "runs", "code"
TENSORFLOW, JAX, PYTORCH = "TensorFlow", "JAX", "PyTorch"
ANYWHERE, ON_ACCELERATORS, NOWHERE = "yes", "GPU, TPU", "–"
ON_GPUS, ON_DATASETS, WITH_LATENCY = "GPU", "tf.data", "latency"
"""
Devices that can make a metric known, or any where a `tf.data.Dataset` feeds the step, or with
`latency=True`.
"""


class Known(NamedTuple):
    """What makes a metric known, and what it is of."""

    kind: str
    """
    What it is of: the time of steps, the clock otherwise, waits for the input pipeline, its stages,
    its batches, the memory of the process, parts of traced steps, what Python does, what XLA's
    compilers do, what runs, or the code that the step calls.
    """
    known_from: str
    """The evidence, for people."""
    devices: str = ANYWHERE
    """Where it can be known; only on accelerators if it is of what they run."""
    in_jax: str = ""
    """The same in JAX, where that differs."""
    of_periods: bool = False
    """True if it is unknown where the trace does not tell when the work of its steps ended."""


_TIMED = "steps that `tf_profile` or a Keras loop ran without the profiler"
_RAN = (
    "XLA's executions in the trace (events of an execution, ops with a `program_id`, the line `XLA "
    "Modules` of a TPU). Events of TensorFlow's runtime without any loaded executable give 0"
)
_CODE = "the functions that the step called under pytest"
_LOWERED = (
    f"the HLO of {_CODE}, or of a saved trace whose steps ran nothing but executables. Custom "
    "calls must declare their cost"
)
_DEVICE = "events of a GPU's streams or a TPU's ops"
_CATEGORY = "a TPU's ops need their category (`hlo_category`)"
_COPIES = (
    "events of a GPU's streams, whose copies name their direction, or copies in a TPU's programs"
)
_PIPELINE = "events of `tf.data` iterators that made elements"

EVIDENCE: dict[str, Known] = {
    "step_time": Known(STEPS, _TIMED, of_periods=True),
    "step_cpu_time": Known(
        STEPS,
        f"{_TIMED}, that compute for 10 % of their time or more; Linux, which tells the processor "
        "time of child processes",
    ),
    "other_load": Known(CLOCK, "timed steps; Linux, which counts the time of its cores"),
    "step_time_p90": Known(
        STEPS,
        f"{_TIMED}, and calls that end with their work, as with `latency=True`",
        in_jax=WITH_LATENCY,
    ),
    "step_time_p99": Known(
        STEPS,
        f"300 {_TIMED}, and calls that end with their work, as with `latency=True`",
        in_jax=WITH_LATENCY,
    ),
    "first_step_time": Known(
        CLOCK, "a first step that `tf_profile` or a Keras loop ran, before any other call"
    ),
    "throughput": Known(STEPS, f"{_TIMED}, and the size of a batch or `examples_per_step=`"),
    "epoch_gap": Known(CLOCK, "an end of an epoch between timed steps"),
    "input_bound": Known(
        WAITS,
        "events of waiting for input in the trace (of iterators, infeeds), or a loop that "
        "`tf_profile` drives without data in TensorFlow. Input that Python makes counts as "
        "`host_overhead`. Where `tf_profile` calls `next()` and no accelerator runs, also the "
        "time of `next()`",
        of_periods=True,
    ),
    "input_wait": Known(WAITS, "the evidence of `input_bound` and of `step_time`", of_periods=True),
    "input_capacity": Known(
        WAITS, f"{_PIPELINE}, a whole call of each stage among them", in_jax=ON_DATASETS
    ),
    "input_bound_at_target": Known(
        WAITS, "the evidence of `input_capacity`, and `target_step_time`", in_jax=ON_DATASETS
    ),
    "input_python_stages": Known(
        STAGES, "the dataset that the step consumed, or a Python stage in the trace"
    ),
    "host_overhead": Known(
        PARTS,
        "events of the host, and of what runs the step: TensorFlow's runtime or an accelerator",
        in_jax=ON_ACCELERATORS,
        of_periods=True,
    ),
    "device_busy": Known(PARTS, _DEVICE, devices=ON_ACCELERATORS, of_periods=True),
    "device_time": Known(
        PARTS,
        f"{_DEVICE}, of the busiest device in every traced step; {_CATEGORY}",
        devices=ON_ACCELERATORS,
        of_periods=True,
    ),
    "collective_time": Known(
        PARTS, f"{_DEVICE}; {_CATEGORY}", devices=ON_ACCELERATORS, of_periods=True
    ),
    "step_skew": Known(
        PARTS,
        f"the same of two devices; {_CATEGORY}. For several hosts, their traces; for workers of "
        "`tf_profile.workers`, their traces with collectives, on CPUs too",
        devices=ON_ACCELERATORS,
    ),
    "xla_clusters": Known(RUNS, _RAN),
    "xla_launches": Known(RUNS, _RAN),
    "xla_compiles": Known(
        COMPILERS,
        "events of XLA's compilers, or events on the host of TensorFlow's runtime or of XLA's "
        "executions. A TPU's compiler shows none",
    ),
    "xla_compile_time": Known(
        COMPILERS, "a trace of the first step that `tf_profile` drives, as for `xla_compiles`"
    ),
    "xla_coverage": Known(
        RUNS,
        f"the graphs of {_CODE}; a run of each auto-cluster in the traced steps",
        in_jax=NOWHERE,
    ),
    "fusions": Known(RUNS, f"the HLO of all executables that ran, and {_RAN}"),
    "retraces": Known(
        PYTHON, "events of TensorFlow's runtime. In JAX, the traces that it reports to pytest"
    ),
    "eager_ops": Known(
        PYTHON,
        "events of TensorFlow's eager execution, which every call of a function has. In JAX, "
        "events of calls, and the names of the functions that it compiles itself, which pytest "
        "finds out",
    ),
    "python_calls": Known(
        PYTHON,
        "three more steps of equal counts that `tf_profile` or a Keras loop ran, in a thread "
        "without a profiler of its own. Of steps above 1 s (a thirtieth of `tfperf_max_seconds`) "
        "only if a limit on it, a report or a comparison asks",
    ),
    "graph_ops": Known(CODE, f"the graphs of {_CODE}", in_jax=NOWHERE),
    "graph_reduction": Known(CODE, f"the graphs of {_CODE}", in_jax=NOWHERE),
    "padding_overhead": Known(CODE, f"the HLO of a program that ran on a TPU, or of {_CODE}"),
    "mxu_padding_overhead": Known(CODE, f"the HLO of a program that ran on a TPU, or of {_CODE}"),
    "batch_padding": Known(
        BATCHES, "batches that `tf_profile` or a Keras loop fed, with padding told from data"
    ),
    "op_guide_findings": Known(CODE, f"the HLO of {_CODE}, and of TensorFlow their graphs"),
    "peak_memory": Known(
        RUNS,
        "XLA's plan of an executable that alone ran the steps, events of allocators, or on a CPU "
        "the growth of the process",
    ),
    "memory_growth": Known(
        MEMORY, "readings of malloc, Python, mappings and accelerators between eight timed blocks"
    ),
    "half_precision": Known(CODE, _LOWERED),
    "flops": Known(CODE, _LOWERED),
    "flops_utilization": Known(
        RUNS,
        "the evidence of `flops`, and a device whose peak rate is known",
        devices=ON_ACCELERATORS,
        of_periods=True,
    ),
    "host_device_copies": Known(
        RUNS,
        f"{_COPIES}. In JAX on a CPU, events of an array that Python puts on devices (`DevicePut`) "
        "or reads (`np.asarray(jax.Array)`), and counted calls of `x.item()`. NumPy reads an array "
        "on one CPU in place: `np.asarray(x)` copies nothing there, and on a GPU it does",
        devices=ON_ACCELERATORS,
        in_jax=ANYWHERE,
    ),
    "host_device_bytes": Known(RUNS, f"{_COPIES}, with their sizes", devices=ON_ACCELERATORS),
    "kernel_launches": Known(RUNS, "events of a GPU's streams", devices=ON_GPUS),
    "tensor_core_time": Known(
        RUNS,
        "kernels that multiply matrices or convolve, by their op or name, on a GPU that has tensor "
        "cores",
        devices=ON_GPUS,
    ),
}
"""What makes a metric known, by its name."""
KIND = {name: row.kind for name, row in EVIDENCE.items()}
STEP_TIMES = tuple(name for name, kind in KIND.items() if kind == STEPS)
"""Metrics of the time of steps, which their parts explain."""
OF_PERIODS = tuple(name for name, row in EVIDENCE.items() if row.of_periods)
TRACED_TIMES = ("step_time", "input_wait")
"""Metrics that a trace alone leaves unknown, and that its traced steps can decide."""
TOTALS = ("retraces", "xla_compiles")
"""Metrics that count over all steps after the first."""
_WITHOUT_TRACE = (STEPS, CLOCK, STAGES, BATCHES, MEMORY, PYTHON)
"""What the clock, the data, the framework and Python tell; eager ops show in traces alone."""
KNOWN_ON: dict[str, dict[str, str]] = {
    TENSORFLOW: {name: row.devices for name, row in EVIDENCE.items()},
    JAX: {name: row.in_jax or row.devices for name, row in EVIDENCE.items()},
    PYTORCH: {
        name: ANYWHERE if row.kind in _WITHOUT_TRACE and name != "eager_ops" else NOWHERE
        for name, row in EVIDENCE.items()
    },
}
"""Devices on which steps in pytest make a metric known, by framework and metric."""

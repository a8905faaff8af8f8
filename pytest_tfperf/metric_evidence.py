"""
Evidence that makes each metric known; without it the metric is UNKNOWN, never 0.

docs/reference/metrics.md shows these sentences. tests/unit/analysis/test_absence.py removes the
evidence of each metric.
"""

TRACED_TIMES = ("step_time", "input_wait")
"""Metrics that a trace alone leaves unknown, and that its traced steps can decide."""
OF_PERIODS = (
    *("step_time", "input_bound", "input_wait", "host_overhead", "device_busy"),
    *("collective_time", "flops_utilization"),
)
"""Metrics that are unknown where the trace does not tell when the work of its steps ended."""
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

EVIDENCE: dict[str, str] = {
    "step_time": _TIMED,
    "step_time_p90": f"{_TIMED}, and calls that end with their work, as with `latency=True`",
    "step_time_p99": f"300 {_TIMED}, and calls that end with their work, as with `latency=True`",
    "first_step_time": "a first step that `tf_profile` or a Keras loop ran, before any other call",
    "throughput": f"{_TIMED}, and the size of a batch or `examples_per_step=`",
    "epoch_gap": "an end of an epoch between timed steps",
    "input_bound": (
        "events of waiting for input in the trace (of iterators, infeeds), or a loop that "
        "`tf_profile` drives without data in TensorFlow. Input that Python makes counts as "
        "`host_overhead`. Where `tf_profile` calls `next()` and no accelerator runs, also the "
        "time of `next()`"
    ),
    "input_wait": "the evidence of `input_bound` and of `step_time`",
    "input_capacity": f"{_PIPELINE}, a whole call of each stage among them",
    "input_bound_at_target": "the evidence of `input_capacity`, and `target_step_time`",
    "input_python_stages": "the dataset that the step consumed, or a Python stage in the trace",
    "host_overhead": (
        "events of the host, and of what runs the step: TensorFlow's runtime or an accelerator"
    ),
    "device_busy": _DEVICE,
    "collective_time": f"{_DEVICE}; {_CATEGORY}",
    "step_skew": f"the same of two devices; {_CATEGORY}. For several hosts, their traces",
    "xla_clusters": _RAN,
    "xla_launches": _RAN,
    "xla_compiles": (
        "events of XLA's compilers, or events on the host of TensorFlow's runtime or of XLA's "
        "executions. A TPU's compiler shows none"
    ),
    "xla_compile_time": "a trace of the first step that `tf_profile` drives, as for `xla_compiles`",
    "xla_coverage": f"the graphs of {_CODE}; a run of each auto-cluster in the traced steps",
    "fusions": f"the HLO of all executables that ran, and {_RAN}",
    "retraces": "events of TensorFlow's runtime. In JAX, the traces that it reports to pytest",
    "eager_ops": (
        "events of TensorFlow's eager execution, which every call of a function has. In JAX, "
        "events of calls, and the names of the functions that it compiles itself, which pytest "
        "finds out"
    ),
    "python_calls": (
        "three more steps of equal counts that `tf_profile` or a Keras loop ran, in a thread "
        "without a profiler of its own"
    ),
    "graph_ops": f"the graphs of {_CODE}",
    "graph_reduction": f"the graphs of {_CODE}",
    "padding_overhead": f"the HLO of a program that ran on a TPU, or of {_CODE}",
    "mxu_padding_overhead": f"the HLO of a program that ran on a TPU, or of {_CODE}",
    "batch_padding": "batches that `tf_profile` or a Keras loop fed, with padding told from data",
    "op_guide_findings": f"the ops of {_CODE}",
    "peak_memory": (
        "XLA's plan of an executable that alone ran the steps, events of allocators, or on a CPU "
        "the growth of the process"
    ),
    "memory_growth": "readings of malloc, Python, mappings and GPUs between eight timed blocks",
    "half_precision": _LOWERED,
    "flops": _LOWERED,
    "flops_utilization": "the evidence of `flops`, and a device whose peak rate is known",
    "host_device_copies": (
        f"{_COPIES}. In JAX on a CPU, events of an array that Python puts on devices (`DevicePut`) "
        "or reads (`np.asarray(jax.Array)`), and counted calls of `x.item()`. NumPy reads an array "
        "on one CPU in place: `np.asarray(x)` copies nothing there, and on a GPU it does"
    ),
    "host_device_bytes": f"{_COPIES}, with their sizes",
    "kernel_launches": "events of a GPU's streams",
    "tensor_core_time": (
        "kernels that multiply matrices or convolve, by their op or name, on a GPU that has tensor "
        "cores"
    ),
}
"""What makes a metric known, by its name."""

CLOCK, WAITS, STAGES, BATCHES, MEMORY = "clock", "waits", "stages", "batches", "memory"
PARTS, PYTHON, COMPILERS, RUNS, CODE = "parts", "Python", "compilers", "runs", "code"
KIND: dict[str, str] = {
    name: kind
    for kind, names in {
        CLOCK: "step_time step_time_p90 step_time_p99 first_step_time throughput epoch_gap",
        WAITS: "input_bound input_wait input_capacity input_bound_at_target",
        STAGES: "input_python_stages",
        BATCHES: "batch_padding",
        MEMORY: "memory_growth",
        PARTS: "host_overhead device_busy collective_time step_skew",
        PYTHON: "retraces eager_ops python_calls",
        COMPILERS: "xla_compiles xla_compile_time",
        RUNS: (
            "xla_clusters xla_launches xla_coverage fusions flops_utilization peak_memory "
            "host_device_copies host_device_bytes kernel_launches tensor_core_time"
        ),
        CODE: (
            "graph_ops graph_reduction flops half_precision op_guide_findings padding_overhead "
            "mxu_padding_overhead"
        ),
    }.items()
    for name in names.split()
}
"""
What a metric is of, by its name: the clock, waits for the input pipeline, its stages, its batches,
the memory of the process, parts of traced steps, what Python does, what XLA's compilers do, what
runs, or the code that the step calls.
"""

TENSORFLOW, JAX, PYTORCH = "TensorFlow", "JAX", "PyTorch"
ANYWHERE, ON_ACCELERATORS, NOWHERE = "yes", "GPU, TPU", "–"
ON_GPUS, ON_DATASETS, WITH_LATENCY = "GPU", "tf.data", "latency"
"""
Devices that can make a metric known, or any where a `tf.data.Dataset` feeds the step, or with
`latency=True`.
"""
OF_DEVICES = (
    "device_busy",
    "collective_time",
    "step_skew",
    "flops_utilization",
    "host_device_copies",
    "host_device_bytes",
    "kernel_launches",
    "tensor_core_time",
)
"""Metrics of what accelerators run."""
_DEVICES = {
    **dict.fromkeys(EVIDENCE, ANYWHERE),
    **dict.fromkeys(OF_DEVICES, ON_ACCELERATORS),
    **dict.fromkeys(("kernel_launches", "tensor_core_time"), ON_GPUS),
}
_IN_JAX = {
    **dict.fromkeys(("xla_coverage", "graph_ops", "graph_reduction"), NOWHERE),
    **dict.fromkeys(("input_capacity", "input_bound_at_target"), ON_DATASETS),
    **dict.fromkeys(("step_time_p90", "step_time_p99"), WITH_LATENCY),
    "host_overhead": ON_ACCELERATORS,
    "host_device_copies": ANYWHERE,
}
_WITHOUT_TRACE = (CLOCK, STAGES, BATCHES, MEMORY, PYTHON)
"""What the clock, the data, the framework and Python tell; eager ops show in traces alone."""
KNOWN_ON: dict[str, dict[str, str]] = {
    TENSORFLOW: _DEVICES,
    JAX: _DEVICES | _IN_JAX,
    PYTORCH: {
        name: ANYWHERE if KIND[name] in _WITHOUT_TRACE and name != "eager_ops" else NOWHERE
        for name in EVIDENCE
    },
}
"""Devices on which steps in pytest make a metric known, by framework and metric."""

"""Pages of the guides of TensorFlow, JAX and Grain that advice refers to."""

from __future__ import annotations

_TENSORFLOW = "https://www.tensorflow.org"

PIPELINES = f"{_TENSORFLOW}/guide/data_performance"
READING = f"{PIPELINES}#parallelizing_data_extraction"
VECTORIZING = f"{PIPELINES}#vectorizing_mapping"
SOURCES = f"{_TENSORFLOW}/guide/data_performance_analysis#source_datasets"
SHUFFLING = f"{_TENSORFLOW}/guide/data#randomly_shuffling_input_data"
SAVING = f"{_TENSORFLOW}/api_docs/python/tf/data/Dataset#save"
THREADS = f"{_TENSORFLOW}/api_docs/python/tf/data/ThreadingOptions"
FUNCTIONS = f"{_TENSORFLOW}/guide/function"
MIXED_PRECISION = f"{_TENSORFLOW}/guide/mixed_precision"
GPUS = f"{_TENSORFLOW}/guide/gpu_performance_analysis"
XLA = "https://openxla.org/xla/tf2xla"
PROFILER = f"{_TENSORFLOW}/guide/profiler"
MEMORY = f"{PROFILER}#memory_profile_tool"
GRAIN = "https://google-grain.readthedocs.io/en/latest/"
JAX_JIT = "https://docs.jax.dev/en/latest/jit-compilation.html"
JAX_MEMORY = "https://docs.jax.dev/en/latest/gpu_memory_allocation.html"
JAX_GPUS = "https://docs.jax.dev/en/latest/gpu_performance_tips.html"
JAX_PROFILER = "https://docs.jax.dev/en/latest/profiling.html"

IN_JAX = {
    FUNCTIONS: JAX_JIT,
    MEMORY: JAX_MEMORY,
    MIXED_PRECISION: JAX_GPUS,
    GPUS: JAX_GPUS,
    PROFILER: JAX_PROFILER,
}
"""Pages of JAX's documentation, by those of TensorFlow's guide on the same."""

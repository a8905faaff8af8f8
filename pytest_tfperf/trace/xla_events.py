"""Events of XLA on the host: executions, thunks, compilations; the names differ by version."""

from __future__ import annotations

import re

import numpy as np

from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.nesting import parents
from pytest_tfperf.trace.own_program import outside_waits, without_waits
from pytest_tfperf.values import WAITS

CPU_COMPILERS = frozenset({"CpuCompiler::RunBackend", "CpuCompiler::CompileLegacyCpuExecutable"})
"""
Names of the events of XLA's backend for CPUs, from TensorFlow 2.19 on and in 2.18.

Their stat `name` is the module's (xla/service/cpu/cpu_compiler.cc).
"""
GPU_COMPILER = "HLO Transforms:"
"""
Start of the names of the events of GpuCompiler::RunHloPasses.

The module's name follows (xla/service/gpu/gpu_compiler.cc). The backend has no event that names the
module.
"""
COMPILES_FOR_JAX = "backend_compile_and_load"
"""Name of JAX's event around a compilation of XLA, with its backend (jax/_src/compiler.py)."""

_OF_JAX = re.compile(r"(\[\d+\] )?GpuExecutable::ExecuteThunks")
"""JAX's executions on a GPU, from 0.11 on with the device's number (seen on an H200)."""


def xla_executions(host: Events) -> Events:
    """
    Return one event for each execution of an XLA executable, on CPU and GPU.

    TensorFlow 2.18 to 2.20 has none of them on a CPU; there `thunks` show the executions.
    """
    runs = host.named(lambda name: name.endswith("Executable::ExecuteAsyncOnStream"))
    if not len(runs):
        runs = host.named(lambda name: _OF_JAX.fullmatch(name) is not None)
    return outside_waits(host, runs)


def thunks(plane: Events) -> Events:
    """Return the ops of executables that ran on a plane, which name their executable."""
    return without_waits(plane.having("program_id"))


def xla_runs(host: Events) -> Events:
    """Return the executions of XLA executables; where the trace has none of them, their thunks."""
    runs = xla_executions(host)
    return runs if len(runs) else thunks(host)


def compilations(host: Events) -> Events:
    """
    Return one event for each compiled executable, by time.

    Compilations inside autotuning are left out, and that of the program with which tf_profile
    waits.
    """
    compiled = host.named(lambda name: name in CPU_COMPILERS or name.startswith(GPU_COMPILER))
    compiled = compiled.where(parents(compiled) < 0).sorted()
    return compiled.where(
        np.array([WAITS not in name for name in compiled_modules(compiled)], bool)
    )


def compiled_modules(compiled: Events) -> list[str]:
    """Return the module name of each compilation, empty if unknown."""
    stats = compiled.texts("name")
    return [
        name.removeprefix(GPU_COMPILER) if name not in CPU_COMPILERS else stat
        for name, stat in zip(compiled.names, stats, strict=True)
    ]

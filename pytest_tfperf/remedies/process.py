"""Remedies of the process: environment variables that TensorFlow and XLA read when they start."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Mapping
from typing import Any

from pytest_tfperf.frameworks.framework import JAX, TENSORFLOW
from pytest_tfperf.frameworks.in_use import has_accelerators
from pytest_tfperf.frameworks.tensorflow import loaded_tensorflow
from pytest_tfperf.machine.cores import usable_cores
from pytest_tfperf.remedies.remedy import Call, Remedy
from pytest_tfperf.turns.own_flags import autoclustering_flags

_LEAST_SHARE = 0.05  # of a step: as much as two processes of the same code differ
_SMALL_OP_S = 20e-6  # an op that takes no longer than to hand it to another thread and back
_INTRA, _INTER = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"
_SETTERS = {
    _INTRA: "set_intra_op_parallelism_threads",
    _INTER: "set_inter_op_parallelism_threads",
}
_ONEDNN, _ONEDNN_OPS = "TF_ENABLE_ONEDNN_OPTS", ("MatMul", "Conv", "BatchNorm", "_Mkl", "_Fused")


class OfProcess(Remedy):
    """A remedy that is tried in a process of its own, with changed environment variables."""

    kind = "process"
    frees_threads = False
    """True if calls that set thread pools, in the code of the test, are left out there."""

    def applies(self, call: Call) -> bool:
        """Return whether the step itself takes time, and the profile has what the remedy is of."""
        step_s, works_s = call.number("step_time"), call.works_s
        if not step_s or works_s is None or works_s < _LEAST_SHARE * step_s:
            return False
        return self.is_of(call)

    def is_of(self, call: Call) -> bool:
        """Return whether the profile has what the remedy is of."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """Return the variables that are changed."""
        raise NotImplementedError

    def apply(self, call: Call) -> Call:
        """Return the call itself: nothing of it changes."""
        return call

    def write(self, call: Call) -> str:  # noqa: ARG002 - the same for each
        """Return how the variables are set."""
        return f"in the environment, before Python starts: {_shell(self.environment())}"


class AllCores(OfProcess):
    """Thread pools of TensorFlow that have a thread for each core."""

    name = "thread pools with a thread for each core"
    frees_threads = True

    def is_of(self, call: Call) -> bool:
        """Return whether a pool has fewer."""
        return call.framework == TENSORFLOW and bool(self._small())

    def environment(self) -> dict[str, str]:
        """Return the sizes of the pools."""
        return dict.fromkeys(self._small(), str(len(usable_cores())))

    def write(self, call: Call) -> str:
        """Return how the pools are set: the code that makes them small goes first."""
        small = [name for name in self._small() if _by_code(name)]
        calls = (f"without tf.config.threading.{_SETTERS[name]}" for name in small)
        return "; ".join(calls) or super().write(call)

    @staticmethod
    def _small() -> list[str]:
        sizes = {name: _threads(name) for name in (_INTRA, _INTER)}
        return [name for name, size in sizes.items() if 0 < size < len(usable_cores())]


class OneThread(OfProcess):
    """Thread pools of one thread, for ops that are smaller than the way to another thread."""

    name = f"{_INTRA}=1 {_INTER}=1"

    def is_of(self, call: Call) -> bool:
        """Return whether the ops are small, and threads share them."""
        if call.framework != TENSORFLOW or has_accelerators() or len(usable_cores()) == 1:
            return False
        if any(_threads(name) for name in (_INTRA, _INTER)):
            return False
        ops = _host_ops(call)
        count = sum(row["occurrences"] or 0.0 for row in ops)
        return count > 1 and sum(row["self_s"] or 0.0 for row in ops) / count < _SMALL_OP_S

    def environment(self) -> dict[str, str]:
        """Return the sizes of the pools."""
        return {_INTRA: "1", _INTER: "1"}


class OneDnn(OfProcess):
    """Kernels of oneDNN where Eigen's run, or the other way round."""

    name = f"{_ONEDNN} switched"

    def is_of(self, call: Call) -> bool:
        """Return whether ops that oneDNN has kernels of take time on a CPU of x86."""
        if call.framework != TENSORFLOW or has_accelerators():
            return False
        ops = _host_ops(call)
        own_s = sum(row["self_s"] or 0.0 for row in ops if str(row["type"]).startswith(_ONEDNN_OPS))
        return platform.machine() in ("x86_64", "AMD64") and own_s > _LEAST_SHARE * sum(
            row["self_s"] or 0.0 for row in ops
        )

    def environment(self) -> dict[str, str]:
        """Return the other setting; it is on by default (TensorFlow 2.9 and later)."""
        return {_ONEDNN: "1" if os.environ.get(_ONEDNN) == "0" else "0"}


class Autoclustering(OfProcess):
    """Clusters of XLA wherever TensorFlow can make them."""

    name = "TF_XLA_FLAGS=--tf_xla_auto_jit=2"

    def is_of(self, call: Call) -> bool:
        """Return whether a graph runs that XLA does not compile whole."""
        coverage = call.number("xla_coverage")
        return call.framework == TENSORFLOW and coverage is not None and coverage < 1

    def environment(self) -> dict[str, str]:
        """Return the flags; one of the user's keeps its value."""
        return {"TF_XLA_FLAGS": autoclustering_flags(os.environ.get("TF_XLA_FLAGS", ""))}


class _OfGpu(OfProcess):
    """A remedy of GPUs that wait for the host, one environment variable."""

    frameworks: tuple[str, ...] = (TENSORFLOW,)
    variable: str
    value: str

    def is_of(self, call: Call) -> bool:
        """Return whether the step runs on a GPU, and the variable is not set."""
        is_set = self.value in os.environ.get(self.variable, "")
        return (
            call.framework in self.frameworks
            and has_accelerators()
            and not is_set
            and self.helps_gpu(call)
        )

    def helps_gpu(self, call: Call) -> bool:
        """Return whether the GPU has nothing to do for a while in each step."""
        busy = call.number("device_busy")
        return busy is not None and busy < 1 - _LEAST_SHARE

    def environment(self) -> dict[str, str]:
        """Return the variable; flags are added to those of the user."""
        before = os.environ.get(self.variable, "") if self.value.startswith("-") else ""
        return {self.variable: f"{before} {self.value}".strip()}


class GpuThreads(_OfGpu):
    """Threads of their own that launch kernels (tensorflow.org/guide/profiler)."""

    variable, value = "TF_GPU_THREAD_MODE", "gpu_private"
    name = f"{variable}={value}"


class GpuAllocator(_OfGpu):
    """CUDA's allocator, which orders what is freed by streams (tensorflow.org/guide/gpu)."""

    variable, value = "TF_GPU_ALLOCATOR", "cuda_malloc_async"
    name = f"{variable}={value}"


class LatencyHiding(_OfGpu):
    """Collectives beside computation (openxla.org/xla/flags_guidance)."""

    frameworks = (TENSORFLOW, JAX)
    variable, value = "XLA_FLAGS", "--xla_gpu_enable_latency_hiding_scheduler=true"
    name = f"{variable}={value}"

    def helps_gpu(self, call: Call) -> bool:
        """Return whether collectives take time."""
        share = call.number("collective_time")
        return share is not None and share > _LEAST_SHARE and bool(call.number("xla_launches"))


class NoTriton(_OfGpu):
    """Products of matrices by cuBLAS in place of Triton (openxla.org/xla/flags_guidance)."""

    frameworks = (TENSORFLOW, JAX)
    variable, value = "XLA_FLAGS", "--xla_gpu_enable_triton_gemm=false"
    name = f"{variable}={value}"

    def helps_gpu(self, call: Call) -> bool:
        """Return whether XLA runs products of matrices."""
        table = call.profile.tables.get("kernels")
        rows = table.records() if table else []
        return any("gemm" in str(row).lower() for row in rows) and bool(call.number("xla_launches"))


REMEDIES: tuple[OfProcess, ...] = (
    AllCores(),
    Autoclustering(),
    OneDnn(),
    OneThread(),
    GpuThreads(),
    LatencyHiding(),
    NoTriton(),
    GpuAllocator(),
)


def _by_code(variable: str) -> int:
    """Return the size of a pool that code has set, 0 if none has."""
    tf: Any = loaded_tensorflow()
    return int(getattr(tf.config.threading, _SETTERS[variable].replace("set_", "get_"))())


def _threads(variable: str) -> int:
    """Return the size of a pool that code or the environment has set, 0 if none has."""
    text = os.environ.get(variable, "")
    return _by_code(variable) or (int(text) if text.isdecimal() else 0)


def _host_ops(call: Call) -> list[dict[str, Any]]:
    """Return the rows of the ops on the host, without those of tf.data."""
    table = call.profile.tables.get("host_ops")
    return [row for row in table.records() if row["where"] != "tf.data"] if table else []


def _shell(variables: Mapping[str, str]) -> str:
    """Return variables as a shell takes them."""
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())

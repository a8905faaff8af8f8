"""PyTorch under Keras: it is timed and not traced."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pytest_tfperf.frameworks.framework import PYTORCH, Framework
from pytest_tfperf.function_traces import Report
from pytest_tfperf.replaced import replaced
from pytest_tfperf.values import Unknown

_BEFORE = "run_start_callbacks"


def keras_runs_on_torch() -> bool:
    """Return whether Keras is loaded and computes by PyTorch."""
    config = getattr(sys.modules.get("keras"), "config", None)
    return "torch" in sys.modules and config is not None and config.backend() == "torch"


class PyTorch(Framework):
    """PyTorch in this process."""

    name = PYTORCH

    def version(self) -> str:
        """Return its version."""
        return str(_torch().__version__)

    def synchronise(self) -> None:
        """Wait for all GPUs, also those of Apple and Intel; a CPU computes within the calls."""
        torch = _torch()
        for number in range(_n_devices("cuda")):
            torch.cuda.synchronize(number)
        if _n_devices("mps"):
            torch.mps.synchronize()
        for number in range(_n_devices("xpu")):
            torch.xpu.synchronize(number)

    def fetch(self, output: Any) -> None:
        """Copy the tensors of an output to the host."""
        for leaf in _tensors(output):
            leaf.detach().cpu()
        self.synchronise()

    def n_gpus(self) -> int:
        """Return the number of GPUs of CUDA and ROCm."""
        return _n_devices("cuda")

    def accelerator_bytes(self) -> int | Unknown | None:
        """Return the bytes that tensors hold on GPUs of CUDA and ROCm."""
        for kind in ("mps", "xpu"):
            if _n_devices(kind):
                return Unknown(f"the memory that PyTorch holds on {kind} is not read")
        n_gpus, cuda = self.n_gpus(), _torch().cuda
        return sum(cuda.memory_allocated(one) for one in range(n_gpus)) if n_gpus else None

    def accelerators(self) -> list[str]:
        """Return the names of GPUs."""
        cuda = [str(_torch().cuda.get_device_name(one)) for one in range(self.n_gpus())]
        return [*cuda, *["mps"] * _n_devices("mps"), *["xpu"] * _n_devices("xpu")]

    def precision(self) -> str:
        """Return the dtype policy of Keras."""
        config = getattr(sys.modules.get("keras"), "config", None)
        return "" if config is None else str(config.dtype_policy().name)


@contextmanager
def torch_traces_reported_to(report: Report) -> Iterator[bool]:
    """
    Call `report` within the context each time `torch.compile` traces a function.

    The result is False, and nothing is reported, if Keras does not run on PyTorch, or its compiler
    has no callbacks. None is registered: keras.utils.clear_session() removes all of them.
    """
    handlers = _compile_callbacks() if keras_runs_on_torch() else None
    if handlers is None:
        yield False
        return
    original = vars(handlers)[_BEFORE]

    def traced(*args: Any, **kwargs: Any) -> Any:
        report("torch.compile", ())
        return original(*args, **kwargs)

    with replaced(handlers, _BEFORE, traced):
        yield True


def _compile_callbacks() -> type | None:
    """Return the class of what `torch.compile` calls before each compilation, or None."""
    # private: 2.5 to 2.13
    try:
        handlers = type(importlib.import_module("torch._dynamo.callback").callback_handler)
    except (ImportError, AttributeError):
        return None
    return handlers if _BEFORE in vars(handlers) else None


def _torch() -> Any:
    return sys.modules["torch"]


def _n_devices(kind: str) -> int:
    """Return the number of devices of a kind that Keras may choose: cuda, mps or xpu."""
    module = getattr(_torch(), kind, None)  # xpu is of PyTorch 2.4 and newer
    return 0 if module is None else int(module.device_count())


def _tensors(output: Any) -> Iterator[Any]:
    """Yield the tensors in nested lists, tuples and dictionaries."""
    if isinstance(output, Mapping):
        output = list(output.values())
    if isinstance(output, (list, tuple)):
        for item in output:
            yield from _tensors(item)
    elif hasattr(output, "detach"):
        yield output

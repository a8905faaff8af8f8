"""Share GPUs among the workers of pytest-xdist, before TensorFlow starts in them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from itertools import takewhile
from pathlib import Path

_DEVICES = Path("/dev")
_DONE = "TFPERF_GPUS_OF"  # inherited by child processes, which use the GPUs of their worker
_NAME = re.compile(r"\d+|(GPU|MIG)-.+")


def spread_gpus(
    environment: MutableMapping[str, str] = os.environ, devices: Path = _DEVICES
) -> None:
    """
    Restrict this process to its share of the GPUs, if it is one of several workers.

    It must run before TensorFlow starts. The process allocates GPU memory on demand, since another
    worker may have the same share.
    """
    if not is_to_share(environment) or devices_found():
        return
    environment[_DONE] = _worker(environment)
    environment.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    if gpus := visible_gpus(environment, devices):
        number = int(re.sub(r"\D", "", environment["PYTEST_XDIST_WORKER"]) or 0)
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(
            share_of(gpus, number, int(environment["PYTEST_XDIST_WORKER_COUNT"]))
        )


def is_to_share(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process is one of several workers, and sees the GPUs of all of them."""
    if int(environment.get("PYTEST_XDIST_WORKER_COUNT", 0)) <= 1:
        return False
    return environment.get(_DONE) != _worker(environment)


def share_of(gpus: Sequence[str], number: int, n_workers: int) -> Sequence[str]:
    """
    Return the GPUs of one worker.

    With more GPUs than workers, each GPU belongs to one worker; else each worker has one GPU.
    """
    return gpus[number % n_workers :: n_workers] or gpus[number % len(gpus) :][:1]


def visible_gpus(
    environment: Mapping[str, str] = os.environ, devices: Path = _DEVICES
) -> tuple[str, ...]:
    """
    Return the NVIDIA GPUs that TensorFlow could use, without starting it.

    CUDA_VISIBLE_DEVICES names them, up to the first entry that is neither index nor UUID (CUDA C++
    Programming Guide). Without it their device files are counted; a container has only those of
    its own GPUs.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(takewhile(_NAME.fullmatch, visible.replace(" ", "").split(",")))
    n_files = sum(
        re.fullmatch(r"nvidia\d+", path.name) is not None for path in devices.glob("nvidia*")
    )
    return tuple(map(str, range(n_files)))


def devices_found() -> bool:
    """Return whether TensorFlow has read its devices from the environment in this process."""
    # private: tensorflow/python/eager/context.py keeps the context of the process here
    # (2.18 to 2.22)
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    return getattr(context, "_physical_devices", None) is not None


def _worker(environment: Mapping[str, str]) -> str:
    """Return an identifier of the worker, unique among all runs."""
    return f"{environment.get('PYTEST_XDIST_TESTRUNUID')} {environment.get('PYTEST_XDIST_WORKER')}"

"""GPUs shared out among the workers of pytest-xdist, before TensorFlow starts in them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from itertools import takewhile
from pathlib import Path

_DEVICES = Path("/dev")
_DONE = "TFPERF_GPUS_OF"  # inherited by what a worker starts, whose GPUs are those of the worker
_NAME = re.compile(r"\d+|(GPU|MIG)-.+")


def spread_gpus(
    environment: MutableMapping[str, str] = os.environ, devices: Path = _DEVICES
) -> None:
    """
    Leave to this process, if it is one of several workers and TensorFlow has not started in it, its share of the GPUs.

    It takes their memory as it needs it, since a share may be that of another worker too.
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
    """Whether this process is one of several workers, and sees all GPUs that there are for them."""
    return int(environment.get("PYTEST_XDIST_WORKER_COUNT", 0)) > 1 and environment.get(
        _DONE
    ) != _worker(environment)


def share_of(gpus: Sequence[str], number: int, n_workers: int) -> Sequence[str]:
    """The GPUs of one of so many workers: each GPU is one worker's, or each worker has one GPU, whichever are more."""
    return gpus[number % n_workers :: n_workers] or gpus[number % len(gpus) :][:1]


def visible_gpus(
    environment: Mapping[str, str] = os.environ, devices: Path = _DEVICES
) -> tuple[str, ...]:
    """
    The NVIDIA GPUs that TensorFlow could use, as CUDA_VISIBLE_DEVICES names them, without starting it.

    That variable ends at the first entry that is neither index nor UUID (CUDA C++ Programming Guide); without it they are counted by
    their device files, which a container has of its own GPUs alone.
    """
    given = environment.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return tuple(takewhile(_NAME.fullmatch, given.replace(" ", "").split(",")))
    n_files = sum(
        re.fullmatch(r"nvidia\d+", path.name) is not None for path in devices.glob("nvidia*")
    )
    return tuple(map(str, range(n_files)))


def devices_found() -> bool:
    """Whether TensorFlow has looked for its devices in this process: from then on what the environment says of them is not read."""
    # private: tensorflow/python/eager/context.py keeps the context of the process here (2.16 to 2.21)
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    return getattr(context, "_physical_devices", None) is not None


def _worker(environment: Mapping[str, str]) -> str:
    """The worker, among those of all runs."""
    return f"{environment.get('PYTEST_XDIST_TESTRUNUID')} {environment.get('PYTEST_XDIST_WORKER')}"

"""Describe the machine, its software and the commit under test."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from pathlib import Path

from pytest_tfperf.tf_runtime import (
    _accelerators,
    _cpu_model,
    _git,
    _precision,
    _version,
    load_tensorflow,
)
from pytest_tfperf.values import Json


@functools.cache
def describe() -> Json:
    """
    The environment of this process: `platform`, the class that structure holds for; `machine`, the fields that timing
    holds for; `setting`, what is recorded and shown when a value changed.
    """
    tf = load_tensorflow()
    minor = ".".join(tf.__version__.split(".")[:2])
    devices = _accelerators(tf)
    onednn = os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1") != "0" and platform.machine() in (
        "x86_64",
        "AMD64",
    )
    kinds = "+".join(sorted(set(devices))) or "cpu"
    return {
        "platform": f"{kinds}, TensorFlow {minor}, oneDNN {'on' if onednn else 'off'}",
        "machine": {
            "accelerators": ", ".join(devices) or "none",
            "cpu": _cpu_model(),
            "cores": len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count(),
            "tensorflow": minor,
            "system": f"{platform.system()} {platform.machine()}",
        },
        "setting": {
            "tensorflow": tf.__version__,
            "keras": _version("keras"),
            "python": platform.python_version(),
            "precision": _precision(),
            "xla_flags": os.environ.get("XLA_FLAGS", ""),
            "tf_xla_flags": os.environ.get("TF_XLA_FLAGS", ""),
        },
    }


@functools.cache
def commit(folder: Path) -> str:
    """The git commit of a folder, with `+` where its work tree differs from it; empty outside git."""
    try:
        head = _git(folder, "rev-parse", "--verify", "--quiet", "--short=12", "HEAD")
        differs = bool(head) and bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return f"{head}+" if differs else head

"""Describe the machine, its software and the commit under test."""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path

from pytest_tfperf.errors import PairedError
from pytest_tfperf.machine.cores import usable_cores
from pytest_tfperf.machine.git import git, line
from pytest_tfperf.tf_runtime import (
    _accelerators,
    _cpu_model,
    _precision,
    _version,
    load_tensorflow,
)
from pytest_tfperf.values import Json

_GIT_S = 10.0


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
            "cores": len(usable_cores()),
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
    """Return the git commit of a folder, with `+` if its work tree differs; empty without git."""
    try:
        found = git(
            folder, "rev-parse", "--verify", "--quiet", "--short=12", "HEAD", limit_s=_GIT_S
        )
        head = line(found.stdout)
        if not head:
            return ""
        changed = git(folder, "status", "--porcelain", "--untracked-files=no", limit_s=_GIT_S)
    except PairedError:  # git is not installed, or does not answer
        return ""
    return f"{head}+" if changed.stdout.strip() else head

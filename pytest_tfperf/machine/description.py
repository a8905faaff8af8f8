"""Describe the machine, its software and the commit under test, and compare machine classes."""

from __future__ import annotations

import functools
import os
import platform
import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from pytest_tfperf.errors import PairedError
from pytest_tfperf.frameworks.framework import TENSORFLOW, Framework
from pytest_tfperf.machine.cores import usable_cores
from pytest_tfperf.machine.git import git, line
from pytest_tfperf.machine.gpu_share import visible_gpus
from pytest_tfperf.text import plural
from pytest_tfperf.values import Json

_GIT_S = 10.0
_WITH_ONEDNN = ("x86_64", "AMD64")
_CI_BRANCHES = (
    "GITHUB_HEAD_REF",  # of a pull request (docs.github.com, "Variables")
    "GITHUB_REF_NAME",
    "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME",  # docs.gitlab.com, "Predefined variables"
    "CI_COMMIT_BRANCH",
    "BUILDKITE_BRANCH",
    "CIRCLE_BRANCH",
    "BRANCH_NAME",  # Jenkins
)
"""Variables of CI systems with the branch, the first that is set counts."""
_WHY_IT_MATTERS = {
    "accelerators": "the step runs on them",
    "cpu": "another model has another clock, other caches and vector units",
    "cores": "TensorFlow sizes its thread pools by them",
    "tensorflow": "kernels and XLA differ from version to version",
    "system": "another system or architecture runs other code",
}
_OF_THE_HOST = ("cpu", "cores")


def describe(frameworks: tuple[Framework, ...]) -> Json:
    """
    Describe the environment of steps in this process, with the precision as it is set now.

    `platform` is the class for which stored structure is valid, `machine` the fields for which
    stored times are valid, and `setting` fields that are shown when a value changed.
    """
    lasting = _lasting(frameworks)
    precision = " ".join({framework.precision(): "" for framework in frameworks})
    return {**lasting, "setting": {**lasting["setting"], "precision": precision}}


@functools.cache
def _lasting(frameworks: tuple[Framework, ...]) -> Json:
    """Return the parts of the description that stay the same in a process."""
    versions = {framework.name: framework.version() for framework in frameworks}
    minors = {name: ".".join(version.split(".")[:2]) for name, version in versions.items()}
    devices = max((framework.accelerators() for framework in frameworks), key=len, default=[])
    kinds = "+".join(sorted(set(devices))) or "cpu"
    named = [f"{name} {minor}" for name, minor in minors.items()]
    return {
        "platform": ", ".join([kinds, *named, *([_onednn()] if TENSORFLOW in versions else [])]),
        "machine": {
            "accelerators": ", ".join(devices) or "none",
            "cpu": _cpu_model(),
            "cores": len(usable_cores()),
            **{name.lower(): minor for name, minor in minors.items()},
            "system": f"{platform.system()} {platform.machine()}",
        },
        "setting": {
            **{name.lower(): version for name, version in versions.items()},
            "keras": _version("keras"),
            "python": platform.python_version(),
            "xla_flags": os.environ.get("XLA_FLAGS", ""),
            "tf_xla_flags": os.environ.get("TF_XLA_FLAGS", ""),
        },
    }


def hardware() -> str:
    """Return the system, processor, cores and number of GPUs, without starting TensorFlow."""
    gpus = f", {plural(len(visible_gpus()), 'GPU')}" if visible_gpus() else ""
    cores = plural(len(usable_cores()), "core")
    return f"{platform.system()} {platform.machine()}, {_cpu_model()}, {cores}{gpus}"


@functools.cache
def commit(folder: Path) -> str:
    """Return the git commit of a folder, with `+` if its work tree differs; empty without git."""
    try:
        answer = git(
            folder, "rev-parse", "--verify", "--quiet", "--short=12", "HEAD", limit_s=_GIT_S
        )
        head = line(answer.stdout)
        if not head:
            return ""
        changed = git(folder, "status", "--porcelain", "--untracked-files=no", limit_s=_GIT_S)
    except PairedError:  # git is not installed, or does not answer
        return ""
    return f"{head}+" if changed.stdout.strip() else head


@functools.cache
def branch(folder: Path) -> str:
    """
    Return the git branch of a folder; empty if it is not known.

    CI systems check out a commit without its branch, and name the branch in a variable.
    """
    for name in _CI_BRANCHES:
        if os.environ.get(name):
            return os.environ[name]
    return _git_line(folder, "symbolic-ref", "--quiet", "--short", "HEAD")


@functools.cache
def default_branch(folder: Path) -> str:
    """Return the default branch of a folder's repository, as its remote has it; else empty."""
    there = _git_line(folder, "symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD")
    name = there.removeprefix("origin/")
    here = name and _git_line(folder, "rev-parse", "--verify", "--quiet", f"refs/heads/{name}")
    return name if here else there


@functools.cache
def project_name(folder: Path) -> str:
    """Return the name of a folder's git repository as its remote has it, or else the folder's."""
    remote = _git_line(folder, "config", "--get", "remote.origin.url")
    name = re.split(r"[/:]", remote.rstrip("/").removesuffix(".git"))[-1]
    return name or folder.resolve().name


def _git_line(folder: Path, *arguments: str) -> str:
    try:
        return line(git(folder, *arguments, limit_s=_GIT_S).stdout)
    except PairedError:  # git is not installed, or does not answer
        return ""


def _onednn() -> str:
    switched_on = os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1") != "0"
    return f"oneDNN {'on' if switched_on and platform.machine() in _WITH_ONEDNN else 'off'}"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def class_differences(stored: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Return the fields in which two machine classes differ, with their effect on times."""
    fields = [
        name for name in dict.fromkeys([*here, *stored]) if stored.get(name) != here.get(name)
    ]
    on_device = stored.get("accelerators") == here.get("accelerators") not in (None, "none")
    return [
        f"{name}: stored {stored.get(name)}, here {here.get(name)} ({_matters(name, on_device)})"
        for name in fields
    ]


def nearest_class(
    stored: Iterable[Mapping[str, Any]], here: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Return the machine class with the fewest differences, None if there are no classes."""
    return min(stored, key=lambda machine: len(class_differences(machine, here)), default=None)


def _matters(name: str, on_device: bool) -> str:
    if name not in _WHY_IT_MATTERS:
        return "not known to matter"
    if on_device and name in _OF_THE_HOST:
        return "matters where the device waits for the host, in launches and the input pipeline"
    return f"matters: {_WHY_IT_MATTERS[name]}"

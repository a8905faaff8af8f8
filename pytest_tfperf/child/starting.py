"""How a side is started: which command, in which environment, on which cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_tfperf.child.cleanup import Janitor
from pytest_tfperf.child.process import Player
from pytest_tfperf.child.reports import alike_options, given_arguments, pytest_command, uncovered_environment
from pytest_tfperf.child.server import PLUGIN

ALIKE = {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"), "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""What must be alike in the environments of processes that are compared, and share a GPU."""


def split_cores(least: int = 1) -> tuple[list[int], list[int]]:
    """One core for the referee and all others for its sides; none for either where fewer than so many would be left to them."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return (cores[:1], cores[1:]) if len(cores) > least else ([], [])


def start_side(
    config: pytest.Config,
    label: str,
    janitor: Janitor,
    cores: Sequence[int],
    *,
    root: Path,
    files: Sequence[str],
    tree: Mapping[str, Any] | None = None,
    path: Sequence[str] | None = None,
    arguments: Sequence[str] | None = None,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    shows_output: bool = False,
) -> Player:
    """
    A process that collects these files below the root; path, arguments, folder and environment are this run's unless others are given.

    It does so from now on, while others start; `await_collected` waits for it.

    Raises:
        PairedError: If it cannot be started, has ended, or does not listen.
    """
    given = given_arguments(config) if arguments is None else arguments
    player = Player(
        label,
        lambda fd: pytest_command(config, sys.path if path is None else path, ["-p", PLUGIN, f"--tfperf-side={fd}", *given]),
        Path(config.invocation_params.dir) if cwd is None else cwd,
        {**uncovered_environment(), **ALIKE} if environment is None else environment,
        cores,
        janitor,
        shows_output=shows_output,
    )
    factory = getattr(config, "_tmp_path_factory", None)
    player.say(
        root=str(root),
        files=list(files),
        basetemp=str(factory.mktemp("paired")) if factory else None,
        argv=sys.argv,
        options=alike_options(config),
        tree=tree,
        scratch=str(janitor.folder),
        workerinput=getattr(config, "workerinput", None),
    )
    return player


def ranges(cores: Sequence[int]) -> str:
    """`0`, `1-3`, `0, 2-5`."""
    starts = [core for core in cores if core - 1 not in cores]
    ends = [core for core in cores if core + 1 not in cores]
    return ", ".join(str(start) if start == end else f"{start}-{end}" for start, end in zip(starts, ends, strict=True))

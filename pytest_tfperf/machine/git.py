"""Run git without side effects: no hooks, no daemons, no optional locks, no questions."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from pytest_tfperf.errors import PairedError

ASK_S, WORK_S = 60.0, 600.0
"""Seconds that git may take for a question, and for work on all files."""

# git sets these in hooks, for the hook's own repository (git, Documentation/githooks.txt)
_CALLER_VARIABLES = {
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
}
_SETTINGS = (
    f"core.hooksPath={os.devnull}",
    "core.fsmonitor=false",  # may be a hook, or start a daemon
    "core.splitIndex=false",  # would keep a part of an index in .git
    "index.sparse=false",  # would write objects
    "submodule.recurse=false",
)
_VARIABLES = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}


def git(
    folder: Path,
    *arguments: str,
    limit_s: float = ASK_S,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """
    Run git in a folder, unaffected by variables that name another repository.

    Raises PairedError if git is not installed, or takes longer than `limit_s`.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _CALLER_VARIABLES}
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    command = ["git", "--no-pager", *settings, "-C", str(folder), *arguments]
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            check=False,
            env={**kept, **_VARIABLES, **(environment or {})},
        )
    except subprocess.TimeoutExpired:
        raise PairedError(
            f"git {arguments[0]} in {folder} did not end within {limit_s:g} s; "
            "see whether its disk, or its remote, is out of reach"
        ) from None
    except OSError as error:
        raise PairedError(
            f"--tfperf-against needs git, which cannot be run ({error}); "
            "install it, or put it on PATH"
        ) from error


def line(output: bytes) -> str:
    """Return the one line of an answer; a path may begin or end with blanks, or hold newlines."""
    return os.fsdecode(output.removesuffix(b"\n"))


def paths(output: bytes) -> list[str]:
    """Return the paths of an answer under -z, each of which ends with a zero byte."""
    return os.fsdecode(output).split("\0")[:-1]


def complaint(output: bytes) -> str:
    """Return the end of git's error message, in one line."""
    lines = [text for text in map(str.strip, os.fsdecode(output).splitlines()) if text]
    return " ".join(lines[-4:])

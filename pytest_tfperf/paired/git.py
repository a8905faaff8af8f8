"""Git, run so that it changes nothing by the way: no hooks, no daemon, no locks that are not needed, and no questions."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from pytest_tfperf.errors import PairedError

ASK_S, WORK_S = 60.0, 600.0
"""How long git may take to say what it knows, and to go through all files."""

# a hook of git's has these set for its own repository and index (git, Documentation/githooks.txt, Documentation/git.txt)
_OF_THE_CALLER = {
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
_OUR_OWN = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}


def git(
    folder: Path,
    *arguments: str,
    limit_s: float = ASK_S,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """
    What git answers in a folder, free of what the caller's environment says of another repository.

    Raises:
        PairedError: If git is not installed, or takes longer than `limit_s` seconds.
    """
    own = {name: value for name, value in os.environ.items() if name not in _OF_THE_CALLER}
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    command = ["git", "--no-pager", *settings, "-C", str(folder), *arguments]
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            check=False,
            env={**own, **_OUR_OWN, **(environment or {})},
        )
    except subprocess.TimeoutExpired:
        raise PairedError(
            f"git {arguments[0]} in {folder} did not end within {limit_s:g} s; see whether its disk, or its remote, is out of reach"
        ) from None
    except OSError as error:
        raise PairedError(
            f"--tfperf-against needs git, which cannot be run ({error}); install it, or put it on PATH"
        ) from error


def line(output: bytes) -> str:
    """The one line of an answer; a path may begin or end with blanks, or have lines of its own."""
    return os.fsdecode(output.removesuffix(b"\n"))


def paths(output: bytes) -> list[str]:
    """The paths of an answer under -z: each ends with a zero byte."""
    return os.fsdecode(output).split("\0")[:-1]


def complaint(output: bytes) -> str:
    """The end of what git said is wrong, in one line."""
    return " ".join(
        [text for text in map(str.strip, os.fsdecode(output).splitlines()) if text][-4:]
    )

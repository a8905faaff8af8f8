"""Repositories for tests, made by git itself, away from the settings of who runs them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

IDENTITY = (
    "-c",
    "user.name=Test",
    "-c",
    "user.email=test@example.invalid",
    "-c",
    "init.defaultBranch=main",
    "-c",
    "commit.gpgSign=false",
)
ALONE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def git(folder, *arguments, fails=False):
    """What git answers, as text; a test skips without it."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", *IDENTITY, "-c", "protocol.file.allow=always", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env={**inherited, **ALONE}, capture_output=True)
    assert fails or done.returncode == 0, done.stderr.decode()
    return os.fsdecode(done.stdout)


def write(folder, files):
    """Write {path: text or bytes}."""
    for name, content in files.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def commit(root, message, files):
    """Write files, and commit everything that there is."""
    write(root, files)
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", message)
    return git(root, "rev-parse", "HEAD").strip()


def repository(root, files):
    """A repository on branch main with one commit."""
    root.mkdir(parents=True)
    git(root, "init", "-q")
    commit(root, "first", files)
    return root.resolve()

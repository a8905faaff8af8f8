"""Names of tests: the same in every process, and as files and folders take them."""

from __future__ import annotations

import os
import zlib
from pathlib import Path, PurePosixPath
from typing import TypeVar

import pytest

_MOST = 120
"""Bytes of a folder's name, of which file systems take 255."""


def names_in_file(item: pytest.Item) -> list[str]:
    """Return the names of a test and of what holds it, from below the file on."""
    return [
        node.name
        for node in item.listchain()
        if not isinstance(node, (pytest.Session, pytest.Directory, pytest.File))
    ]


def within(path: Path, top: Path) -> PurePosixPath | None:
    """
    Return a path from a top level on, in any spelling; None if it is not within.

    Only the part that leads to the top level is resolved, since git tracks links below it.
    """
    path = Path(os.path.normpath(path)) if ".." in path.parts else path
    above = next((folder for folder in (path, *path.parents) if folder.resolve() == top), None)
    if above is not None:
        return PurePosixPath(path.relative_to(above))
    resolved = path.resolve()
    return PurePosixPath(resolved.relative_to(top)) if resolved.is_relative_to(top) else None


def node_key(item: pytest.Item, root: Path) -> str:
    """Return a test's key, the same in every process: its file below `root`, and its names."""
    return "::".join([file_below(item, root), *names_in_file(item)])


def file_below(item: pytest.Item, root: Path) -> str:
    """Return the test's file from a folder on, also where links lead to it."""
    below = item.path.is_relative_to(root)  # the usual case, which resolves nothing
    found = None if below else within(item.path, root)
    return _relative(item, root) if found is None else found.as_posix()


def file_of(item: pytest.Item) -> str:
    """Return the test's file relative to the rootdir, with forward slashes."""
    return _relative(item, item.config.rootpath)


def key_in_file(item: pytest.Item) -> str:
    """Return the names of the test below its module, which xdist does not change."""
    return "::".join(names_in_file(item))


def plain_nodeid(item: pytest.Item) -> str:
    """Return the node id of the test without the group that workers of xdist append."""
    before, key, _ = item.nodeid.rpartition(key_in_file(item))
    return f"{before}{key}" if key else item.nodeid


def as_folder_name(nodeid: str) -> str:
    """Return a node id as the name of a folder; a checksum tells apart what reads the same."""
    text = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in nodeid)
    start = text.encode("utf-8", "replace")[: _MOST - 9].decode("utf-8", "ignore")
    return f"{start}-{zlib.crc32(nodeid.encode('utf-8', 'backslashreplace')):08x}"


def _relative(item: pytest.Item, root: Path) -> str:
    return Path(os.path.relpath(item.path, root)).as_posix()


CONTROLLER = "tfperf-controller"
"""Collects the results of a run, and writes its summary and reports."""
COORDINATOR = "tfperf-coordinator"
"""Runs the tests of a paired run in child processes."""
CHILD_SERVER = "tfperf-child"
"""Serves the parent of a child process."""
SILENCE = "tfperf-silence"
"""Silences the terminal's reporter of a child process."""

PluginType = TypeVar("PluginType")


def registered(config: pytest.Config, name: str, kind: type[PluginType]) -> PluginType | None:
    """Return a plugin object, or None if there is none of this class."""
    plugin = config.pluginmanager.get_plugin(name)
    return plugin if isinstance(plugin, kind) else None

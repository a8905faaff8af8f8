"""Duties of a child process in a paired run: it knows which version it is and checks its code."""

from __future__ import annotations

import sys
from pathlib import Path

from pytest_tfperf.machine.conditions import is_traced
from pytest_tfperf.paired.loaded_code import (
    import_hooks,
    module_files,
    module_loaders,
    outside_tree,
)
from pytest_tfperf.paired.worktree import Tree, tree_from_json, tree_to_json
from pytest_tfperf.values import Json

MODULE = __name__
_TRACED = (
    "a tracer or profiler of Python runs in both processes (coverage, a debugger), "
    "which costs more than what is compared; run without it"
)


def extension(root: Path, data: Json) -> VersionExtension:
    """
    Return the extension of the process that runs the files below `root`.

    Args:
        root: The version's folder.
        data: `extension_data` of the process.
    """
    return VersionExtension(root, tree_from_json(data["tree"]), data["is_first"])


def extension_data(tree: Tree, is_first: bool) -> Json:
    """Return what `extension` needs; `is_first` tells the first process pair from later ones."""
    return {"tree": tree_to_json(tree), "is_first": is_first}


class VersionExtension:
    """See `child.server.Extension`."""

    def __init__(self, root: Path, tree: Tree, is_first: bool) -> None:
        self._tree = tree
        self._is_tree = root == tree.root
        self._is_first = is_first

    def void_reasons(self) -> list[str]:
        """Return why the code that was loaded makes the comparison void."""
        files = module_files(sys.modules)
        return [
            *([_TRACED] if is_traced() else []),
            *outside_tree(files, self._tree, "tree" if self._is_tree else "ref", sys.path),
            *import_hooks(files, module_loaders(sys.modules), self._tree),
        ]

    def keeps_traces(self) -> bool:
        """Return whether this process runs the working tree in the first process pair."""
        return self._is_tree and self._is_first

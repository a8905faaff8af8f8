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
from pytest_tfperf.paired.worktree import Tree, tree_from_json
from pytest_tfperf.values import Json

MODULE = __name__
_TRACED = (
    "a tracer or profiler of Python runs in both processes (coverage, a debugger), "
    "which costs more than what is compared; run without it"
)


def extension(root: Path, data: Json) -> VersionExtension:
    """Return the extension of the process that runs the files below `root`."""
    return VersionExtension(root, tree_from_json(data))


class VersionExtension:
    """See `child.server.Extension`."""

    def __init__(self, root: Path, tree: Tree) -> None:
        self._tree = tree
        self._is_tree = root == tree.root

    def void_reasons(self) -> list[str]:
        """Return why the code that was loaded makes the comparison void."""
        files = module_files(sys.modules)
        return [
            *([_TRACED] if is_traced() else []),
            *outside_tree(files, self._tree, "tree" if self._is_tree else "ref", sys.path),
            *import_hooks(files, module_loaders(sys.modules), self._tree),
        ]

    def keeps_traces(self) -> bool:
        """Return whether this process runs the working tree."""
        return self._is_tree

"""Duties of a child process in a paired run: it knows which version it is and checks its code."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from pytest_tfperf.machine.conditions import is_traced
from pytest_tfperf.paired.loaded_code import (
    copies,
    module_files,
    of_another_environment,
    outside_tree,
)
from pytest_tfperf.paired.worktree import Tree, tree_from_json, tree_to_json
from pytest_tfperf.values import Json

MODULE = __name__
_TRACED = (
    "a tracer or profiler of Python runs in both processes (coverage, a debugger), "
    "which costs more than what is compared; run without it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoPythons:
    """The Python of a version, where each has one of its own."""

    name: str
    """Its path."""
    own: tuple[str, ...]
    """Its own sys.path, without entries of the project."""
    others: tuple[str, ...]
    """That of the other version's Python."""


def extension(_: Path, data: Json) -> VersionExtension:
    """Return the extension of the process with these `extension_data`."""
    pythons = TwoPythons(**data["pythons"]) if data["pythons"] else None
    tree = tree_from_json(data["tree"])
    return VersionExtension(tree, data["is_tree"], data["is_first"], pythons)


def extension_data(
    tree: Tree, is_tree: bool, is_first: bool, pythons: TwoPythons | None = None
) -> Json:
    """
    Return what `extension` needs.

    Args:
        tree: The working tree, and the files of the ref.
        is_tree: Whether the process is that of the working tree.
        is_first: Whether it is of the first process pair.
        pythons: Its Python, where each version has one of its own.
    """
    return {
        "tree": tree_to_json(tree),
        "is_tree": is_tree,
        "is_first": is_first,
        "pythons": asdict(pythons) if pythons else None,
    }


class VersionExtension:
    """See `child.server.Extension`."""

    def __init__(
        self, tree: Tree, is_tree: bool, is_first: bool, pythons: TwoPythons | None
    ) -> None:
        self._tree, self._is_tree, self._is_first = tree, is_tree, is_first
        self._pythons = pythons

    def void_reasons(self) -> list[str]:
        """Return why the code that was loaded makes the comparison void."""
        files = module_files(sys.modules)
        return [
            *([_TRACED] if is_traced() else []),
            *self._of_other_files(files),
            *self._of_other_environment(files),
        ]

    def _of_other_files(self, files: dict[str, str]) -> list[str]:
        if self._tree.is_alone:
            assert self._pythons is not None
            path = [entry for entry in sys.path if not _is_below(entry, self._pythons.own)]
            return copies(files, self._tree, path, self._pythons.name)
        return outside_tree(files, self._tree, "tree" if self._is_tree else "ref", sys.path)

    def _of_other_environment(self, files: dict[str, str]) -> list[str]:
        if self._pythons is None:
            return []
        return of_another_environment(
            files, self._pythons.own, self._pythons.others, self._pythons.name
        )

    def keeps_traces(self) -> bool:
        """Return whether this process runs the working tree in the first process pair."""
        return self._is_tree and self._is_first


def _is_below(entry: str, folders: tuple[str, ...]) -> bool:
    return any(Path(entry).is_relative_to(folder) for folder in folders)

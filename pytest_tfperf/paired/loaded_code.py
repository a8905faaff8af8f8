"""Whether each of two sides runs its own code: what a side has loaded, and which of it makes their comparison void."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from pytest_tfperf.paired.worktree import Tree, place

Version = Literal["tree", "ref"]

_WHOSE = {"tree": "the working tree", "ref": "the ref's files"}
_OF_PYTHON = sys.stdlib_module_names | {"test", "__main__"}  # its own tests are not named there
_COMPILED = (".so", ".pyd")
# who loads modules without a say in what is in them: the standard library, pytest's asserts, and what setuptools and six bring along
_STANDARD = {
    "_frozen_importlib",
    "_frozen_importlib_external",
    "importlib",
    "zipimport",
    "_pytest",
    "setuptools",
    "pkg_resources",
    "six",
}


def module_files(modules: Mapping[str, Any]) -> dict[str, str]:
    """The file of each module that has one; `modules` as sys.modules is. Nothing that is put off until it is used gets loaded."""
    files = ((name, _attributes(module).get("__file__")) for name, module in list(modules.items()))
    return {name: file for name, file in files if isinstance(file, str)}


def module_loaders(modules: Mapping[str, Any]) -> dict[str, str]:
    """The class that loaded each module, by its full name."""
    specs = ((name, _attributes(module).get("__spec__")) for name, module in list(modules.items()))
    loaders = ((name, getattr(spec, "loader", None)) for name, spec in specs)
    return {name: _class_name(loader) for name, loader in loaders if loader is not None}


def outside_tree(
    files: Mapping[str, str], tree: Tree, version: Version, path: Iterable[str | Path] = ()
) -> list[str]:
    """
    Why a side does not run its own code, a sentence for each top-level module that it has from another place.

    Args:
        files: Of the modules that the side has loaded, by name.
        tree: The files of the ref, and the working tree beside them.
        version: The version that the process is of.
        path: Its sys.path; entries within either are where its modules may be.
    """
    sources = _Sources(tree, path)
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, file in files.items():
        whose, _ = place(file, tree)
        if whose == "elsewhere":
            kind = "copy" if sources.of(name) else ""
        elif whose != version:
            kind = "other"
        else:
            kind = "compiled" if file.endswith(_COMPILED) else ""
        if kind:
            found[kind, name.partition(".")[0]].append(name)
    return [
        _reason(kind, names, files, tree, version, sources)
        for (kind, _), names in sorted(found.items())
    ]


def import_hooks(files: Mapping[str, str], loaders: Mapping[str, str], tree: Tree) -> list[str]:
    """
    Which import hooks have loaded modules of the project, a sentence for each.

    A finder that leaves the loading to Python, as that of an editable install does, is none of them: the file tells what it found.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for name, loader in loaders.items():
        if (
            name in files
            and loader.partition(".")[0] not in _STANDARD
            and place(files[name], tree)[0] != "elsewhere"
        ):
            found[loader].append(name)
    return [
        f"{_first(names)} ({files[_shallowest(names)]}) came through the import hook {loader}, which may give both sides the same "
        "code, or other code than is in the file; compare without it"
        for loader, names in sorted(found.items())
    ]


class _Sources:
    """The files that git tracks, as modules that a path entry would give."""

    def __init__(self, tree: Tree, path: Iterable[str | Path]) -> None:
        self._tracked = tree.tracked | tree.here
        tops = [
            Path(top)
            for entry in path
            if entry
            for top in [_below(Path(entry), tree)]
            if top is not None
        ]
        self._tops = list(
            dict.fromkeys(["", "src/", *(f"{top.as_posix()}/" for top in tops if top != Path())])
        )

    def of(self, name: str) -> str | None:
        """The tracked file of a module that is no part of Python."""
        if name.partition(".")[0] in _OF_PYTHON:
            return None
        stem = name.replace(".", "/")
        candidates = (f"{top}{stem}{end}" for top in self._tops for end in (".py", "/__init__.py"))
        return next((path for path in candidates if path in self._tracked), None)


def _below(entry: Path, tree: Tree) -> Path | None:
    entry = entry.resolve()
    return next(
        (entry.relative_to(top) for top in (tree.path, tree.root) if entry.is_relative_to(top)),
        None,
    )


def _reason(
    kind: str,
    names: list[str],
    files: Mapping[str, str],
    tree: Tree,
    version: Version,
    sources: _Sources,
) -> str:
    """One sentence: the modules, their file, what is wrong with it, and what to do."""
    name = _shallowest(names)
    if kind == "compiled":
        return (
            f"{_first(names)} is compiled code that git does not track ({files[name]}): the ref's files come without it; "
            "compare stored values (--tfperf-baseline)"
        )
    if kind == "copy":
        source = sources.of(name)
        assert source is not None
        return (
            f"{_first(names)} is loaded from {files[name]}, a copy of {source}: both sides would run the copy; uninstall it and "
            f"{_own_path(name, source)}"
        )
    whose, relative = place(files[name], tree)
    return (
        f"on the side of {_WHOSE[version]} {_first(names)} is loaded from {_WHOSE[whose]} ({files[name]}): both sides "
        f"would run the same code; {_own_path(name, str(relative))}"
    )


def _own_path(name: str, source: str) -> str:
    """How to have a module found on sys.path, by an entry that can be another one on either side."""
    path = Path(source)
    depth = len(name.split(".")) - (path.name != "__init__.py")
    folder = path.parents[min(depth, len(path.parents) - 1)].as_posix()
    return f"set pytest's pythonpath = {folder}, or pip install -e . --config-settings editable_mode=compat"


def _first(names: list[str]) -> str:
    more = len(names) - 1
    return f"{_shallowest(names)} (and {more} more of its modules)" if more else names[0]


def _shallowest(names: list[str]) -> str:
    return min(names, key=lambda name: (name.count("."), name))


def _attributes(module: Any) -> dict[str, Any]:
    """What a module has by now, asked past its own ways of giving it: some load themselves then."""
    return object.__getattribute__(module, "__dict__") if isinstance(module, ModuleType) else {}


def _class_name(loader: Any) -> str:
    kind = loader if isinstance(loader, type) else type(loader)
    return f"{kind.__module__}.{kind.__qualname__}"

"""Check that each version of a paired run loads its own code, or say what makes them alike."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from pytest_tfperf.machine.conditions import is_traced
from pytest_tfperf.turns.worktree import Tree, Version, place

Side = Literal["tree", "ref"]

_PLACES = {"tree": "the working tree", "ref": "the ref's files"}
# Python's own tests are not among the names of its standard library
_OF_PYTHON = sys.stdlib_module_names | {"test", "__main__"}
_COMPILED = (".so", ".pyd")
_TRACED = (
    "a tracer or profiler of Python runs in both processes (coverage, a debugger), "
    "which costs more than what is compared; run without it"
)


def module_files(modules: Mapping[str, Any]) -> dict[str, str]:
    """Return the file of each module that has one; what loads when first used stays unloaded."""
    files = ((name, _attributes(module).get("__file__")) for name, module in list(modules.items()))
    return {name: file for name, file in files if isinstance(file, str)}


def outside_tree(
    files: Mapping[str, str], tree: Tree, version: Side, path: Iterable[str | Path] = ()
) -> list[str]:
    """Return a sentence for each top-level module that a version loaded from another place."""
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


def copies(
    files: Mapping[str, str], tree: Tree, path: Iterable[str | Path], name: str
) -> list[str]:
    """Return a sentence for each top-level module here that an installed copy hides."""
    sources = _Sources(tree, path)
    found: dict[str, list[str]] = defaultdict(list)
    for module, file in files.items():
        source = sources.of(module)
        if source is not None and (tree.root / source).resolve() != Path(file).resolve():
            found[module.partition(".")[0]].append(module)
    return [
        f"with {name} {_first(names)} is loaded from {files[_shallowest(names)]}, a copy of "
        f"{sources.of(_shallowest(names))}, which may be another version of it: uninstall it there"
        for _, names in sorted(found.items())
    ]


def of_another_environment(
    files: Mapping[str, str], own: Iterable[str], others: Iterable[str], name: str
) -> list[str]:
    """Return a sentence on the modules from the other version's environment, if there are any."""
    folders = {Path(entry): False for entry in others} | {Path(entry): True for entry in own}
    foreign: dict[str, list[str]] = defaultdict(list)
    for module, file in files.items():
        nearest = next((folders[one] for one in Path(file).parents if one in folders), True)
        if not nearest:
            foreign[module.partition(".")[0]].append(module)
    if not foreign:
        return []
    top, names = min(foreign.items())
    more = f", and so are {len(foreign) - 1} other packages" if len(foreign) > 1 else ""
    return [
        f"with {name} {top} is loaded from the environment of the other Python "
        f"({files[_shallowest(names)]}){more}: see what puts that on sys.path, as PYTHONPATH does"
    ]


class _Sources:
    """The tracked files, as modules that an entry of sys.path would give."""

    def __init__(self, tree: Tree, path: Iterable[str | Path]) -> None:
        self._tree, self._tracked = tree, tree.tracked
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
        """Return the tracked file of a module that is not a part of Python."""
        if name.partition(".")[0] in _OF_PYTHON:
            return None
        stem = name.replace(".", "/")
        candidates = (f"{top}{stem}{end}" for top in self._tops for end in (".py", "/__init__.py"))
        return next((path for path in candidates if self._has(path)), None)

    def _has(self, path: str) -> bool:
        return (self._tree.root / path).is_file() if self._tree.is_alone else path in self._tracked


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
    version: Side,
    sources: _Sources,
) -> str:
    """Return a sentence on the modules, their file, what is wrong with it, and what to do."""
    name = _shallowest(names)
    if kind == "compiled":
        return (
            f"{_first(names)} is compiled code that git does not track ({files[name]}): "
            "the ref's files come without it; compare stored values (--tfperf-baseline)"
        )
    if kind == "copy":
        source = sources.of(name)
        assert source is not None
        return (
            f"{_first(names)} is loaded from {files[name]}, a copy of {source}: "
            f"both versions would run the copy; uninstall it and {_own_path(name, source)}"
        )
    whose, relative = place(files[name], tree)
    return (
        f"in the process of {_PLACES[version]} {_first(names)} is loaded from {_PLACES[whose]} "
        f"({files[name]}): both versions would run the same code; {_own_path(name, str(relative))}"
    )


def _own_path(name: str, source: str) -> str:
    """Return how to have each version find a module through an entry of sys.path of its own."""
    path = Path(source)
    depth = len(name.split(".")) - (path.name != "__init__.py")
    folder = path.parents[min(depth, len(path.parents) - 1)].as_posix()
    return (
        f"set pytest's pythonpath = {folder}, "
        "or pip install -e . --config-settings editable_mode=compat"
    )


def _first(names: list[str]) -> str:
    more = len(names) - 1
    return f"{_shallowest(names)} (and {more} more of its modules)" if more else names[0]


def _shallowest(names: list[str]) -> str:
    return min(names, key=lambda name: (name.count("."), name))


def _attributes(module: Any) -> dict[str, Any]:
    """Return the attributes of a module without its own lookup, which may load it."""
    # libraries of cffi call themselves modules, and have no attributes to look up
    is_module = issubclass(type(module), ModuleType)
    return object.__getattribute__(module, "__dict__") if is_module else {}


def void_reasons(version: Version) -> list[str]:
    """Return why the code that this process has loaded makes the comparison void."""
    files, pythons = module_files(sys.modules), version.pythons
    found = [_TRACED] if is_traced() else []
    if version.tree.is_alone:
        assert pythons is not None
        path = [entry for entry in sys.path if not _is_below(entry, pythons.own)]
        found += copies(files, version.tree, path, pythons.name)
    else:
        found += outside_tree(files, version.tree, "tree" if version.is_tree else "ref", sys.path)
    if pythons is not None:
        found += of_another_environment(files, pythons.own, pythons.others, pythons.name)
    return found


def _is_below(entry: str, folders: tuple[str, ...]) -> bool:
    return any(Path(entry).is_relative_to(folder) for folder in folders)

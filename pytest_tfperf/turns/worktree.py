"""The working tree and the files of a ref beside it: which path belongs to which version."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pytest_tfperf.machine.git import paths
from pytest_tfperf.turns.names import within

# the parts of `--opt=/x`, `opt=/x`, `-c/x` and `/x::test`
_ARGUMENT = re.compile(r"(?P<before>-[A-Za-z]|[^/=]*=)?(?P<path>/.*?)(?P<test>::.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Tree:
    """
    The tracked files of a commit in a folder of their own, beside its repository's working tree.

    Data, generated modules and built extensions that git ignores or does not track are in the
    working tree alone, and so is `.git`.
    """

    root: Path
    """The top level of the working tree."""
    path: Path
    """The top level of the commit's files."""
    commit: str
    """The full hash."""
    ref: str
    """The commit as it was typed."""
    same: bool
    """True if no tracked file of the working tree differs from the commit."""
    listing: Path | None
    """
    A file of the paths that either version tracks, as git lists them under -z; None for none.

    Messages name it, since all paths of a large repository would fill the socket of a process that
    starts: the next one would not start before it reads.
    """

    @property
    def tracked(self) -> frozenset[str]:
        """Paths that the commit or the working tree tracks, from the top level on, with slashes."""
        return _listed(self.listing)

    @property
    def is_alone(self) -> bool:
        """True if both versions run the files of the working tree, with two Pythons."""
        return self.path == self.root


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoPythons:
    """The Python of a version, where each has one of its own."""

    name: str
    """Its path."""
    own: tuple[str, ...]
    """Its own sys.path, without entries of the project."""
    others: tuple[str, ...]
    """That of the other version's Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What a process of a paired run is."""

    tree: Tree
    """The working tree, and the files of the ref."""
    is_tree: bool
    is_first: bool
    """True if it is of the first process pair."""
    pythons: TwoPythons | None = None
    """Its Python, where each version has one of its own."""


def tree_alone(root: Path, name: str) -> Tree:
    """Return the working tree for both versions, of which the other one has this name."""
    root = root.resolve()
    return Tree(root, root, "", name, same=True, listing=None)


def mapped(path: str | Path, tree: Tree) -> Path:
    """
    Return the ref's counterpart of a path of the working tree; any other path as it is.

    The working tree consists of what git tracks there or on the ref, the folders of that, and
    Python files in these folders. Both versions share an environment or data that git ignores.
    """
    path = Path(path)
    if not path.is_absolute() or within(path, tree.path) is not None:
        return path
    relative = within(path, tree.root)
    return tree.path / relative if relative is not None and _of_project(relative, tree) else path


def is_of_project(path: str | Path, tree: Tree) -> bool:
    """Return whether both versions have a counterpart of an absolute path."""
    if within(Path(path), tree.path) is not None:
        return True
    relative = within(Path(path), tree.root)
    return relative is not None and _of_project(relative, tree)


def mapped_argument(argument: str, tree: Tree) -> str:
    """
    Return an argument of the command line with its absolute path mapped.

    It is one of `PATH`, `PATH::test`, `--opt=PATH`, `opt=PATH` and `-cPATH`.
    """
    match = _ARGUMENT.fullmatch(argument)
    if match is None:
        return argument
    path = mapped(match["path"], tree)
    if path == Path(match["path"]):
        return argument
    return f"{match['before'] or ''}{path}{match['test'] or ''}"


def place(file: str | Path, tree: Tree) -> tuple[str, PurePosixPath | None]:
    """
    Return the version that a file belongs to, and its path from the top level on.

    The version is `ref`, `tree` (the working tree) or `elsewhere`; links are followed.
    """
    file = Path(file).resolve()
    if file.is_relative_to(tree.path):
        return "ref", PurePosixPath(file.relative_to(tree.path))
    relative = (
        PurePosixPath(file.relative_to(tree.root)) if file.is_relative_to(tree.root) else None
    )
    if relative is not None and str(relative.parent) in known_folders(tree):
        return "tree", relative
    return "elsewhere", None


def known_folders(tree: Tree) -> frozenset[str]:
    """Return the folders with tracked files of either version; the top level is `.`."""
    return _folders(tree.tracked)


@functools.lru_cache(maxsize=4)
def _listed(listing: Path | None) -> frozenset[str]:
    return frozenset() if listing is None else frozenset(paths(listing.read_bytes()))


@functools.lru_cache(maxsize=4)
def _folders(files: frozenset[str]) -> frozenset[str]:
    direct = {PurePosixPath(file.rpartition("/")[0]) for file in files}
    return frozenset(str(folder) for one in direct for folder in (one, *one.parents))


def _of_project(relative: PurePosixPath, tree: Tree) -> bool:
    name, folders = str(relative), known_folders(tree)
    return (
        name in folders
        or name in tree.tracked
        or (relative.suffix == ".py" and str(relative.parent) in folders)
    )

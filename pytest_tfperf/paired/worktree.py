"""
Write the files of a git ref beside the working tree, through an index of their own.

Working tree, index, stashes and `.git/worktrees` stay as they are, and no hook runs. All that is
written lies in one folder, so nothing is to be pruned after a kill.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

from pytest_tfperf.errors import PairedError
from pytest_tfperf.machine.git import WORK_S, complaint, git, line, paths
from pytest_tfperf.text import and_more
from pytest_tfperf.values import Json

_GITLINK = b"160000"
_COMPILED = (".so", ".pyd")
_SHOWN = 5
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
    tracked: frozenset[str]
    """Paths that the commit tracks, from the top level on, with slashes."""
    here: frozenset[str]
    """Paths that the working tree tracks."""


def tree_to_json(tree: Tree) -> Json:
    """Return a tree as plain JSON values."""
    return {
        name: sorted(value) if isinstance(value, frozenset) else value
        for name, value in asdict(tree).items()
    }


def tree_from_json(data: Json) -> Tree:
    """Return the inverse of `tree_to_json`, whose paths are text after a journey as JSON."""
    return Tree(
        root=Path(data["root"]),
        path=Path(data["path"]),
        commit=data["commit"],
        ref=data["ref"],
        same=data["same"],
        tracked=frozenset(data["tracked"]),
        here=frozenset(data["here"]),
    )


def write_tree(ref: str, start: Path, folder: Path) -> Tree:
    """
    Write the files of a ref of the repository that `start` is in below `folder`, as git checks them out: attributes, filters,
    modes and links are the ref's. An LFS pointer that git does not replace stays one. What is in `folder` is the caller's to remove.

    Raises:
        PairedError: If there is no git, work tree or commit of that name, if the ref's files would not be all that is needed
            (submodules, compiled code), or if they cannot be written.
    """
    root, git_dir = _repository(ref, start)
    commit = _commit(ref, root)
    modes = _modes(ref, root, commit)
    _refuse_parts(ref, root, modes)
    path = folder / "files" / (root.name or "root")
    try:
        path.mkdir(parents=True)
        path = path.resolve()
        _check_out(git_dir, commit, path, path.parents[1] / "index")
        same, here = _working_tree(ref, root, git_dir, commit, path.parents[1] / "index.here")
    except OSError as error:
        raise PairedError(
            f"--tfperf-against {ref}: its files cannot be written to {path} ({error}); "
            "give the temporary folder room (TMPDIR names another one), or mend what git names"
        ) from error
    return Tree(root, path, commit, ref, same, frozenset(modes), here)


def mapped(path: str | Path, tree: Tree) -> Path:
    """
    Where the ref's files have what is at a path of the working tree; any other path as it is.

    Of the working tree is what git tracks there or on the ref, the folders of that, and Python files in these folders. An
    environment or a data set that git ignores is no part of it: both sides share it.
    """
    path = Path(path)
    if not path.is_absolute() or _within(path, tree.path) is not None:
        return path
    relative = _within(path, tree.root)
    return tree.path / relative if relative is not None and _of_project(relative, tree) else path


def mapped_argument(argument: str, tree: Tree) -> str:
    """An argument of the command line with its absolute path mapped: `PATH`, `PATH::test`, `--opt=PATH`, `opt=PATH` or `-cPATH`."""
    match = _ARGUMENT.fullmatch(argument)
    if match is None:
        return argument
    path = mapped(match["path"], tree)
    return (
        argument
        if path == Path(match["path"])
        else f"{match['before'] or ''}{path}{match['test'] or ''}"
    )


def place(file: str | Path, tree: Tree) -> tuple[str, PurePosixPath | None]:
    """Whose code a file is, links followed: `ref`, `tree` (the working tree) or `elsewhere`, and its path from the top level on."""
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
    """The folders that hold tracked files, of the ref or of the working tree; the top level is `.`."""
    return _folders(tree.tracked | tree.here)


@functools.lru_cache(maxsize=4)
def _folders(files: frozenset[str]) -> frozenset[str]:
    direct = {PurePosixPath(file.rpartition("/")[0]) for file in files}
    return frozenset(str(folder) for one in direct for folder in (one, *one.parents))


def _of_project(relative: PurePosixPath, tree: Tree) -> bool:
    name, folders = str(relative), known_folders(tree)
    return (
        name in folders
        or name in tree.tracked
        or name in tree.here
        or (relative.suffix == ".py" and str(relative.parent) in folders)
    )


def _within(path: Path, top: Path) -> PurePosixPath | None:
    """A path from a top level on, however that is spelled; only what leads up to it is resolved, since links below are files of git's."""
    path = Path(os.path.normpath(path)) if ".." in path.parts else path
    above = next((folder for folder in (path, *path.parents) if folder.resolve() == top), None)
    if above is not None:
        return PurePosixPath(path.relative_to(above))
    resolved = path.resolve()
    return PurePosixPath(resolved.relative_to(top)) if resolved.is_relative_to(top) else None


def _repository(ref: str, start: Path) -> tuple[Path, Path]:
    """The top level of the working tree, and the folder that git keeps its index in."""
    bare = git(start, "rev-parse", "--is-bare-repository")
    top = git(start, "rev-parse", "--show-toplevel")
    if bare.returncode:
        raise PairedError(
            f"--tfperf-against {ref} needs a git work tree, and git finds none at {start} ({complaint(bare.stderr)}); "
            "run pytest within one, or do as git says"
        )
    if top.returncode:
        found = (
            "is a bare repository"
            if bare.stdout.strip() == b"true"
            else "is inside of a repository's .git"
        )
        raise PairedError(
            f"--tfperf-against {ref} needs a git work tree, and {start} {found}, without files; run pytest in a clone of it"
        )
    return Path(line(top.stdout)).resolve(), Path(
        line(git(start, "rev-parse", "--absolute-git-dir").stdout)
    )


def _commit(ref: str, root: Path) -> str:
    """The full hash of the commit that a ref names, through tags."""
    found = (
        line(git(root, "rev-parse", "--verify", "--quiet", ref).stdout) if _is_askable(ref) else ""
    )
    kind = git(root, "cat-file", "-t", found) if found else None
    if kind is None or kind.returncode:  # a full hash is "found" whether it is there or not
        raise PairedError(
            f"--tfperf-against {ref}: {root} has no such commit, branch or tag; {_advice(ref, root)}"
        )
    commit = git(root, "rev-parse", "--verify", "--quiet", f"{found}^{{commit}}")
    if commit.returncode:
        raise PairedError(
            f"--tfperf-against {ref} is a {line(kind.stdout)} and no commit; name a branch, a tag or a commit"
        )
    return line(commit.stdout)


def _is_askable(ref: str) -> bool:
    return bool(ref) and not ref.startswith("-") and "\0" not in ref


def _advice(ref: str, root: Path) -> str:
    """What may have been meant, and how to get what a clone does not have."""
    every = git(
        root,
        "for-each-ref",
        "--format=%(refname:lstrip=2)",
        "refs/heads",
        "refs/tags",
        "refs/remotes",
    ).stdout
    near = _nearest(ref, os.fsdecode(every).splitlines())
    meant = f"it has {_some(near)}; " if near else ""
    if line(git(root, "rev-parse", "--is-shallow-repository").stdout) == "true":
        return (
            f"{meant}this clone is shallow: git fetch --unshallow --tags origin '+refs/heads/*:refs/remotes/origin/*' "
            "(GitHub's actions/checkout: fetch-depth: 0)"
        )
    return f"{meant}git fetch brings what only the remote has"


def _nearest(ref: str, names: list[str]) -> list[str]:
    """The refs of the same last part, as `origin/main` is of `main`, then those spelled alike."""
    last = ref.rpartition("/")[2]
    return list(
        dict.fromkeys(
            [
                *(name for name in names if name.rpartition("/")[2] == last),
                *get_close_matches(ref, names),
            ]
        )
    )


def _modes(ref: str, root: Path, commit: str) -> dict[str, bytes]:
    """The mode of every path of a commit."""
    listed = git(root, "ls-tree", "-r", "-z", "--full-tree", commit, limit_s=WORK_S)
    if listed.returncode:
        raise PairedError(
            f"--tfperf-against {ref}: the files cannot be listed ({complaint(listed.stderr)}); git fsck says what is missing"
        )
    rows = (row.partition(b"\t") for row in listed.stdout.split(b"\0")[:-1])
    return {os.fsdecode(path): about[:6] for about, _, path in rows}


def _refuse_parts(ref: str, root: Path, modes: dict[str, bytes]) -> None:
    """Refuse what makes two sides that cannot be compared: submodules and compiled code."""
    submodules = [
        path for path, mode in modes.items() if mode == _GITLINK and _is_filled(root / path)
    ]
    if submodules:
        raise PairedError(
            f"--tfperf-against {ref}: the working tree has the files of the submodule {_some(submodules)}, and the ref's files come "
            f"without: the two sides would not have the same parts. git submodule deinit {submodules[0]} if no test needs it; else compare "
            "stored values (--tfperf-baseline)"
        )
    compiled = [path for path in modes if path.endswith(_COMPILED)]
    if compiled:
        raise PairedError(
            f"--tfperf-against {ref}: compiled code is tracked there ({_some(compiled)}), and nothing says which source it was built from; "
            "take it out of git, or compare stored values (--tfperf-baseline)"
        )


def _is_filled(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _check_out(git_dir: Path, commit: str, path: Path, index: Path) -> None:
    """Write the files of a commit to an empty folder; OSError with what git could not do."""
    environment = {
        "GIT_DIR": str(git_dir),
        "GIT_WORK_TREE": str(path),
        "GIT_INDEX_FILE": str(index),
    }
    # not checkout-index --prefix: that reads .gitattributes of the working tree
    done = git(
        path,
        "read-tree",
        "-m",
        "-u",
        "--no-sparse-checkout",
        commit,
        limit_s=WORK_S,
        environment=environment,
    )
    if done.returncode:
        raise OSError(complaint(done.stderr) or f"git read-tree ended with {done.returncode}")


def _working_tree(
    ref: str, root: Path, git_dir: Path, commit: str, copy: Path
) -> tuple[bool, frozenset[str]]:
    """Whether no tracked file differs from a commit, and what is tracked; from a copy of the index, since a look at files renews it."""
    index = root / line(git(root, "rev-parse", "--git-path", "index").stdout)
    if index.exists():
        shutil.copy2(index, copy)  # with its time, by which git knows what was written after it
    in_root = {"GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(root), "GIT_INDEX_FILE": str(copy)}
    git(
        root,
        "update-index",
        "-q",
        "--unmerged",
        "--really-refresh",
        limit_s=WORK_S,
        environment=in_root,
    )
    compared = ("--quiet", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none")
    differs = git(root, "diff", *compared, commit, "--", limit_s=WORK_S, environment=in_root)
    listed = git(root, "ls-files", "-z", "--full-name", environment=in_root)
    if differs.returncode > 1 or listed.returncode:
        found = complaint(differs.stderr + listed.stderr)
        raise PairedError(
            f"--tfperf-against {ref}: git cannot tell what the working tree at {root} tracks ({found}); git status says more"
        )
    return differs.returncode == 0, frozenset(paths(listed.stdout))


def _some(names: Iterable[str]) -> str:
    """The first names, and how many more."""
    return and_more(list(names), _SHOWN)

"""
Write the files of a git ref beside the working tree, through an index of their own.

Working tree, index, stashes and `.git/worktrees` stay as they are, and no hook runs. All that is
written lies in one folder, so nothing is to be pruned after a kill.
"""

from __future__ import annotations

import os
import shutil
from difflib import get_close_matches
from pathlib import Path

from pytest_tfperf.errors import PairedError
from pytest_tfperf.machine.git import WORK_S, complaint, git, line, paths
from pytest_tfperf.text import and_more
from pytest_tfperf.turns.worktree import Tree

_GITLINK = b"160000"
_COMPILED = (".so", ".pyd")
_SHOWN = 5


def write_tree(ref: str, start: Path, folder: Path) -> Tree:
    """
    Write the files of a ref as git checks them out, with the ref's attributes, filters and modes.

    An LFS pointer that git does not replace stays one. Raises: PairedError, also if the ref's files
    would not be all that is needed (submodules, compiled code).
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
        listing = path.parents[1] / "tracked"
        listing.write_bytes(b"".join(os.fsencode(file) + b"\0" for file in {*modes, *here}))
    except OSError as error:
        raise PairedError(
            f"--tfperf-against {ref}: its files cannot be written to {path} ({error}); "
            "give the temporary folder room (TMPDIR names another one), or mend what git names"
        ) from error
    return Tree(root, path, commit, ref, same, listing)


def _repository(ref: str, start: Path) -> tuple[Path, Path]:
    """Return the top level of the working tree, and the folder that git keeps its index in."""
    bare = git(start, "rev-parse", "--is-bare-repository")
    top = git(start, "rev-parse", "--show-toplevel")
    if bare.returncode:
        raise PairedError(
            f"--tfperf-against {ref} needs a git work tree, and git finds none at {start} "
            f"({complaint(bare.stderr)}); run pytest within one, or do as git says"
        )
    if top.returncode:
        found = (
            "is a bare repository"
            if bare.stdout.strip() == b"true"
            else "is inside of a repository's .git"
        )
        raise PairedError(
            f"--tfperf-against {ref} needs a git work tree, and {start} {found}, without files; "
            "run pytest in a clone of it"
        )
    git_dir = git(start, "rev-parse", "--absolute-git-dir")
    return Path(line(top.stdout)).resolve(), Path(line(git_dir.stdout))


def _commit(ref: str, root: Path) -> str:
    """Return the full hash of the commit that a ref names, through tags."""
    found = ""
    if ref and not ref.startswith("-") and "\0" not in ref:
        found = line(git(root, "rev-parse", "--verify", "--quiet", ref).stdout)
    kind = git(root, "cat-file", "-t", found) if found else None
    if kind is None or kind.returncode:  # a full hash is "found" whether it is there or not
        raise PairedError(
            f"--tfperf-against {ref}: {root} has no such commit, branch or tag; "
            f"{_advice(ref, root)}"
        )
    commit = git(root, "rev-parse", "--verify", "--quiet", f"{found}^{{commit}}")
    if commit.returncode:
        raise PairedError(
            f"--tfperf-against {ref} is a {line(kind.stdout)} and no commit; "
            "name a branch, a tag or a commit"
        )
    return line(commit.stdout)


def _advice(ref: str, root: Path) -> str:
    """Return refs of similar names, and how to get refs that a clone does not have."""
    kinds = ("refs/heads", "refs/tags", "refs/remotes")
    every = git(root, "for-each-ref", "--format=%(refname:lstrip=2)", *kinds).stdout
    similar = _similar(ref, os.fsdecode(every).splitlines())
    meant = f"it has {and_more(similar, _SHOWN)}; " if similar else ""
    if line(git(root, "rev-parse", "--is-shallow-repository").stdout) == "true":
        return (
            f"{meant}this clone is shallow: git fetch --unshallow --tags origin "
            "'+refs/heads/*:refs/remotes/origin/*' (GitHub's actions/checkout: fetch-depth: 0)"
        )
    return f"{meant}git fetch brings what only the remote has"


def _similar(ref: str, names: list[str]) -> list[str]:
    """Return refs with the same last part, as `origin/main` for `main`, then similar spellings."""
    last = ref.rpartition("/")[2]
    same_last = [name for name in names if name.rpartition("/")[2] == last]
    return list(dict.fromkeys([*same_last, *get_close_matches(ref, names)]))


def _modes(ref: str, root: Path, commit: str) -> dict[str, bytes]:
    """Return the mode of every path of a commit."""
    listed = git(root, "ls-tree", "-r", "-z", "--full-tree", commit, limit_s=WORK_S)
    if listed.returncode:
        raise PairedError(
            f"--tfperf-against {ref}: the files cannot be listed ({complaint(listed.stderr)}); "
            "git fsck says what is missing"
        )
    rows = (row.partition(b"\t") for row in listed.stdout.split(b"\0")[:-1])
    return {os.fsdecode(path): about[:6] for about, _, path in rows}


def _refuse_parts(ref: str, root: Path, modes: dict[str, bytes]) -> None:
    """Refuse submodules and compiled code, with which two versions cannot be compared."""
    submodules = [
        path
        for path, mode in modes.items()
        if mode == _GITLINK and (root / path).is_dir() and any((root / path).iterdir())
    ]
    if submodules:
        raise PairedError(
            f"--tfperf-against {ref}: the working tree has the files of the submodule "
            f"{and_more(submodules, _SHOWN)}, and the ref's files come without: "
            "the two versions would not have the same parts. "
            f"git submodule deinit {submodules[0]} if no test needs it; "
            "else compare stored values (--tfperf-baseline)"
        )
    compiled = [path for path in modes if path.endswith(_COMPILED)]
    if compiled:
        raise PairedError(
            f"--tfperf-against {ref}: compiled code is tracked there "
            f"({and_more(compiled, _SHOWN)}), and nothing says which source it was built from; "
            "take it out of git, or compare stored values (--tfperf-baseline)"
        )


def _check_out(git_dir: Path, commit: str, path: Path, index: Path) -> None:
    """Write the files of a commit to an empty folder. Raises: OSError: If git fails, with why."""
    environment = {
        "GIT_DIR": str(git_dir),
        "GIT_WORK_TREE": str(path),
        "GIT_INDEX_FILE": str(index),
    }
    # not checkout-index --prefix: that reads .gitattributes of the working tree
    arguments = ("read-tree", "-m", "-u", "--no-sparse-checkout", commit)
    done = git(path, *arguments, limit_s=WORK_S, environment=environment)
    if done.returncode:
        raise OSError(complaint(done.stderr) or f"git read-tree ended with {done.returncode}")


def _working_tree(
    ref: str, root: Path, git_dir: Path, commit: str, copy: Path
) -> tuple[bool, frozenset[str]]:
    """
    Return whether no tracked file differs from a commit, and the paths that are tracked.

    git updates the index when it looks at files, so it gets a copy.
    """
    index = root / line(git(root, "rev-parse", "--git-path", "index").stdout)
    if index.exists():
        shutil.copy2(index, copy)  # with its time: git knows by it which files are newer
    in_root = {"GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(root), "GIT_INDEX_FILE": str(copy)}
    refresh = ("update-index", "-q", "--unmerged", "--really-refresh")
    git(root, *refresh, limit_s=WORK_S, environment=in_root)
    compared = ("--quiet", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none")
    differs = git(root, "diff", *compared, commit, "--", limit_s=WORK_S, environment=in_root)
    listed = git(root, "ls-files", "-z", "--full-name", environment=in_root)
    if differs.returncode > 1 or listed.returncode:
        found = complaint(differs.stderr + listed.stderr)
        raise PairedError(
            f"--tfperf-against {ref}: git cannot tell what the working tree at {root} tracks "
            f"({found}); git status says more"
        )
    return differs.returncode == 0, frozenset(paths(listed.stdout))

"""
Links by which a branch could lead its baselines elsewhere.

A folder outside of the project is written if the user names it. A link in the project, or in the
folder of all baselines, is the branch's: baselines stay where it lies.
"""

from __future__ import annotations

import os
from pathlib import Path

from pytest_tfperf.baseline.store import Place
from pytest_tfperf.errors import BaselineError

REPOSITORIES = {".git", ".hg", ".svn", ".bzr", "_darcs", "CVS"}
"""Folders of version control systems."""


def refuse_links(place: Place) -> None:
    """
    Refuse baseline files that a link puts outside of the folder that it lies in.

    Raises:
        BaselineError: If one does, or puts them among the files of a version control system.
    """
    for root in (place.project, place.root):
        for path in (place.structure, place.detail, place.timing):
            link = leaving_link(path.absolute(), root.resolve())
            if link is not None:
                raise BaselineError(
                    f"baseline {path} leads out of {root.resolve()} by the link {link}; nothing "
                    "was written. Remove the link, or name a folder with --tfperf-baseline-dir "
                    "(tfperf accept: --baseline-dir)"
                )
    for path in (place.structure, place.detail, place.timing):
        real = Path(os.path.realpath(path.parent))
        if REPOSITORIES & set(_below(real, place).parts):
            raise BaselineError(
                f"baseline {path} leads into {real}, which belongs to a version control system; "
                "nothing was written"
            )


def _below(real: Path, place: Place) -> Path:
    """Return a path from the project on, or from the folder of all baselines."""
    for root in (place.project.resolve(), place.root.resolve()):
        if real.is_relative_to(root):
            return real.relative_to(root)
    return real


def leaving_link(path: Path, root: Path) -> Path | None:
    """
    Return the first link in a path that leads from below a folder to outside it, or None.

    Args:
        path: An absolute path; it need not exist.
        root: The folder, without links.
    """
    at = Path(path.anchor)
    for part in path.parts[1:]:
        step = at.parent if part == ".." else at / part
        target = _target(step)
        is_link = target != step and at.is_relative_to(root)
        if is_link and (target is None or not target.is_relative_to(root)):
            return step
        at = target or step
    return None


def _target(step: Path) -> Path | None:
    """Return a path, or what it leads to if it is a link: None for links in a circle."""
    try:
        if not step.is_symlink():
            return step
        target = step.resolve()
    except (OSError, RuntimeError):  # a name that is too long, or links in a circle
        return None
    return None if target.is_symlink() else target  # a circle, from Python 3.13 on

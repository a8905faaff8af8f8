"""
Removal of all that an open folder holds, however deep.

The folder is given by its descriptor, so nobody who may rename it leads this elsewhere. The cleanup
process loads this module too, so it imports little.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator


def clear(folder: int, kept: str) -> None:
    """
    Remove all in a folder but one entry; links are not followed, and what cannot be removed stays.

    A folder in it is emptied first: what that holds is moved up. So depth costs neither stack nor
    descriptors, and no path is too long.

    Args:
        folder: Descriptor of the folder.
        kept: Name of the entry to keep.
    """
    waiting = [name for name in os.listdir(folder) if name != kept]
    names = (f"tfperf-moved-{n}" for n in itertools.count())
    while waiting:
        name = waiting.pop()
        try:
            if _is_folder(name, folder):
                waiting += _emptied(name, folder, names)
                os.rmdir(name, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)
        except OSError:
            continue


def _emptied(name: str, parent: int, names: Iterator[str]) -> list[str]:
    """
    Remove the files in a folder, and move its folders into its parent.

    Args:
        name: Name of the folder.
        parent: Descriptor of its parent.
        names: New names for the folders in it.

    Returns:
        The new names.
    """
    moved = []
    opened = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        for entry in os.listdir(opened):  # noqa: PTH208 - pathlib takes no descriptor
            try:
                if _is_folder(entry, opened):
                    new = next(names)
                    os.rename(entry, new, src_dir_fd=opened, dst_dir_fd=parent)
                    moved.append(new)
                else:
                    os.unlink(entry, dir_fd=opened)
            except OSError:
                continue
    finally:
        os.close(opened)
    return moved


def _is_folder(name: str, parent: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)

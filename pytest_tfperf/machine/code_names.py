"""Name Python functions by file and name, alike wherever a project or a package lies."""

from __future__ import annotations

import sysconfig
from functools import cache
from pathlib import Path
from types import CodeType

from pytest_tfperf.files import installed_path

_OWN_FOLDER = Path(__file__).parents[1]
_AUTOGRAPH = "__autograph_generated_file"  # tensorflow/python/autograph/pyct/loader.py
_NO_FILE = "<"  # exec and the like


def function_name(code: CodeType) -> str | None:
    """
    Return a name such as `keras/src/ops/numpy.py:add`, None for a function of this package.

    Python 3.10 does not tell the class or function around it.
    """
    file = shown_file(code.co_filename)
    name = getattr(code, "co_qualname", code.co_name).replace(".<locals>", "")
    return None if file is None else f"{file}:{name}"


@cache
def shown_file(file: str) -> str | None:
    """
    Return a path relative to site-packages, the standard library or its project's packages.

    So it is the same in every checkout.
    It is None for a file of this package.
    """
    path = Path(file)
    if file.startswith(_NO_FILE):
        return file
    if _AUTOGRAPH in file:
        return "<autograph>"
    if path.is_relative_to(_OWN_FOLDER):
        return None
    installed = installed_path(file)
    if installed is not None:
        return installed
    for key in ("stdlib", "platstdlib"):
        folder = Path(sysconfig.get_path(key))
        for root in (folder, folder.resolve()):
            if path.is_relative_to(root):
                return path.relative_to(root).as_posix()
    return path.relative_to(_above_packages(path)).as_posix()


def _above_packages(path: Path) -> Path:
    """Return the folder above the outermost package of a module, or the root of its checkout."""
    folder = path.parent
    while (folder / "__init__.py").is_file() and not (folder / ".git").exists():
        folder = folder.parent
    return folder

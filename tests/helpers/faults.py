"""Calls of the operating system that fail on purpose, one after the other, as in the tests of SQLite."""

import _pyio
import builtins
import io
import os
import pathlib
import signal
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

WRITING = ("open", "write", "fsync", "replace", "rename", "mkdir")
REMOVING = ("unlink", "rmdir")


@contextmanager
def failing(folder, n, reason, lasting=False, kinds=WRITING):
    """
    Within the context the n-th of these calls on a path below a folder fails, and with `lasting` all later ones.

    The reason is an error's number, or SIGKILL, which ends this process. Gives the calls so far. Python's own file objects go through the same calls here: `_pyio` is `io` in Python.
    """
    calls = []
    real = {kind: getattr(os, kind) for kind in kinds}
    if "fsync" in real:
        real["fsync"] = lambda _: None  # no test waits for a disk

    def counted(kind, call):
        def counting(path, *arguments, **options):
            place = _place(path, options)
            if folder not in place.parents or (kind == "open" and place.is_dir()):
                return call(path, *arguments, **options)
            calls.append(kind)
            if len(calls) == n and reason is signal.SIGKILL:
                os.kill(os.getpid(), reason)
            if len(calls) == n or (lasting and len(calls) > n):
                raise OSError(
                    reason, os.strerror(reason), os.fspath(path) if kind == "open" else None
                )
            return call(path, *arguments, **options)

        return counting

    replaced = {kind: counted(kind, call) for kind, call in real.items()}
    with ExitStack() as stack:
        stack.enter_context(mock.patch.multiple(os, **replaced))
        for module in (io, builtins):
            stack.enter_context(mock.patch.object(module, "open", _pyio.open))
        if hasattr(pathlib, "_NormalAccessor"):  # until Python 3.11 it kept these functions
            for kind, call in {**replaced, "open": _pyio.open}.items():
                if hasattr(pathlib._NormalAccessor, kind):
                    kept = mock.patch.object(pathlib._NormalAccessor, kind, staticmethod(call))
                    stack.enter_context(kept)
        yield calls


def _place(path, options):
    if isinstance(path, int):
        path = _opened(path)
    elif options.get("dir_fd") is not None:  # as shutil.rmtree has it
        path = _opened(options["dir_fd"]) / path
    return Path(path).absolute()


def _opened(descriptor):
    return Path(f"/proc/self/fd/{descriptor}").readlink()

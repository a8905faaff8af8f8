"""Check once per process that traces of this TensorFlow show the work of XLA."""

from __future__ import annotations

from pathlib import Path

from pytest_tfperf.capture.sessions import Session, read_session
from pytest_tfperf.errors import TfperfError
from pytest_tfperf.recording import XlaShown
from pytest_tfperf.temporary import TemporaryFolder
from pytest_tfperf.tf_log import information_hidden
from pytest_tfperf.tf_runtime import (
    executes_eagerly,
    load_tensorflow,
    run_compiled,
    start_devices,
)
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.hlo_modules import live_modules
from pytest_tfperf.trace.xla_events import compilations, xla_runs
from pytest_tfperf.trace.xspace import HOST, Trace


def xla_shown(scratch: Path | None = None) -> XlaShown | None:
    """
    Return what traces of this process show of XLA, from one check per process.

    The check also starts devices, thread pools and LLVM, so that no first step includes it. None
    if TensorFlow does not execute eagerly, so that nothing can be checked.

    Args:
        scratch: The folder of the check's trace; None for the system's.
    """
    start_devices()
    if not executes_eagerly():
        return None
    if not _shown:
        _shown.append(_checked(scratch))
    return _shown[0]


_shown: list[XlaShown] = []
"""The result of the check, once it has run."""


def _checked(scratch: Path | None) -> XlaShown:
    """Compile and run a small function under the profiler, and return what its trace shows."""
    with TemporaryFolder(scratch) as folder:
        session = Session(folder)
        try:
            with information_hidden():
                run_compiled()
            return shown_in(read_session(session.stop()), load_tensorflow().__version__)
        except TfperfError as error:
            why = f"the self-check of the profiler failed: {error}"
            return XlaShown(executions=why, compilations=why, modules=why)
        finally:
            session.discard()


def shown_in(trace: Trace, version: str) -> XlaShown:
    """
    Return what a trace shows of a function that XLA compiled and ran in it.

    Args:
        trace: The trace.
        version: TensorFlow's version, for the reasons.
    """
    host = Events.of(trace.plane(HOST))
    found = {
        "executions": len(xla_runs(host)) > 0,
        "compilations": len(compilations(host)) > 0,
        "modules": bool(live_modules(trace)),
    }
    what = {"executions": "execution", "compilations": "compilation", "modules": "HLO"}
    return XlaShown(
        **{
            name: f"TensorFlow {version} traced a function of XLA's without its {what[name]}, "
            "so its traces cannot tell"
            for name, shows in found.items()
            if not shows
        }
    )

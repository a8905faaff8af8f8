"""Check once per process and framework that its traces show the work of XLA."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytest_tfperf.capture.sessions import Session, read_sessions
from pytest_tfperf.errors import TfperfError
from pytest_tfperf.frameworks.framework import Framework
from pytest_tfperf.frameworks.in_use import traced
from pytest_tfperf.recording import XlaShown
from pytest_tfperf.temporary import TemporaryFolder
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.hlo_modules import live_modules
from pytest_tfperf.trace.host_events import compilations, xla_runs
from pytest_tfperf.trace.xspace import HOST, Trace

__tracebackhide__ = True


def xla_shown(scratch: Path | None = None) -> Mapping[str, XlaShown]:
    """
    Return what traces of this process show of XLA, by framework, from one check of each.

    The check also starts devices, thread pools and LLVM, so that no first step includes it. A
    framework that cannot be checked, as TensorFlow without eager execution, is left out.

    Args:
        scratch: The folder of the check's traces; None for the system's.
    """
    for framework in traced():
        framework.start_devices()
        if framework.name not in _shown and framework.can_compile():
            _shown[framework.name] = _checked(framework, scratch)
    return {
        framework.name: _shown[framework.name] for framework in traced() if framework.can_compile()
    }


_shown: dict[str, XlaShown] = {}
"""The result of each framework's check, once it has run."""


def _checked(framework: Framework, scratch: Path | None) -> XlaShown:
    """Compile and run a small function under the profiler, and return what its trace shows."""
    with TemporaryFolder(scratch) as folder:
        session = Session(folder)
        try:
            framework.run_compiled()
            framework.synchronise()
            trace = read_sessions(session.stop())[framework.name]
            return shown_in(trace, f"{framework.name} {framework.version()}")
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
        version: The framework with its version, for the reasons.
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
            name: f"{version} traced a function of XLA's without its {what[name]}, "
            "so its traces cannot tell"
            for name, shows in found.items()
            if not shows
        }
    )

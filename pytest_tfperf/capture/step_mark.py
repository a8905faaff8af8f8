"""The trace events by which analysis finds a step, and the `next()` in it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from pytest_tfperf.results import FETCH, FETCH_PYTHON
from pytest_tfperf.tf_runtime import load_tensorflow


class StepMark:
    """The event of one step, from when it is made to `end`; its numbers are read by `analysis.own_steps`."""

    def __init__(self, kind: str, n_step: int, epoch: int, batches: int) -> None:
        trace = load_tensorflow().profiler.experimental.Trace
        self._event = trace(kind, step_num=n_step, _r=1, tfperf=1, epoch=epoch, batches=batches)
        self._event.__enter__()

    def abort(self) -> None:
        """Say that it was no step."""
        self._event.set_metadata(aborted=1)

    def end(self) -> None:
        """The step has ended."""
        self._event.__exit__(None, None, None)


def fetch_mark(from_python: bool) -> AbstractContextManager[Any]:
    """Around the `next()` of a step: it shows when the step asked for its element; what runs there is the input's."""
    event: AbstractContextManager[Any] = load_tensorflow().profiler.experimental.Trace(FETCH_PYTHON if from_python else FETCH)
    return event

"""Tell when each step is traced or compiled anew, so that further steps would tell no more."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_tfperf.function_traces import FIRST, SHAPE, Change

TRACED_AGAIN = "traced again"
"""End of the reason why such a profile ended early."""
_IN_A_ROW = 5
_OF_TF_DATA = "Dataset_"
"""Start of the names of functions of tf.data (structured_function.py): each pipeline traces its."""


class TracedAnew:
    """
    The steps at the end of a profile so far that were each traced or compiled anew.

    Traces of a sound step may fill a warm-up, so only further steps count where no limit is set.
    Where one is, the counts go on until it is broken: else they would be too small, and pass.

    Args:
        warmup: Steps of the warm-up.
        most_traces: Largest number of traces that no limit forbids.
        most_compiles: Same of compilations.
    """

    def __init__(
        self, warmup: int, most_traces: float = math.inf, most_compiles: float = math.inf
    ) -> None:
        self._warmup = warmup
        self._most_traces, self._most_compiles = most_traces, most_compiles
        self._n_traces = self._n_compiles = self._in_a_row = 0
        self._is_anew = self._is_explained = False  # the running step; all steps in a row

    def traced(self, name: str, changes: Sequence[Change]) -> None:
        """
        Add a trace of the running step; a first trace is no change.

        New shapes explain a trace, and so does a new pipeline, as `Model.predict` makes one.
        """
        self._n_traces += 1
        kinds = {change.kind for change in changes}
        self._is_anew |= bool(kinds - {FIRST})
        self._is_explained |= name.startswith(_OF_TF_DATA) or SHAPE in kinds

    def compiled(self) -> None:
        """Add a compilation of the running step."""
        self._n_compiles += 1

    def end_step(self, n_steps: int) -> str | None:
        """Return why no further step is needed after `n_steps`, or None."""
        self._in_a_row = self._in_a_row + 1 if self._is_anew else 0
        self._is_anew = False
        if not self._in_a_row:
            self._is_explained = False
        is_red = self._n_traces > self._most_traces or self._n_compiles > self._most_compiles
        is_limited = min(self._most_traces, self._most_compiles) < math.inf
        goes_on = is_limited or self._is_explained or n_steps <= self._warmup
        if self._in_a_row < _IN_A_ROW or (goes_on and not is_red):
            return None
        each = self._in_a_row == n_steps - 1
        which = "each" if each else f"the last {self._in_a_row} of which were"
        return f"stopped after {n_steps} steps, {which} {TRACED_AGAIN}"

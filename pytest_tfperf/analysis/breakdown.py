"""Where the time of each step went."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pytest_tfperf.analysis.input_pipeline import input_waits
from pytest_tfperf.analysis.ops import find_activity
from pytest_tfperf.analysis.steps import Steps
from pytest_tfperf.results import PARTS
from pytest_tfperf.trace.intervals import covered, merge, subtract
from pytest_tfperf.trace.wire import Ints
from pytest_tfperf.trace.xspace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Breakdown:
    """The parts of `results.PARTS`, each of shape (n_steps,) in picoseconds; they sum to the periods."""

    parts_ps: dict[str, Ints]
    period_ps: Ints

    def share(self, part: str) -> float:
        """Σ of a part over all steps ÷ Σ of the periods."""
        return float(self.parts_ps[part].sum() / max(self.period_ps.sum(), 1))


def break_down(trace: Trace, steps: Steps) -> Breakdown:
    """
    The parts of each step of a host without an accelerator.

    An instant counts once: as input where the step waits and no model op runs on another thread, else as compilation,
    else as host compute where TensorFlow is active, else as other, which is Python and the loop.
    """
    activity = find_activity(trace)
    waiting = subtract(merge(input_waits(trace)), activity.model)
    compiling = subtract(activity.compile, waiting)
    computing = subtract(merge(activity.model, activity.runtime), merge(waiting, compiling))
    zero = np.zeros(len(steps), np.int64)
    parts = dict.fromkeys(PARTS, zero)
    for part, spans in (("input", waiting), ("compile", compiling), ("host_compute", computing)):
        parts[part] = covered(spans, steps.start_ps, steps.end_ps)
    parts["other"] = steps.period_ps - sum(parts.values(), zero)
    return Breakdown(parts, steps.period_ps)

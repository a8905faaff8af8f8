"""The steps as one device of several ran them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pytest_tfperf.analysis.steps.detect import OF_DEVICES, Steps
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.xspace import Plane


def own_steps(plane: Plane, steps: Steps) -> Steps:
    """
    The steps at the times at which the device of this plane ran them, by its own `Steps` or `XLA Modules` line.

    They are the given ones where those come from the host, where the device has not as many, or ran them at other times.
    """
    if steps.source not in OF_DEVICES or not len(steps):
        return steps
    events = Events.of(plane).on_lines(steps.source).sorted()
    if steps.source == "Steps":
        longest = dict(
            sorted(zip(events.names, range(len(events)), strict=True), key=lambda item: events.end[item[1]] - events.start[item[1]])
        )
        chosen = [longest[name] for name in steps.names if name in longest]
        events = Events(plane, events.rows[chosen])
    else:
        program = steps.names[0].rpartition(" ")[0]
        events = events.named(lambda name: name.partition("(")[0] == program)
    if len(events) != len(steps) or (events.start >= steps.end_ps).any() or (events.end <= steps.start_ps).any():
        return steps
    end = events.end
    end[:-1] = np.maximum(events.start[1:], events.start[:-1])
    return replace(steps, start_ps=events.start, end_ps=end)

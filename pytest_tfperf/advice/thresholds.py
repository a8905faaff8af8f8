"""
Thresholds from which a profile is given a verdict or a piece of advice.

Those of XProf's Overview page say so (openxla/xprof, bottleneck_analysis and
op_stats_to_overview_page).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Limits of the rules that advise and judge; shares are of a step unless they say otherwise."""

    input: float = 0.05
    """Least share that waits for input, and least share that a change of the pipeline saves."""
    output: float = 0.05
    """Least share of copying results (XProf: 5 % for input and output)."""
    compile: float = 0.03
    """Least share of compilation (XProf: 3 % for launches, collectives and the rest)."""
    kernel_launch: float = 0.03
    """Least share of launching kernels (XProf)."""
    collective: float = 0.03
    """Least share of collectives (XProf)."""
    device_to_device: float = 0.03
    """Least share of copies between devices (XProf)."""
    host_overhead: float = 0.03
    """Least share of Python (XProf)."""
    half_precision: float = 0.10
    """Share of 16-bit work below which more is advised (XProf)."""
    tensor_cores: float = 0.50
    """Share of time on tensor cores below which more is advised."""
    awaiting: float = 0.10
    """Least share of the devices' time that awaits asynchronous work (XProf's suggestions)."""
    eager: float = 0.10
    """Share of the ops' time on the host that eager ops must exceed (XProf)."""
    traced_calls: float = 0.20
    """Least share of the tf.functions' time in calls that trace or run eagerly (XProf)."""
    skew: float = 0.10
    """Least skew between devices or hosts."""
    cheap_call_s: float = 50e-6
    """
    Seconds of a function's run below which its call costs about as much.

    A call costs 22 to 44 µs besides, and less than 1 µs an element in batches of 256 (x86,
    TensorFlow 2.21).
    """
    prepared: float = 0.50
    """Least share of the slowest thread's work that runs Python or decodes."""
    straggling: float = 2.0
    """Least length of a stage's longest run, in mean runs, that holds up the results behind it."""
    memory: float = 0.90
    """Least share of a device's memory that is in use or in free pieces too small."""
    fragmented: float = 0.50
    """Least share of a device's memory in use for pieces to matter: allocators start small."""
    bottleneck: float = 0.50
    """Least share of the largest part that a verdict names alone."""
    idle: float = 0.10
    """Least share in which devices are idle that a verdict names."""
    hidden: float = 0.05
    """Waits that buffers hide count in a verdict above the share that is seen by this much."""
    top_op: float = 0.01
    """Least share of an op that is named."""


THRESHOLDS = Thresholds()
"""Thresholds of every command and report."""

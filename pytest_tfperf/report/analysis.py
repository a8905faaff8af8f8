"""A profile of a trace as text: where the time of its steps went, and every metric."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from pytest_tfperf.metrics import METRICS, format_quantity
from pytest_tfperf.results import PARTS, Profile

_TITLES = {part: part.replace("_", " ") for part in PARTS}


def render_profile(profile: Profile, verbose: bool) -> str:
    """Steps, parts and metrics of a profile; with `verbose` also the metrics that are unknown, and why."""
    dropped = f", {profile.n_dropped} other events dropped" if profile.n_dropped else ""
    head = f"{profile.name}: {len(profile.steps)} steps, from {profile.step_source}{dropped}"
    parts = [(title, format_quantity(mean, "s"), format_quantity(share, "0..1")) for title, mean, share in _parts(profile)]
    lines = [
        head,
        "",
        tabulate(parts, ["part of a step", "mean", "share"], "simple", disable_numparse=True, colalign=("left", "right", "right")),
    ]
    known = [
        (name, format_quantity(value.number, METRICS[name].unit)) for name, value in profile.metrics.items() if value.number is not None
    ]
    lines += ["", tabulate(known, ["metric", "value"], "simple", disable_numparse=True, colalign=("left", "right"))]
    causes = [
        (name, key, value.detail[key]) for name, value in profile.metrics.items() for key in ("where", "try") if value.detail.get(key)
    ]
    lines += ["", *(f"{name}, {key}: {text}" for name, key, text in causes)] if causes else []
    if verbose:
        lines += ["", *(f"{name} is unknown: {value.why}" for name, value in profile.metrics.items() if value.number is None)]
    return "\n".join(lines)


def _parts(profile: Profile) -> Sequence[tuple[str, float, float]]:
    """Title, mean seconds and share of the period of each part that there is, and of the whole."""
    period = sum(step.period_s for step in profile.steps)
    sums = {part: sum(step.parts_s[part] for step in profile.steps) for part in PARTS}
    rows = [(_TITLES[part], total / len(profile.steps), total / period) for part, total in sums.items() if total > 0]
    return [*sorted(rows, key=lambda row: -row[1]), ("step", period / len(profile.steps), 1.0)]

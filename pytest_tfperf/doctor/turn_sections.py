"""The sections of `tfperf doctor` on turns: their noise, and the change that they can resolve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from pytest_tfperf.checks.limits import DEFAULT_TOLERANCE
from pytest_tfperf.doctor.sections import Section
from pytest_tfperf.quantities import RATIO, SECONDS, format_quantity, format_ratio
from pytest_tfperf.stats.detectable_change import Noise, Resolution
from pytest_tfperf.values import Unknown

# On a quiet machine, pinned turns are pairwise within 2 %.
_WIDE = 0.02
_ELSEWHERE = "structural limits and baselines (--tfperf-only structural) hold on any machine"
_VARIES = (
    "individual measurements vary widely even when pinned: "
    "stop other processes or use another machine"
)
_NOISE_ROWS = (
    "step",
    "over time",
    "pairs of turns",
    "a pair of turns takes",
    "spread of single pairs",
    "ratio, should be 1",
    "its interval",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SameCodeTurns:
    """Turns of two processes of the same code."""

    pinned: bool
    """True if the processes were pinned to cores."""
    noise: Noise | Unknown
    """Noise of the turns, or why there were none."""
    resolutions: Mapping[float, Resolution | None] = field(default_factory=dict)
    """What can be resolved, by tolerance; None with too few turns."""
    needed: float | None = None
    """The tolerance that the same code passes; None with too few turns."""
    remarks: Sequence[str] = ()
    """Interference that was noticed meanwhile."""

    @property
    def label(self) -> str:
        """Name of the kind of turns."""
        return "pinned" if self.pinned else "any core"


def noise_section(kinds: Sequence[SameCodeTurns]) -> Section:
    """Return how much turns of the same code differ."""
    columns = [_noise_cells(kind.noise) for kind in kinds]
    lines: list[str] = []
    advice: list[str] = []
    turns = []
    for kind in kinds:
        unknown = kind.noise.why if isinstance(kind.noise, Unknown) else ""
        lines += [f"{kind.label}: {text}" for text in (*kind.remarks, unknown) if text]
        if not isinstance(kind.noise, Unknown):
            advice += _noise_advice(kind, kind.noise)
        turns.append(
            {
                "pinned": kind.pinned,
                "why": unknown,
                "remarks": list(kind.remarks),
                "noise": None if isinstance(kind.noise, Unknown) else asdict(kind.noise),
            }
        )
    return Section(
        key="noise",
        title="present noise, in turns",
        titles=_titles("two processes of the same code", kinds),
        rows=_rows(_NOISE_ROWS, columns),
        lines=lines,
        data={"turns": turns},
        advice=advice,
        failed=any(isinstance(kind.noise, Unknown) for kind in kinds),
    )


def resolution_section(kinds: Sequence[SameCodeTurns], budget_s: float) -> Section:
    """
    Return the slow-down that one test can find, and the tolerance that the same code passes.

    Args:
        kinds: The turns.
        budget_s: Seconds of turns of a test.
    """
    tolerances = list(dict.fromkeys(tolerance for kind in kinds for tolerance in kind.resolutions))
    names = [f"at tolerance {_share(tolerance)}" for tolerance in tolerances]
    names.append("tolerance that the same code passes")
    columns, turns = [], []
    for kind in kinds:
        cells = [_resolution_cell(kind.resolutions.get(tolerance)) for tolerance in tolerances]
        columns.append([*cells, _share(kind.needed)])
        found = [asdict(one) for one in kind.resolutions.values() if one]
        turns.append({"pinned": kind.pinned, "needed_tolerance": kind.needed, "resolutions": found})
    seconds = f"{budget_s:.0f} s of turns"
    return Section(
        key="resolution",
        title=f"smallest slow-down detectable in {seconds} (90 % power)",
        titles=_titles("of one test with such a step", kinds),
        rows=_rows(names, columns),
        data={"budget_s": budget_s, "turns": turns},
        advice=_tolerance_advice(kinds),
    )


def _noise_cells(noise: Noise | Unknown) -> list[str]:
    if isinstance(noise, Unknown):
        return ["unknown", *[""] * (len(_NOISE_ROWS) - 1)]
    interval = "too few turns"
    if noise.low is not None and noise.high is not None:
        interval = f"{format_ratio(noise.low)} to {format_ratio(noise.high)}"
    return [
        format_quantity(noise.step_s, SECONDS),
        ", ".join(f"{seconds * 1e3:.3g}" for seconds in noise.over_time) + " ms",
        str(noise.n),
        format_quantity(noise.pair_s, SECONDS),
        _share(noise.pair_sd),
        format_ratio(noise.ratio),
        interval,
    ]


def _noise_advice(kind: SameCodeTurns, noise: Noise) -> list[str]:
    advice = []
    if noise.holds_one is False:
        advice.append(
            f"{kind.label}: two processes of the same code differ by more than decisions allow "
            "for; run tfperf doctor again, and if that stays, no times can be compared here: "
            f"{_ELSEWHERE}"
        )
    if noise.trend is not None:
        what = "rose" if noise.trend > 0 else "fell"
        advice.append(
            f"{kind.label}: the step {what} by {_share(abs(noise.trend))} over these turns "
            "(heat, a CPU quota, other load)"
        )
    if kind.pinned and noise.pair_sd is not None and noise.pair_sd > 2 * _WIDE:
        advice.append(_VARIES)
    return advice


def _resolution_cell(found: Resolution | None) -> str:
    if found is None:
        return "too few turns"
    change = _share(found.minimum_detectable_change)
    if found.effective_tolerance <= found.tolerance:
        return change
    return f"{change} (effective: {_share(found.effective_tolerance)})"


def _tolerance_advice(kinds: Sequence[SameCodeTurns]) -> list[str]:
    """Return what to do if the default tolerance is too small here, or not known to suffice."""
    known = [kind.needed for kind in kinds if kind.needed is not None]
    if not known:
        return ["more seconds of turns (--seconds), to know what can be resolved"]
    if min(known) <= DEFAULT_TOLERANCE:
        return []
    return [
        f"max_regression={_share(min(known))!r} or more: at less, verdicts are often "
        f"INCONCLUSIVE; {_ELSEWHERE}"
    ]


def _titles(title: str, kinds: Sequence[SameCodeTurns]) -> list[str]:
    return [title, *(kind.label for kind in kinds)]


def _rows(names: Sequence[str], columns: Sequence[list[str]]) -> list[list[str]]:
    """Return a named row for each value, with a cell for each kind of turns."""
    return [list(row) for row in zip(names, *columns, strict=True)]


def _share(share: float | None) -> str:
    return "unknown" if share is None else format_quantity(share, RATIO)

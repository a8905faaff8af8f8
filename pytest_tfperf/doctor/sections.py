"""What `tfperf doctor` found, section by section: as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from tabulate import tabulate

from pytest_tfperf.checks.limits import DEFAULT_TOLERANCE
from pytest_tfperf.doctor.profiler_check import SelfCheck
from pytest_tfperf.metrics import RATIO, SECONDS, format_quantity
from pytest_tfperf.results import FORMAT
from pytest_tfperf.stats.detectable_change import Noise, Resolution
from pytest_tfperf.stats.signed_rank import format_ratio
from pytest_tfperf.text import aligned, plural
from pytest_tfperf.values import Json

_WIDE = 0.02  # on a quiet machine, pinned turns are pairwise within 2 %; see docs/noise.md
_ELSEWHERE = "structural limits and baselines (--tfperf-only structural) hold on any machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of what was found: `lines` for the terminal, `data` for JSON under `key`, and what to do where something is wrong."""

    key: str
    title: str
    lines: Sequence[str]
    data: Json
    advice: Sequence[str] = ()
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SameCodeTurns:
    """
    Turns of one kind, `pinned` or on any core: their `noise`, or `why` there is none; `remarks` on what the machine did besides.

    `resolutions` are by tolerance, None where there are too few turns; `needed` is the tolerance that the same code passes.
    """

    pinned: bool
    noise: Noise | None = None
    why: str = ""
    failed: bool = False
    resolutions: Mapping[float, Resolution | None] = field(default_factory=dict)
    needed: float | None = None
    remarks: Sequence[str] = ()

    @property
    def label(self) -> str:
        """How the two processes ran."""
        return "pinned" if self.pinned else "any core"


def render_section(section: Section) -> str:
    """A section as text."""
    return "\n".join(
        [
            section.title,
            *(f"  {line}" for line in section.lines),
            *(f"  try: {line}" for line in section.advice),
        ]
    )


def sections_json(sections: Iterable[Section]) -> Json:
    """`{"format", "good", <key of a section>: {..., "failed", "advice"}}`."""
    found = list(sections)
    parts = {
        section.key: {**section.data, "failed": section.failed, "advice": list(section.advice)}
        for section in found
    }
    return {"format": FORMAT, "good": not any(section.failed for section in found), **parts}


def machine_section(environment: Json) -> Section:
    """The machine class, the platform and the setting."""
    fields = [(name, str(value)) for name, value in environment["machine"].items()]
    setting = ", ".join(
        f"{name} {value}" for name, value in environment["setting"].items() if value
    )
    rows = [*fields, ("platform", environment["platform"]), ("setting", setting)]
    return Section(
        key="machine",
        title="machine class, which times hold for",
        lines=aligned(rows),
        data=environment,
    )


def profiler_section(checks: Sequence[SelfCheck]) -> Section:
    """What the self-check of the profiler found."""
    rows = [
        (check.name, f"{'ok' if check.passed else 'FAILED'}: {check.found}") for check in checks
    ]
    return Section(
        key="profiler",
        title="profiler",
        lines=aligned(rows),
        data={"checks": [asdict(check) for check in checks]},
        advice=tuple(dict.fromkeys(check.advice for check in checks if check.advice)),
        failed=not all(check.passed for check in checks),
    )


def machine_noise_section(
    load: tuple[float, int] | None,
    remarks: Sequence[str],
    watched_s: float,
    can_stop: bool,
    can_pin: bool,
) -> Section:
    """
    What else the machine does, and whether turns can be taken on it.

    Args:
        load: The load average of the last minute before, and the cores.
        remarks: What was noticed while steps ran for `watched_s` seconds.
    """
    rows = [("load average", f"{load[0]:.2f} on {plural(load[1], 'core')}, before")] if load else []
    quiet = f"nothing noticed in {watched_s:.0f} s of steps (other load, clocks, heat, quotas, as far as the system tells)"
    rows += [("besides", remark) for remark in remarks] or [("besides", quiet)]
    rows.append(
        (
            "stopping",
            "ok: SIGSTOP and SIGCONT work"
            if can_stop
            else "FAILED: a process cannot be stopped with SIGSTOP",
        )
    )
    rows.append(
        (
            "pinning",
            "ok: processes keep to their cores"
            if can_pin
            else "not here: one core, or a system without sched_setaffinity",
        )
    )
    advice = (
        []
        if can_stop
        else [
            "--tfperf-against needs SIGSTOP: Linux or macOS, in a sandbox that lets signals through"
        ]
    )
    if not can_pin:
        advice.append(
            "a Linux machine with two cores or more: pinned to the same cores, two processes of the same code differ less"
        )
    data = {
        "load": load[0] if load else None,
        "remarks": list(remarks),
        "can_stop": can_stop,
        "can_pin": can_pin,
    }
    return Section(
        key="conditions",
        title="conditions",
        lines=aligned(rows),
        data=data,
        advice=advice,
        failed=not can_stop,
    )


def noise_section(kinds: Sequence[SameCodeTurns]) -> Section:
    """How much turns of the same code differ."""
    columns = ["two processes of the same code", *(kind.label for kind in kinds)]
    table = _table(columns, [_noise_cells(kind.noise) for kind in kinds], _NOISE_ROWS)
    said = [
        f"{kind.label}: {text}"
        for kind in kinds
        for text in (*kind.remarks, *([kind.why] if kind.noise is None else []))
    ]
    turns = [
        {
            "pinned": kind.pinned,
            "why": kind.why,
            "remarks": list(kind.remarks),
            "noise": asdict(kind.noise) if kind.noise else None,
        }
        for kind in kinds
    ]
    advice = [text for kind in kinds if kind.noise for text in _noise_advice(kind, kind.noise)]
    return Section(
        key="noise",
        title="present noise, in turns",
        lines=[*table, *said],
        data={"turns": turns},
        advice=advice,
        failed=any(kind.failed for kind in kinds),
    )


def resolution_section(kinds: Sequence[SameCodeTurns], budget_s: float) -> Section:
    """The slow-down that one test could find within the budget, at some tolerances, and the tolerance that the same code passes."""
    tolerances = list(dict.fromkeys(tolerance for kind in kinds for tolerance in kind.resolutions))
    cells = [
        [
            *(_resolution_cell(kind.resolutions.get(tolerance)) for tolerance in tolerances),
            _share(kind.needed),
        ]
        for kind in kinds
    ]
    names = [
        *(f"slow-down found at tolerance {_share(tolerance)}" for tolerance in tolerances),
        "tolerance that the same code passes",
    ]
    data = {
        "budget_s": budget_s,
        "turns": [
            {
                "pinned": kind.pinned,
                "needed_tolerance": kind.needed,
                "resolutions": [asdict(found) for found in kind.resolutions.values() if found],
            }
            for kind in kinds
        ],
    }
    return Section(
        key="resolution",
        title=f"what one test with such a step can resolve in {budget_s:.0f} s of turns, in 9 of 10 cases",
        lines=_table(["", *(kind.label for kind in kinds)], cells, names),
        data=data,
        advice=_what_it_takes(kinds),
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


def _noise_cells(noise: Noise | None) -> list[str]:
    if noise is None:
        return ["unknown", *[""] * (len(_NOISE_ROWS) - 1)]
    interval = (
        "too few turns"
        if noise.low is None or noise.high is None
        else f"{format_ratio(noise.low)} to {format_ratio(noise.high)}"
    )
    over_time = ", ".join(f"{seconds * 1e3:.3g}" for seconds in noise.over_time) + " ms"
    return [
        _seconds(noise.step_s),
        over_time,
        str(noise.n),
        _seconds(noise.pair_s),
        _share(noise.pair_sd),
        format_ratio(noise.ratio),
        interval,
    ]


def _noise_advice(kind: SameCodeTurns, noise: Noise) -> list[str]:
    found = []
    if noise.holds_one is False:
        found.append(
            f"{kind.label}: two processes of the same code differ by more than decisions allow for; run tfperf doctor again, and if that "
            f"stays, no times can be compared here: {_ELSEWHERE}"
        )
    if noise.trend is not None:
        what = "rose" if noise.trend > 0 else "fell"
        found.append(
            f"{kind.label}: the step {what} by {_share(abs(noise.trend))} over these turns (heat, a CPU quota, other load)"
        )
    if kind.pinned and noise.pair_sd is not None and noise.pair_sd > 2 * _WIDE:
        found.append(
            "single pairs of turns differ much even where they are pinned: stop what else runs, or take another machine"
        )
    return found


def _resolution_cell(found: Resolution | None) -> str:
    if found is None:
        return "too few turns"
    raised = (
        f" (held: {_share(found.effective_tolerance)})"
        if found.effective_tolerance > found.tolerance
        else ""
    )
    return f"{_share(found.minimum_detectable_change)}{raised}"


def _what_it_takes(kinds: Sequence[SameCodeTurns]) -> list[str]:
    """What to do where the tolerance of tests that ask for none is too small for this machine, or not known to be enough."""
    known = [kind.needed for kind in kinds if kind.needed is not None]
    if not known:
        return ["more seconds of turns (--seconds), to know what can be resolved"]
    if min(known) <= DEFAULT_TOLERANCE:
        return []
    return [
        f"max_regression={_share(min(known))!r} or more: at less, verdicts are often INCONCLUSIVE; {_ELSEWHERE}"
    ]


def _table(
    columns: Sequence[str], cells: Sequence[Sequence[str]], names: Sequence[str]
) -> list[str]:
    rows = [[name, *(column[i] for column in cells)] for i, name in enumerate(names)]
    sides = ["left", *["right"] * len(cells)]
    return tabulate(rows, columns, "simple", disable_numparse=True, colalign=sides).splitlines()


def _share(share: float | None) -> str:
    return "unknown" if share is None else format_quantity(share, RATIO)


def _seconds(seconds: float) -> str:
    return format_quantity(seconds, SECONDS)

"""Output of `tfperf accept`: the changed and left out entries."""

from __future__ import annotations

from pytest_tfperf.baseline.history import KNOWN
from pytest_tfperf.baseline.record import Recorded
from pytest_tfperf.text import and_more, plural

_NAMED = 3


def is_accepted(recorded: Recorded) -> bool:
    """Return whether something was stored, or all of it was there already."""
    changed = recorded.entries or recorded.added or recorded.anew
    return bool(changed) or all(change.what.endswith(KNOWN) for change in recorded.left_out)


def render_accepted(recorded: Recorded, n_runs: int) -> str:
    """
    Write the result of `tfperf accept`.

    There is a line for each changed entry and history, and for each one left out with the reason.
    """
    n_histories = len(recorded.added) + len(recorded.anew)
    entries = plural(len(recorded.entries), "entry", "entries")
    histories = plural(n_histories, "history", "histories")
    head = f"{plural(n_runs, 'run')}: {entries} and {histories} changed"
    changes = [
        f"  {change.what}: {change.key} in {change.path}"
        for change in (*recorded.entries, *recorded.anew, *recorded.added)
    ]
    runs: dict[tuple[str, str], list[str]] = {}
    for change in recorded.left_out:
        runs.setdefault((change.key, change.what), []).append(change.run)
    left_out = [
        f"  left out: {key}: {what} ({_named(created)})" for (key, what), created in runs.items()
    ]
    return "\n".join([head, *changes, *left_out])


def _named(runs: list[str]) -> str:
    return f"run of {and_more(runs, _NAMED)}"

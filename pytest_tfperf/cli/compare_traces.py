"""The output of `tfperf compare` of two traces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pytest_tfperf.cli.terminal import (
    Line,
    Screen,
    labelled,
    number_table,
    profile_table,
)
from pytest_tfperf.report.comparison import (
    ComparedTrace,
    comparison_notes,
    hlo_tables,
    metric_rows,
)
from pytest_tfperf.report.step_verdict import steps_title


def comparison_view(
    before: ComparedTrace, after: ComparedTrace, verbosity: int, screen: Screen
) -> Iterator[str | Line]:
    """
    Yield the metrics known in one or both traces, and what differs in the HLO.

    Args:
        before: The first trace.
        after: The second trace.
        verbosity: Above 0 all rows of tables are shown.
        screen: What the lines are for.
    """
    both = (("before:", before.profile), ("after:", after.profile))
    for label, profile in both:
        yield f"{label} {profile.name}: {steps_title(profile)}"
    names = {profile.name: Path(profile.name).name for _, profile in both}
    for note in comparison_notes(before, after):
        for name, short in names.items():
            note = note.replace(name, short)
        yield from labelled([("note:", note)])
    rows = metric_rows(before.profile, after.profile)
    yield ""
    yield from number_table(["metric", "before", "after", "ratio"], rows, screen.width)
    for key, table in hlo_tables(before, after).items():
        yield ""
        if table.rows:
            yield from profile_table(key, table, verbosity, screen)
        else:
            yield f"{table.title}: none"

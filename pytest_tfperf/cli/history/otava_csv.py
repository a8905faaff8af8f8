"""
Series in the form that Apache Otava reads: a CSV file with a line a run and a column a profile.

Source: otava.apache.org, "Importing from CSV": the columns `time` (seconds since 1970) and `commit`
are attributes of a run, and every other column is a metric.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import timezone

from pytest_tfperf.report.csv import csv_cell
from pytest_tfperf.run_history.queries import Series
from pytest_tfperf.text import one_line


def otava_csv(series: Sequence[Series]) -> tuple[str, int]:
    """
    Return series as CSV text, and the number of runs that it lacks.

    Otava reads no empty cell, so a run must have a value of each profile.
    """
    names = _distinct([one.name for one in series], [one.rows[-1].machine_class for one in series])
    runs: dict[str, list[str]] = {}
    for column, one in enumerate(series):
        for row in one.rows:
            seconds = int(row.created.replace(tzinfo=timezone.utc).timestamp())
            known = [str(seconds), row.commit, *[""] * len(series)]
            runs.setdefault(row.run, known)[2 + column] = repr(row.value)
    whole = [run for run in runs if all(runs[run][2:])]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["time", "commit", *(csv_cell(one_line(name)) for name in names)])
    writer.writerows(runs[run] for run in sorted(whole, key=lambda run: int(runs[run][0])))
    return text.getvalue(), len(runs) - len(whole)


def _distinct(names: Sequence[str], classes: Sequence[str]) -> list[str]:
    """Return the names, with the machine class where two are the same."""
    return [
        f"{name} on {machine}" if names.count(name) > 1 else name
        for name, machine in zip(names, classes, strict=True)
    ]

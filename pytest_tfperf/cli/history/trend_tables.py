"""Tables of the command `tfperf history`: a line a series, or a line a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pytest_tfperf.cli.terminal import Line, laid_out, line, width
from pytest_tfperf.report.run_text import levels_of, sparkline
from pytest_tfperf.report.text_table import TextTable
from pytest_tfperf.text import one_line, plain

if TYPE_CHECKING:
    from pytest_tfperf.cli.history.trends import SeriesTrend

_SHOWN = 20


def cell(text: str) -> str:
    """Return a text that others wrote as a cell of a table, which controls no terminal."""
    return plain(one_line(text))


def overview(trends: Sequence[SeriesTrend]) -> Iterator[str | Line]:
    """Lay out a line for each series."""
    levels = levels_of(sys.stdout.encoding)
    rows = [
        [
            cell(one.series.name),
            cell(one.series.rows[-1].machine_class),
            str(len(one.series.rows)),
            cell(one.text(one.series.values[-1])),
            sparkline(one.series.values, levels),
            cell(one.changes.texts[-1]) if one.changes.texts else "",
        ]
        for one in trends
    ]
    titles = ["test", "machine class", "runs", "latest", "history", "last change of level"]
    yield from laid_out(TextTable(titles, rows, [False, False, True, True, False, False]), width())


def table_of_runs(trend: SeriesTrend, every: bool) -> Iterator[str | Line]:
    """Lay out the runs of a series, the latest last, below what is said of all of them."""
    yield line((f"{cell(trend.series.name)}: {cell(trend.facts)}", "bold"))
    for sentence in trend.sentences():
        yield cell(sentence)
    rows = trend.series.rows
    first = 0 if every else max(len(rows) - _SHOWN, 0)
    cells = [
        [
            f"{row.created:%Y-%m-%d %H:%M}",
            cell(row.commit),
            cell(trend.text(row.value or 0.0)),
            cell(row.verdict),
            # what follows is further reasons or advice
            f"no: {cell(why.partition('; ')[0])}" if why else "yes",
        ]
        for row, why in zip(rows[first:], trend.reasons[first:], strict=True)
    ]
    titles = ["end of run (UTC)", "commit", cell(rows[-1].metric), "verdict", "counts"]
    yield from laid_out(TextTable(titles, cells, [False, False, True, False, False]), width())
    if first:
        yield line((f"and {first} before them (-v shows all)", "dim"))

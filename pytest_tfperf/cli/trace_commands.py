"""Commands for traces and HLO: analyze, padding, export."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_tfperf.cli.common import (
    GOOD,
    TRACES,
    UNKNOWN,
    add_command,
    add_output,
    path_or_url,
    profiles_json,
    reading,
    refuse_other_ending,
    say,
    time_above_zero,
    write_page,
)
from pytest_tfperf.cli.many_traces import add_many, analyse_many, refuse_urls
from pytest_tfperf.cli.progress import analyse_traces, report_errors
from pytest_tfperf.cli.terminal import (
    Line,
    Screen,
    Span,
    labelled,
    line,
    number_table,
    profile_table,
    this_screen,
    write_out,
)
from pytest_tfperf.errors import ExportError
from pytest_tfperf.quantities import format_quantity
from pytest_tfperf.report.run_text import lengths_of
from pytest_tfperf.report.step_verdict import Part, facts_of, figures_and_ops, parts_of, verdict
from pytest_tfperf.results import Profile
from pytest_tfperf.text import plural
from pytest_tfperf.values import Advice

if TYPE_CHECKING:
    from pytest_tfperf.metrics.multi_host import AnalysedTrace

_BAR_WIDTH = 72
_GLYPHS = "█▒░▓·"
_COLOURS = {
    "compile": "red",
    "output": "bright_magenta",
    "input": "yellow",
    "kernel_launch": "cyan",
    "host_compute": "blue",
    "collective": "bright_yellow",
    "device_to_device": "bright_cyan",
    "device_compute": "green",
    "other": "magenta",
}
_FEW_ADVICE = 3
_PICTURES = frozenset({"median_step", "memory_over_step"})
"""Keys of tables that only a picture shows well; -vv prints them."""


def add_commands(commands: Any) -> None:
    """Add the commands to the parser."""
    _add_analyze(commands)
    _add_padding(commands)
    _add_export(commands)


def _add_analyze(commands: Any) -> None:
    analyze = add_command(
        commands,
        "analyze",
        _analyze,
        "show where the time of a trace's steps went",
        (
            "Show the bottleneck of a trace's steps, what to do next, and the key figures; with -v "
            "every metric and table. Takes XSpace traces of TensorFlow or JAX from CPU, GPU or "
            "TPU, and needs neither framework. With -o the same becomes a page with pictures. Exit "
            "status 2 if a trace cannot be read or has no step. With --into it analyses thousands "
            "of traces by many workers, and stores metrics and steps as Parquet."
        ),
        "logdir/ -o page.html",
    )
    analyze.add_argument(
        "traces",
        type=path_or_url,
        nargs="+",
        metavar="TRACE",
        help=f"{TRACES}; with --into also a folder, a glob or a URL, as 's3://jobs/**/*.xplane.pb'",
    )
    analyze.add_argument(
        "--target-step-time",
        type=reading(time_above_zero),
        metavar="TIME",
        help=(
            "predict how long steps of this time would wait for input (input_bound_at_target): "
            "12ms, 0.5s"
        ),
    )
    analyze.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE.html",
        help="also write a self-contained page: timeline of a step, charts, all metrics and tables",
    )
    add_many(analyze)
    add_output(
        analyze,
        "all metrics with causes, tables, and reasons of unknown metrics; -vv: also "
        "quantities over time, and the events of the median step",
    )


def _add_padding(commands: Any) -> None:
    padding = add_command(
        commands,
        "padding",
        _padding,
        "show the cost of padding on a TPU",
        (
            "Show the share of a TPU's memory and matrix-unit work that is padding: measured where "
            "the HLO was compiled for a TPU, else predicted. Exit status 2 if the file cannot be "
            "read, 3 if the answer is unknown."
        ),
        "step.hlo --tpu v6e",
    )
    padding.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help=f"HLO text (.hlo, .txt), or a trace, whose first host is taken: {TRACES}",
    )
    padding.add_argument(
        "--tpu",
        metavar="NAME",
        help="generation to predict for: v2 v3 v4 v5e v5p v6e v7x (default: v5e)",
    )
    add_output(padding, "sizes that do not suit a GPU's tensor cores, and all rows of tables")


def _add_export(commands: Any) -> None:
    export = add_command(
        commands,
        "export",
        _export,
        "write a trace for Perfetto's UI or chrome://tracing, or its HLO as text or a picture",
        (
            "Write a trace as Chrome's trace JSON (.json, .json.gz), which ui.perfetto.dev opens, "
            "with a track for the steps. Or write the optimised HLO of the executables that its "
            "steps ran: all as text (.txt), or the largest as a graph (.dot) or a picture (.svg, "
            "which needs Graphviz). Exit status 2 on failure."
        ),
        "logdir/ -o trace.json.gz",
    )
    export.add_argument(
        "trace",
        type=Path,
        metavar="TRACE",
        help=f"{TRACES}, with all its hosts; HLO is that of the first host",
    )
    export.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="file to write; its ending tells the format",
    )
    export.add_argument(
        "--module",
        metavar="NAME",
        help="write only the HLO of the executable of this name: step, or step(12)",
    )


def _analyze(options: argparse.Namespace) -> int:
    if options.into is not None or options.executor is not None or options.shard is not None:
        return analyse_many(options)
    traces = refuse_urls(options.traces)
    refuse_other_ending(options.output, "traces")
    analysed, errors = analyse_traces(traces, options.target_step_time)
    if analysed and options.output is not None:
        from pytest_tfperf.report.html.trace_pages import render_traces  # jinja2

        write_page(options.output, render_traces(analysed))
    analysed = [replace(one, profile=one.with_traced_times().plain()) for one in analysed]
    if analysed and options.json:
        print(profiles_json(one.profile for one in analysed))
    elif analysed:
        screen = this_screen()
        for n, one in enumerate(analysed):
            write_out(*([""] if n else []), *profile_view(one, options.verbose, screen))
    return report_errors(errors) or GOOD


def _export(options: argparse.Namespace) -> int:
    from pytest_tfperf.export.formats import export_traces, shows_hlo  # numpy
    from pytest_tfperf.trace.logdir import find_traces

    if shows_hlo(options.output):
        return _export_hlo(options)
    if options.module is not None:
        raise ExportError(f"{options.output}: --module needs an HLO format: .txt, .dot or .svg")
    export_traces(find_traces(options.trace), options.output)
    return GOOD


def _export_hlo(options: argparse.Namespace) -> int:
    """Write the executables of a trace, or one of them; name those that a picture leaves out."""
    from pytest_tfperf.export.formats import export_hlo
    from pytest_tfperf.facts.executions import pick, programs_of_run
    from pytest_tfperf.trace.logdir import find_traces

    programs = programs_of_run(find_traces(options.trace))
    programs = programs if options.module is None else [pick(programs, options.module)]
    export_hlo([program.module for program in programs], options.output)
    if programs[0].runs is None and options.module is None:
        say("no step ran an executable; the loaded executables were written")
    if len(programs) > 1 and options.output.suffix.lower() != ".txt":
        others = ", ".join(program.title for program in programs[1:])
        say(f"{options.output} shows {programs[0].title}; --module takes another: {others}")
    return GOOD


def _padding(options: argparse.Namespace) -> int:
    from pytest_tfperf.cli.padding import padding_profile, padding_view  # numpy

    profile = padding_profile(options.file, options.tpu, options.verbose > 0).plain()
    if options.json:
        print(profiles_json([profile]))
    else:
        write_out(*padding_view(profile, options.verbose, this_screen()))
    return UNKNOWN if profile.value("padding_overhead").number is None else GOOD


def profile_view(analysed: AnalysedTrace, verbosity: int, screen: Screen) -> Iterator[str | Line]:
    """Yield the first screen of a trace; with verbosity 1 all tables, with 2 all their rows."""
    profile = analysed.profile
    yield from _first_screen(analysed, verbosity, screen)
    if not verbosity:
        yield line((_hidden(profile), "dim"))
        return
    yield from _parts_and_metrics(profile, screen)
    for key, table in profile.tables.items():
        if key in _PICTURES and verbosity < 2:
            continue
        yield ""
        yield from profile_table(key, table, verbosity, screen)
    yield from _reasons(profile)


def _first_screen(analysed: AnalysedTrace, verbosity: int, screen: Screen) -> Iterator[str | Line]:
    profile = analysed.profile
    yield line((profile.name, "bold"), f": {facts_of(analysed)}")
    if parts := parts_of(profile):
        yield _bar(parts, screen)
        yield _legend(parts, screen)
    sentence = verdict(profile, analysed.devices)
    yield line(("Verdict: ", "bold"), (sentence, "bold yellow"))
    yield from _advice(profile.advice, verbosity)
    yield from figures_and_ops(profile)
    for note in profile.notes:
        yield from labelled([("note:", note)])


def _bar(parts: Sequence[Part], screen: Screen) -> Line:
    """Draw the parts of the mean step side by side."""
    lengths = lengths_of([part.share for part in parts], min(_BAR_WIDTH, screen.width))
    glyphs = zip(_glyphs(parts), lengths, strict=True)
    return line(*((glyph * length, style) for (glyph, style), length in glyphs), deeper=None)


def _legend(parts: Sequence[Part], screen: Screen) -> Line:
    """Name the parts of the bar with their shares; a line ends between two parts."""
    legend: list[str | Span] = []
    used = 0
    for glyph, part in zip(_glyphs(parts), parts, strict=True):
        named = f" {part.title} {format_quantity(part.share, '0..1')}"
        gap = "" if not legend else "  " if used + len(named) + 3 <= screen.width else "\n"
        used = (0 if gap == "\n" else used + len(gap)) + 1 + len(named)
        legend += [gap, glyph, named]
    return line(*legend, deeper=None)


def _glyphs(parts: Sequence[Part]) -> list[Span]:
    """Return the marks of the parts, which differ without colours too."""
    return [(_GLYPHS[min(n, len(_GLYPHS) - 1)], _COLOURS[part.key]) for n, part in enumerate(parts)]


def _advice(advice: Sequence[Advice], verbosity: int) -> Iterator[str | Line]:
    if not advice:
        yield "No advice: nothing exceeds its threshold."
        return
    kept = advice if verbosity else advice[:_FEW_ADVICE]
    yield "What to do, by the time that it saves at most:"
    yield from labelled([(f"  {n}.", _advised(one, verbosity)) for n, one in enumerate(kept, 1)])
    if len(kept) < len(advice):
        yield line((f"  and {len(advice) - len(kept)} more (-v shows all)", "dim"))


def _advised(advice: Advice, verbosity: int) -> str:
    win = f"up to {format_quantity(advice.win_s, 's')} a step: " if advice.win_s is not None else ""
    look = f"; look at {advice.look}" if verbosity and advice.look else ""
    return f"{win}{advice.what} ({advice.because}{look})"


def _hidden(profile: Profile) -> str:
    """Name what -v adds."""
    n_known = sum(value.number is not None for value in profile.metrics.values())
    n_unknown = len(profile.metrics) - n_known
    unknown = f", and why {plural(n_unknown, 'metric is', 'metrics are')} unknown"
    n_tables = len(profile.tables.keys() - _PICTURES)
    shown_too = f"{plural(n_known, 'metric')} and {plural(n_tables, 'table')}"
    return f"-v shows {shown_too}{unknown if n_unknown else ''}."


def _parts_and_metrics(profile: Profile, screen: Screen) -> Iterator[str | Line]:
    """Yield the tables of parts and of known metrics."""
    parts = parts_of(profile)
    rows = [
        (part.title, format_quantity(part.mean_s, "s"), format_quantity(part.share, "0..1"))
        for part in parts
    ]
    if parts:
        mean_s = sum(step.period_s for step in profile.steps) / len(profile.steps)
        yield ""
        whole = ("step", format_quantity(mean_s, "s"), "100 %")
        yield from number_table(["part of a step", "mean", "share"], [*rows, whole], screen.width)
    known = [
        (name, format_quantity(value.number, profile.registry[name].shown_unit))
        for name, value in profile.metrics.items()
        if value.number is not None and name in profile.registry
    ]
    if known:
        yield ""
        yield from number_table(["metric", "value"], known, screen.width)


def _reasons(profile: Profile) -> Iterator[str | Line]:
    """Yield causes and advice of metrics, and the reasons for unknown ones."""
    values = profile.metrics.items()
    causes = [
        (f"{name}, {key}:", str(value.detail[key]))
        for name, value in values
        for key in ("traced", "where", "try")
        if value.detail.get(key)
    ]
    unknown = [
        (f"{name} is unknown:", value.why or "") for name, value in values if value.number is None
    ]
    for rows in (causes, unknown):
        if rows:
            yield ""
            for row in rows:
                yield " ".join(row)

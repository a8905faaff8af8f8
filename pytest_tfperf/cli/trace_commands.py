"""Commands for traces and HLO: analyze, check, padding, export."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pytest_tfperf.checks.arguments import Wanted, argument_names
from pytest_tfperf.checks.limits import check_limits
from pytest_tfperf.cli.output import (
    GOOD,
    TRACES,
    UNKNOWN,
    USAGE,
    add_command,
    add_output,
    fitted,
    profiles_json,
    refuse,
    status_of,
    width,
)
from pytest_tfperf.errors import ExportError, LimitError, TraceError
from pytest_tfperf.report.profile_text import render_profile
from pytest_tfperf.report.text_layout import wrapped
from pytest_tfperf.results import BROKEN, Profile


def add_commands(commands: Any) -> None:
    """Add the commands to the parser."""
    _add_analyze(commands)
    _add_check(commands)
    _add_padding(commands)
    _add_export(commands)


def _add_analyze(commands: Any) -> None:
    analyze = add_command(
        commands,
        "analyze",
        _analyze,
        "show where the time of a trace's steps went",
        (
            "Show the parts of a trace's steps, every metric, what to do next, and the tables "
            "behind them. Takes XSpace traces of TensorFlow or JAX from CPU, GPU or TPU, and needs "
            "neither framework. Exit status 2 if a trace cannot be read or has no step."
        ),
        "logdir/ -v",
    )
    analyze.add_argument("traces", type=Path, nargs="+", metavar="TRACE", help=TRACES)
    analyze.add_argument(
        "--target-step-time",
        type=_seconds,
        metavar="TIME",
        help=(
            "predict how long steps of this time would wait for input (input_bound_at_target): "
            "12ms, 0.5s"
        ),
    )
    add_output(analyze, "unknown metrics with reasons, causes, and all rows of tables")


def _add_check(commands: Any) -> None:
    check = add_command(
        commands,
        "check",
        _check,
        "check a trace against limits",
        (
            "Check traces against limits, which are those of the marker: --max-METRIC and "
            "--min-METRIC of each metric in docs/metrics.md, and --METRIC for an exact count. "
            "A limit on input_bound_at_target needs --target-step-time TIME. Values are numbers, "
            "or 5%, 20ms, 1.5GiB; a time and bytes need their unit. Exit status 1 if a limit is "
            "broken, 2 if a trace or a limit cannot be read, 3 if a value is unknown."
        ),
        "logdir/ --max-input-bound 5% --max-retraces 0",
    )
    check.usage = "tfperf check [-h] [-v] [--json] TRACE --max-METRIC VALUE ..."
    check.add_argument("traces", type=Path, nargs=1, metavar="TRACE", help=TRACES)
    add_output(check, "checks that passed")


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
            "Write a trace as Chrome's trace JSON (.json, .json.gz) or in Perfetto's format "
            "(.perfetto-trace, .pftrace), with a track for the steps. Or write the optimised HLO "
            "of the executables that its steps ran: all as text (.txt), or the largest as a graph "
            "(.dot) or a picture (.svg, which needs Graphviz). Exit status 2 on failure."
        ),
        "logdir/ -o trace.perfetto-trace",
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


def _analyze(options: argparse.Namespace, rest: Sequence[str]) -> int:
    refuse(options, rest)
    profiles, errors = _profiles_of(options.traces, options.target_step_time)
    if profiles:
        print(
            profiles_json(profiles)
            if options.json
            else "\n\n".join(fitted(render_profile, profile, options) for profile in profiles)
        )
    return _report_errors(errors) or GOOD


def _check(options: argparse.Namespace, rest: Sequence[str]) -> int:
    wanted = Wanted.read(_pairs(rest))
    if others := sorted({*wanted.given} & {*argument_names({})} - {"target_step_time"}):
        raise LimitError(f"{others[0]} is not a limit: it tells pytest how to profile")
    if not wanted.limits:
        raise LimitError(
            "no limit to check; give some, as in tfperf check TRACE --max-input-bound 5%"
        )
    profiles, errors = _profiles_of(options.traces, wanted.target_step_time)
    checks = [
        check for profile in profiles for check in check_limits(profile, wanted.limits, None, False)
    ]
    if options.json:
        print(profiles_json(profiles))
    elif profiles:
        where = {
            profile.name: f"{profile.name}: " if len(profiles) > 1 else "" for profile in profiles
        }
        shown = [check for check in checks if options.verbose or check.verdict in BROKEN]
        lines = (f"{where[check.profile]}{check.verdict.value}: {check.message}" for check in shown)
        print(wrapped("\n".join(lines), width()) or "PASS")
    return _report_errors(errors) or status_of(checks)


def _report_errors(errors: Sequence[TraceError]) -> int:
    """Print the errors to stderr, and return their exit status: 0 without any."""
    for error in errors:
        print(f"tfperf: {error}", file=sys.stderr)
    return USAGE if errors else GOOD


def _export(options: argparse.Namespace, rest: Sequence[str]) -> int:
    refuse(options, rest)
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
    from pytest_tfperf.analysis.xla.programs import pick, programs_of_run
    from pytest_tfperf.export.formats import export_hlo
    from pytest_tfperf.trace.logdir import find_traces

    programs = programs_of_run(find_traces(options.trace))
    programs = programs if options.module is None else [pick(programs, options.module)]
    export_hlo([program.module for program in programs], options.output)
    if programs[0].runs is None and options.module is None:
        print(
            "tfperf: no step ran an executable; the loaded executables were written",
            file=sys.stderr,
        )
    if len(programs) > 1 and options.output.suffix.lower() != ".txt":
        others = ", ".join(program.title for program in programs[1:])
        print(
            f"tfperf: {options.output} shows {programs[0].title}; --module takes another: {others}",
            file=sys.stderr,
        )
    return GOOD


def _padding(options: argparse.Namespace, rest: Sequence[str]) -> int:
    refuse(options, rest)
    from pytest_tfperf.cli.padding import padding_profile, render_padding  # numpy

    profile = padding_profile(options.file, options.tpu, options.verbose)
    print(profiles_json([profile]) if options.json else fitted(render_padding, profile, options))
    return UNKNOWN if profile.value("padding_overhead").number is None else GOOD


def _profiles_of(
    paths: Iterable[Path], target_step_time_s: float | None = None
) -> tuple[list[Profile], list[TraceError]]:
    """
    Analyse traces; those of one logdir are the hosts of a job.

    Returns:
        The profiles, and an error for each trace without one.
    """
    from pytest_tfperf.analysis.multi_host import profiles_of_job  # numpy: not for tfperf show
    from pytest_tfperf.trace.logdir import find_traces

    profiles: list[Profile] = []
    errors: list[TraceError] = []
    for path in paths:
        try:
            found, missing = profiles_of_job(find_traces(path), target_step_time_s)
        except TraceError as error:
            found, missing = [], [error]
        profiles += found
        errors += missing
    return profiles, errors


def _pairs(rest: Sequence[str]) -> dict[str, str]:
    """Read limits from `--max-input-bound 5%` or `--max-input-bound=5%`."""
    words = [
        part for word in rest for part in (word.split("=", 1) if word.startswith("--") else [word])
    ]
    names, values = words[::2], words[1::2]
    wrong = next((name for name in names if not name.startswith("--")), None)
    if wrong is not None or len(names) != len(values):
        raise LimitError(
            f"{wrong or names[-1]} is not a limit with a value, as in --max-input-bound 5%"
        )
    return {
        name.removeprefix("--").replace("-", "_"): value
        for name, value in zip(names, values, strict=True)
    }


def _seconds(text: str) -> float:
    try:
        return Wanted.read({"target_step_time": text}).target_step_time or 0.0
    except LimitError as error:
        raise argparse.ArgumentTypeError(str(error)) from error

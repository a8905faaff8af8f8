"""The command `tfperf`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_tfperf import __version__
from pytest_tfperf.baseline.store import entry_key
from pytest_tfperf.checks import Wanted, check_limits
from pytest_tfperf.errors import ExportError, LimitError, TfperfError, TraceError
from pytest_tfperf.report.analysis import render_profile
from pytest_tfperf.report.runfile import read_run
from pytest_tfperf.report.terminal import render
from pytest_tfperf.results import BROKEN, FORMAT, Check, Json, Profile, Run, Verdict

GOOD, FAILED, USAGE, UNKNOWN = 0, 1, 2, 3
_COLOURS = {"red": "31", "green": "32", "yellow": "33"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit status: 0 good, 1 a check failed, 2 unreadable input or usage, 3 a check is unknown."""
    options, rest = _parser().parse_known_args(arguments)
    try:
        return int(options.run_command(options, rest))
    except TfperfError as error:
        print(f"tfperf: {error}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GOOD


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tfperf", description="Look at traces, and at what pytest-tfperf measured, outside pytest.")
    parser.add_argument("--version", action="version", version=f"tfperf {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    traces = "an .xplane.pb file, or a logdir: then its newest run"
    analyze = _command(
        commands, "analyze", _analyze, "where the time of a trace's steps went",
        "Analyse XSpace traces of TensorFlow or JAX; needs no TensorFlow. Exit status 2 if a trace cannot be read or has no step.",
    )  # fmt: skip
    analyze.add_argument("traces", type=Path, nargs="+", metavar="TRACE", help=traces)
    analyze.add_argument(
        "--target-step-time", type=_seconds, metavar="TIME", help="predict input_bound for steps of this time, as in 12ms",
    )  # fmt: skip
    check = _command(
        commands, "check", _check, "a trace against limits",
        "Hold traces to limits, named as the marker's: --max-input-bound 5% --min-device-busy 0.8; with --target-step-time 12ms also "
        "--max-input-bound-at-target 5%. Exit status 1 if one is broken, 3 if one is unknown.",
    )  # fmt: skip
    check.add_argument("traces", type=Path, nargs=1, metavar="TRACE", help=traces)
    show = _command(
        commands, "show", _show, "a run file as pytest showed it",
        "Show a run file of pytest --tfperf-report run.json. Exit status 1 if a check in it failed, 3 if one is unknown.",
    )  # fmt: skip
    show.add_argument("run", type=Path, metavar="RUN.json", help="the run file")
    padding = _command(
        commands, "padding", _padding, "what the padding of tiled layouts costs on a TPU",
        "Say how much of a TPU's memory and matrix-unit work is padding: measured where the HLO was compiled for a TPU, else predicted; "
        "with -v also which sizes do not suit a GPU's tensor cores. Exit status 2 if the file cannot be read, 3 if the answer is unknown.",
    )  # fmt: skip
    padding.add_argument("file", type=Path, metavar="FILE", help=f"HLO text (.hlo, .txt), or a trace: {traces}, its first host")
    padding.add_argument("--tpu", metavar="NAME", help="the generation to predict for: v2 v3 v4 v5e v5p v6e v7x; v5e if not given")
    export = commands.add_parser(
        "export", help="a trace for Perfetto's UI or chrome://tracing, or its HLO as text or a picture",
        description="Write a trace as Chrome's trace JSON (.json, .json.gz) or in Perfetto's format (.perfetto-trace, .pftrace), "
        "with the steps as a track of their own. Or write the optimised HLO of the executables that its steps ran: all as text (.txt), "
        "or the largest as a graph (.dot) or a picture (.svg, which needs Graphviz).",
    )  # fmt: skip
    export.add_argument("trace", type=Path, metavar="TRACE", help=f"{traces}, all its hosts; HLO is that of the first host")
    export.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the file to write")
    export.add_argument("--module", metavar="NAME", help="of HLO only the executable of this name: step, or step(12)")
    export.set_defaults(run_command=_export, parser=export)
    compare = _command(
        commands, "compare", _compare, "two traces side by side",
        "Show the metrics of two traces side by side, and how the HLO that they ran differs: which ops, which fusions, whose shapes. "
        "Exit status 2 if one cannot be read.",
    )  # fmt: skip
    compare.add_argument("before", type=Path, metavar="A", help=traces)
    compare.add_argument("after", type=Path, metavar="B", help="what to compare with it")
    return parser


def _command(commands: Any, name: str, run: object, short: str, long: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=short, description=long)
    parser.add_argument("-v", "--verbose", action="store_true", help="also what passed, what is unknown and why, and more rows of tables")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.set_defaults(run_command=run, parser=parser)
    return parser


def _analyze(options: argparse.Namespace, rest: Sequence[str]) -> int:
    _refuse(options, rest)
    profiles, errors = _profiles_of(options.traces, options.target_step_time)
    if profiles:
        print(_json(profiles) if options.json else "\n\n".join(render_profile(profile, options.verbose) for profile in profiles))
    return _told(errors) or GOOD


def _check(options: argparse.Namespace, rest: Sequence[str]) -> int:
    wanted = Wanted.read(_pairs(rest))
    if not wanted.limits:
        raise LimitError("no limit to check; give some, as in tfperf check TRACE --max-input-bound 5%")
    profiles, errors = _profiles_of(options.traces, wanted.target_step_time)
    checks = [check for profile in profiles for check in check_limits(profile, wanted.limits, None, False)]
    if options.json:
        print(_json(profiles))
    elif profiles:
        where = {profile.name: f"{profile.name}: " if len(profiles) > 1 else "" for profile in profiles}
        shown = [check for check in checks if options.verbose or check.verdict in BROKEN]
        print("\n".join(f"{where[check.profile]}{check.verdict.value}: {check.message}" for check in shown) or "PASS")
    return _told(errors) or _status(checks)


def _told(errors: Sequence[TraceError]) -> int:
    """Say what could not be read; the exit status for that, 0 if there is nothing."""
    for error in errors:
        print(f"tfperf: {error}", file=sys.stderr)
    return USAGE if errors else GOOD


def _show(options: argparse.Namespace, rest: Sequence[str]) -> int:
    _refuse(options, rest)
    run = read_run(options.run)
    if options.json:
        print(_json(replace(profile, name=entry_key(test.nodeid, profile.name)) for test in run.tests for profile in test.profiles))
    else:
        print(_shown(run, options.verbose))
    return _status(check for test in run.tests for check in test.checks)


def _export(options: argparse.Namespace, rest: Sequence[str]) -> int:
    _refuse(options, rest)
    from pytest_tfperf.export import export_traces, shows_hlo  # numpy
    from pytest_tfperf.trace.logdir import find_traces

    if shows_hlo(options.output):
        return _export_hlo(options)
    if options.module is not None:
        raise ExportError(f"{options.output}: --module is for HLO, which .txt, .dot and .svg are")
    export_traces(find_traces(options.trace), options.output)
    return GOOD


def _export_hlo(options: argparse.Namespace) -> int:
    """The executables of a trace, or the one that is asked for; what a picture leaves out is said."""
    from pytest_tfperf.analysis.programs import pick, programs_of_run
    from pytest_tfperf.export import export_hlo
    from pytest_tfperf.trace.logdir import find_traces

    programs = programs_of_run(find_traces(options.trace))
    programs = programs if options.module is None else [pick(programs, options.module)]
    export_hlo([program.module for program in programs], options.output)
    if programs[0].runs is None and options.module is None:
        print("tfperf: no step ran an executable; what is written is alive all the same", file=sys.stderr)
    if len(programs) > 1 and options.output.suffix.lower() != ".txt":
        others = ", ".join(program.title for program in programs[1:])
        print(f"tfperf: {options.output} shows {programs[0].title}; --module takes another: {others}", file=sys.stderr)
    return GOOD


def _padding(options: argparse.Namespace, rest: Sequence[str]) -> int:
    _refuse(options, rest)
    from pytest_tfperf.report.padding import padding_profile, render_padding  # numpy

    profile = padding_profile(options.file, options.tpu, options.verbose)
    print(_json([profile]) if options.json else render_padding(profile, options.verbose))
    return UNKNOWN if profile.value("padding_overhead").number is None else GOOD


def _compare(options: argparse.Namespace, rest: Sequence[str]) -> int:
    _refuse(options, rest)
    from pytest_tfperf.report.side_by_side import compared_json, read_side, render_compared  # numpy

    before, after = read_side(options.before), read_side(options.after)
    if options.json:
        print(json.dumps(compared_json(before, after), indent=1, allow_nan=False))
    else:
        print(render_compared(before, after, options.verbose))
    return GOOD


def _profiles_of(paths: Iterable[Path], target_step_time_s: float | None = None) -> tuple[list[Profile], list[TraceError]]:
    """The profile of each trace, those of one logdir being the hosts of a job; and why others have none."""
    from pytest_tfperf.analysis.hosts import profiles_of_job  # numpy: not for tfperf show
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
    """Limits from `--max-input-bound 5%` or `--max-input-bound=5%`."""
    words = [part for word in rest for part in (word.split("=", 1) if word.startswith("--") else [word])]
    names, values = words[::2], words[1::2]
    wrong = next((name for name in names if not name.startswith("--")), None)
    if wrong is not None or len(names) != len(values):
        raise LimitError(f"{wrong or names[-1]} is no limit with a value, as in --max-input-bound 5%")
    return {name.removeprefix("--").replace("-", "_"): value for name, value in zip(names, values, strict=True)}


def _seconds(text: str) -> float:
    try:
        return Wanted.read({"target_step_time": text}).target_step_time or 0.0
    except LimitError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _refuse(options: argparse.Namespace, rest: Sequence[str]) -> None:
    if rest:
        options.parser.error(f"unrecognized arguments: {' '.join(rest)}")


def _json(profiles: Iterable[Profile]) -> str:
    """`{"format", "profiles"}`, as all commands print it."""
    content: Json = {"format": FORMAT, "profiles": [profile.to_json() for profile in profiles]}
    return json.dumps(content, indent=1, allow_nan=False)


def _status(checks: Iterable[Check]) -> int:
    verdicts = {check.verdict for check in checks}
    if verdicts & (BROKEN - {Verdict.UNKNOWN}):
        return FAILED
    return UNKNOWN if Verdict.UNKNOWN in verdicts else GOOD


def _shown(run: Run, verbose: bool) -> str:
    lines = render(run, shutil.get_terminal_size((80, 24)).columns, int(verbose))
    if not sys.stdout.isatty():
        return "\n".join(line.text for line in lines)
    return "\n".join(f"\033[{_COLOURS[line.colour]}m{line.text}\033[0m" if line.colour else line.text for line in lines)


if __name__ == "__main__":
    sys.exit(main())

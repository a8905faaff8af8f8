"""The command `tfperf check`, which checks traces against limits."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.checks.limits import check_limits
from pytest_tfperf.cli.common import (
    TRACES,
    add_command,
    add_output,
    path_or_url,
    profiles_json,
    status_of,
)
from pytest_tfperf.cli.many_traces import add_rules, check_many, refuse_urls
from pytest_tfperf.cli.progress import analyse_traces, report_errors
from pytest_tfperf.cli.terminal import write_out
from pytest_tfperf.errors import LimitError
from pytest_tfperf.metric_evidence import TRACED_TIMES
from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.quantities import COUNT
from pytest_tfperf.report.run_text import TextLine, colour
from pytest_tfperf.results import BROKEN, Check, Verdict

_TRACED = ("traced", "the profiler ran in these steps and slows them down")


def add_commands(commands: Any) -> None:
    """Add the command to the parser."""
    check = add_command(
        commands,
        "check",
        _check,
        "check a trace against limits",
        (
            "Check traces against limits, which are those of the marker: --max-METRIC and "
            "--min-METRIC for each metric, and --METRIC for an exact count. step_time and "
            "input_wait are those of the traced steps, which the profiler slows down. Exit status "
            "1 if a limit is broken, 2 if a trace or a limit cannot be read, 3 if a value is "
            "unknown. With --rules it checks a whole store, a line for each trace that breaks a "
            "limit."
        ),
        "logdir/ --max-input-bound 5% --max-retraces 0",
    )
    check.usage = "tfperf check [-h] [-v] [--json] TRACE --max-METRIC VALUE ...\n"
    check.usage += "       tfperf check [--json] [--most N] STORE|GLOB --rules FILE.toml"
    check.add_argument(
        "traces",
        type=path_or_url,
        nargs=1,
        metavar="TRACE",
        help=f"{TRACES}; with --rules a store of tfperf analyze --into, or a glob or URL of traces",
    )
    add_rules(check)
    add_output(check, "checks that passed")
    add_limits(check)


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add an option for each limit of the marker, which `read_limits` reads."""
    parser.allow_abbrev = False  # a part of one name is often the whole of another
    group = parser.add_argument_group(
        "limits", "Numbers, or 5%, 20ms, 1.5GiB; a time and bytes need their unit."
    )
    for name, metric in METRICS.items():
        flag = name.replace("_", "-")
        exact = [f"--{flag}"] if metric.unit == COUNT else []
        group.add_argument(
            *(f"--max-{flag}", f"--min-{flag}", *exact),
            action=_Limit,
            dest="limits",
            metavar="VALUE",
            help=metric.meaning.replace("%", "%%"),
        )
    group.add_argument(
        "--target-step-time",
        action=_Limit,
        dest="limits",
        metavar="TIME",
        help="time of a step on a faster device, for a limit on input_bound_at_target",
    )


class _Limit(argparse.Action):
    """Collect the limits as arguments of the marker."""

    def __call__(
        self,
        _: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        assert option_string is not None
        name = option_string.removeprefix("--").replace("-", "_")
        namespace.limits = {**(namespace.limits or {}), name: values}


def _check(options: argparse.Namespace) -> int:
    if options.rules is None:
        wanted = read_limits(options)
        return check_traces(refuse_urls(options.traces), wanted, options.verbose, options.json)
    if options.limits:
        flag = f"--{next(iter(options.limits)).replace('_', '-')}"
        raise LimitError(f"{flag}: with --rules, limits stand in that file")
    return check_many(options)


def check_traces(paths: Sequence[Path], wanted: Wanted, verbose: int, as_json: bool) -> int:
    """Check traces, print what was found or the profiles as JSON, and return the exit status."""
    analysed, errors = analyse_traces(paths, wanted.target_step_time)
    traced = wanted.asks_for(TRACED_TIMES)
    profiles = [one.with_traced_times() if traced else one.profile for one in analysed]
    checks = [
        check.with_details(_TRACED)
        if check.metric in TRACED_TIMES and check.verdict is not Verdict.UNKNOWN
        else check
        for profile in profiles
        for check in check_limits(profile, wanted.limits, None, False)
    ]
    if as_json:
        print(profiles_json(profiles))
    elif profiles:
        write_out(*_check_lines(checks, len(profiles) > 1, verbose > 0))
    return report_errors(errors) or status_of(checks)


def read_limits(options: argparse.Namespace) -> Wanted:
    """Return the limits that were given, or raise LimitError if one is wrong or there is none."""
    wanted = Wanted.read(options.limits or {})
    if not wanted.limits:
        raise LimitError(
            "no limit to check; give some, as in tfperf check TRACE --max-input-bound 5%"
        )
    return wanted


def _check_lines(checks: Sequence[Check], named: bool, verbose: bool) -> list[TextLine]:
    """Return the checks that did not pass, and with `verbose` all; `PASS` if all passed."""
    lines = []
    for check in checks:
        is_shown = verbose or check.verdict in BROKEN
        where = f"{check.profile}: " if named else ""
        text = f"{where}{check.verdict.value}: {check.message}"
        lines += [TextLine(line, colour(check)) for line in text.splitlines() if is_shown]
    if lines:
        return lines
    traced = [check.metric for check in checks if check.metric in TRACED_TIMES]
    origin = f" ({', '.join(dict.fromkeys(traced))} of traced steps)" if traced else ""
    return [TextLine(f"PASS{origin}", "green")]

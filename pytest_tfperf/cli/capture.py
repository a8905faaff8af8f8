"""The command `tfperf capture`, which traces running jobs."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from pytest_tfperf.checks.arguments import parse_steps
from pytest_tfperf.cli.check import add_limits, check_traces, read_limits
from pytest_tfperf.cli.common import (
    GOOD,
    UNKNOWN,
    USAGE,
    add_command,
    add_output,
    json_text,
    reading,
    say,
    time_above_zero,
)
from pytest_tfperf.cli.progress import report_errors
from pytest_tfperf.quantities import BYTES, format_quantity
from pytest_tfperf.remote.profiler_service import TraceOptions, check_duration, read_workers
from pytest_tfperf.text import for_terminal


def add_commands(commands: Any) -> None:
    """Add the command to the parser."""
    capture = add_command(
        commands,
        "capture",
        _capture,
        "trace a running job",
        (
            "Trace running processes for some time, all at once, and write the traces into a new "
            "run of a logdir. Each process has called tf.profiler.experimental.server.start(PORT) "
            "or jax.profiler.start_server(PORT), or is TensorFlow Serving. Whoever reaches that "
            "port can trace the process, so close it to others. Exit status 2 if no worker was "
            "traced, 3 if some were not; with --check also that of tfperf check."
        ),
        "grpc://localhost:6009 --ms 2000 -o logdir/",
    )
    capture.usage = (
        "tfperf capture [-h] [OPTIONS] ADDRESS[,ADDRESS...] -o LOGDIR "
        "[--check --max-METRIC VALUE ...]"
    )
    capture.add_argument(
        "workers",
        metavar="ADDRESS",
        help="profiler servers of one job, grpc://HOST:PORT, with commas between them",
    )
    capture.add_argument(
        "-o",
        "--output",
        "--into",
        type=Path,
        required=True,
        metavar="LOGDIR",
        help="folder that gets the run, for tfperf analyze, TensorBoard and XProf",
    )
    _add_trace_options(capture)
    capture.add_argument(
        "--check",
        action="store_true",
        help="check the traces against limits, as tfperf check: --check --max-input-bound 5%%",
    )
    add_output(capture, "checks that passed")
    add_limits(capture)


def _add_trace_options(capture: argparse.ArgumentParser) -> None:
    capture.add_argument(
        "--ms",
        type=reading(lambda text: check_duration(parse_steps(text, 0))),
        default=2000,
        metavar="N",
        help="duration (default: 2000)",
    )
    capture.add_argument(
        "--all",
        action="store_true",
        help="keep nothing unless every worker was traced (exit status 2)",
    )
    capture.add_argument(
        "--attempts",
        type=reading(parse_steps),
        default=3,
        metavar="N",
        help=(
            "attempts with a worker that cannot be reached, is being traced, or ran nothing "
            "(default: 3)"
        ),
    )
    capture.add_argument(
        "--delay",
        type=reading(time_above_zero),
        default=0.0,
        metavar="TIME",
        help="wait first: 30s, 5min",
    )
    for name, levels, default, what in (
        ("host", 4, 2, "the host: 0 off, 1 what users mark, 2 and ops, 3 and cheap ops"),
        ("device", 2, 1, "accelerators: 0 off, 1 on"),
        ("python", 2, 0, "calls of Python functions, which they slow down: 0 off, 1 on"),
    ):
        capture.add_argument(
            f"--{name}-tracer-level",
            type=int,
            choices=range(levels),
            default=default,
            metavar="N",
            help=f"detail of {what} (default: {default})",
        )


_LEVELS = ("host_tracer_level", "device_tracer_level", "python_tracer_level")


def _capture(options: argparse.Namespace) -> int:
    if options.limits and not options.check:
        options.parser.error("limits are for --check")
    wanted = read_limits(options) if options.check else None
    from pytest_tfperf.remote.job import CapturePlan, capture_job  # numpy, grpc

    workers = read_workers(options.workers)
    time.sleep(options.delay)
    levels = {name: getattr(options, name) for name in _LEVELS}
    plan = CapturePlan(
        options=TraceOptions(duration_ms=options.ms, **levels),
        attempts=options.attempts,
        requires_all=options.all,
    )
    job = capture_job(workers, plan, options.output, _announce)
    if not options.json:
        for trace in job.traces:
            print(for_terminal(f"{trace}  {format_quantity(trace.stat().st_size, BYTES)}"))
    elif wanted is None:
        errors = [str(error) for error in job.errors]
        print(json_text({"traces": [str(trace) for trace in job.traces], "errors": errors}))
    report_errors(job.errors)
    if not job.traces:
        return USAGE
    status = GOOD
    if wanted is not None:
        status = check_traces(job.traces, wanted, options.verbose, options.json)
    elif not options.json:
        print(for_terminal(f"next: tfperf analyze {options.output}"))
    return status or (UNKNOWN if job.errors else GOOD)


def _announce(text: str) -> None:
    """Say on stderr what the command waits for."""
    if text:
        say(text)

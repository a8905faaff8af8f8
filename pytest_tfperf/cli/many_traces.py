"""Analysis and checks of thousands of traces, as `tfperf analyze --into` and `check --rules`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_tfperf.cli.common import FAILED, GOOD, UNKNOWN, USAGE, json_text, silence_libraries
from pytest_tfperf.cli.progress import Progress
from pytest_tfperf.cli.terminal import write_out
from pytest_tfperf.errors import StoreError, TfperfError
from pytest_tfperf.quantities import RATIO, format_quantity
from pytest_tfperf.report.run_text import TextLine
from pytest_tfperf.results import Verdict
from pytest_tfperf.text import for_terminal, plural

if TYPE_CHECKING:
    from pytest_tfperf.stores.checks import FleetChecks
    from pytest_tfperf.stores.trace_results import TraceResults
    from pytest_tfperf.stores.traces import AlignedRun, FleetSummary

MOST_LINES = 20
"""Traces that a check names by default."""
_FORMAT = 1
_MOST_RUNS = _MOST_ERRORS = 10
_COLOURS = {Verdict.FAIL: "red", Verdict.UNKNOWN: "red"}


def add_many(parser: argparse.ArgumentParser) -> None:
    """Add the options for many traces."""
    parser.add_argument(
        "--into",
        metavar="STORE",
        help="analyse many traces, and store their metrics and steps in this folder or URL "
        "(s3://, gs://), where a trace of the same content is analysed once",
    )
    parser.add_argument(
        "--executor",
        metavar="N|URL",
        help="with --into: number of processes (default: one a core), or a Dask scheduler, as in "
        "dask://host:8786",
    )
    parser.add_argument(
        "--shard",
        metavar="I/N",
        help="with --into: only the i-th of n parts of the traces, as in 3/64",
    )


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Add the options for limits of many traces."""
    parser.add_argument(
        "--rules",
        type=Path,
        metavar="FILE.toml",
        help="check the traces of a store of tfperf analyze --into, or of a glob or URL, against "
        "the limits in this file",
    )
    parser.add_argument(
        "--most",
        type=int,
        default=MOST_LINES,
        metavar="N",
        help=f"with --rules: name this many traces at most (default: {MOST_LINES})",
    )


def refuse_urls(traces: Iterable[Path | str]) -> list[Path]:
    """Return the traces if all are of this machine, and raise StoreError for a URL."""
    found = []
    for trace in traces:
        if isinstance(trace, str):
            raise StoreError(f"{trace} is a URL: tfperf analyze --into STORE analyses traces there")
        found.append(trace)
    return found


def analyse_many(options: argparse.Namespace) -> int:
    """Analyse traces into a store, print what was found, and return the exit status."""
    if options.into is None:
        raise StoreError("--executor and --shard need --into STORE")
    if options.output is not None or options.target_step_time is not None:
        raise StoreError("--into goes with neither -o nor --target-step-time")
    silence_libraries()
    with _missing_packages():
        from pytest_tfperf.stores.traces import analyze_traces

        with _shown() as progress:
            summary = analyze_traces(
                [str(trace) for trace in options.traces],
                options.into,
                executor=options.executor,
                shard=options.shard,
                progress=progress,
            )
    if options.json:
        print(json_text({"format": _FORMAT, **asdict(summary)}))
    else:
        write_out(*_summary_lines(summary, options.verbose > 0))
    _print_few([f"{_from_here(name)}: {why}" for name, why in summary.errors], _MOST_ERRORS)
    return USAGE if summary.errors else GOOD


def check_many(options: argparse.Namespace) -> int:
    """Check the traces of a store or of an address, print the worst, and return the status."""
    if options.most < 1:
        raise StoreError("--most must be at least 1")
    silence_libraries()
    with _missing_packages():
        from pytest_tfperf.stores.checks import check_store, read_rules

        rules = read_rules(options.rules)
        with _store_of(str(options.traces[0])) as store:
            found = check_store(store, rules)
    unused = rules.unused(trace.name for trace in found.traces)
    _print_few([f"match = {glob!r} of {options.rules} matches no trace" for glob in unused], 5)
    _print_few(found.unread, _MOST_ERRORS)
    if options.json:
        traces = [trace.to_json() for trace in found.traces]
        print(json_text({"format": _FORMAT, "traces": traces}))
    else:
        write_out(*_check_lines(found, options.most))
    if found.of(Verdict.FAIL):
        return FAILED
    is_sure = not found.of(Verdict.UNKNOWN) and not found.unread
    return GOOD if is_sure and any(trace.is_limited for trace in found.traces) else UNKNOWN


@contextmanager
def _store_of(address: str) -> Iterator[TraceResults]:
    """Give the store at an address, or one of the traces that lie there."""
    from pytest_tfperf.stores.trace_files import is_glob
    from pytest_tfperf.stores.trace_results import TraceResults
    from pytest_tfperf.stores.traces import analyze_traces
    from pytest_tfperf.trace.logdir import ENDING, PACKED

    if not is_glob(address) and not address.endswith((ENDING, PACKED)):
        yield TraceResults(address)
        return
    with tempfile.TemporaryDirectory(prefix="tfperf-") as folder:
        with _shown() as progress:
            analyze_traces(address, folder, progress=progress)
        yield TraceResults(folder)


@contextmanager
def _shown() -> Iterator[Callable[[int, int], None]]:
    """Give a function that shows the number of traces that are done."""
    began = time.monotonic()
    with closing(Progress()) as progress:
        progress.phase("listing traces")

        def show(n_done: int, n_traces: int) -> None:
            left_s = (time.monotonic() - began) * (n_traces - n_done) / n_done
            progress.phase(f"analysing: {n_done} of {n_traces} traces", left_s)

        yield show


@contextmanager
def _missing_packages() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise TfperfError(
            f"many traces need {error.name}: install it with pip install 'pytest-tfperf[history]'"
        ) from error


def _summary_lines(summary: FleetSummary, every: bool) -> list[TextLine]:
    """Return the number of traces, and a line for each run of several hosts."""
    n_stored = summary.n_traces - summary.n_analysed - len(summary.errors)
    text = f"{plural(summary.n_traces, 'trace')}: {summary.n_analysed} analysed"
    text += f", {n_stored} stored before" if n_stored else ""
    text += f", {len(summary.errors)} cannot be read" if summary.errors else ""
    shown = summary.runs if every else summary.runs[:_MOST_RUNS]
    lines = [TextLine(text), *(TextLine(_run_line(run)) for run in shown)]
    n_more = len(summary.runs) - len(shown)
    return [*lines, *([TextLine(f"and {n_more} more runs; -v shows all")] if n_more else [])]


def _run_line(run: AlignedRun) -> str:
    hosts = f"{_from_here(run.run)}: {plural(run.n_hosts, 'host')}"
    hosts += f" and {run.n_unread} that cannot be read" if run.n_unread else ""
    if run.step_skew is None:
        return f"{hosts}, step_skew unknown: {run.why}"
    skew = format_quantity(run.step_skew, RATIO)
    return f"{hosts}, step_skew {skew} over {plural(run.n_steps, 'step')}, slowest {run.slowest}"


def _from_here(text: str) -> str:
    """Return a line that begins with a path relative to the current folder, if it lies below."""
    return text.removeprefix(f"{Path.cwd()}{os.sep}")


def _check_lines(found: FleetChecks, most: int) -> list[TextLine]:
    """Return a line for each trace that does not keep its limits, and then the numbers."""
    bad = [trace for trace in found.traces if not trace.is_good]
    lines = [TextLine(_from_here(trace.line), _COLOURS[trace.verdict]) for trace in bad[:most]]
    if len(bad) > most:
        lines.append(TextLine(f"and {plural(len(bad) - most, 'more trace')}"))
    return [*lines, TextLine(found.summary, "red" if bad else "green")]


def _print_few(sentences: Sequence[str], most: int) -> None:
    """Print the first sentences to standard error, and the number of the others."""
    for text in sentences[:most]:
        print(for_terminal(f"tfperf: {text}"), file=sys.stderr)
    if len(sentences) > most:
        print(f"tfperf: and {len(sentences) - most} more", file=sys.stderr)

"""Analysis of the traces at some addresses, into a store."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from pytest_tfperf.fleet.dispatch import Dispatcher, Progress
from pytest_tfperf.fleet.executors import opened
from pytest_tfperf.fleet.fleet_store import ERRORS, FleetStore, StoreIndex
from pytest_tfperf.fleet.host_alignment import AlignedRun, align_runs
from pytest_tfperf.fleet.trace_files import (
    TraceFile,
    find_trace_files,
    of_shard,
    parse_shard,
)
from pytest_tfperf.stores.objects import is_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSummary:
    """The traces of a run of `analyze_traces`."""

    n_traces: int
    """Number of traces of the shard."""
    n_analysed: int
    """Number of contents that were analysed now; the others were stored, or have an error."""
    errors: tuple[tuple[str, str], ...]
    """Name and reason of each trace without metrics."""
    runs: tuple[AlignedRun, ...]
    """Runs of several hosts whose hosts all have a result, the one with most skew first."""


def analyze_traces(
    urls: str | Sequence[str],
    into: str,
    *,
    executor: Executor | str | int | None = None,
    shard: str | None = None,
    progress: Progress | None = None,
) -> FleetSummary:
    """
    Analyse traces by many workers, and store their metrics and steps as Parquet.

    A result is known by the hash of its trace, so that nothing is analysed twice. A worker that
    dies costs its trace, which another tries again. With processes, a program must start from
    `if __name__ == "__main__":`.

    Args:
        urls: Addresses of fsspec: traces, folders, or globs such as `s3://jobs/**/*.xplane.pb`.
        into: Address of the store.
        executor: An executor, which is not shut down; a number of local processes, by default one
            a core; or `dask://host:8786`.
        shard: `3/64` for the third of 64 parts of the traces.
        progress: Called with the numbers of traces that are done, and of all that are to do.

    Raises:
        StoreError: If there is no trace, or the store or the workers cannot be reached.
    """
    store = FleetStore(into)
    index = store.index()
    every = find_trace_files([urls] if isinstance(urls, str) else urls)
    mine = every if shard is None else of_shard(every, *parse_shard(shard))
    waiting = [trace for trace in mine if not index.content_of(trace)]
    known = [trace for trace in mine if index.content_of(trace) in index.errors]
    errors = _stored_errors(store, index, known)
    n_analysed, read = 0, {}
    if waiting:
        in_process = store.is_of_process or is_of(waiting[0].files, "memory")
        with opened(executor, len(waiting), in_process) as pool:
            found = Dispatcher(pool, store).outcomes(waiting)
            for n_done, (trace, outcome) in enumerate(found, 1):
                n_analysed += outcome.is_new and not outcome.why
                read[trace.name] = outcome.sha256
                errors += [(trace.name, outcome.why)] if outcome.why else []
                if progress is not None:
                    progress(n_done, len(waiting))
        index = store.index()
    keys = {trace.name: index.key_of(trace) or read.get(trace.name, "") for trace in every}
    return FleetSummary(
        n_traces=len(mine),
        n_analysed=n_analysed,
        errors=tuple(sorted(errors)),
        runs=tuple(align_runs(store, index, keys)),
    )


def _stored_errors(
    store: FleetStore, index: StoreIndex, traces: Sequence[TraceFile]
) -> list[tuple[str, str]]:
    """Return name and reason of traces that were found damaged earlier."""
    contents = {trace.name: index.content_of(trace) for trace in traces}
    rows, _ = store.rows(ERRORS, sorted(set(contents.values())))
    reasons = {row["sha256"]: str(row["why"]) for row in rows}
    return [
        (name, reasons.get(content, "it is damaged, and so is its stored reason"))
        for name, content in contents.items()
    ]

"""
Analysis of thousands of traces by many workers, and the alignment of the hosts of their runs.

A run is a folder in XProf's layout, `plugins/profile/RUN/HOST.xplane.pb`.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass

from pytest_tfperf.errors import StoreError, TraceError
from pytest_tfperf.json_file import plain_strings
from pytest_tfperf.metrics.multi_host import IDLE_PARTS, analyse_trace, host_skew
from pytest_tfperf.stores.objects import is_of, reason
from pytest_tfperf.stores.trace_files import (
    TraceFile,
    find_trace_files,
    of_shard,
    parse_shard,
    run_and_host,
)
from pytest_tfperf.stores.trace_results import (
    DAMAGED,
    FAILED,
    RUNS,
    STEPS,
    TRACES,
    StoreIndex,
    TraceResults,
)
from pytest_tfperf.stores.workers import opened, results
from pytest_tfperf.trace.xspace import decode_trace
from pytest_tfperf.values import Value

MOST_TRACE_BYTES = 2**31
"""Size from which no trace is read: https://protobuf.dev/programming-guides/proto-limits/."""
_ONE_AT_A_TIME = threading.Lock()
_WHERE = "the slowest host is "
_HOSTS_AT_A_TIME = 200
"""Hosts whose steps are read together: a query costs as much as reading some hundred of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedRun:
    """The hosts of a run, aligned by step."""

    run: str
    """Folder of the run."""
    n_hosts: int
    """Number of hosts that are aligned."""
    n_unread: int
    """Number of its hosts whose traces could not be analysed."""
    n_steps: int
    """Number of steps that all of them have."""
    step_skew: float | None
    """Work of the slowest host ÷ median − 1, None if it is unknown."""
    slowest: str
    """Name of the slowest host; empty if the skew is unknown."""
    why: str
    """Reason why the skew is unknown, else empty."""


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
    progress: Callable[[int, int], None] | None = None,
) -> FleetSummary:
    """
    Analyse traces by many workers, and store their metrics and steps as Parquet.

    A result is known by the hash of its trace, so that nothing is analysed twice. A worker that
    dies costs the traces that it had, which the next run tries again. With processes, a program
    must start from `if __name__ == "__main__":`.

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
    store = TraceResults(into)
    index = store.index()
    every = find_trace_files([urls] if isinstance(urls, str) else urls)
    mine = every if shard is None else of_shard(every, *parse_shard(shard))
    waiting = [trace for trace in mine if index.content_of(trace) in ("", FAILED)]
    errors = _stored_errors(store, [one for one in mine if index.content_of(one) == DAMAGED])
    n_analysed = 0
    if waiting:
        in_process = store.is_of_process or is_of(waiting[0].files, "memory")
        with opened(executor, len(waiting), in_process) as pool:
            found = results(pool, analyse_into, waiting, store)
            for n_done, (trace, result) in enumerate(found, 1):
                if isinstance(result, StoreError):
                    result = _error(store, trace, FAILED, "", str(result))
                is_new, why = result
                n_analysed += is_new
                errors += [(trace.name, why)] if why else []
                if progress is not None:
                    progress(n_done, len(waiting))
        index = store.index()
    return FleetSummary(
        n_traces=len(mine),
        n_analysed=n_analysed,
        errors=tuple(sorted(errors)),
        runs=tuple(_align_runs(store, index, every)),
    )


def analyse_into(trace: TraceFile, store: TraceResults) -> tuple[bool, str]:
    """
    Analyse a trace, one at a time in each worker, and store its result or error.

    Return whether its content was new and has a result now, and why it has none, else "".
    """
    with _ONE_AT_A_TIME:
        if trace.size >= MOST_TRACE_BYTES:
            why = f"{trace.size / 1e9:,.1f} GB, and protobuf allows less than 2 GiB"
            return _error(store, trace, DAMAGED, "", why)
        try:
            raw = trace.read()
        except Exception as error:  # file systems have no common class of errors
            return _error(store, trace, FAILED, "", f"cannot be read: {reason(error)}")
        sha256 = hashlib.sha256(raw).hexdigest()
        is_new = not store.has_metrics(sha256)
        if is_new:
            try:
                analysed = analyse_trace(decode_trace(raw, trace.name))
            except TraceError as error:
                why = str(error).removeprefix("trace ").removeprefix(trace.name).strip(": ")
                return _error(store, trace, DAMAGED, sha256, why)
            except Exception as error:  # it costs its own result and no other
                why = f"the analysis failed: {type(error).__name__}: {error}"
                return _error(store, trace, FAILED, sha256, why)
            store.add_analysed(trace, sha256, analysed)
        store.add_trace(trace, sha256, sha256)
        return is_new, ""


def _error(
    store: TraceResults, trace: TraceFile, state: str, sha256: str, why: str
) -> tuple[bool, str]:
    why = " ".join(why.split())
    store.add_trace(trace, state, sha256, why)
    return False, why


def _stored_errors(store: TraceResults, damaged: Sequence[TraceFile]) -> list[tuple[str, str]]:
    """Return name and reason of traces that were found damaged earlier."""
    rows, _ = store.rows(TRACES, [f"{trace.fingerprint}-{DAMAGED}" for trace in damaged])
    reasons = {row["trace"]: str(row["why"]) for row in rows}
    absent = "it is damaged, and so is its stored reason"
    return [(one.name, reasons.get(plain_strings(one.name), absent)) for one in damaged]


def _align_runs(
    store: TraceResults, index: StoreIndex, traces: Sequence[TraceFile]
) -> list[AlignedRun]:
    """Align the runs whose hosts all have a result, and store that; the most skew comes first."""
    contents = {trace.name: index.content_of(trace) for trace in traces}
    whole = {run: hosts for run, hosts in runs_of(contents).items() if all(hosts.values())}
    sound = {
        run: {host: one for host, one in hosts.items() if one in index.analysed}
        for run, hosts in whole.items()
    }
    found = []
    for run, skew in skews_of(store, sound).items():
        n_hosts, hosts = len(sound[run]), whole[run]
        found.append(_aligned(run, skew, n_hosts, len(hosts) - n_hosts))
        text = json.dumps([run, sorted(hosts.items())])
        key = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
        if key not in index.runs:
            store.add(RUNS, key, [asdict(found[-1])])
    found.sort(key=lambda one: -1.0 if one.step_skew is None else one.step_skew, reverse=True)
    return found


def _aligned(run: str, skew: Value, n_hosts: int, n_unread: int) -> AlignedRun:
    return AlignedRun(
        run=plain_strings(run),
        n_hosts=n_hosts,
        n_unread=n_unread,
        n_steps=skew.detail.get("n_steps", 0),
        step_skew=skew.number,
        slowest=plain_strings(str(skew.detail.get("where", "")).removeprefix(_WHERE)),
        why=skew.why or "",
    )


def runs_of(contents: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return runs of several hosts: the content of each host, from that of each trace."""
    found: dict[str, dict[str, str]] = {}
    for name, content in contents.items():
        run, host = run_and_host(name)
        if run:
            found.setdefault(run, {})[host] = content
    return {run: hosts for run, hosts in found.items() if len(hosts) > 1}


def skews_of(store: TraceResults, runs: Mapping[str, Mapping[str, str]]) -> dict[str, Value]:
    """Return the skew of the hosts of each run, whose contents have tables of steps."""
    waiting, found = dict(runs), dict[str, Value]()
    while waiting:
        some: dict[str, Mapping[str, str]] = {}
        while waiting and sum(map(len, some.values())) < _HOSTS_AT_A_TIME:
            some |= [waiting.popitem()]
        steps = _work_by_step(store, {one for hosts in some.values() for one in hosts.values()})
        found |= {run: _skew(hosts, steps) for run, hosts in some.items()}
    return found


def _skew(hosts: Mapping[str, str], steps: Mapping[str, Mapping[str, float]]) -> Value:
    """Return the skew of the hosts of a run by the work in each step of their contents."""
    if len(hosts) < 2 or any(content not in steps for content in hosts.values()):
        return Value.unknown("step_skew", "the steps of fewer than two hosts are stored")
    return host_skew([(host, steps[content]) for host, content in sorted(hosts.items())])


def _work_by_step(store: TraceResults, contents: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return the work in each step of each content, by the name of the step, in nanoseconds."""
    idle = tuple(f"{part}_ns" for part in IDLE_PARTS)
    columns = ("sha256", "name", "period_ns", *idle)
    rows, _ = store.rows(STEPS, sorted(contents), columns=columns)
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        steps, name = found.setdefault(row["sha256"], {}), row["name"]
        steps[name] = steps.get(name, 0.0) + row["period_ns"] - sum(row[part] for part in idle)
    return found

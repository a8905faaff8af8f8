"""Traces whose share of waiting for input is known, in XProf's layout, and what a store holds of them."""

import hashlib
from pathlib import Path

from helpers.xspace import at, line, plane, space

PERIOD = 10


def waiting_trace(wait, n_steps=3, work=0):
    """Steps of 10 ms, of which each waits `wait` ms for input and computes `work` ms."""
    steps = [at("train", n * PERIOD, n * PERIOD + 9, step_num=n, _r=1) for n in range(n_steps)]
    waits = [
        at("IteratorGetNextOp::DoCompute", n * PERIOD + 1, n * PERIOD + 1 + wait)
        for n in range(n_steps)
    ]
    works = [
        at("ExecutorState::Process", n * PERIOD + 5, n * PERIOD + 5 + work, id=n, iter_num=0)
        for n in range(n_steps)
        if work
    ]
    return space(
        plane("/host:CPU", line("python", *steps), line("worker", *waits), line("ops", *works))
    )


def write_traces(folder, contents):
    """Write traces by their names, and return the folder's glob."""
    for name, content in contents.items():
        path = Path(folder) / f"{name}.xplane.pb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return f"{folder}/**/*.xplane.pb"


def different_traces(n):
    """Traces of different content by name."""
    return {f"trace_{i:03}": waiting_trace(1 + i / (2 * n)) for i in range(n)}


def stored(store, kind):
    """Names of the objects of a kind in a local store, without the temporary folders of killed writers."""
    return sorted(path.name for path in (Path(store) / f"{kind}-1").glob("*.parquet"))


def tables_of(contents):
    """Names of the tables that these contents have."""
    return sorted(f"{hashlib.sha256(one).hexdigest()}.parquet" for one in contents)

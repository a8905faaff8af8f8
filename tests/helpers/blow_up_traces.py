"""
Traces that mean harm: much of one thing. `FORMS[name](n)` is the trace with n of them.

Each has what the analyses need to look at it: three steps of 10 ms, or as many as the form is about.
"""

from helpers.pods import hlo_proto
from helpers.xspace import MS, Ref, at, event, field, line, plane, space

HOST = "/host:CPU"
STEPS = [at("train", n * 10, n * 10 + 9, step_num=n, _r=1) for n in range(3)]


def on_host(*events, lines=(), steps=STEPS, others=(), metadata=None):
    """A host with steps, the events on a line, and other lines and planes."""
    more = [line("work", *events, id=2)] if events else []
    return space(plane(HOST, line("python", *steps, id=1), *more, *lines, metadata=metadata), *others)  # fmt: skip


def many_steps(n):
    return [event("train", k * MS, MS, step_num=k, _r=1) for k in range(n)]


def gpus(n):
    work = line("Stream #1", at("k", 1, 2, correlation_id=1), id=1)
    return on_host(others=[plane(f"/device:GPU:{k}", work) for k in range(n)])


def overlapping_events(n):
    """No two events nest, and all overlap: as many lanes as events."""
    return on_host(*(event("a", k, 10**6) for k in range(n)))


def empty_stats(n):
    return on_host(lines=[line("w", field(4, field(1, 1) + field(3, 1000) + b"\x22\x00" * n))])


def events_of_long_names(n):
    """Half of the bytes are a name, which the other half repeats as short events."""
    name = "x" * (10 * n)
    return on_host(*(event(name, k, 1) for k in range(n)))


def long_stats_of_events(n):
    """Half of the bytes are a text, to which the stats of the other half refer."""
    text = Ref("x" * min(14 * n, 100_000))
    return on_host(*(event("x", k, 1, name=text) for k in range(n)))


def allocators(n):
    """Allocators of one event each, spread over the steps."""
    given = enumerate(27 * k / n for k in range(n))
    return on_host(
        *(
            at("MemoryAllocation", ms, ms, allocator_name=f"a{k}", bytes_allocated=k)
            for k, ms in given
        )
    )


def modules(n):
    protos = {f"m({k})": {"Hlo Proto": hlo_proto("m")} for k in range(n)}
    return on_host(others=[plane("/host:metadata", metadata=protos)])


def a_deep_iterator(n):
    """Three stages of the input, whose names hold all those above them."""
    waits = [at("IteratorGetNextOp::DoCompute", k * 10, k * 10 + 5) for k in range(3)]
    names = ["Iterator::Root" + "::Map" * (n // (3 - k)) for k in range(3)]
    stages = [at(name, 9 * k, 9 * k + 9, id=k, parent_id=k - 1) for k, name in enumerate(names)]
    return on_host(*waits, lines=[line("data", *stages, id=8)])


FORMS = {
    form.__name__.replace("_", " "): form
    for form in (
        *(gpus, overlapping_events, empty_stats, events_of_long_names, long_stats_of_events),
        *(allocators, modules, a_deep_iterator),
    )
}

"""
Traces that mean harm: much of one thing. `FORMS[name](n)` is the trace with n of them.

Each has what the analyses need to look at it: three steps of 10 ms, or as many as the form is about.
"""

from helpers.pods import all_reduce, array, hlo_proto
from helpers.xspace import MS, Ref, Uint, at, event, field, line, plane, space, varint

HOST = "/host:CPU"
STEPS = [at("train", n * 10, n * 10 + 9, step_num=n, _r=1) for n in range(3)]
GPU_STATS = {"clock_rate": 1410000, "core_count": 108, "memory_bandwidth": Uint(1555 * 10**9), "compute_cap_major": 8}  # fmt: skip


def on_host(*events, lines=(), steps=STEPS, others=(), metadata=None):
    """A host with steps, the events on a line, and other lines and planes."""
    more = [line("work", *events, id=2)] if events else []
    return space(plane(HOST, line("python", *steps, id=1), *more, *lines, metadata=metadata), *others)  # fmt: skip


def spread(n, make):
    """Events one after the other in the steps: `make(number, begin, end)` in milliseconds."""
    return [make(k, 27 * k / n, 27 * (k + 0.5) / n) for k in range(n)]


def empty_planes(n):
    return on_host() + field(1, b"") * n


def named_planes(n):
    return on_host() + b"".join(field(1, field(2, f"p{k}")) for k in range(n))


def planes_of_an_event(n):
    return on_host(others=[plane(f"p{k}", line("", event("x", k, 1))) for k in range(n)])


def gpus(n):
    return on_host(
        others=[
            plane(f"/device:GPU:{k}", line("Stream #1", at("k", 1, 2, correlation_id=1), id=1))
            for k in range(n)
        ]
    )


def filled_planes(n):
    """As many planes as are read, with ever more lines."""
    lines = [line(f"t{k}", event("x", k, 1)) for k in range(n // 10_000 + 1)]
    return on_host(others=[plane(f"p{k}", *lines) for k in range(min(n, 9_000))])


def filled_gpus(n):
    """As many GPUs as are read, with ever more kernels."""
    work = spread(n // 1000 + 1, lambda k, a, b: at(f"kernel_{k}", a, b, correlation_id=k))
    one = line("Stream #1", *work, id=1)
    return on_host(others=[plane(f"/device:GPU:{k}", one) for k in range(min(n, 1000))])


def filled_tpus(n):
    """As many TPU cores as are read, with ever more ops."""
    work = spread(n // 1000 + 1, lambda k, a, b: at(f"%fusion.{k} = f32[8] fusion()", a, b))
    lines = (
        line("Steps", at("0", 0, 9), at("1", 10, 19)),
        line("XLA Modules", at("jit_f(1)", 0, 9), at("jit_f(1)", 10, 19)),
        line("XLA Ops", *work),
    )
    return space(*(plane(f"/device:TPU:{k}", *lines) for k in range(min(n, 1000))))


def gpus_with_specs(n):
    return on_host(
        others=[
            plane(f"/device:GPU:{k}", line("Stream #1", at("k", 1, 2), id=1), stats=GPU_STATS)
            for k in range(n)
        ]
    )


def tpus(n):
    return space(
        *(
            plane(
                f"/device:TPU:{k}",
                line("Steps", at("0", 0, 9), at("1", 10, 19)),
                line("XLA Modules", at("jit_f(1)", 0, 9), at("jit_f(1)", 10, 19)),
                line("XLA Ops", at("fusion", 0, 5), at("fusion", 10, 15)),
            )
            for k in range(n)
        )
    )


def sparse_cores(n):
    return on_host(
        others=[
            plane(f"/device:TPU:0 SparseCore {k}", line("XLA Ops", at("fusion", 0, 5)))
            for k in range(n)
        ]
    )


def host_planes(n):
    return space(*(plane(HOST, line("python", *STEPS)) for _ in range(n)))


def lines_of_a_plane(n):
    return on_host(lines=[line(f"t{k}", at("x", 1, 2), id=k + 9) for k in range(n)])


def empty_lines(n):
    return on_host(lines=[b"\x1a\x00" * n])


def streams(n):
    gpu = [line(f"Stream #{k}", at("k", 1, 2), id=k) for k in range(n)]
    return on_host(others=[plane("/device:GPU:0", *gpu)])


def events_of_a_name(n):
    return on_host(*spread(n, lambda k, a, b: at("MatMul:MatMul", a, b)))


def empty_events(n):
    """Events of two bytes: no name, no time."""
    return on_host(lines=[field(3, b"\x22\x00" * n)])


def names(n):
    return on_host(*spread(n, lambda k, a, b: at(f"op{k}:MatMul", a, b)))


def long_name(n):
    return on_host(at("x" * n, 1, 2), at("y:" * (n // 20), 1, 2))


def steps(n):
    return on_host(
        steps=[event("train", k * MS, MS, step_num=k, _r=1) for k in range(n)],
    )


def unnamed_steps(n):
    """Steps that are found by their name alone."""
    return space(plane(HOST, line("python", *(event("train_step", k * MS, MS) for k in range(n)))))


def overlapping_steps(n):
    return on_host(
        steps=[event("train", k * MS, 10**6 * MS, step_num=k, _r=1) for k in range(n)],
    )


def steps_of_a_tpu(n):
    at_ms = [(k * MS, MS) for k in range(n)]
    lines = {"Steps": [str(k) for k in range(n)], "XLA Modules": ["jit_f(1)"] * n, "XLA Ops": ["fusion"] * n}  # fmt: skip
    return space(
        plane(
            "/device:TPU:0",
            *(
                line(name, *(event(text, *when) for text, when in zip(texts, at_ms, strict=True)))
                for name, texts in lines.items()
            ),
        )
    )


def nested_events(n):
    return on_host(*(event("f", k, 27 * MS - 2 * k) for k in range(n)))


def staircase(n):
    """Each event overlaps the next one alone."""
    return on_host(*(event("a", 1000 * k, 1500) for k in range(n)))


def overlapping_events(n):
    """No two events nest, and all overlap: as many lanes as events."""
    return on_host(*(event("a", k, 10**6) for k in range(n)))


def overlapping_in_two(n):
    """Half of the events never end before the others begin."""
    return on_host(
        *(event("a", k, 10**9 + k) for k in range(n // 2)),
        *(event("b", 10**8 + 2 * k, 1) for k in range(n // 2)),
    )


def empty_stats(n):
    return on_host(lines=[line("w", field(4, field(1, 1) + field(3, 1000) + b"\x22\x00" * n))])


def stats_of_an_event(n):
    return on_host(at("x", 1, 2, **{f"s{k}": k for k in range(n)}))


def stats_of_a_step(n):
    stats = {"step_num": 0, "_r": 1} | {f"s{k}": k for k in range(n)}
    return on_host(steps=[at("train", 0, 9, **stats), *STEPS[1:]])


def repeated_stats(n):
    """An event with one stat n times, out of order."""
    stat = field(4, field(3, 7) + field(1, 1))
    return on_host(at("x", 1, 2, bytes=1), lines=[line("w", field(4, field(1, 1) + stat * n))])


def split_events(n):
    """Events whose fields are not in their order."""
    one = field(4, field(3, 1000) + field(4, field(1, 1) + field(3, 1)) + field(1, 1))
    return on_host(lines=[line("w", one * n)])


def stat_names(n):
    entries = (field(5, field(1, k) + field(2, field(2, "step_num"))) for k in range(9, n + 9))
    return on_host() + field(1, field(2, HOST) + b"".join(entries))


def stat_names_of_the_host(n):
    """Every stat of the host's plane has the same name."""
    return on_host(
        lines=[field(5, field(1, k) + field(2, field(2, "_r"))) for k in range(9, n + 9)]
    )


def events_of_long_names(n):
    """Half of the bytes are a name, which the other half repeats as short events."""
    name = "x" * (10 * n)
    return on_host(*(event(name, k, 1) for k in range(n)))


def long_stats_of_events(n):
    """Half of the bytes are a text, to which the stats of the other half refer."""
    text = Ref("x" * min(14 * n, 100_000))
    return on_host(*(event("x", k, 1, name=text) for k in range(n)))


def stats_of_a_repeated_name(n):
    """A name has many stats, and many events."""
    stats = {f"s{k}": 1 for k in range(n)}
    return on_host(*(event("x", k, 1) for k in range(n)), metadata={"x": stats})


def event_names(n):
    entries = b"".join(field(4, field(1, k) + field(2, field(2, "x"))) for k in range(9, n + 9))
    return on_host(lines=[entries])


def stats_of_names(n):
    return on_host(
        metadata={f"x{k}": {f"s{k}": 1} for k in range(n)},
    )


def allocators(n):
    return on_host(
        *spread(
            n,
            lambda k, a, b: at("MemoryAllocation", a, a, allocator_name=f"a{k}", bytes_allocated=k),
        )
    )


def filled_allocators(n):
    """As many allocators as are followed, with ever more events."""
    return on_host(
        *spread(
            n,
            lambda k, a, b: at("MemoryAllocation", a, a, allocator_name=f"a{k % 1000}", bytes_allocated=k),
        )
    )  # fmt: skip


def many_steps(n):
    return [event("train", k * MS, MS, step_num=k, _r=1) for k in range(n)]


def allocators_and_steps(n):
    given = [event("MemoryAllocation", k * MS, 0, allocator_name=f"a{k % 1000}", bytes_allocated=k) for k in range(n)]  # fmt: skip
    return on_host(*given, steps=many_steps(n))


def programs_and_steps(n):
    ran = [event(f"op.{k}", k * MS, 10, hlo_op=f"op.{k}", hlo_module=f"m{k}", program_id=k) for k in range(n)]  # fmt: skip
    return on_host(*ran, steps=many_steps(n))


def ops_and_steps(n):
    """Each step runs another op of one program."""
    ran = [event(f"op.{k}", k * MS, 10, hlo_op=f"op.{k}", hlo_module="m", program_id=1) for k in range(n)]  # fmt: skip
    return on_host(*ran, steps=many_steps(n))


def gpus_and_steps(n):
    """As many GPUs as are read, and ever more steps."""
    one = line("Stream #1", at("k", 1, 2), id=1)
    gpus = [plane(f"/device:GPU:{k}", one) for k in range(min(n, 1000))]
    return on_host(steps=many_steps(n), others=gpus)


def tpus_and_steps(n):
    steps = line("Steps", *(event(str(k), k * MS, MS) for k in range(n)))
    one = line("XLA Ops", at("fusion", 0, 1))
    cores = [plane(f"/device:TPU:{k}", one) for k in range(1, min(n, 1000))]
    return space(plane("/device:TPU:0", steps, one), *cores)


def gpus_and_filled_steps(n):
    """As many steps on as many GPUs as are read together."""
    one = line("Stream #1", *spread(n // 100 + 1, lambda k, a, b: at("k", a, b)), id=1)
    return on_host(
        steps=many_steps(1990), others=[plane(f"/device:GPU:{k}", one) for k in range(1000)]
    )


def tpus_and_filled_steps(n):
    marks = line("Steps", *(event(str(k), k * MS, MS) for k in range(1990)))
    one = line("XLA Ops", *spread(n // 100 + 1, lambda k, a, b: at("fusion", a, b)))
    cores = [plane(f"/device:TPU:{k}", one) for k in range(1, 1000)]
    return space(plane("/device:TPU:0", marks, one), *cores)


def kernels_and_steps(n):
    work = [event(f"kernel_{k}", k * MS, 10) for k in range(n)]
    return on_host(steps=many_steps(n), others=[plane("/device:GPU:0", line("Stream #1", *work, id=1))])  # fmt: skip


def collectives_and_steps(n):
    ops = [f"%all-reduce.{k} = f32[8]{{0}} all-reduce(f32[8]{{0}} %p), replica_groups={{{{0,1}}}}" for k in range(n)]  # fmt: skip
    marks = line("Steps", *(event(str(k), k * MS, MS) for k in range(n)))
    work = line("XLA Ops", *(event(op, k * MS, 10) for k, op in enumerate(ops)))
    return space(*(plane(f"/device:TPU:{core}", marks, work) for core in range(2)))


def stages_and_steps(n):
    waits = [event("IteratorGetNextOp::DoCompute", k * MS, MS // 2) for k in range(n)]
    stages = [event(f"Iterator::Root::Map[{k}]::Range", k * MS, 100, id=k) for k in range(n)]
    return on_host(*waits, lines=[line("data", *stages, id=8)], steps=many_steps(n))


def functions_and_steps(n):
    calls = [event(f"f{k}", k * MS, 10, tf_function_call="traced-nonXla", tracing_count=k) for k in range(n)]  # fmt: skip
    return on_host(*calls, steps=many_steps(n))


def ops_of_the_host_and_steps(n):
    return on_host(*(event(f"op{k}:MatMul", k * MS, 10) for k in range(n)), steps=many_steps(n))


def memory_events(n):
    return on_host(
        *spread(
            n,
            lambda k, a, b: at(
                ("MemoryAllocation", "MemoryDeallocation")[k % 2], a, a,
                allocator_name="GPU_0_bfc", addr=k // 2, allocation_bytes=64, bytes_allocated=64 * (1 - k % 2),
            ),
        )
    )  # fmt: skip


def kernels(n):
    work = spread(n, lambda k, a, b: at(f"kernel_{k}", a, b, correlation_id=k, tf_op=f"op{k}:MatMul"))  # fmt: skip
    return on_host(others=[plane("/device:GPU:0", line("Stream #1(Compute)", *work, id=1), stats=GPU_STATS)])  # fmt: skip


def launches(n):
    """Launches and kernels that all have one id."""
    begun = spread(n, lambda k, a, b: at("cuLaunchKernel", a, b, correlation_id=1))
    work = spread(n, lambda k, a, b: at("gemm", a, b, correlation_id=1))
    return on_host(*begun, others=[plane("/device:GPU:0", line("Stream #1", *work, id=1))])


def modules(n):
    proto = hlo_proto("m", ("p", "parameter", array(4), field(35, 0)))
    return on_host(
        others=[plane("/host:metadata", metadata={f"m({k})": {"Hlo Proto": proto} for k in range(n)})]
    )  # fmt: skip


def instructions(n):
    """One module of a long chain of additions, which each step runs."""
    proto = hlo_proto(
        "m",
        ("p", "parameter", array(4, 4), field(35, 0)),
        *(
            (f"a{k}", "add", array(4, 4), field(35, k) + field(36, varint(k - 1) * 2))
            for k in range(1, n)
        ),
    )
    return with_module(proto)


def nested_shapes(n):
    """A tuple in a tuple, n times; the format allows 100."""
    shape = array(4)
    for _ in range(min(n, 99)):
        shape = field(2, 13) + field(4, shape)
    wide = field(2, 13) + field(4, shape) * (n // 100)
    return with_module(hlo_proto("m", ("p", "parameter", wide, field(35, 0))))


def deep_shapes(n):
    heads, size = [], 0
    for _ in range(n):
        heads.append(b"\x22" + varint(size))
        size += len(heads[-1])
    shape = b"".join(reversed(heads))
    return with_module(hlo_proto("m", ("p", "parameter", shape, field(35, 0))))


def with_module(proto, name="m"):
    """Steps that each run this module."""
    runs = [
        at("TfrtCpuExecutable::ExecuteAsyncOnStream", n * 10 + 1, n * 10 + 5, name=name)
        for n in range(3)
    ]
    thunks = [
        at("dot.1", n * 10 + 2, n * 10 + 3, hlo_op="a1", hlo_module=name, program_id=1)
        for n in range(3)
    ]
    return on_host(
        *runs,
        lines=[line("tf_XLAEigen", *thunks, id=7)],
        others=[plane("/host:metadata", metadata={f"{name}(1)": {"Hlo Proto": proto}})],
    )


def computations(n):
    """A chain of computations, each of which calls the one before it twice."""
    shape = array(4)
    first = field(1, "c0") + field(5, 1) + field(6, 1) + field(2, field(1, "p") + field(2, "parameter") + field(3, shape) + field(35, 1))  # fmt: skip
    body = [field(3, first)]
    for k in range(2, n + 2):
        calls = b"".join(
            field(2, field(1, f"x{j}") + field(2, "call") + field(3, shape) + field(35, j + 2) + field(36, varint(1)) + field(38, varint(k - 1)))
            for j in range(2)
        )  # fmt: skip
        given = field(2, field(1, "p") + field(2, "parameter") + field(3, shape) + field(35, 1))
        body.append(field(3, field(1, f"c{k}") + field(5, k) + field(6, 3) + given + calls))
    return with_module(field(1, field(1, "m") + field(6, n + 1) + b"".join(body)))


def allocations(n):
    """An executable of n buffers."""
    proto = hlo_proto("m", ("p", "parameter", array(4), field(35, 0)))
    return with_module(proto + field(3, field(3, field(2, 64)) * n))


def collectives(n):
    ops = [f"%all-reduce.{k} = f32[8]{{0}} all-reduce(f32[8]{{0}} %p), replica_groups={{{{0,1}}}}" for k in range(n)]  # fmt: skip
    return _pod(
        [at(op, 9 * k / n, 9 * (k + 0.5) / n) for k, op in enumerate(ops)],
        {op: {"hlo_category": "all-reduce"} for op in ops},
    )


def collective_runs(n):
    op = all_reduce("{{0,1}}")
    return _pod([at(op, 9 * k / n, 9 * (k + 0.5) / n) for k in range(n)], {op: {"hlo_category": "all-reduce"}})  # fmt: skip


def iota_groups(n):
    """Collectives whose few bytes claim 65,536 devices each."""
    ops = [all_reduce("[1,65536]<=[65536]").replace("%all-reduce.3", f"%all-reduce.{k}") for k in range(n)]  # fmt: skip
    return _pod([at(op, 9 * k / n, 9 * (k + 0.5) / n) for k, op in enumerate(ops)], {})


def _pod(ops, metadata):
    return space(
        *(
            plane(
                f"/device:TPU:{core}",
                line("Steps", at("0", 0, 9), at("1", 10, 19)),
                line("XLA Modules", at("jit_f(1)", 0, 9), at("jit_f(1)", 10, 19)),
                line("XLA Ops", *ops),
                metadata=metadata,
            )
            for core in range(2)
        )
    )


def iterators(n):
    """A pipeline of n stages."""
    return _pipeline(n, lambda k: f"Iterator::Root::Map[{k}]::Range")


def deep_iterators(n):
    """Stages that each name all those above them: names of n characters in all grow as n²."""
    return _pipeline(n, lambda k: "Iterator::Root" + "::Map" * k)


def a_deep_iterator(n):
    return _pipeline(3, lambda k: "Iterator::Root" + "::Map" * (n // (3 - k)))


def iterator_elements(n):
    return _pipeline(n, lambda k: "Iterator::Root::Prefetch")


def _pipeline(n, name):
    waits = [at("IteratorGetNextOp::DoCompute", k * 10, k * 10 + 5) for k in range(3)]
    stages = [
        at(name(k), 27 * k / n, 27 * (k + 1) / n, id=k, parent_id=k - 1, element_id=k)
        for k in range(n)
    ]
    return on_host(*waits, lines=[line("data", *stages, id=8)])


def prefetched(n):
    made = spread(n, lambda k, a, b: at("PrefetchProduce", a, b, element_id=k))
    taken = spread(n, lambda k, a, b: at("PrefetchConsume", a, b, element_id=k))
    return on_host(*taken, lines=[line("pool", *made, id=8)])


def functions(n):
    return on_host(
        *spread(
            n,
            lambda k, a, b: at(f"f{k}", a, b, tf_function_call="traced-nonXla", tracing_count=k),
        )
    )


def eager_calls(n):
    return on_host(*spread(n, lambda k, a, b: at("EagerExecute", a, b, is_func=1, name=f"f{k}")))


def executor_runs(n):
    return on_host(*spread(n, lambda k, a, b: at("ExecutorState::Process", a, b, id=k, iter_num=k)))


def compilations(n):
    return on_host(*spread(n, lambda k, a, b: at("CpuCompiler::RunBackend", a, b, name=f"m{k}")))


def executions(n):
    return on_host(
        *spread(n, lambda k, a, b: at("TfrtCpuExecutable::ExecuteAsyncOnStream", a, b, name=f"m{k}"))
    )  # fmt: skip


def thunks(n):
    return on_host(
        *spread(n, lambda k, a, b: at(f"op.{k}", a, b, hlo_op=f"op.{k}", hlo_module=f"m{k}", program_id=k))
    )  # fmt: skip


def errors(n):
    return on_host() + field(2, "e") * n


def hostnames(n):
    return on_host() + field(4, "h") * n


def remote_functions(n):
    return on_host(
        *spread(n, lambda k, a, b: at("RemoteExecute", a, b, _pt=11, _p=k, group_id=k)),
        *spread(n, lambda k, a, b: at("Worker", a, b, _ct=11, _c=k, group_id=k)),
    )


FORMS = {
    form.__name__.replace("_", " "): form
    for form in (
        *(empty_planes, named_planes, planes_of_an_event, filled_planes, host_planes, gpus, filled_gpus, filled_tpus, gpus_with_specs, tpus, sparse_cores),
        *(empty_lines, lines_of_a_plane, streams, empty_events, events_of_a_name, names, long_name),
        *(steps, unnamed_steps, overlapping_steps, steps_of_a_tpu),
        *(nested_events, staircase, overlapping_events, overlapping_in_two, split_events),
        *(empty_stats, stats_of_an_event, stats_of_a_step, repeated_stats, stat_names, stat_names_of_the_host),
        *(events_of_long_names, long_stats_of_events, stats_of_a_repeated_name, event_names, stats_of_names, errors, hostnames),
        *(allocators, filled_allocators, memory_events, kernels, launches, collectives, collective_runs, iota_groups),
        *(allocators_and_steps, programs_and_steps, ops_and_steps, gpus_and_steps, gpus_and_filled_steps, tpus_and_steps, tpus_and_filled_steps, kernels_and_steps),
        *(collectives_and_steps, stages_and_steps, functions_and_steps, ops_of_the_host_and_steps),
        *(modules, instructions, computations, nested_shapes, deep_shapes, allocations),
        *(iterators, deep_iterators, a_deep_iterator, iterator_elements, prefetched),
        *(functions, eager_calls, executor_runs, compilations, executions, thunks, remote_functions),
    )
}  # fmt: skip

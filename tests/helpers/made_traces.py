"""Small traces with something of most planes, lines and stats, for tests that damage them."""

from helpers.xspace import MS, at, event, line, plane, space

HOST = "/host:CPU"


def pipeline():
    """Three steps with a prefetched input, function calls, memory, and a GPU."""
    steps = [at("train", n * 10, n * 10 + 9, step_num=n, _r=1) for n in range(3)]
    calls = [
        at("step", n * 10 + 5, n * 10 + 8, tf_function_call="traced-xla", tracing_count=1)
        for n in range(3)
    ]
    waits = [
        at("IteratorGetNextOp::DoCompute", n * 10 + 1, n * 10 + 4, id=n, iter_num=0)
        for n in range(3)
    ]
    stages = [
        at("Iterator::Root::Prefetch", n * 10 + 1, n * 10 + 3, id=1, buffer_limit=2, element_id=n)
        for n in range(3)
    ]
    taken = [at("PrefetchConsume", n * 10 + 2, n * 10 + 3, element_id=n) for n in range(3)]
    made = [at("PrefetchProduce", n * 8, n * 8 + 7, element_id=n) for n in range(6)]
    inputs = [
        at("Iterator::Root::Prefetch::Map", n * 8 + 1, n * 8 + 6, id=2, parent_id=1)
        for n in range(6)
    ]
    runs = [
        at("ExecutorState::Process", n * 10 + 5, n * 10 + 7, id=n, iter_num=0) for n in range(3)
    ]
    memory = [
        event(
            "MemoryAllocation", n * 10 * MS, 0, allocator_name="GPU_0_bfc", bytes_allocated=n << 21
        )
        for n in range(3)
    ]
    launches = [at("cuLaunchKernel", n * 10 + 6, n * 10 + 7, correlation_id=n) for n in range(3)]
    kernels = [at("gemm", n * 10 + 7, n * 10 + 8, correlation_id=n) for n in range(3)]
    return space(
        plane(
            HOST,
            line("python", *steps, *calls),
            line("input", *waits, *stages, *taken),
            line("work", *runs, *memory, *launches),
            line("pool", *made, *inputs),
        ),
        plane("/device:GPU:0", line("Stream #1", *kernels)),
        hostnames=["host"],
    )


def tpu():
    metadata = {"fusion": {"hlo_category": "convolution"}, "infeed": {"hlo_category": "infeed"}}
    steps = [at(str(n), n * 10, n * 10 + 9, step_num=n) for n in range(3)]
    ops = [
        at(name, n * 10 + 4 * k, n * 10 + 4 * k + 3)
        for n in range(3)
        for k, name in enumerate(("infeed", "fusion"))
    ]
    modules = [at(f"jit_f({n})", n * 10, n * 10 + 9, run_id=n, queue_id=0) for n in range(3)]
    return space(
        plane(
            "/device:TPU:0",
            line("Steps", *steps),
            line("XLA Modules", *modules),
            line("XLA Ops", *ops),
            metadata=metadata,
        )
    )


MADE = {
    "pipeline": pipeline(),
    "tpu": tpu(),
    "plain": space(plane(HOST, line("python", at("train", 0, 1, step_num=0, _r=1)))),
}

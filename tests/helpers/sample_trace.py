"""The trace of a GPU that waits for its input, made by hand: three steps of 10 ms, the last one slower."""

from helpers.xspace import MS, at, event, line, plane, space

GEMM = "regs:32 static_shared:1024 dynamic_shared:512 grid:16,2,1 block:128,1,1 occ_pct:75.5"


def _memory(time, held, size, op):
    said = {"allocator_name": "GPU_0_bfc", "addr": time, "region_type": "output", "shape": "[64]"}
    sizes = {"bytes_allocated": held, "allocation_bytes": size, "bytes_available": (1 << 34) - held}
    return event("MemoryAllocation", int(time * MS), 0, {**said, **sizes, "tf_op": op})


def sample_trace(wait_ms=6, n_steps=3, errors=()):
    """Bytes of the trace; a step waits so long for tf.data, runs ops, launches and runs a kernel."""
    starts = [n * (wait_ms + 4) for n in range(n_steps)]
    steps = [
        at("train", begin, begin + wait_ms + 4, step_num=n, _r=1) for n, begin in enumerate(starts)
    ]
    waits = [at("IteratorGetNextOp::DoCompute", begin, begin + wait_ms) for begin in starts]
    stages = [
        part
        for begin in starts
        for part in (
            at("Iterator::Root::Prefetch", begin, begin + wait_ms, id=1, parent_id=9),
            at(
                "Iterator::Root::Prefetch::Map",
                begin,
                begin + wait_ms - 1,
                id=2,
                parent_id=1,
                name="decode",
            ),
            at("Iterator::Root::Prefetch::Map::Range", begin, begin + 1, id=3, parent_id=2),
        )
    ]
    ops = [
        at("model/dense/MatMul:MatMul", begin + wait_ms, begin + wait_ms + 1) for begin in starts
    ]
    runs = [
        at("ExecutorState::Process", begin + wait_ms, begin + wait_ms + 1.5, id=1)
        for begin in starts
    ]
    launches = [
        at("cuLaunchKernel", begin + wait_ms + 1, begin + wait_ms + 1.2, correlation_id=n)
        for n, begin in enumerate(starts)
    ]
    kernels = [
        at("ampere_sgemm_64x32", begin + wait_ms + 1.2, begin + wait_ms + 2.2,
           correlation_id=n, kernel_details=GEMM, tf_op="model/dense/MatMul:MatMul")
        for n, begin in enumerate(starts)
    ]  # fmt: skip
    memory = [
        _memory(begin + wait_ms + 1, (n + 1) << 28, 1 << 28, "model/dense/MatMul")
        for n, begin in enumerate(starts)
    ]
    host = plane(
        "/host:CPU",
        line("python", *steps),
        line("tf_data_iterator_get_next", *waits),
        line("tf_data_iterator_resource/1", *stages),
        line("tf_Compute", *runs, *ops, *launches, *memory),
    )
    gpu = plane("/device:GPU:0", line("Stream #1", *kernels, id=1))
    return space(host, gpu, errors=errors)

"""
Record traces of JAX steps on a GPU, each with its truth, measured in the same run.

    python benchmarks/record_gpu.py FOLDER             # every case, with CUDA graphs and without
    python benchmarks/record_gpu.py FOLDER matmul_tf32 slow_input
    python benchmarks/record_gpu.py FOLDER --small     # tiny steps, to try the script on a CPU

Writes `<case>.xplane.pb.gz` and `<case>.json` for each case. The truth is what needs no profiler:
step times by `block_until_ready`, device times by CUDA events of CuPy, FLOPs, bytes and launches
by hand. Needs JAX, NumPy and this package; CuPy gives device times, nvidia-ml-py the state of the GPU.
"""

import argparse
import dataclasses
import functools
import gzip
import json
import os
import platform
import queue
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from pytest_tfperf.values import FETCH_PYTHON

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

N_TRACED, WARM_UP, MIN_STEPS, MEASURED_S = 4, 3, 10, 0.4
MIB = 1 << 20
GRAPHS = {"": "", "_no_graphs": "--xla_gpu_enable_command_buffer="}
BOTH = ("matmul_f32", "elementwise", "eight_kernels", "transformer", "asynchronous")
"""Cases that are also recorded without CUDA graphs."""


@dataclasses.dataclass
class Case:
    """A step and what is known of it without a profiler."""

    step: Callable[[int], Any]
    """Runs step i; returns what the host waits for."""
    known: dict[str, Any] = dataclasses.field(default_factory=dict)
    """FLOPs, bytes, copies and launches of one step, counted by hand."""
    fetch: Callable[[], Any] | None = None
    """Called before each step, within it: its input."""
    waits: bool = True
    """False: the host waits once, after the last step."""
    n_steps: int = N_TRACED
    measure: bool = True
    """False: a repeated measurement would not repeat the step."""
    program: Callable[[], Any] | None = None
    """Returns the compiled step."""
    device: Callable[[], Any] | None = None
    """The part of the step that the device runs alone, for its CUDA-event time."""


def array(shape, dtype="float32", seed=0):
    import jax

    return jax.random.normal(jax.random.key(seed), shape).astype(dtype)


def matmul(size, dtype, precision=None, out=None):
    import jax
    import jax.numpy as jnp

    @jax.jit
    def multiply(x, y):
        return jnp.dot(x, y, precision=precision, preferred_element_type=out)

    x, y = array((size, size), dtype), array((size, size), dtype, 1)
    return Case(
        lambda i: multiply(x, y),
        {"flops": 2 * size**3, "kernels": 1, "size": size},
        program=lambda: multiply.lower(x, y).compile(),
        device=lambda: multiply(x, y),
    )


def matmul_f32(size):
    return matmul(size, "float32", "highest")


def matmul_tf32(size):
    return matmul(size, "float32", "tensorfloat32")


def matmul_bf16(size):
    return matmul(size, "bfloat16")


def matmul_f16(size):
    return matmul(size, "float16")


def matmul_f8(size):
    import jax.numpy as jnp

    return matmul(size, "float8_e4m3fn", out=jnp.bfloat16)


def convolution(size):
    import jax

    rows, channels = max(size // 73, 4), max(size // 32, 8)

    @jax.jit
    def convolve(x, w):
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    x = array((64, rows, rows, channels), "bfloat16")
    w = array((3, 3, channels, channels), "bfloat16", 1)
    valid = (3 * rows - 2) ** 2  # a 3x3 window with padding of one: products with real pixels
    return Case(
        lambda i: convolve(x, w),
        {
            "flops_with_padding": 2 * 64 * rows * rows * 9 * channels**2,
            "flops": 2 * 64 * valid * channels**2,
        },
        program=lambda: convolve.lower(x, w).compile(),
        device=lambda: convolve(x, w),
    )


def elementwise(size):
    import jax
    import jax.numpy as jnp

    @jax.jit
    def chain(x):
        return jnp.maximum(x * 2 + 1, 0) * x - 3

    x = array((size, size * 4))
    return Case(
        lambda i: chain(x),
        {"kernels": 1, "bytes": 2 * x.size * 4, "flops": 5 * x.size},
        program=lambda: chain.lower(x).compile(),
        device=lambda: chain(x),
    )


def eight_kernels(size):
    """Eight elementwise kernels that XLA must not fuse; a CUDA graph holds them all."""
    import jax

    @jax.jit
    def chain(x):
        for factor in range(8):
            x = jax.lax.optimization_barrier(x * (factor + 0.5))
        return x

    x = array((size, size))
    return Case(
        lambda i: chain(x),
        {"kernels": 8, "bytes": 16 * x.size * 4},
        program=lambda: chain.lower(x).compile(),
        device=lambda: chain(x),
    )


def transformer(size):
    """A training step of one block in bfloat16, with float32 parameters that it donates."""
    import jax
    import jax.numpy as jnp

    d, heads, batch, length = max(size // 4, 32), 8, 8, max(size // 8, 16)

    def block(weights, x):
        def norm(h, scale):
            return (h / jnp.sqrt(jnp.mean(h * h, -1, keepdims=True) + 1e-6)) * scale

        w = {name: one.astype(jnp.bfloat16) for name, one in weights.items()}
        h = norm(x, w["scale1"]) @ w["qkv"]
        q, k, v = jnp.split(h.reshape(batch, length, heads, -1), 3, -1)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.bfloat16((d // heads) ** 0.5)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
        x = x + mixed.reshape(batch, length, d) @ w["out"]
        return x + jax.nn.gelu(norm(x, w["scale2"]) @ w["up"]) @ w["down"]

    @functools.partial(jax.jit, donate_argnums=0)
    def train(weights, x):
        def loss_of(weights):
            return jnp.mean(block(weights, x).astype(jnp.float32) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(weights)
        return jax.tree.map(lambda w, g: w - 1e-4 * g, weights, gradients), loss

    shapes = {"qkv": (d, 3 * d), "out": (d, d), "up": (d, 4 * d), "down": (4 * d, d)}
    weights = {n: array(s, seed=i) * 0.02 for i, (n, s) in enumerate(shapes.items())}
    weights |= {"scale1": jax.numpy.ones(d), "scale2": jax.numpy.ones(d)}
    x, state = array((batch, length, d), "bfloat16", 9), [weights]

    def step(i):
        state[0], loss = train(state[0], x)
        return loss

    tokens = batch * length
    # forward: qkv 6 d², out 2 d², up and down 16 d², scores and mixing 4 length d per token;
    # backward: twice as many, each weight and each input having a gradient
    products = 3 * tokens * (24 * d * d + 4 * length * d)
    return Case(
        step,
        {"flops_of_products": products, "donated": True},
        program=lambda: train.lower(state[0], x).compile(),
        device=lambda: step(0),
    )


def busy(milliseconds, size):
    """Return a function that keeps the device busy about so long, and its number of products."""
    import jax

    x, y = array((size, size), "bfloat16") * 0.01, array((size, size), "bfloat16", 1) * 0.01
    once = jax.jit(lambda x, y: x @ y)  # a constant of the program would be in the trace
    for _ in range(3):
        once(x, y).block_until_ready()
    begin = time.perf_counter()
    out = x
    for _ in range(10):
        out = once(out, y)
    out.block_until_ready()
    n = max(round(milliseconds / 1e3 / ((time.perf_counter() - begin) / 10)), 1)

    @jax.jit
    def work(x, y):
        for _ in range(n):
            x = x @ y
        return x

    work(x, y).block_until_ready()
    return (lambda: work(x, y)), {"products": n, "flops": n * 2 * size**3}


def slow_input(size):
    run, known = busy(5, size)

    def fetch():
        time.sleep(0.010)

    return Case(lambda i: run(), known | {"fetch_s": 0.010}, fetch=fetch, device=run)


def prefetched_input(size):
    """A thread makes an element in 10 ms, and a queue holds two: steps of 5 ms wait for it."""
    run, known = busy(5, size)
    elements: queue.Queue[int] = queue.Queue(2)

    def produce():
        while True:
            time.sleep(0.010)
            elements.put(1)

    threading.Thread(target=produce, daemon=True).start()
    known["fetch_s"] = 0.010
    # the queue is full when the trace begins
    return Case(lambda i: run(), known, fetch=elements.get, device=run, n_steps=12)


def to_device(size):
    import jax
    import numpy as np

    x = np.ones((16 * MIB if size > 1000 else 1024,), np.float32)
    twice = jax.jit(lambda x: x * 2)
    known = {"kernels": 1, "to_device_bytes": x.nbytes, "to_device_copies": 1}
    return Case(lambda i: twice(jax.device_put(x)), known)


def to_device_pinned(size):
    import jax
    import numpy as np

    device = jax.local_devices()[0]
    pinned = jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
    there = jax.sharding.SingleDeviceSharding(device, memory_kind="device")
    x = jax.device_put(np.ones((16 * MIB if size > 1000 else 1024,), np.float32), pinned)
    twice = jax.jit(lambda x: x * 2)
    known = {"kernels": 1, "to_device_bytes": x.nbytes, "to_device_copies": 1}
    return Case(lambda i: twice(jax.device_put(x, there)), known)


def to_host(size):
    import jax
    import numpy as np

    x = array((16 * MIB if size > 1000 else 1024,))
    twice = jax.jit(lambda x: x * 2)
    known = {"kernels": 1, "to_host_bytes": x.nbytes, "to_host_copies": 1}
    return Case(lambda i: np.asarray(twice(x)), known)


def overlapped_copy(size):
    """A batch is copied while the device computes the step before it."""
    import jax
    import numpy as np

    run, known = busy(5, size)
    x, held = np.ones((16 * MIB if size > 1000 else 1024,), np.float32), []

    def step(i):
        out, held[:] = run(), [jax.device_put(x)]
        return held[0], out

    return Case(step, known | {"to_device_bytes": x.nbytes, "to_device_copies": 1}, device=run)


def asynchronous(size):
    run, known = busy(5, size)
    return Case(lambda i: run(), known, waits=False, n_steps=20, device=run)


def new_shape(size):
    """The fourth step has a batch of another size."""
    import jax

    y = array((size, size))
    step = jax.jit(lambda x, y: jax.numpy.tanh(x @ y))
    inputs = [array((n, size)) for n in (256, 256, 256, 128, 256)]
    step(inputs[0], y).block_until_ready()
    known = {"compilations": 1, "in_step": 3}
    return Case(lambda i: step(inputs[i], y), known, n_steps=5, measure=False)


def triton_kernel(size):
    """A custom call whose FLOPs nobody declares."""
    import jax
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    n = size * size
    block = 1024

    def kernel(x, y, out):
        out[...] = x[...] * y[...] + x[...]

    spec = pallas.BlockSpec((block,), lambda i: (i,))

    @jax.jit
    def step(x, y):
        call = pallas.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct((n,), "float32"),
            grid=(n // block,),
            in_specs=[spec, spec],
            out_specs=spec,
            compiler_params=triton.CompilerParams(num_warps=4, num_stages=1),
            name="fused_multiply_add",
        )
        return call(x, y)

    x, y = array((n,)), array((n,), seed=1)
    return Case(
        lambda i: step(x, y),
        {"kernels": 1, "flops": None, "flops_undeclared": 2 * n},
        program=lambda: step.lower(x, y).compile(),
        device=lambda: step(x, y),
    )


def memory_peak(size):
    """A temporary array of 1 GiB between two kernels."""
    import jax

    n = (1 << 28) if size > 1000 else 1024

    @jax.jit
    def step(x):
        big = jax.lax.optimization_barrier(jax.numpy.broadcast_to(x, (n,)) + 1)
        return big.sum()

    x = array(())
    known = {"temporary_bytes": 4 * n}
    return Case(lambda i: step(x), known, program=lambda: step.lower(x).compile())


CASES = {
    case.__name__: case
    for case in (
        matmul_f32,
        matmul_tf32,
        matmul_bf16,
        matmul_f16,
        matmul_f8,
        convolution,
        elementwise,
        eight_kernels,
        transformer,
        slow_input,
        prefetched_input,
        to_device,
        to_device_pinned,
        to_host,
        overlapped_copy,
        asynchronous,
        new_shape,
        triton_kernel,
        memory_peak,
    )
}


def run_steps(case, n, annotate):
    """Run steps, and return the seconds of each, of their fetches, and of all."""
    import jax

    steps, fetches, out = [], [], None
    begin = time.perf_counter()
    for i in range(n):
        start = time.perf_counter()
        with annotate("train", step_num=i):
            if case.fetch:
                with annotate(FETCH_PYTHON):
                    case.fetch()
                fetches.append(time.perf_counter() - start)
            out = case.step(i)
            if case.waits:
                jax.block_until_ready(out)
        steps.append(time.perf_counter() - start)
    jax.block_until_ready(out)
    return {"steps_s": steps, "fetches_s": fetches, "total_s": time.perf_counter() - begin}


class Nothing:
    """The annotation of an untraced step."""

    def __init__(self, name, **metadata): ...

    def __enter__(self): ...

    def __exit__(self, *error): ...


def measured(case):
    """Measure steps without a profiler."""
    first = run_steps(case, MIN_STEPS, Nothing)
    n = min(max(int(MEASURED_S / (first["total_s"] / MIN_STEPS)), MIN_STEPS), 400)
    found = run_steps(case, n, Nothing)
    return {
        "n_steps": n,
        "step_s": median(found["steps_s"]),
        "period_s": found["total_s"] / n,
        "fetch_s": median(found["fetches_s"]) if found["fetches_s"] else 0.0,
    }


def device_seconds(work, n=20):
    """
    Return the device's seconds of a step by CUDA events, None without CuPy or a GPU.

    A small program runs after the steps, in order. CuPy's stream waits for its output.
    """
    import jax

    try:
        import cupy
    except ImportError:
        return None
    if jax.local_devices()[0].platform == "cpu":
        return None
    tick, zero = jax.jit(lambda x: x + 1), jax.numpy.zeros((), "int32")
    stream = cupy.cuda.Stream(non_blocking=True)

    def mark():
        with stream:
            cupy.from_dlpack(tick(zero))
            event = cupy.cuda.Event()
            event.record(stream)
        return event

    times = []
    for _ in range(3):
        mark(), jax.block_until_ready(work())
        begin = mark()
        for _ in range(n):
            out = work()
        end = mark()
        jax.block_until_ready(out)
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end) / 1e3 / n)
    return median(times)


def of_program(program):
    """Return what XLA says of the compiled step."""
    costs, memory = program.cost_analysis() or {}, program.memory_analysis()
    costs = costs[0] if isinstance(costs, list) else costs
    return {
        "xla_flops": costs.get("flops"),
        "xla_bytes": costs.get("bytes accessed"),
        "xla_temporary_bytes": getattr(memory, "temp_size_in_bytes", None),
    }


def traced(case):
    """Trace steps; return the trace and what the host saw meanwhile."""
    import jax

    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as temporary:
        jax.profiler.start_trace(temporary, profiler_options=options)
        seen = run_steps(case, case.n_steps, annotation)
        jax.profiler.stop_trace()
        [path] = Path(temporary).glob("plugins/profile/*/*.xplane.pb")
        return path.read_bytes(), seen


def annotation(name, **metadata):
    import jax

    kind = jax.profiler.StepTraceAnnotation if metadata else jax.profiler.TraceAnnotation
    return kind(name, **metadata)


def record(name, folder, size):
    """Record one case."""
    import jax

    suffix = next(s for s, flags in GRAPHS.items() if os.environ.get("XLA_FLAGS", "") == flags)
    gpu = jax.local_devices()[0]
    case = CASES[name](size)
    in_use = (gpu.memory_stats() or {}).get("bytes_in_use")
    if case.measure:
        run_steps(case, WARM_UP, Nothing)
    truth = {
        "case": name + suffix,
        "known": case.known,
        "before": measured(case) if case.measure else None,
        "device_s": device_seconds(case.device) if case.device else None,
        "program": of_program(case.program()) if case.program else None,
        "bytes_in_use": in_use,
        "memory": gpu.memory_stats(),
    }
    trace, truth["traced"] = traced(case)
    truth["after"] = measured(case) if case.measure else None
    (folder / f"{name}{suffix}.xplane.pb.gz").write_bytes(gzip.compress(trace, mtime=0))
    (folder / f"{name}{suffix}.json").write_text(json.dumps(truth, indent=1, default=str))
    print(f"{name}{suffix}: {len(trace) / MIB:.2f} MiB", truth["before"], truth["device_s"])


def machine():
    """Return the device, driver and versions."""
    import jax
    import jaxlib

    found = {
        "device": jax.local_devices()[0].device_kind,
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "platform_version": jax.local_devices()[0].client.platform_version,
    }
    try:
        import pynvml

        pynvml.nvmlInit()
        found["driver"] = pynvml.nvmlSystemGetDriverVersion()
    except Exception as error:
        found["driver"] = f"unknown: {error}"
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_intermixed_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if not arguments.child:
        for suffix, flags in GRAPHS.items():
            cases = arguments.cases or (BOTH if suffix else list(CASES))
            small = ["--small"] * arguments.small
            command = [sys.executable, __file__, "--child", *small, arguments.folder, *cases]
            subprocess.run(command, env={**os.environ, "XLA_FLAGS": flags}, check=False)
        return
    (arguments.folder / "machine.json").write_text(json.dumps(machine(), indent=1))
    for name in arguments.cases:
        try:
            record(name, arguments.folder, 128 if arguments.small else 4096)
        except Exception:
            print(f"{name}: not recorded")
            traceback.print_exc()


if __name__ == "__main__":
    main()

"""
Metrics without their evidence: each is known of one profile, and UNKNOWN of the same without it.

A metric without a case here fails, so that no new one gives zeros for what nothing shows.
"""

from dataclasses import replace

import pytest
from helpers.hlo import dot, encoded, module, op, parameters
from helpers.xspace import at, field, line, plane, space

from pytest_tfperf.graphs import GraphOp, OpNode, StepGraph, Tensor
from pytest_tfperf.metric_evidence import ANYWHERE, EVIDENCE, KNOWN_ON, PYTORCH
from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.profile import profile_of
from pytest_tfperf.op_types import UNASKED
from pytest_tfperf.recording import (
    ALL,
    UNSEEN,
    Asked,
    Batches,
    BatchRows,
    MemorySamples,
    PipelineStage,
    PythonCalls,
    PythonFunction,
    Recording,
)
from pytest_tfperf.trace.xspace import decode_trace
from pytest_tfperf.values import Unknown

N_STEPS = 3
V100 = {"clock_rate": 1530000, "core_count": 80, "compute_cap_major": 7, "compute_cap_minor": 0}
GEMM = "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x64x32_tensor16x8x16_kernel"


BF16 = "bf16[100,100]"
DOT = module(main=[*parameters(BF16, BF16), op("dot", "dot", BF16, "p0", "p1", dot=dot([1], [0]))])


def python_calls(*each):
    """The calls of counted steps, all of one function."""
    function = PythonFunction(
        name="model.py:layer", line=3, calls=sum(each) / len(each), self_s=0.1
    )
    return PythonCalls(steps=tuple((n_calls, 1) for n_calls in each), functions=(function,))


RECORDING = Recording(
    name="step",
    trace=None,
    workload={"batch": 8},
    first_step_s=1.0,
    blocks=tuple((1.0 + 0.01 * n, 100) for n in range(12)),
    block_cpu_s=(1.5,) * 12,
    other_load=0.01,
    step_seconds=tuple(0.01 + 0.0001 * (n % 7) for n in range(1200)),
    epoch_gaps_s=(0.1, 0.2),
    epoch_starts=(1, 2),
    memory=MemorySamples(
        n_steps=tuple(range(13)), heap=(0,) * 13, python=(0,) * 13, mapped=(0,) * 13
    ),
    examples_per_step=8.0,
    n_steps=1200,
    n_epochs=1,
    compiled=(),
    traced=(),
    lowered=((DOT, 1.0),),
    graph=StepGraph(
        before={"MatMul": 2, "Add": 2},
        after={"MatMul": 2},
        outside=(GraphOp(name="a", op_type="MatMul", line=None, why=UNASKED),),
    ),
    ops=(OpNode(name="x", op_type="Placeholder", outputs=(Tensor(shape=(8, 8), dtype="float32"),)),),
    batches=Batches(
        components=(
            BatchRows(name="ids", dtype="int32", rows=((2, 4),), widths=(4,), features=1, how="mask"),
        ),
        n_batches=1,
    ),
    pipeline=(PipelineStage(stage="Batch"),),
    python_calls=python_calls(7, 7, 7),
)  # fmt: skip
ASKED = Asked(target_step_time_s=0.01, tpu="v5e")


def steps_of(*events):
    """Events of each step, given by their times in the first."""
    return [at(name, begin + 10 * n, end + 10 * n, **stats) for n in range(N_STEPS) for name, begin, end, stats in events]  # fmt: skip


HOST = {
    "steps": [at("train", 10 * n, 10 * n + 9, step_num=n, _r=1) for n in range(N_STEPS)],
    "eager": steps_of(("EagerExecute", 0.1, 0.2, {"is_func": 1})),
    "runtime": steps_of(("FunctionRun", 0.2, 0.3, {})),
    "waits": steps_of(("IteratorGetNextOp::DoCompute", 0.4, 1.4, {})),
    "stages": steps_of(("Iterator::Root::Map", 0.4, 1.4, {"id": 1, "name": "decode"})),
    "executions": steps_of(("GpuExecutable::ExecuteThunks", 1.5, 1.6, {})),
    "memory": steps_of(
        ("MemoryAllocation", 1.5, 1.5, {"allocator_name": "GPU_0_bfc", "bytes_allocated": 8}),
        ("MemoryAllocation", 1.6, 1.6, {"allocator_name": "GPU_0_bfc", "bytes_allocated": 1 << 24}),
        ("MemoryAllocation", 1.7, 1.7, {"allocator_name": "GPU_0_bfc", "bytes_allocated": 8}),
    ),
}  # fmt: skip
WORK = {
    "kernels": steps_of((GEMM, 2, 6, {"program_id": 5, "hlo_module": "m", "hlo_op": "dot"})),
    "copies": steps_of(("MemcpyH2D", 6, 7, {"memcpy_details": "kind_src:pinned size:64"})),
}


def gpu(number, without):
    streams = [
        line(f"Stream #{n}", *events, id=n + 1)
        for n, (key, events) in enumerate(WORK.items())
        if key not in without
    ]
    stats = {} if "peak" in without else V100
    return plane(f"/device:GPU:{number}", *streams, stats=stats)


def traced(without=()):
    """The trace of three steps on two GPUs, less the named evidence."""
    host = [
        line(key, *events, id=n + 1)
        for n, (key, events) in enumerate(HOST.items())
        if key not in without
    ]
    made = module(main=[*parameters("f32[8]"), op("neg", "negate", "f32[8]", "p0")])
    metadata = {} if "modules" in without else {"m(5)": {"Hlo Proto": field(1, encoded(made))}}
    planes = [plane("/host:CPU", *host), plane("/host:metadata", metadata=metadata)]
    if "devices" not in without:
        planes += [gpu(n, without) for n in range(1 if "second device" in without else 2)]
    return decode_trace(space(*planes))


PROFILES = {}


def profiled(without=(), asked=ASKED, **unknown):
    """The profile without some evidence; each is made once, since most metrics lack the same."""
    key = repr((without, asked, unknown))
    if key not in PROFILES:
        trace = traced(without)
        PROFILES[key] = profile_of(
            Evidence(replace(RECORDING, **unknown), trace, trace, asked=asked)
        )
    return PROFILES[key]


EXECUTIONS = ("executions", "kernels")
"""Both show that executables ran, and which."""
RUNTIME = ("runtime", "eager")
UNTIMED = {"blocks": (), "step_seconds": ()}
ABSENT = {
    "step_time": [((), UNTIMED)],
    "step_cpu_time": [((), UNTIMED), ((), {"block_cpu_s": UNSEEN})],
    "other_load": [((), UNTIMED), ((), {"other_load": None})],
    "step_time_p90": [((), UNTIMED)],
    "step_time_p99": [((), UNTIMED)],
    "first_step_time": [((), {"first_step_s": None})],
    "throughput": [((), UNTIMED), ((), {"examples_per_step": None, "workload": {}})],
    "epoch_gap": [((), {"epoch_gaps_s": (), "epoch_starts": ()})],
    "input_bound": [
        (("waits", "stages"), {"bare": True}),
        (("waits", "stages"), {}),
        (("waits",), {}),
        ((*RUNTIME, "waits", "stages"), {"pipeline": UNSEEN}),
    ],
    "input_wait": [((), UNTIMED), (("waits", "stages"), {})],
    "input_capacity": [(("stages",), {})],
    "input_bound_at_target": [(("stages",), {}), ((), {"asked": ALL})],
    "input_python_stages": [(("stages",), {"pipeline": UNSEEN})],
    "host_overhead": [((*RUNTIME, "devices"), {})],
    "device_busy": [(("devices",), {}), (("kernels", "copies"), {})],
    "device_time": [(("devices",), {}), (("kernels", "copies"), {})],
    "collective_time": [(("devices",), {}), (("kernels", "copies"), {})],
    "step_skew": [(("second device",), {}), (("kernels", "copies"), {})],
    "xla_clusters": [((*RUNTIME, *EXECUTIONS), {}), (EXECUTIONS, {"bare": True})],
    "xla_launches": [((*RUNTIME, *EXECUTIONS), {}), (EXECUTIONS, {"bare": True})],
    "fusions": [((*RUNTIME, *EXECUTIONS), {}), (EXECUTIONS, {"bare": True}), (("modules",), {})],
    "xla_compiles": [
        ((), {"compiled": None}),
        ((*RUNTIME, *EXECUTIONS), {}),
        (EXECUTIONS, {"bare": True}),
    ],
    "xla_compile_time": [((*RUNTIME, *EXECUTIONS), {})],
    "xla_coverage": [((), {"graph": UNSEEN})],
    "retraces": [((), {"traced": None}), (RUNTIME, {})],
    "eager_ops": [(("eager",), {})],
    "python_calls": [
        ((), {"python_calls": UNSEEN}),
        ((), {"python_calls": Unknown("another profiler is set")}),
        ((), {"python_calls": python_calls(7, 8, 7)}),
        ((), {"bare": True, "python_calls": UNSEEN}),
    ],
    "graph_ops": [((), {"graph": UNSEEN})],
    "graph_reduction": [((), {"graph": UNSEEN})],
    "padding_overhead": [((), {"lowered": UNSEEN})],
    "mxu_padding_overhead": [((), {"lowered": UNSEEN})],
    "batch_padding": [((), {"batches": UNSEEN})],
    "op_guide_findings": [((), {"lowered": UNSEEN}), ((), {"graph": UNSEEN})],
    "half_precision": [((), {"lowered": UNSEEN})],
    "flops": [((), {"lowered": UNSEEN})],
    "flops_utilization": [((), {"lowered": UNSEEN}), (("peak",), {}), (("devices",), {})],
    "peak_memory": [(("memory", "modules"), {})],
    "memory_growth": [((), {"memory": UNSEEN}), ((), {"settled": False})],
    "host_device_copies": [(("devices",), {}), (("kernels", "copies"), {})],
    "host_device_bytes": [(("devices",), {}), (("kernels", "copies"), {})],
    "kernel_launches": [(("devices",), {}), (("kernels", "copies"), {})],
    "tensor_core_time": [(("devices",), {}), (("kernels",), {})],
}
"""By metric: evidence left out of the trace, and fields of the recording without it."""


def test_every_metric_is_known_with_its_evidence_and_unknown_without():
    for metric in METRICS:
        without_compilation = {"runtime"} if metric == "xla_compile_time" else set()
        present = profiled(EXECUTIONS if without_compilation else ()).value(metric)
        assert present.number is not None, (metric, present.why)
        for evidence, fields in ABSENT[metric]:
            value = profiled(evidence, **fields).value(metric)
            assert value.number is None, (metric, evidence, fields, value.number)
            assert value.why, (metric, evidence, fields)


def test_the_registry_says_which_evidence_makes_each_metric_known():
    assert set(EVIDENCE) == set(METRICS)
    assert all(row.known_from for row in EVIDENCE.values())


def test_each_framework_has_the_devices_that_make_each_metric_known():
    assert {frozenset(devices) for devices in KNOWN_ON.values()} == {frozenset(METRICS)}


def test_a_step_of_pytorch_has_what_needs_no_trace():
    no_code = {"compiled": None, "lowered": UNSEEN, "graph": UNSEEN, "ops": UNSEEN}
    found = profile_of(Evidence(replace(RECORDING, framework=PYTORCH, **no_code), asked=ASKED))
    known = {name for name in METRICS if found.value(name).number is not None}
    assert known == {name for name, devices in KNOWN_ON[PYTORCH].items() if devices == ANYWHERE}


@pytest.mark.parametrize("metric", ["device_time", "collective_time", "step_skew"])
def test_ops_of_a_tpu_without_a_category_tell_no_collective_and_no_wait(metric):
    def found(metadata):
        core = [
            plane(
                f"/device:TPU:{n}",
                line("XLA Modules", *steps_of(("jit_f(1)", 1, 9, {}))),
                line("XLA Ops", *steps_of(("%all-reduce.1", 2, 8, {}), ("%add.1", 1, 2, {}))),
                metadata=metadata,
            )
            for n in range(2)
        ]
        host = plane("/host:CPU", line("python", *HOST["steps"]))
        return profile_of(
            Evidence(replace(RECORDING, bare=True), decode_trace(space(host, *core)), asked=ASKED)
        ).value(metric)

    named = {"%all-reduce.1": {"hlo_category": "all-reduce"}, "%add.1": {"hlo_category": "add"}}
    assert found(named).number is not None
    assert "hlo_category" in found({}).why


def test_copies_by_rocm_s_kernels_have_the_direction_of_the_call_that_launched_them():
    def copies(call):
        kernel = ("__amd_rocclr_copyBuffer.kd", 2, 3, {"correlation_id": 7})
        host = plane(
            "/host:CPU", line("python", *HOST["steps"], at(call, 1, 1.5, correlation_id=7))
        )
        device = plane("/device:GPU:0", line("Stream #1", at(*kernel[:3], **kernel[3])))
        recording = replace(RECORDING, bare=True)
        return profile_of(
            Evidence(recording, decode_trace(space(host, device)), asked=ASKED)
        ).value("host_device_copies")

    assert copies("hipMemcpyDtoDAsync").number == 0
    assert "1 copies by kernels of ROCm" in copies("hipMemcpyHtoDAsync").why
    assert copies("hipMemcpyAsync").number is None

"""The tables of a profile, and the metrics that come with them."""

import pytest
from helpers.tables import cells
from helpers.traces import real
from helpers.xspace import at, line, plane, space

from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.profile import profile_of
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import decode_trace


def profiled(trace):
    return profile_of(Evidence(Recording(name="", trace=None, workload={}, bare=True), trace))


@pytest.fixture(scope="module")
def profiles():
    return {
        name: profiled(real(name)[0])
        for name in ("gpu_v100_tf_bert_multiworker", "gpu_mi300_jax_conv", "tpu_v6e_jax_inference")
    }


def test_a_cpu_has_tables_of_its_ops_and_says_that_it_has_no_accelerator():
    host = plane(
        "/host:CPU",
        line(
            "python",
            at("train", 0, 10, step_num=0, _r=1),
            at("step", 1, 9, tf_function_call="traced-nonXla", tracing_count=1),
        ),
        line("tf_Compute", at("dense/MatMul:MatMul", 2, 6)),
    )
    profile = profiled(decode_trace(space(host)))
    assert set(profile.tables) == {"host_ops", "functions", "median_step", "time_causes"}
    assert cells(profile.tables["host_ops"], "where", "op", "type")[0] == (
        "host",
        "dense/MatMul",
        "MatMul",
    )
    assert profile.value("retraces").detail.get("expensive_share") == 1
    for metric in (
        "kernel_launches",
        "host_device_copies",
        "tensor_core_time",
        "step_skew",
        "flops_utilization",
    ):
        assert profile.value(metric).number is None
        assert profile.value(metric).why


def test_copies_and_collectives_behind_computing_are_no_causes_of_its_time():
    steps = [at("train", start, start + 10, step_num=start // 10, _r=1) for start in (0, 10)]
    host = plane("/host:CPU", line("python", *steps))
    streams = [
        line(f"Stream #{number}", at(name, 1, 9), at(name, 11, 19))
        for number, name in enumerate(("gemm", "MemcpyH2D", "ncclDevKernel_AllReduce"))
    ]
    found = profiled(decode_trace(space(host, plane("/device:GPU:0", *streams))))
    rows = found.tables["time_causes"].records()
    shares = {row["where"]: row["share"] for row in rows if row["part"] == "device_compute"}
    assert list(shares.values()) == [pytest.approx(0.8)]
    assert "gemm" in next(iter(shares))


def test_the_v100_trace_gets_a_full_answer(profiles):
    profile = profiles["gpu_v100_tf_bert_multiworker"]
    assert {
        "kernels",
        "op_profile",
        "memory",
        "memory_at_peak",
        "device_parts",
        "host_ops",
        "stages",
    } <= set(profile.tables)
    assert cells(profile.tables["memory"], "allocator", "peak")[0] == (
        "GPU_6_bfc",
        pytest.approx(5.78 * 2**30, rel=1e-3),
    )  # XProf's memory_profile
    assert profile.kernel_launches == 665
    assert profile.steps[0].parts_s["device_compute"] == pytest.approx(
        14.859e-3, rel=1e-3
    )  # its kernels; XProf adds 0.016 ms of copies


def test_the_tpu_trace_gets_a_full_answer(profiles):
    profile = profiles["tpu_v6e_jax_inference"]
    assert {"op_profile", "roofline", "memory", "device_parts"} <= set(profile.tables)
    assert profile.advice[0].because.endswith("awaits what runs asynchronously (-done ops)")
    assert 0 < profile.flops_utilization < 1
    assert profile.peak_memory < 32 * 2**30  # what a v6e has


def test_the_mi300_trace_gets_a_full_answer(profiles):
    profile = profiles["gpu_mi300_jax_conv"]
    assert (profile.xla_clusters, profile.half_precision) == (1, 1.0)
    assert 0 < profile.flops_utilization < 1
    assert {"kernels", "op_profile", "device_parts"} <= set(profile.tables)

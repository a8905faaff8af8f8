"""The analysis of traces of an H200 against what was measured and counted without a profiler."""

import functools
import json

import numpy as np
import pytest
from helpers.paths import DATA

from pytest_tfperf.metrics.multi_host import analyse_trace
from pytest_tfperf.trace.xspace import read_trace

FOLDER = DATA / "gpu_h200"
TRUTHS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
DRIVER = TRUTHS.pop("machine")
PEAK = 989.4e12  # NVIDIA H200 data sheet: FLOP/s in bfloat16 without sparsity
GAP_S = 10e-6  # between kernels of one step, which CUDA events count and a trace does not
SYNCHRONISED = [name for name in TRUTHS if not name.startswith("asynchronous")]
PRODUCTS = {
    **dict.fromkeys(("matmul_f32", "matmul_f32_no_graphs"), (0, 0)),
    **dict.fromkeys(("matmul_tf32", "new_shape", "new_shape_no_graphs"), (1, 0)),
    **dict.fromkeys(("matmul_bf16", "matmul_f16", "matmul_f8", "convolution"), (1, 1)),
    **dict.fromkeys(("transformer", "transformer_no_graphs", "slow_input"), (1, 1)),
}
"""Shares of time on tensor cores, and of products in 16 bits or fewer."""


@functools.cache
def profile(name):
    return analyse_trace(read_trace(FOLDER / f"{name}.xplane.pb.gz")).profile


def known(name):
    return TRUTHS[name]["known"]


def those_with(*keys):
    names = [name for name in TRUTHS if any(known(name).get(key) is not None for key in keys)]
    assert names, keys
    return names


def test_steps_last_as_long_as_on_the_clock_of_the_host():
    """The last one ends with its mark, before Python has left the step."""
    for name in SYNCHRONISED:
        periods = [step.period_s for step in profile(name).steps]
        assert sum(periods) == pytest.approx(
            TRUTHS[name]["traced"]["total_s"], rel=0.02, abs=40e-6
        ), name


@pytest.mark.parametrize("name", [n for n in TRUTHS if n.startswith("asynchronous")])
def test_enqueued_steps_are_those_that_the_device_ran(name):
    periods, traced = [step.period_s for step in profile(name).steps], TRUTHS[name]["traced"]
    assert sum(periods) == pytest.approx(traced["total_s"], rel=0.02)
    assert max(traced["steps_s"]) < min(periods) / 3  # the calls
    assert profile(name).device_busy == pytest.approx(1, abs=0.02)
    assert len(periods) == 20


def test_the_device_is_busy_as_long_as_cuda_events_say():
    """With input or copies the device rests, and its clock is higher than in steps without."""
    for name in [n for n in SYNCHRONISED if TRUTHS[n]["device_s"] and "input" not in n]:
        period_s = np.mean([step.period_s for step in profile(name).steps])
        share = TRUTHS[name]["device_s"] / period_s
        if "overlapped" in name:
            assert profile(name).device_busy > share, name
        else:
            assert profile(name).device_busy == pytest.approx(share, abs=0.02 + GAP_S / period_s), (
                name
            )


def test_device_time_is_that_of_cuda_events():
    """They count the gaps between kernels. With input the device rests, and its clock is higher."""
    names = [n for n in TRUTHS if TRUTHS[n]["device_s"]]
    for name in [n for n in names if "input" not in n and "overlapped" not in n]:
        found, expected = profile(name).device_time, TRUTHS[name]["device_s"]
        assert found == pytest.approx(expected, rel=0.035, abs=GAP_S), name


def test_device_time_of_one_gpu_is_its_share_of_the_steps():
    for name in TRUTHS:
        found = profile(name)
        mean_s = np.mean([step.period_s for step in found.steps])
        assert found.device_time == pytest.approx(found.device_busy * mean_s), name


@pytest.mark.parametrize("name", ["slow_input", "slow_input_no_graphs"])
def test_waiting_for_input_is_what_the_host_measured(name):
    truth = TRUTHS[name]["before"]
    share = truth["fetch_s"] / truth["period_s"]
    assert profile(name).input_bound == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize("name", ["prefetched_input", "prefetched_input_no_graphs"])
def test_waiting_behind_a_queue_shows_once_it_is_empty(name):
    truth, steps = TRUTHS[name]["before"], profile(name).steps[-4:]
    waits = sum(step.parts_s["input"] for step in steps) / sum(step.period_s for step in steps)
    assert waits == pytest.approx(truth["fetch_s"] / truth["period_s"], abs=0.03)


def test_flops_are_those_counted_by_hand():
    for name in those_with("flops", "flops_of_products"):
        value = profile(name).value("flops")
        if "flops" in known(name):
            assert value.number == known(name)["flops"], name
        else:
            assert value.detail["matmul_and_convolution"] == known(name)["flops_of_products"], name
        seconds = np.mean([step.period_s for step in profile(name).steps])
        assert profile(name).flops_utilization == pytest.approx(
            value.number / seconds / PEAK, rel=0.05
        ), name


def test_flops_of_a_kernel_that_declares_none_are_unknown():
    assert "__gpu$xla.gpu.triton" in profile("triton_kernel").value("flops").why


def test_products_run_on_the_units_that_their_types_and_precision_ask_for():
    for name in PRODUCTS:
        cores, half = PRODUCTS[name]
        assert profile(name).tensor_core_time == cores, name
        assert profile(name).half_precision == half, name


def test_one_launch_of_cuda_may_transpose_for_a_product():
    """The product in float8 needs one operand the other way round."""
    assert profile("matmul_f8").kernel_launches == 2


def test_kernels_are_counted_exactly_in_cuda_graphs_and_outside():
    for name in [n for n in those_with("kernels") if n != "matmul_f8"]:
        assert profile(name).kernel_launches == known(name)["kernels"], name


def test_each_step_launches_one_executable():
    for name in TRUTHS:
        assert (profile(name).xla_launches, profile(name).xla_clusters) == (1, 1), name


def test_copies_and_their_bytes_are_counted_exactly():
    for name in those_with("to_device_bytes", "to_host_bytes"):
        copies = known(name).get("to_device_copies", 0) + known(name).get("to_host_copies", 0)
        size = known(name).get("to_device_bytes", 0) + known(name).get("to_host_bytes", 0)
        found = profile(name)
        assert (found.host_device_copies, found.host_device_bytes) == (copies, size), name


def test_copies_behind_enqueued_steps_belong_to_those_that_the_device_ran():
    """Threads of JAX copy 64 MiB a step, while the host is many steps ahead of the device."""
    found = profile("profiled_overlapped_copy")
    assert (found.host_device_copies, found.host_device_bytes) == (1, 64 * 2**20)
    assert found.flops == 24 * 2 * 4096**3
    assert found.device_busy == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(("name", "put_or_read"), [("to_device", "put"), ("to_host", "read")])
def test_copies_that_the_host_works_on_are_named(name, put_or_read):
    overhead = profile(name).value("host_overhead").detail
    assert "copies between NumPy arrays and the device" in overhead["where"]
    assert put_or_read in profile(name).value("host_device_copies").detail["where"]


@pytest.mark.parametrize("name", [n for n in TRUTHS if n.startswith("new_shape")])
def test_a_new_shape_compiles_and_traces_once(name):
    found = profile(name)
    assert (found.xla_compiles, found.retraces) == (known(name)["compilations"], 1)
    assert "f32[256,4096] → f32[128,4096]" in found.value("xla_compiles").detail["where"]
    assert f"in step {known(name)['in_step']}" in found.value("retraces").detail["where"]


@pytest.mark.parametrize("name", [n for n in TRUTHS if n.startswith("new_shape")])
def test_compilation_lasts_from_hlo_to_machine_code(name):
    """JAX's own event of it, and the step around it on the host's clock."""
    found = profile(name)
    seconds = TRUTHS[name]["traced"]["steps_s"][known(name)["in_step"]]
    assert found.steps[known(name)["in_step"]].parts_s["compile"] == pytest.approx(
        seconds, rel=0.03
    )
    assert found.host_overhead < 0.02
    assert "constant" in found.advice[0].what
    kernels = [row[0] for row in found.tables["kernels"].rows]
    assert not any(kernel.startswith("Memcpy") for kernel in kernels)


def test_nothing_else_compiles():
    for name in [n for n in TRUTHS if not n.startswith("new_shape")]:
        assert (profile(name).xla_compiles, profile(name).retraces) == (0, 0), name


def test_the_peak_of_memory_is_that_of_the_planned_allocation():
    size = known("memory_peak")["temporary_bytes"]
    assert profile("memory_peak").peak_memory == pytest.approx(size, rel=1e-3)


def test_steps_of_keras_on_tensorflow():
    """Batches of 16 MiB are copied from the host within the step."""
    for name, launches in [("keras_graph", None), ("keras_xla", 1), ("keras_starved", None)]:
        found = profile(name)
        launched = found.value("xla_launches")
        assert launched.number == launches, name
        assert launches or "1 loaded executable: nothing says that one ran" in launched.why, name
        assert found.tensor_core_time == 1, name
        assert found.host_device_copies == 5, name
        assert found.host_device_bytes == pytest.approx(64 * 128 * 512 * 4, rel=1e-3), name
        assert (found.retraces, found.eager_ops) == (0, 0), name


@pytest.mark.parametrize("name", ["keras_graph", "keras_xla"])
def test_waiting_for_the_copy_of_a_batch_names_the_copy(name):
    """It takes 2.4 of 2.8 ms of waiting a step, and 3.7 of 4.2 ms."""
    assert "copies of the elements" in profile(name).value("input_bound").detail["where"]
    assert "prefetch_to_device" in profile(name).advice[0].what


def test_starved_steps_wait_for_the_function_of_50_ms():
    found = profile("keras_starved")
    assert "stage Map" in found.value("input_bound").detail["where"]
    assert found.input_bound == pytest.approx(1 - found.device_busy, abs=0.05)
    assert np.median([step.period_s for step in found.steps]) == pytest.approx(0.05, rel=0.02)

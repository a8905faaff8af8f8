"""Kinds of device events, and GPU steps counted by hand; times in ms."""

import pytest
from helpers.xspace import MS, at, event, line, plane, space

from pytest_tfperf.facts.device_ops import find_device_activity, gpu_kind, tpu_kind
from pytest_tfperf.facts.parts import break_down
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.profile import profile_of
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import decode_trace

DERIVED = 0xDEADBEEF - (1 << 32)


def test_a_gpu_event_is_known_by_its_name():
    cases = [
        ("MemcpyH2D", "input"),
        ("MEMCPYHtoD", "input"),
        ("MemcpyD2H", "output"),
        ("MEMCPYDtoH", "output"),
        ("MemcpyD2D", "device_to_device"),
        ("MemcpyP2P", "device_to_device"),
        ("MEMCPYDtoD", "device_to_device"),
        ("CopyHostToDevice", "input"),
        ("CopyDeviceToHost", "output"),
        ("CopyDeviceToDevice", "device_to_device"),
        ("copy_fusion_2", "device_compute"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "collective"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float", "collective"),
        ("volta_sgemm_128x64_nn", "device_compute"),
        ("Memset", "device_compute"),
        ("loop_transpose_fusion.kd", "device_compute"),
        ("nvjet_hsh_128x256", "device_compute"),
    ]
    for name, kind in cases:
        assert gpu_kind(name) == kind, name


def test_a_tpu_op_is_known_by_its_category():
    cases = [
        ("infeed", "input"),
        ("outfeed", "output"),
        ("all-reduce", "collective"),
        ("all-reduce fusion", "collective"),
        ("ragged-all-to-all", "collective"),
        ("collective-broadcast", "collective"),
        ("send-done", "device_to_device"),
        ("convolution", "device_compute"),
        ("copy-done", "device_compute"),
        ("", "device_compute"),
    ]
    for category, kind in cases:
        assert tpu_kind(category) == kind, category
    assert tpu_kind("custom fusion", "async-collective-done.3") == "collective"
    assert tpu_kind("custom fusion", "fusion.3") == "device_compute"


def gpu(number, *streams, derived=()):
    lines = [line(f"Stream #{i}(Compute)", *events, id=i) for i, events in enumerate(streams)]
    return plane(
        f"/device:GPU:{number}",
        *lines,
        *(line(name, *events, id=DERIVED) for name, events in derived),
    )


def parts_of(*planes, host=()):
    host_plane = plane(
        "/host:CPU", line("python", at("train", 0, 10, step_num=0, _r=1)), line("other", *host)
    )
    trace = decode_trace(space(host_plane, *planes))
    parts = {
        part: column[0] / MS
        for part, column in break_down(trace, find_steps(trace)).parts_ps.items()
    }
    return {part: time for part, time in parts.items() if time}


def test_a_wait_counts_only_while_the_gpu_idles():
    wait = at("IteratorGetNextOp::DoCompute", 1, 6)
    assert parts_of(gpu(0, [at("k", 0, 3)]), host=[wait]) == {
        "device_compute": 3,
        "input": 3,
        "other": 4,
    }


def test_a_copy_to_the_device_counts_as_input_where_the_device_idles_for_it():
    streams = [[at("MemcpyH2D", 1, 5)], [at("k", 3, 8)]]
    assert parts_of(gpu(0, *streams)) == {"input": 2, "device_compute": 5, "other": 3}


def test_compute_hides_a_collective():
    assert parts_of(gpu(0, [at("k", 1, 4)], [at("ncclKernel", 3, 6)])) == {
        "device_compute": 3,
        "collective": 2,
        "other": 5,
    }


def test_two_gpus_are_both_counted():
    assert parts_of(gpu(0, [at("k", 2, 4)]), gpu(1, [at("k", 5, 7)])) == {
        "device_compute": 4,
        "other": 6,
    }


def test_lines_that_the_profiler_derives_count_nothing():
    derived = [("Steps", [at("0", 0, 10)]), ("XLA Ops", [at("fusion", 0, 9)])]
    assert parts_of(gpu(0, [at("k", 2, 4)], derived=derived)) == {"device_compute": 2, "other": 8}


def test_launching_counts_while_the_gpu_idles():
    launch = at("cuLaunchKernel", 1, 2, correlation_id=1)
    assert parts_of(gpu(0, [at("k", 1.5, 4)]), host=[launch]) == {
        "kernel_launch": 0.5,
        "device_compute": 2.5,
        "other": 7,
    }


def test_device_busy_is_the_union_over_devices_of_the_period():
    trace = decode_trace(
        space(
            plane(
                "/host:CPU",
                line("python", at("train", 0, 10, step_num=0, _r=1), at("FunctionRun", 0, 0)),
            ),
            gpu(0, [at("k", 2, 4)]),
            gpu(1, [at("ncclKernel", 3, 5)]),
        )
    )
    profile = profile_of(Evidence(Recording(name="", trace=None, workload={}, bare=True), trace))
    assert profile.device_busy == pytest.approx(0.3)
    assert profile.collective_time == pytest.approx(0.1)
    assert profile.xla_launches == 0


def test_without_a_device_plane_its_metrics_are_unknown():
    trace = decode_trace(
        space(plane("/host:CPU", line("python", event("train", 0, 10, step_num=0, _r=1))))
    )
    profile = profile_of(Evidence(Recording(name="", trace=None, workload={}, bare=True), trace))
    assert "no device plane" in profile.value("device_busy").why
    assert find_device_activity(trace).n_devices == 0


def test_steps_of_a_tpu_come_from_its_line_over_all_cores():
    cores = [
        plane(f"/device:TPU:{core}", line("Steps", at("3", core, 5 + core), at("4", 10 + core, 15)))
        for core in range(2)
    ]
    steps = find_steps(decode_trace(space(*cores)))
    assert (steps.names, steps.source) == (("3", "4"), "Steps")
    assert (steps.start_ps / MS).tolist() == [0, 10]
    assert (steps.end_ps / MS).tolist() == [10, 15]


def test_without_it_the_program_that_ran_most_often_is_the_step():
    core = plane(
        "/device:TPU:0",
        line(
            "XLA Modules", at("jit_init(1)", 0, 1), at("jit_step(2)", 2, 4), at("jit_step(2)", 5, 6)
        ),
    )
    steps = find_steps(decode_trace(space(core)))
    assert (steps.names, steps.source, steps.n_dropped) == (
        ("jit_step 0", "jit_step 1"),
        "XLA Modules",
        1,
    )


def test_iterations_of_a_loop_in_a_graph_are_steps_where_nothing_is_marked():
    work = [
        at("ExecutorState::Process", n * 10, n * 10 + 6, id=5, iter_num=n) for n in range(4)
    ]  # the last finds that it is over
    steps = find_steps(decode_trace(space(plane("/host:CPU", line("tf_Compute/1", *work)))))
    assert (steps.names, steps.source) == (
        ("iteration 0", "iteration 1", "iteration 2"),
        "iterations",
    )
    assert (steps.period_ps / MS).tolist() == [10, 10, 16]

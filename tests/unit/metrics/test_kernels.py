"""Kernels, launches, copies and skew counted by hand, times in ms; and XProf's figures (wheel 2.24.2) for the real traces."""

from types import SimpleNamespace

import pytest
from helpers.hlo import dot, module, op, parameters
from helpers.tables import cells
from helpers.traces import real, real_trace
from helpers.xspace import MS, Uint, at, event, line, plane, space

from pytest_tfperf.facts.device_ops import device_ops
from pytest_tfperf.facts.parts import find_device_parts
from pytest_tfperf.facts.steps import find_steps, own_steps
from pytest_tfperf.hlo.cost import module_costs
from pytest_tfperf.metrics.copies import copy_values, is_host_transfer, kernel_launches
from pytest_tfperf.metrics.kernels import (
    analyse,
    is_kernel,
    kernel_table,
    kernels_of_gpus,
    tensor_core_time,
    together,
)
from pytest_tfperf.metrics.multi_host import analyse_trace
from pytest_tfperf.metrics.pod import step_skew
from pytest_tfperf.trace.xspace import decode_trace, read_trace

DERIVED = 0xDEADBEEF - (1 << 32)
CUPTI = "regs:32 static_shared:1024 dynamic_shared:512 grid:16,2,1 block:128,1,1 occ_pct:75.5"


def find_kernels(trace, steps):
    return together(kernels_of_gpus(trace, steps))


def gpu(number, *events):
    """A GPU with two streams; a line that is derived from them counts for nothing."""
    streams = [line(f"Stream #{i}", *events[i::2], id=i) for i in range(2)]
    return plane(
        f"/device:GPU:{number}",
        *streams,
        line("TensorFlow Ops", at("gemm", 1, 9, kernel_details=CUPTI), id=DERIVED + 3),
    )


def traced(*planes, host=(), n_steps=2):
    marks = [at("train", n * 10, n * 10 + 10, step_num=n, _r=1) for n in range(n_steps)]
    trace = decode_trace(
        space(plane("/host:CPU", line("python", *marks), line("calls", *host)), *planes)
    )
    return trace, find_steps(trace)


def test_details_of_a_kernel_as_each_profiler_writes_them():
    cases = [
        (CUPTI, (32, 1536, "16,2,1", "128,1,1", 0.755)),
        ("regs:38 shm:48 grid:160,1,1 block:1024,1,1", (38, 48, "160,1,1", "1024,1,1", None)),
        (
            " grid:16,1,1 block:512,1,1 private_mem:0 group_mem:2112 occ_pct:0",
            (None, 2112, "16,1,1", "512,1,1", None),
        ),
        (
            "regs:8\nstatic_shared:0\ndynamic_shared:0\nblock:1,1,1\ngrid:2,1,1\nocc_pct:100",
            (8, 0, "2,1,1", "1,1,1", 1.0),
        ),
        ("", (None, None, "", "", None)),
    ]
    for details, expected in cases:
        (kernel,) = find_kernels(*traced(gpu(0, at("k", 1, 2, kernel_details=details))))
        assert (
            kernel.registers,
            kernel.shared_bytes,
            kernel.grid,
            kernel.block,
            kernel.occupancy,
        ) == expected, expected


def test_launches_of_one_configuration_are_one_row_over_all_gpus():
    slow, fast = (
        at("k", 1, 4, kernel_details=CUPTI),
        at("k", 5, 6, kernel_details=CUPTI, tf_op="a:A"),
    )
    other = at("k", 11, 13, kernel_details="regs:1")
    kernels = find_kernels(*traced(gpu(0, slow, fast), gpu(1, fast, other)))
    assert [(kernel.launches, kernel.op) for kernel in kernels] == [(3, ""), (1, "")]
    assert [kernel.total_s for kernel in kernels] == [pytest.approx(5e-3), pytest.approx(2e-3)]
    assert (kernels[0].min_s, kernels[0].max_s, kernels[0].mean_s) == tuple(
        map(pytest.approx, (1e-3, 3e-3, 5e-3 / 3))
    )
    table = kernel_table(kernels, 2)
    assert cells(table, "kernel", "op", "ops", "launches", "total_s")[0] == (
        "k",
        "",
        1,
        1.5,
        pytest.approx(2.5e-3),
    )
    assert len(table.rows[0]) == len(table.columns)


def test_kernels_outside_of_the_steps_copies_and_fills_are_no_rows():
    names = [
        "MemcpyH2D",
        "MemcpyP2P",
        "MEMCPYDtoH",
        "Memset",
        "__amd_rocclr_copyBuffer.kd",
        "__amd_rocclr_fillBufferAligned.kd",
    ]
    assert not [name for name in names if is_kernel(name)]
    assert find_kernels(*traced(gpu(0, at("k", 25, 26), *(at(name, 1, 2) for name in names)))) == []


def test_tensor_core_time_is_of_the_time_that_could_be():
    """6 of 8 ms eligible; the add is not."""
    events = [
        at("ampere_h16816gemm_nn", 1, 5),
        at("volta_sgemm_nn", 5, 7),
        at("nvjet_sss_8x8", 7, 9),
        at("add", 9, 10),
    ]
    value = tensor_core_time(find_kernels(*traced(gpu(0, *events))))
    assert value.number == pytest.approx(6 / 8)
    assert value.detail["without"] == ["volta_sgemm_nn"]


def program(dtype):
    """A module of one product in a fusion."""
    product = [
        *parameters(f"{dtype}[8,4]", f"{dtype}[4,8]"),
        op("d", "dot", "f32[8,8]", "p0", "p1", dot=dot([1], [0])),
    ]
    call = op("gemm_fusion_dot.1", "fusion", "f32[8,8]", "p0", "p1", called=["product"])
    return module(product=product, main=[*product[:2], call])


def test_a_kernel_has_the_units_of_its_program():
    """Of 4 ms, 3 are on tensor cores, by a kernel of the same name as the other's."""
    ran = [(1, 2, 5), (3, 5, 5), (6, 7, 9)]
    events = [
        at("gemm_fusion_dot_1", begin, end, hlo_op="f", hlo_module="jit_f", program_id=number)
        for begin, end, number in ran
    ]
    trace, steps = traced(gpu(0, *events))
    programs = {"jit_f(5)": program("bf16"), "jit_f(9)": program("f64")}
    for executables in (programs, dict(reversed(programs.items()))):
        costs = {name: module_costs(made) for name, made in executables.items()}
        found = analyse(SimpleNamespace(trace=trace, steps=steps, costs=costs))
        value = found.values["tensor_core_time"]
        assert value.number == pytest.approx(3 / 4)
        assert [row["launches"] for row in found.tables["kernels"].records()] == [2 / 2, 1 / 2]


def test_a_gpu_without_tensor_cores_spends_no_time_on_them_that_would_be_known():
    kernels = find_kernels(*traced(gpu(0, at("sgemm", 1, 3), at("add", 3, 7))))
    for capability, known, no_tf32 in [
        (None, True, None),
        ((6, 1), False, None),
        ((7, 0), True, True),
        ((7, 5), True, True),
        ((8, 0), True, None),
    ]:
        value = tensor_core_time(kernels, capability)
        assert (value.number == 0) is known, capability
        assert value.detail.get("no_tf32") is no_tf32, capability
        if known:
            assert value.detail["eligible_share"] == pytest.approx(2 / 6), capability
        else:
            assert value.why == "a GPU of compute capability 6.1 has no tensor cores"


def test_a_real_gpu_of_2016_has_no_tensor_cores_and_gets_no_advice_on_them():
    for name, known in [
        ("gpu_pascal_laptop_tf25_keras_windows", False),
        ("gpu_turing_tf23_deepreg_generator", True),
    ]:
        profile = analyse_trace(read_trace(real_trace(name))).profile
        assert (profile.value("tensor_core_time").number == 0) is known, name
        assert sum("use 16-bit types" in advice.what for advice in profile.advice) == known, name
        assert not any("TF32" in advice.what for advice in profile.advice), name


@pytest.mark.parametrize(
    ("events", "why"),
    [([at("add", 1, 2)], "no kernel in the steps multiplies"), ([], "no GPU ran a kernel")],
)
def test_without_eligible_time_tensor_core_time_is_unknown(events, why):
    value = tensor_core_time(find_kernels(*traced(gpu(0, *events))))
    assert (value.number, why in value.why) == (None, True)


def test_a_kernel_counts_in_the_step_that_launched_it():
    """The second kernel of step 0 runs in step 1, with the copy that is none of either's kernels."""
    calls = [
        at("cuLaunchKernel", n, n + 0.1, correlation_id=id) for n, id in ((1, 1), (2, 2), (11, 3))
    ]
    kernels = [
        at("k", 3, 4, correlation_id=1),
        at("k", 12, 13, correlation_id=2),
        at("k", 14, 15, correlation_id=3),
        at("MemcpyD2D", 16, 17),
    ]
    value = kernel_launches(*traced(gpu(0, *kernels), host=calls))
    assert (value.number, value.low(), value.high()) == (1.5, 1, 2)


def test_kernels_whose_launch_the_trace_does_not_show_count_where_they_ran():
    value = kernel_launches(
        *traced(
            gpu(0, at("k", 3, 4, correlation_id=1), at("k", 5, 6), at("k", 12, 13)),
            gpu(1, at("k", 13, 14)),
        )
    )
    assert (value.low(), value.high()) == (2, 2)


def test_launches_are_per_step_inside_a_loop():
    mark = at("train", 0, 10, step_num=0, _r=1, batches=4)
    trace = decode_trace(
        space(
            plane("/host:CPU", line("python", mark)), gpu(0, *(at("k", n, n + 1) for n in range(8)))
        )
    )
    steps = find_steps(trace)
    assert kernel_launches(trace, steps).number == 8 / (
        1 if steps.sizes is None else steps.sizes[0]
    )


def test_without_a_gpu_launches_are_unknown():
    trace, steps = traced()
    assert "no GPU" in kernel_launches(trace, steps).why
    assert {value.number for value in copy_values(trace, steps).values()} == {None}


def test_copies_count_in_both_directions_with_their_bytes():
    copies = [
        at(
            "MemcpyH2D",
            1,
            2,
            memcpy_details="kind_src:pageable kind_dst:device size:100 dest:0 async:1",
        ),
        at("MEMCPYDtoH", 3, 4, memcpy_details="size:20 dest:4 async:1"),
        at("MemcpyD2D", 5, 6, memcpy_details="size:1000 dest:0 async:1"),
        at("MemcpyH2D", 12, 13, memcpy_details="size:3 dest:0"),
    ]
    values = copy_values(*traced(gpu(0, *copies)))
    copied, size = values["host_device_copies"], values["host_device_bytes"]
    assert (copied.low(), copied.high(), size.low(), size.high()) == (1, 2, 3, 120)


def test_bytes_are_unknown_where_a_copy_does_not_say_them():
    values = copy_values(
        *traced(gpu(0, at("MemcpyH2D", 1, 2), at("MemcpyH2D", 11, 12, memcpy_details="size:3")))
    )
    assert values["host_device_copies"].number == 1
    assert "1 of 2 copies" in values["host_device_bytes"].why


def test_a_gpu_that_copies_nothing_copied_nothing():
    values = copy_values(*traced(gpu(0, at("k", 1, 2))))
    assert [value.number for value in values.values()] == [0, 0]


HOST_TO_DEVICE = "%copy-start = (f32[5]{0:T(128)}, f32[5]{0:T(128)S(5)}, u32[]{:S(2)}) copy-start(f32[5]{0:T(128)S(5)} %param), cross_program_prefetch_index=0"


def test_a_tpu_s_transfers_are_known_by_the_memory_they_move_between():
    cases = [
        (HOST_TO_DEVICE, "copy-start", True),
        (
            "%c = (f32[5]{0:S(5)}, f32[5]{0:T(128)}, u32[]{:S(2)}) copy-start(f32[5]{0:T(128)} %a)",
            "copy-start",
            True,
        ),
        (
            "%c = (f32[5]{0:S(1)}, f32[5]{0}, u32[]{:S(2)}) copy-start(f32[5]{0} %a)",
            "copy-start",
            False,
        ),
        (
            "%c = (f32[5]{0:S(5)}, f32[5]{0:S(5)}, u32[]{:S(2)}) copy-start(f32[5]{0:S(5)} %a)",
            "copy-start",
            False,
        ),
        (
            "%c = f32[5]{0:T(128)} copy-done((f32[5]{0:T(128)}, f32[5]{0:S(5)}, u32[]{:S(2)}) %copy-start)",
            "copy-done",
            False,
        ),
        ("%c = f32[5]{0:S(5)} copy(f32[5]{0:T(128)} %a)", "copy", True),
        ("%c = f32[5]{0:T(128)} copy(f32[5]{0:T(128)} %a)", "copy", False),
        ("%i = ((f32[5]{0}), token[]) infeed(token[] %t)", "infeed", True),
        ("%f = f32[5]{0:S(5)} fusion(f32[5]{0} %a)", "loop fusion", False),
    ]
    for text, category, transfer in cases:
        assert is_host_transfer(text, category) is transfer, (text, category, transfer)


def tpu(number, executions, *ops):
    metadata = {
        HOST_TO_DEVICE: {"hlo_category": "copy-start", "bytes_accessed": Uint(20)},
        "%r = f32[] all-reduce(x)": {"hlo_category": "all-reduce"},
        "%f = f32[] fusion(x)": {"hlo_category": "loop fusion"},
    }
    modules = line("XLA Modules", *(at("jit_step(5)", begin, begin + 8) for begin in executions))
    return plane(f"/device:TPU:{number}", modules, line("XLA Ops", *ops), metadata=metadata)


def test_each_core_s_transfers_count_in_its_own_steps():
    """The second core runs 5 ms later: its first transfer of the second step is in the first core's third."""
    cores = [
        tpu(
            n,
            [10 * step + 5 * n for step in range(3)],
            *(
                at(HOST_TO_DEVICE, 10 * step + 5 * n + 6, 10 * step + 5 * n + 7)
                for step in range(3)
            ),
        )
        for n in range(2)
    ]
    trace = decode_trace(space(*cores))
    steps = find_steps(trace)
    values = copy_values(trace, steps)
    assert [(value.low(), value.high()) for value in values.values()] == [(2, 2), (40, 40)]
    assert [(op.count, op.name) for op in device_ops(trace, steps)] == [(6, "copy-start")]
    own = own_steps(trace.planes[1], steps)
    assert ((own.start_ps / MS).tolist(), (own.end_ps / MS).tolist()) == ([5, 15, 25], [15, 25, 33])


def test_a_core_without_as_many_executions_has_the_common_steps():
    trace = decode_trace(space(tpu(0, [0, 10, 20]), tpu(1, [5, 15])))
    steps = find_steps(trace)
    assert own_steps(trace.planes[1], steps) is steps


def test_a_tpu_without_transfers_does_not_say():
    trace = decode_trace(space(tpu(0, [0, 10], at("%f = f32[] fusion(x)", 1, 2))))
    assert "not recorded" in copy_values(trace, find_steps(trace))["host_device_copies"].why


def test_skew_is_that_of_the_devices_own_work():
    """3, 3 and 6 ms of work; the fast ones wait in the collective until 8 ms."""
    gpus = [
        gpu(n, at("k", 1, 1 + work), at("ncclDevKernel_AllReduce", 1 + work, 8))
        for n, work in enumerate((3, 6, 3))
    ]
    trace, steps = traced(*gpus, n_steps=1)
    value = step_skew(find_device_parts(trace, steps))
    assert (value.number, value.detail["slowest"]) == (pytest.approx(1), "GPU:1")


def test_own_work_beside_a_collective_counts():
    """The copy of 2 ms is input, though for 1 ms of it the device is in the collective."""
    ops = at("k", 1, 3), at("MemcpyH2D", 3, 5), at("ncclDevKernel_AllReduce", 4, 8)
    trace, steps = traced(gpu(0, *ops), n_steps=1)
    parts = find_device_parts(trace, steps)
    assert {kind: int(part.sum()) // MS for kind, part in parts.parts_ps.items() if part.any()} == {
        "device_compute": 2,
        "collective": 4,
        "input": 1,
    }
    assert parts.working_ps.tolist() == [[4 * MS]]


def test_skew_of_tpu_cores_is_by_their_own_clock():
    """On the trace's clock both ops take 4 ms."""
    ops = [
        event("%f = f32[] fusion(x)", MS, 4 * MS, device_offset_ps=0, device_duration_ps=work * MS)
        for work in (2, 3)
    ]
    trace = decode_trace(
        space(
            *(
                tpu(
                    n,
                    [0],
                    ops[n],
                    at(
                        "%r = f32[] all-reduce(x)",
                        6,
                        7,
                        device_offset_ps=9 * MS,
                        device_duration_ps=MS,
                    ),
                )
                for n in range(2)
            )
        )
    )
    parts = find_device_parts(trace, find_steps(trace))
    assert parts.working_ps.tolist() == [[2 * MS], [3 * MS]]
    assert step_skew(parts).number == pytest.approx(3 / 2.5 - 1)


@pytest.mark.parametrize(("works", "why"), [([3, 0], "1 device"), ([0, 0], "no device")])
def test_skew_takes_two_devices_that_work(works, why):
    gpus = [gpu(n, at("k", 1, 1 + work)) for n, work in enumerate(works)]
    trace, steps = traced(*gpus)
    assert why in step_skew(find_device_parts(trace, steps)).why


def test_kernels_of_the_mi300_trace_agree_with_xprof():
    """
    kernel_stats: launches, total, min and max in µs.

    It lists 35 copies by __amd_rocclr_copyBuffer as kernels. Its tensor-core utilisation is 44.1 %, of which more than half is a transposition.
    """
    kernels = {kernel.name[:24]: kernel for kernel in find_kernels(*real("gpu_mi300_jax_conv"))}
    found = {
        name: (
            k.launches,
            round(k.total_s * 1e6, 3),
            round(k.min_s * 1e6, 3),
            round(k.max_s * 1e6, 3),
        )
        for name, k in kernels.items()
    }
    assert found == {
        "input_transpose_fusion.k": (40, 14344.14, 338.681, 385.641),
        "Cijk_Ailk_Bljk_BBS_BH_MT": (40, 11852.414, 288.76, 301.161),
        "Im3d2Col.kd": (40, 695.282, 15.84, 20.68),
        "input_transpose_fusion_1": (40, 488.2, 6.12, 44.96),
        "loop_transpose_fusion.kd": (40, 193.52, 3.0, 8.8),
    }
    assert tensor_core_time(list(kernels.values())).number == pytest.approx(
        11852.414 / (11852.414 + 679.202 + 16.08)
    )


def test_kernels_of_the_v100_trace_agree_with_xprof():
    """kernel_stats, ranks 1 and 2; device_compute_16bit_percent 30.5 %, in which it counts copies as computing with 32 bits."""
    kernels = find_kernels(*real("gpu_v100_tf_bert_multiworker"))
    found = [
        (
            kernel.launches,
            round(kernel.total_s * 1e6, 3),
            kernel.registers,
            kernel.grid,
            kernel.block,
        )
        for kernel in kernels
    ]
    assert (194, 7908.309, 38, "160,1,1", "1024,1,1") in found
    trace, _ = real("gpu_v100_tf_bert_multiworker")
    assert kernel_launches(trace, find_steps(trace)).number == 665


def test_the_real_tpu_trace_offloads_to_the_host_in_every_step():
    """Six copies of 5 GiB on each of four cores; on the first core's times for all, steps would have 18 to 31."""
    trace, _ = real("tpu_v6e_jax_inference")
    steps = find_steps(trace)
    copies, size = copy_values(trace, steps).values()
    assert (copies.number, copies.low(), copies.high(), size.number) == (
        24,
        24,
        24,
        24 * 5368709120,
    )
    assert step_skew(find_device_parts(trace, steps)).number < 1e-3  # 7.6 % on the trace's clock

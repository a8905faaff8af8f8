"""Op statistics counted by hand, times in ms; and XProf's figures (wheel 2.24.2) for the real traces."""

import pytest
from helpers.tables import cells
from helpers.traces import real
from helpers.xspace import MS, Ref, Uint, at, event, line, plane, space

from pytest_tfperf.facts.device_ops import device_ops, instruction, with_costs
from pytest_tfperf.facts.op_times import eager_share, host_ops, op_table
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.hlo.cost import Costs, OpCost, Work
from pytest_tfperf.trace.xspace import decode_trace

DERIVED = 0xDEADBEEF - (1 << 32)


def traced(*events, thread="tf_Compute/1", planes=(), n_steps=2):
    marks = [at("train", n * 10, n * 10 + 9, step_num=n, _r=1) for n in range(n_steps)]
    trace = decode_trace(
        space(plane("/host:CPU", line("marks", *marks), line(thread, *events)), *planes)
    )
    return trace, find_steps(trace)


def times(ops):
    """{(side, name, kind): (count, total, self)}, in ms."""
    return {
        (op.side, op.name, op.kind): (
            op.count,
            round(op.total_s * 1e3, 6),
            round(op.self_s * 1e3, 6),
        )
        for op in ops
    }


def test_self_time_is_without_the_ops_inside():
    ops = host_ops(
        *traced(
            at("loop/While:While", 1, 8),
            at("a/MatMul:MatMul", 2, 4),
            at("a/MatMul:MatMul", 5, 6),
            at("x", 2, 3),
        )
    )
    assert times(ops) == {
        ("host", "loop/While", "While"): (1, 7, 4),
        ("host", "a/MatMul", "MatMul"): (2, 3, 3),
    }


def test_of_three_levels_each_loses_only_the_next():
    ops = host_ops(*traced(at("a:A", 0, 8), at("b:B", 1, 7), at("c:C", 2, 4)))
    assert [values[2] for values in times(ops).values()] == [2, 4, 2]


def test_threads_are_apart():
    other = line("tf_Compute/2", at("c:C", 1, 4))
    marks = line("marks", at("train", 0, 10, step_num=0, _r=1))
    trace = decode_trace(
        space(plane("/host:CPU", marks, line("tf_Compute/1", at("a:A", 0, 5)), other))
    )
    assert times(host_ops(trace, find_steps(trace))) == {
        ("host", "a", "A"): (1, 5, 5),
        ("host", "c", "C"): (1, 3, 3),
    }


def test_what_starts_outside_of_the_steps_is_left_out():
    assert times(host_ops(*traced(at("a:A", 8, 9), at("a:A", 19.5, 20)))) == {
        ("host", "a", "A"): (1, 1, 1)
    }


def test_an_op_that_is_run_eagerly_counts_with_what_it_runs():
    ops = host_ops(
        *traced(
            at("EagerExecute", 1, 5, eager_op="MatMul", is_func=0),
            at("MatMul:MatMul", 2, 4),
            at("b:B", 6, 8),
            thread="python",
        )
    )
    assert times(ops) == {("host", "MatMul", "MatMul"): (1, 4, 4), ("host", "b", "B"): (1, 2, 2)}
    assert eager_share(ops) == pytest.approx(4 / 6)


def test_an_op_that_an_event_of_the_eager_runtime_names_counts_so():
    ops = host_ops(*traced(at("EagerExecute: MatMul", 1, 5), at("MatMul:MatMul", 2, 4)))
    assert times(ops) == {("host", "MatMul", "MatMul"): (1, 4, 4)}


def test_ops_in_a_function_called_from_python_are_not_eager():
    ops = host_ops(
        *traced(
            at("EagerExecute", 1, 5, eager_op="__inference_step_1", is_func=1),
            at("MatMul:MatMul", 2, 4),
            thread="python",
        )
    )
    assert (times(ops), eager_share(ops)) == ({("host", "MatMul", "MatMul"): (1, 2, 2)}, 0)


def test_ops_of_the_input_pipeline_are_its_own():
    ops = host_ops(
        *traced(at("DecodeJpeg:DecodeJpeg", 1, 2), thread="tf_data_private_threadpool/1")
    )
    assert times(ops) == {("tf.data", "DecodeJpeg", "DecodeJpeg"): (1, 1, 1)}


def test_on_a_cpu_xla_s_instructions_are_ops_of_the_host():
    """Their ends are events of their own; with a GPU in the trace, what the host has of them is their launch."""
    events = [
        at("dot.3", 1, 5, hlo_op="dot.3", hlo_module="step"),
        at("add_fusion", 2, 3, hlo_op="add_fusion", hlo_module="step"),
        at("end: dot.3", 5, 6),
    ]
    ops = host_ops(*traced(*events, thread="tf_numa_-1_Eigen/1"))
    assert times(ops) == {
        ("host", "dot.3", "dot"): (1, 4, 3),
        ("host", "add_fusion", "add_fusion"): (1, 1, 1),
    }
    assert {op.module for op in ops} == {"step"}
    assert host_ops(*traced(*events, planes=[gpu(0, at("k", 1, 2))])) == []


def test_of_a_trace_without_ops_there_is_nothing():
    trace, steps = traced()
    assert (host_ops(trace, steps), device_ops(trace, steps), eager_share([])) == ([], [], None)


def gpu(number, *events):
    derived = line("TensorFlow Ops", at("MatMul:MatMul", 0, 9), id=DERIVED + 3)
    return plane(f"/device:GPU:{number}", line("Stream #1", *events, id=1), derived)


def test_a_kernel_belongs_to_the_op_that_its_annotation_names():
    cases = [
        (
            {"hlo_op": "gemm_fusion_dot.3", "tf_op": "XlaModule:"},
            ("gemm_fusion_dot.3", "gemm_fusion_dot"),
        ),
        ({"hlo_op": Ref("fusion.1.2")}, ("fusion.1.2", "fusion")),
        ({"tf_op": "model/dense/MatMul:MatMul"}, ("model/dense/MatMul", "MatMul")),
        (
            {"tf_op": Ref("model/dense/MatMul:MatMul"), "annotation": "other:Other"},
            ("model/dense/MatMul", "MatMul"),
        ),
        ({"annotation": "replica_4/Cast:Cast#shape=(half[4,1])#"}, ("replica_4/Cast", "Cast")),
        ({"tf_op": "XlaModule:"}, ("sgemm", "kernel")),
        ({"annotation": ""}, ("sgemm", "kernel")),
        ({}, ("sgemm", "kernel")),
    ]
    for stats, expected in cases:
        ops = device_ops(*traced(planes=[gpu(0, event("sgemm", MS, MS, stats))]))
        assert times(ops) == {("GPU", *expected): (1, 1, 1)}, (stats, expected)


def test_copies_and_collectives_are_rows_of_their_own_on_all_devices_together():
    copy = event("MemcpyH2D", MS, MS, tf_op="arg:_Recv")
    nccl = event(
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        3 * MS,
        2 * MS,
        tf_op="x/CollectiveReduce:CollectiveReduce",
    )
    ops = device_ops(*traced(planes=[gpu(0, copy, nccl), gpu(1, nccl)]))
    assert times(ops) == {
        ("GPU", "MemcpyH2D", "copy to device"): (1, 1, 1),
        ("GPU", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "collective"): (2, 4, 4),
    }


def test_equal_names_in_two_modules_are_two_ops():
    ops = device_ops(
        *traced(
            planes=[
                gpu(
                    0,
                    *(
                        event("k", n * MS, MS, hlo_op="fusion", hlo_module=f"jit_{n}")
                        for n in range(2)
                    ),
                )
            ]
        )
    )
    assert sorted((op.module, op.count) for op in ops) == [("jit_0", 1), ("jit_1", 1)]


def test_kernels_launched_by_eager_ops_are_eager():
    eager = at("EagerExecute", 1, 3, eager_op="MatMul", is_func=0)
    calls = [
        at("cuLaunchKernel", 1.5, 2, correlation_id=7),
        at("cuLaunchKernel", 4, 5, correlation_id=8),
    ]
    kernels = [event("k", n * MS, MS, correlation_id=n) for n in (7, 8)]
    assert (
        eager_share(device_ops(*traced(eager, *calls, thread="python", planes=[gpu(0, *kernels)])))
        == 0.5
    )


ADD = "%add.1 = f32[8]{0:T(256)} add(f32[8]{0} %a, f32[8]{0} %b)"
LOOP = "%while.2 = (f32[8]{0}) while((f32[8]{0}) %t), condition=%c, body=%b"


def tpu(number, *ops):
    metadata = {
        ADD: {
            "hlo_category": "non-fusion elementwise",
            "flops": 8,
            "bytes_accessed": Uint(96),
            "program_id": Uint(5),
        },
        LOOP: {"hlo_category": "while", "program_id": Uint(5)},
    }
    modules = line("XLA Modules", at("jit_step(5)", 0, 20))
    return plane(f"/device:TPU:{number}", modules, line("XLA Ops", *ops), metadata=metadata)


def test_tpu_ops_have_the_cost_of_their_metadata_and_the_self_time_of_their_nesting():
    core = tpu(0, at(LOOP, 0, 8), at(ADD, 1, 3), at(ADD, 4, 5))
    ops = device_ops(*traced(planes=[core, tpu(1, at(ADD, 1, 2))]))
    assert times(ops) == {
        ("TPU", "while.2", "while"): (1, 8, 5),
        ("TPU", "add.1", "non-fusion elementwise"): (3, 4, 4),
    }
    add = next(op for op in ops if op.name == "add.1")
    assert (add.module, add.flops, add.bytes) == ("jit_step(5)", 24, 288)
    assert next(op for op in ops if op.name == "while.2").flops is None


class Apart(str):
    """An event name that equals no other, so that each has metadata of its own."""

    __slots__ = ()
    __eq__, __hash__ = object.__eq__, object.__hash__


def test_of_two_programs_ops_with_one_text_only_what_is_equal_is_known():
    for flops, bytes_moved, expected in [
        ((8, 80), (96, 96), (None, 288)),
        ((8, 8), (96, 9), (24, None)),
    ]:
        names = [Apart(ADD) for _ in flops]
        metadata = {
            name: {
                "hlo_category": "loop fusion",
                "flops": count,
                "bytes_accessed": Uint(size),
                "program_id": Uint(5 + n),
            }
            for n, (name, count, size) in enumerate(zip(names, flops, bytes_moved, strict=True))
        }
        for some in (metadata, dict(reversed(metadata.items()))):
            modules = line("XLA Modules", at("jit_f(5)", 0, 2), at("jit_f(6)", 2, 6))
            ran = line("XLA Ops", at(names[0], 1, 2), at(names[1], 2, 3), at(names[1], 4, 5))
            core = plane("/device:TPU:0", modules, ran, metadata=some)
            [op] = device_ops(*traced(planes=[core]))
            assert (op.module, op.kind, op.count) == ("", "loop fusion", 3)
            assert (op.flops, op.bytes) == expected


def test_the_time_of_a_tpu_op_is_that_of_the_core_s_own_clock():
    """On the trace's clock the second op takes 5 ms, and encloses the first."""
    first = at(ADD, 1, 2, device_offset_ps=100 * MS, device_duration_ps=MS)
    second = at(LOOP, 0.5, 5.5, device_offset_ps=101 * MS, device_duration_ps=3 * MS)
    ops = device_ops(*traced(planes=[tpu(0, second, first)]))
    assert times(ops) == {
        ("TPU", "add.1", "non-fusion elementwise"): (1, 1, 1),
        ("TPU", "while.2", "while"): (1, 3, 3),
    }


def test_an_instruction_s_name_stands_before_its_type():
    cases = [
        (ADD, "add.1"),
        ("copy-done.4 = f32[] copy-done(x)", "copy-done.4"),
        ("fusion.3", "fusion.3"),
        ("", ""),
    ]
    for text, name in cases:
        assert instruction(text) == name, name


def test_the_table_is_per_step_and_sorted_by_self_time():
    trace, steps = traced(at("a:A", 0, 4), at("b:B", 1, 2), at("b:B", 11, 16))
    table = op_table(host_ops(trace, steps), len(steps))
    assert [column.title for column in table.columns] == [
        "where",
        "op",
        "type",
        "occurrences",
        "total",
        "self",
        "of its side",
        "eager",
    ]
    assert cells(table, "where", "op", "type", "occurrences") == [
        ("host", "b", "B", 1.0),
        ("host", "a", "A", 0.5),
    ]
    assert cells(table, "total_s", "self_s", "share", "eager") == [
        pytest.approx((3e-3, 3e-3, 6 / 9, 0)),
        pytest.approx((2e-3, 1.5e-3, 3 / 9, 0)),
    ]


def test_tpu_ops_agree_with_xprof():
    """hlo_stats: occurrences and total self time in µs over four cores; their sum is its device time without IDLE."""
    ops = {op.name: op for op in device_ops(*real("tpu_v6e_jax_inference"))}
    expected = {
        "copy-done.4": (400, 77773215.73125),
        "copy-done.2": (400, 77642772.81875),
        "copy-done": (400, 75671038.51375),
        "broadcast_add_fusion.1": (400, 3262107.41375),
        "all-reduce": (12, 1460345.25875),
        "broadcast.2": (1, 4443.76625),
    }
    assert {name: (ops[name].count, ops[name].self_s * 1e6) for name in expected} == {
        name: (count, pytest.approx(time, rel=1e-9)) for name, (count, time) in expected.items()
    }
    assert sum(op.self_s for op in ops.values()) * 1e6 == pytest.approx(
        363729698.76875 - 48611795.0625, rel=1e-9
    )
    assert ops["broadcast_add_fusion.1"].flops == 400 * 1342177280
    assert ops["broadcast_add_fusion.1"].module == "jit_f(12190760917235803885)"


def test_gpu_ops_agree_with_xprof_but_for_what_it_takes_for_idle():
    """hlo_stats of the MI300 trace; XProf's IDLE hides 563.521 µs of copies and two kernels that nobody annotated."""
    ops = {op.name: op for op in device_ops(*real("gpu_mi300_jax_conv"))}
    assert {name: (op.count, round(op.self_s * 1e6, 3)) for name, op in ops.items()} == {
        "input_transpose_fusion": (40, 14344.14),
        "cudnn-conv.1": (79, 12531.616),
        "input_transpose_fusion.1": (39, 481.4),
        "loop_transpose_fusion": (40, 193.52),
        "__amd_rocclr_copyBuffer.kd": (35, 563.521),
        "Im3d2Col.kd": (1, 16.08),
        "input_transpose_fusion_1.kd": (1, 6.8),
    }


def test_host_ops_agree_with_xprof():
    """
    framework_op_stats of the V100 trace, total self time in µs of two ops on any thread.

    XProf says 2 occurrences for the first: it counts the allocation that carries the op's name as one more.
    """
    ops = host_ops(*real("gpu_v100_tf_bert_multiworker"))
    op = max((op for op in ops if op.kind == "RandomUniform"), key=lambda op: op.self_s)
    assert (op.count, round(op.self_s * 1e6, 3)) == (1, 1150.025)
    remote = [op for op in ops if op.name == "RemoteCall____inference__next_func_441"]
    assert round(sum(op.self_s for op in remote) * 1e6, 3) == 2018.809


def test_kernels_of_old_tensorflow_are_found_by_their_annotation():
    """XProf knows only `tf_op` and `hlo_op`: its device rows for the V100 trace are one, 100 % IDLE. Both GPUs ran 14.866 ms and more."""
    ops = device_ops(*real("gpu_v100_tf_bert_multiworker"))
    assert sum(op.count for op in ops if op.kind == "RandomUniform") == 194
    assert (
        round(sum(op.self_s for op in ops if op.kind == "RandomUniform") * 1e6, 3) == 7908.309
    )  # kernel_stats, rank 1


def test_kernels_of_an_xla_instruction_have_its_costs_as_often_as_it_ran():
    def launch(begin, kernel, op):
        return at(kernel, begin, begin + 0.1, hlo_op=op, hlo_module="jit_f", program_id=7)

    work = [
        launch(n + shift, kernel, "conv.1")
        for n in range(3)
        for shift, kernel in ((0.1, "im2col"), (0.3, "gemm"))
    ]
    work += [launch(n + 0.5, "fusion", "fusion.2") for n in range(3)] + [at("other", 4, 5)]
    host = plane("/host:CPU", line("python", at("train", 0, 10, step_num=0, _r=1)))
    trace = decode_trace(space(host, plane("/device:GPU:0", line("Stream #1(Compute)", *work))))
    costs = Costs(
        work=Work(),
        uncounted=(),
        once=(),
        ops=(
            OpCost("conv.1", "custom-call", "", "f32", Work(flops=100), 8),
            OpCost("fusion.2", "fusion", "", "f32", Work(flops=2), 16),
        ),
    )
    found = {
        op.name: op for op in with_costs(device_ops(trace, find_steps(trace)), {"jit_f(7)": costs})
    }
    assert {name: (op.count, op.kind, op.flops, op.bytes) for name, op in found.items()} == {
        "conv.1": (6, "custom-call", 300, 24),
        "fusion.2": (3, "fusion", 6, 48),
        "other": (1, "kernel", None, None),
    }


def program(flops):
    """The costs of a program of one op."""
    cost = OpCost("fusion.1", "fusion", "", "f32", Work(flops=flops), 4 * flops)
    return Costs(work=cost.work, ops=(cost,), uncounted=(), once=())


def of_two_programs(programs, *ids):
    """Return module, count, FLOPs and bytes of an op that a function ran with these program ids, None where the trace has none."""
    kernels = [
        event("k", n * MS, MS, hlo_op="fusion.1", hlo_module="jit_f")
        if number is None
        else event("k", n * MS, MS, hlo_op="fusion.1", hlo_module="jit_f", program_id=number)
        for n, number in enumerate(ids)
    ]
    ops = with_costs(device_ops(*traced(planes=[gpu(0, *kernels)])), programs)
    return {op.module: (op.count, op.flops, op.bytes) for op in ops}


def test_an_op_has_the_costs_of_the_program_that_ran_it():
    small, large = program(200), program(2_000_000)
    for programs in (
        {"jit_f(5)": small, "jit_f(9)": large},
        {"jit_f(9)": large, "jit_f(5)": small},
    ):
        assert of_two_programs(programs, 5, 9, 5) == {
            "jit_f(5)": (2, 400, 1600),
            "jit_f(9)": (1, 2_000_000, 8_000_000),
        }
        assert of_two_programs(programs, 5, 7)["jit_f(7)"] == (1, None, None)  # not in the trace
        assert of_two_programs(programs, None, None) == {"jit_f": (2, None, None)}
    alike = {"jit_f(5)": small, "jit_f(9)": program(200)}
    assert of_two_programs(alike, None, None) == {"jit_f": (2, 400, 1600)}
    assert of_two_programs({"jit_f(5)": small}, None) == {"jit_f": (1, 200, 800)}

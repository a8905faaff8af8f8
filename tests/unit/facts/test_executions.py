import numpy as np
from helpers.xspace import at, field, line, plane, space

from pytest_tfperf.facts.executions import XlaUse, compiled_outside, find_xla_use, short_module
from pytest_tfperf.facts.late import compiled_late
from pytest_tfperf.facts.steps import find_steps, on_the_device
from pytest_tfperf.trace.xspace import decode_trace


def run(begin, *programs):
    thunks = [
        at(
            "dot",
            begin + 0.1 * n,
            begin + 0.1 * n + 0.05,
            hlo_op="dot",
            hlo_module=f"m{p}",
            program_id=p,
        )
        for n, p in enumerate(programs)
    ]
    return [at("CpuExecutable::ExecuteAsyncOnStream", begin, begin + 1), *thunks]


def two_steps(*events):
    marks = [at("train", n * 10, n * 10 + 9, step_num=n, _r=1) for n in range(2)]
    trace = decode_trace(
        space(plane("/host:CPU", line("marks", *marks), line("tf_Compute/1", *events)))
    )
    return trace, find_steps(trace)


def test_launches_are_runs_and_clusters_are_executables():
    use = find_xla_use(*two_steps(*run(1, 5), *run(3, 5), *run(12, 5), *run(14, 6)))
    assert (use.launches.tolist(), use.clusters.tolist()) == ([2, 2], [1, 2])
    assert use.modules == {"m5(5)": 1.5, "m6(6)": 0.5}


def test_without_xla_there_are_none():
    use = find_xla_use(*two_steps(at("MatMul:MatMul", 1, 2)))
    assert (use.launches.tolist(), use.clusters.tolist(), use.modules) == ([0, 0], [0, 0], {})


def test_compilations_are_told_apart_by_when_they_ran():
    compilation = [
        at("CpuCompiler::RunBackend", begin, begin + 0.5, name=f"m{begin}")
        for begin in (1, 9.2, 12)
    ]
    trace, steps = two_steps(*compilation)
    assert compiled_late(trace, steps) == ["m12"]
    assert (
        compiled_outside(trace, steps) == []
    )  # 9.2 is in the period of the first step, which lasts to the second
    trace, steps = two_steps(at("CpuCompiler::RunBackend", 30, 31))
    assert len(compiled_outside(trace, steps)) == 1


def test_on_a_gpu_the_compiler_s_passes_name_the_module_and_autotuning_compiles_within_them():
    trace, steps = two_steps(
        at("HLO Transforms:m1", 1, 2),
        at("HLO Transforms:m12", 12, 14),
        at("HLO Transforms:tried", 12.5, 13),
    )
    assert compiled_late(trace, steps) == ["m12"]


def test_a_module_is_shown_by_its_function():
    cases = [
        ("a_inference_train_step_123__XlaMustCompile_true_config_proto_135_.2(7)", "train_step"),
        ("a_inference_one_step_on_data_21694__.4(1)", "one_step_on_data"),
        ("cluster_0__XlaCompiledKernel_true__XlaHasReferenceVars_false_.4(12)", "cluster_0"),
        ("jit_step(3)", "jit_step"),
    ]
    for name, short in cases:
        assert short_module(name) == short, name


def test_on_a_tpu_executions_are_those_of_the_busiest_core():
    cores = [
        plane(
            f"/device:TPU:{n}",
            line("XLA Modules", *(at(name, begin, begin + 1) for name, begin in runs)),
        )
        for n, runs in enumerate(
            [
                [("jit_f(9)", 1), ("jit_g(8)", 3), ("jit_f(9)", 5), ("jit_f(9)", 12)],
                [("jit_f(9)", 1), ("jit_h(7)", 14)],
            ]
        )
    ]
    marks = [at("train", n * 10, n * 10 + 9, step_num=n, _r=1) for n in range(2)]
    trace = decode_trace(space(plane("/host:CPU", line("marks", *marks)), *cores))
    use = find_xla_use(trace, find_steps(trace))
    assert (use.launches.tolist(), use.clusters.tolist(), use.modules) == (
        [3, 1],
        [2, 1],
        {"jit_f(9)": 1.5, "jit_g(8)": 0.5, "jit_h(7)": 0.5},
    )
    assert {name: ran.tolist() for name, ran in use.steps.items()} == {
        "jit_f(9)": [0, 1],
        "jit_g(8)": [0],
        "jit_h(7)": [1],
    }
    assert use.on_all_devices == {"jit_f(9)": 2, "jit_g(8)": 0.5, "jit_h(7)": 0.5}


def test_on_gpus_kernels_name_the_executables_and_each_gpu_ran_its_share():
    marks = [at("train", n * 10, n * 10 + 9, step_num=n, _r=1) for n in range(2)]
    runs = [
        at("GpuExecutable::ExecuteAsyncOnStream", begin, begin + 0.5)
        for begin in (1, 1.1, 3, 3.1, 12, 12.1)
    ]
    gpus = [
        plane(
            f"/device:GPU:{n}",
            line(
                "Stream #1(Compute)",
                *(at("fusion", b, b + 1, hlo_module=f"m{p}", program_id=p) for b, p in work),
            ),
        )
        for n, work in enumerate([[(2, 5), (4, 6), (13, 5)], [(2, 5), (4, 6), (13, 5), (15, 7)]])
    ]
    trace = decode_trace(space(plane("/host:CPU", line("marks", *marks), line("py", *runs)), *gpus))
    use = find_xla_use(trace, find_steps(trace))
    assert (use.launches.tolist(), use.clusters.tolist(), use.modules) == (
        [2, 1],
        [2, 2],
        {"m5(5)": 1, "m6(6)": 0.5, "m7(7)": 0.5},
    )
    assert use.on_all_devices == {"m5(5)": 2, "m6(6)": 1, "m7(7)": 0.5}


def on_gpus(*executions):
    """Two steps of 10 ms, and executions: (time, program, GPU); each enqueues two kernels."""
    marks = [at("train", n * 10, n * 10 + 9, step_num=n, _r=1) for n in range(2)]
    host, kernels = [], {0: [], 1: []}
    for n, (begin, program, gpu) in enumerate(executions):
        host.append(at(f"[{gpu}] GpuExecutable::ExecuteThunks", begin, begin + 0.5))
        for k, op in enumerate(("gemm", "add")):
            id = 2 * n + k + 1
            host.append(
                at("cuLaunchKernel", begin + 0.1 + k / 10, begin + 0.15 + k / 10, correlation_id=id)
            )
            stats = {"hlo_op": op, "hlo_module": f"m{program}", "program_id": program}
            start = begin + 0.2 + k / 5
            kernels[gpu].append(at(op, start, start + 0.1, **stats, correlation_id=id))
    gpus = [
        plane(f"/device:GPU:{n}", line("Stream #1(Compute)", *work)) for n, work in kernels.items()
    ]
    trace = decode_trace(space(plane("/host:CPU", line("py", *marks, *host)), *gpus))
    return find_xla_use(trace, find_steps(trace))


def test_a_launch_is_one_whatever_the_number_of_its_gpus():
    rows = [
        ("in turn", [(1, 5, 0), (11, 5, 1)], [1, 1], {"m5(5)": 1}),
        ("twice in turn", [(t, 5, g) for t, g in ((1, 0), (3, 0), (11, 1), (13, 1))], [2, 2], {}),
        (
            "on both, and a helper on one",
            [(t, p, g) for t in (1, 11) for t, p, g in ((t, 5, 0), (t + 1, 5, 1), (t + 2, 6, 0))],
            [2, 2],
            {"m5(5)": 1, "m6(6)": 1},
        ),
        ("on one of two", [(1, 5, 1), (11, 5, 1), (13, 5, 1)], [1, 2], {"m5(5)": 1.5}),
        (
            "a program for each",
            [(t + g, 5 + g, g) for t in (1, 11) for g in (0, 1)],
            [2, 2],
            {"m5(5)": 1, "m6(6)": 1},
        ),
    ]
    for title, executions, launches, modules in rows:
        use = on_gpus(*executions)
        assert use.launches.tolist() == launches, title
        assert not modules or use.modules == modules, title


def on_a_gpu(calls, kernels):
    """Two steps of 10 ms that launch kernels: (correlation id, time), (name, op, id, time)."""
    marks = [at("train", n * 10, n * 10 + 9, step_num=n, _r=1) for n in range(2)]
    launched = [at("cuLaunchKernel", t, t + 0.1, correlation_id=n) for n, t in calls]
    runs = [at("[0] GpuExecutable::ExecuteThunks", t, t + 0.2) for _, t in calls]
    work = [
        at(name, t, t + 0.1, hlo_op=op, hlo_module="m5", program_id=5, correlation_id=n)
        for name, op, n, t in kernels
    ]
    gpu = plane("/device:GPU:0", line("Stream #1(Compute)", *work))
    return decode_trace(space(plane("/host:CPU", line("py", *marks, *launched, *runs)), gpu))


def test_instructions_that_run_the_same_kernel_are_one_run():
    """Two products of cuBLAS, each with a kernel that clears its workspace."""
    kernels = [
        (name, op, n, t + n / 10)
        for t in (1, 12)
        for n, (name, op) in enumerate(
            [("set", "dot.1"), ("gemm", "dot.1"), ("set", "dot.2"), ("gemm", "dot.2")]
        )
    ]
    kernels = [(name, op, i, t) for i, (name, op, _, t) in enumerate(kernels)]
    trace = on_a_gpu([(i, t - 0.05) for i, (_, _, _, t) in enumerate(kernels)], kernels)
    assert find_xla_use(trace, find_steps(trace)).modules == {"m5(5)": 1}


def test_the_kernels_of_a_cuda_graph_have_the_id_of_its_launch():
    kernels = [
        ("gemm", "command_buffer_1", n, t + k / 10) for n, t in ((1, 1), (2, 12)) for k in range(25)
    ]
    trace = on_a_gpu([(1, 0.5), (2, 11)], kernels)
    use = find_xla_use(trace, find_steps(trace))
    assert (use.modules, use.launches.tolist()) == ({"m5(5)": 1}, [1, 1])


def test_executions_belong_to_the_steps_that_launched_them():
    """The host enqueues both steps before the device has ended the first."""
    calls = [(1, 1), (2, 11)]
    kernels = [("gemm", "command_buffer_1", n, 20 + 10 * n) for n in (1, 2)]
    trace = on_a_gpu(calls, kernels)
    launched = find_steps(trace)
    steps = on_the_device(trace, launched)
    assert steps.start_ps.tolist() == [30 * 10**9, 40 * 10**9]
    assert find_xla_use(trace, steps, launched).launches.tolist() == [1, 1]


def test_the_ops_of_a_loop_run_more_often_than_their_executable():
    runs = [event for begin in (1, 12) for event in run(begin, 5)]
    looped = [
        at(
            "add",
            begin + 0.5 + n * 0.05,
            begin + 0.52 + n * 0.05,
            hlo_op="add",
            hlo_module="m5",
            program_id=5,
        )
        for begin in (1, 12)
        for n in range(4)
    ]
    assert find_xla_use(*two_steps(*runs, *looped)).modules == {"m5(5)": 1}


def test_names_that_events_cut_short_are_found_in_the_metadata_by_their_id():
    use = find_xla_use(*two_steps(*run(1, 5)))
    assert use.in_metadata(["a much longer name than m5(5)", "other(55)"]) == {
        "a much longer name than m5(5)": 0.5
    }


def test_executables_of_jax_that_another_process_numbered_are_found_if_they_are_alone():
    rows = [  # names in events, names in the metadata, the found ones, and whether all are known
        (["jit_f(5)"], ["jit_f(5)", "jit_f(7)"], {"jit_f(5)"}, {"jit_f(5)"}),
        (["jit_f(3)"], ["jit_f(5)", "jit_g(3)"], {"jit_f(5)"}, {"jit_f(5)"}),
        (["jit_f(3)"], ["jit_f(5)", "jit_f(7)"], set(), None),
        (["jit_f(3)", "jit_f(5)"], ["jit_f(5)", "jit_f(7)"], set(), {"jit_f(5)", "jit_f(7)"}),
        (["jit_f(3)", "jit_g(4)"], ["jit_f(5)", "jit_g(4)"], None, {"jit_f(5)", "jit_g(4)"}),
        (["jit_f(3)"], ["jit_g(3)"], set(), None),
    ]
    for ran, names, found, every in rows:
        use = XlaUse(np.ones(1, int), np.ones(1, int), dict.fromkeys(ran, 2.0))
        expected = dict.fromkeys(every if found is None else found, 2.0)
        assert use.in_metadata(names) == expected, ran
        known = use.all_in_metadata(names)
        assert (known if known is None else {*known}) == every, ran


def thunk(name, begin, program=5):
    return at(name, begin, begin + 0.1, hlo_op=name, hlo_module=f"m{program}", program_id=program)


def test_without_executions_thunks_tell_them():
    # as TensorFlow 2.18 to 2.20 traces a CPU: two runs in the first step, three in the second
    ran = [(1, 5), (3, 5), (11, 5), (12, 6), (13, 5)]
    use = find_xla_use(
        *two_steps(*(thunk(name, t + n / 2, p) for t, p in ran for n, name in enumerate("ab")))
    )
    assert (use.launches.tolist(), use.clusters.tolist()) == ([2, 3], [1, 2])
    assert use.modules == {"m5(5)": 2.0, "m6(6)": 0.5}
    assert {name: steps.tolist() for name, steps in use.steps.items()} == {
        "m5(5)": [0, 1],
        "m6(6)": [1],
    }


def test_thunks_outside_of_steps_are_no_launches():
    use = find_xla_use(*two_steps(thunk("a", 30)))
    assert (use.launches.tolist(), use.modules) == ([0, 0], {})


def test_executions_outside_of_steps_mean_that_none_ran_in_them():
    use = find_xla_use(*two_steps(at("CpuExecutable::ExecuteAsyncOnStream", 30, 31)))
    assert (use.launches.tolist(), use.modules) == ([0, 0], {})


# three runs a step: the loop repeats b, and one run of three enters the branch with c
BRANCHING = [
    thunk(name, begin)
    for step in (0, 10)
    for name, n in (("a", 3), ("b", 12), ("c", 1))
    for begin in (step + 1 + i / 4 for i in range(n))
]


def test_the_entry_computation_tells_the_runs_where_thunks_differ():
    # HloInstructionProto name = 1, opcode = 2, id = 35; HloComputationProto name = 1,
    # instructions = 2, id = 5, root_id = 6; HloModuleProto name = 1, computations = 3, entry = 6
    op = field(1, "a") + field(2, "add") + field(35, 7)
    entry = field(1, "entry") + field(2, op) + field(5, 1) + field(6, 7)
    module = field(1, "m5") + field(3, entry) + field(6, 1)
    hlo = plane("/host:metadata", metadata={"m5(5)": {"Hlo Proto": field(1, module)}})
    marks = [at("train", n * 10, n * 10 + 9, step_num=n, _r=1) for n in range(2)]
    host = plane("/host:CPU", line("marks", *marks), line("tf_Compute/1", *BRANCHING))
    trace = decode_trace(space(host, hlo))
    use = find_xla_use(trace, find_steps(trace))
    assert (use.launches.tolist(), use.modules) == ([3, 3], {"m5(5)": 3.0})


def test_without_the_hlo_the_rarest_thunk_tells_the_runs():
    assert find_xla_use(*two_steps(*BRANCHING)).launches.tolist() == [1, 1]


def test_numbered_runs_are_counted_once_a_device_whatever_the_number_of_their_thunks():
    def numbered(begin, run, device):
        stats = {"hlo_op": "sort.0", "hlo_module": "jit_f", "program_id": 5, "run_id": run}
        return at("sort.0", begin, begin + 0.1, **stats, device_ordinal=device)

    events = [
        *(numbered(1, -7, 0), numbered(2, -7, 0)),  # a sort has two events
        *(numbered(3, -7, 1), numbered(4, -7, 1)),  # the same run on another device
        *(numbered(12, 8, 0), numbered(13, 8, 0), numbered(14, 9, 0)),
    ]
    use = find_xla_use(*two_steps(*events))
    assert use.launches.tolist() == [2, 2]
    assert use.modules == {"jit_f(5)": 2}

"""Fusions and the table of executables, of modules whose instructions are counted by hand."""

import numpy as np
from helpers.hlo import module, op, parameters
from helpers.tables import cells
from helpers.xspace import Uint, at, field, line, plane, space

from pytest_tfperf.facts.executions import XlaUse, find_xla_use
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.hlo.cost import module_costs
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.executables import count_fusions, executable_table, fusions
from pytest_tfperf.metrics.profile import profile_of
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import decode_trace
from pytest_tfperf.values import Source

MARKS = [at("train", n * 10, n * 10 + 9, step_num=n, _r=1) for n in range(3)]


def ran(*programs, marks=MARKS):
    """A trace whose steps ran these programs: (begin in ms, program id)."""
    events = [
        event
        for begin, program in programs
        for event in (
            at("CpuExecutable::ExecuteAsyncOnStream", begin, begin + 1),
            at("dot", begin + 0.1, begin + 0.2, hlo_op="dot", hlo_module="m", program_id=program),
        )
    ]
    return decode_trace(
        space(plane("/host:CPU", line("python", *marks), line("tf_Compute", *events)))
    )


def use_of(trace):
    steps = find_steps(trace)
    return trace, steps, find_xla_use(trace, steps)


def fused(n):
    """A module with so many fusions, one after the other."""
    inner = {
        f"fused_{k}": [*parameters("f32[8]"), op(f"neg_{k}", "negate", "f32[8]", "p0")]
        for k in range(n)
    }
    chain = [
        op(
            f"fusion_{k}",
            "fusion",
            "f32[8]",
            f"fusion_{k - 1}" if k else "p0",
            called=(f"fused_{k}",),
        )
        for k in range(n)
    ]
    return module(
        **inner,
        main=[
            *parameters("f32[8]"),
            *chain,
            op("copy", "copy", "f32[8]", chain[-1].name if n else "p0"),
        ],
    )


def test_fusions_are_counted_once_each():
    for n in [0, 1, 3]:
        assert count_fusions(fused(n)) == n, n


def test_fusions_in_loops_count_too():
    body = [*parameters("f32[8]"), op("fusion.b", "fusion", "f32[8]", "p0", called=("fused",))]
    condition = [*parameters("f32[8]"), op("less", "constant", "pred[]")]
    inner = [*parameters("f32[8]"), op("neg", "negate", "f32[8]", "p0")]
    main = [
        *parameters("f32[8]"),
        op("loop", "while", "f32[8]", "p0", called=("body", "condition")),
    ]
    assert count_fusions(module(fused=inner, body=body, condition=condition, main=main)) == 1


def test_the_executables_of_a_step_count_once_however_often_they_run():
    _, steps, use = use_of(ran((1, 5), (3, 5), (11, 5), (13, 6), (21, 6)))
    value = fusions(steps, use, {"m(5)": fused(3), "m(6)": fused(2)})
    assert (value.number, value.source, value.low(), value.high()) == (
        3,
        Source.HLO,
        2,
        5,
    )  # 3, 3 + 2 and 2


def test_steps_alike_have_no_low_and_high():
    _, steps, use = use_of(ran((1, 5), (11, 5), (21, 5)))
    value = fusions(steps, use, {"m(5)": fused(3)})
    assert (value.number, dict(value.detail)) == (3, {"n_steps": 3})


def test_a_partial_batch_is_an_executable_of_its_own_and_adds_nothing_to_the_other_steps():
    _, steps, use = use_of(ran((1, 5), (11, 5), (21, 6)))
    assert fusions(steps, use, {"m(5)": fused(3), "m(6)": fused(3)}).number == 3


def test_steps_without_executables_have_no_fusion():
    value = fusions(*use_of(ran())[1:], {})
    assert (value.number, value.source) == (0, Source.HLO)


def test_fusions_are_unknown_where_an_executable_s_hlo_is_missing():
    _, steps, use = use_of(ran((1, 5), (11, 6)))
    assert (
        fusions(steps, use, {"m(5)": fused(3)}).why
        == "the trace holds the HLO of 1 of the 2 executables that ran"
    )


def profiled(trace):
    return profile_of(Evidence(Recording(name="", trace=None, workload={}, bare=True), trace))


def test_executions_that_no_event_names_leave_it_open_which_they_were():
    runs = [at("CpuExecutable::ExecuteAsyncOnStream", begin, begin + 1) for begin in (1, 11, 21)]
    profile = profiled(
        decode_trace(space(plane("/host:CPU", line("python", *MARKS), line("t", *runs))))
    )
    assert profile.xla_launches == 1
    for metric in ("fusions", "xla_clusters"):
        assert profile.value(metric).why == "the trace does not tell which executables ran"


def test_without_events_of_the_host_nobody_knows_what_was_launched():
    gpu = plane(
        "/device:GPU:0", line("Steps", at("0", 0, 9)), line("Stream #1(Compute)", at("k", 1, 2))
    )
    profile = profiled(decode_trace(space(plane("/host:CPU"), gpu)))
    for metric in ("fusions", "xla_clusters", "xla_launches"):
        assert profile.value(metric).why == "the trace has no event of the host"


def allocation(size, *flags, color=0):
    """BufferAllocationProto: size = 2, color = 8, and flags by their field."""
    return field(3, field(2, size) + field(8, color) + b"".join(field(flag, 1) for flag in flags))


THREAD_LOCAL, PARAMETER, LIVE_OUT, CONSTANT = 3, 5, 7, 12


def with_buffers(buffers):
    protos = {name: {"Hlo Proto": field(3, b"".join(parts))} for name, parts in buffers.items()}
    return decode_trace(space(plane("/host:CPU"), plane("/host:metadata", metadata=protos)))


def table(modules, buffers=None, compiled_s=None):
    use = XlaUse(None, None, dict.fromkeys(modules, 0.5))
    costs = {name: module_costs(found) for name, found in modules.items()}
    return executable_table(with_buffers(buffers or {}), use, modules, costs, compiled_s or {})


def test_a_row_tells_what_one_run_of_an_executable_does():
    inner = [
        *parameters("f32[8]"),
        op("neg", "negate", "f32[8]", "p0"),
        op("exp", "add", "f32[8]", "neg", "p0"),
    ]
    main = [
        *parameters("f32[8]"),
        op("fusion.1", "fusion", "f32[8]", "p0", called=("fused",)),
        op("half", "constant", "f32[8]"),
        op("sum", "add", "f32[8]", "fusion.1", "half"),
        op("view", "bitcast", "f32[2,4]", "sum"),
        op("both", "tuple", "(f32[2,4], f32[8])", "view", "sum"),
    ]
    found = table({"a_inference_step_7__.2(3)": module(fused=inner, main=main)})
    # a fusion of 2 × 8 and a sum of 8; it reads 32 bytes and writes 32, the sum reads 64 and writes 32
    assert cells(found, "executable", "runs", "ops", "fusions", "flops", "accessed") == [
        ("step", 0.5, 2, 1, 24, 160)
    ]
    assert cells(found, "arguments", "outputs", "temporaries", "compile_s") == [
        (None, None, None, None)
    ]


def looped(backend_config):
    body = [*parameters("f32[8]"), op("twice", "add", "f32[8]", "p0", "p0")]
    condition = [*parameters("f32[8]"), op("less", "constant", "pred[]")]
    loop = op(
        "loop", "while", "f32[8]", "p0", called=("body", "condition"), backend_config=backend_config
    )
    return module(
        body=body,
        condition=condition,
        main=[*parameters("f32[8]"), loop, op("out", "copy", "f32[8]", "loop")],
    )


def test_a_loop_counts_as_often_as_it_runs():
    found = table({"f(1)": looped('{"known_trip_count": {"n": "10"}}')})
    # the sum reads its operand twice, 96 bytes in all and 8 FLOPs; the copy 64
    assert cells(found, "ops", "flops", "accessed") == [(3, 80, 10 * 96 + 64)]


def test_a_loop_that_does_not_say_how_often_it_runs_leaves_them_unknown():
    assert cells(table({"f(1)": looped("")}), "ops", "flops", "accessed") == [(3, None, None)]


def test_of_a_conditional_the_larger_branch_counts():
    branches = {
        "small": [*parameters("f32[8]"), op("copy.s", "copy", "f32[8]", "p0")],
        "large": [*parameters("f32[8]"), op("twice.l", "add", "f32[8]", "p0", "p0")],
    }
    choice = op("choice", "conditional", "f32[8]", "which", "p1", "p1", called=("small", "large"))
    main = [
        op("which", "parameter", "pred[]"),
        op("p1", "parameter", "f32[8]", parameter_number=1),
        choice,
    ]
    assert cells(table({"f(1)": module(**branches, main=main)}), "flops", "accessed") == [(8, 96)]


def test_buffers_are_told_apart_by_what_they_are_for():
    buffers = {
        "f(1)": [
            allocation(100, PARAMETER),
            allocation(20, PARAMETER, LIVE_OUT),  # a variable that is updated in place is both
            allocation(7, LIVE_OUT),
            allocation(1000, CONSTANT),
            allocation(3000, THREAD_LOCAL),
            allocation(5),
            allocation(1 << 40, color=5),  # in the host's memory
        ],
        "g(2)": [],
    }
    found = table({"f(1)": fused(1), "g(2)": fused(0)}, buffers)
    assert cells(found, "executable", "arguments", "outputs", "temporaries") == [
        ("f", 120, 27, 5),
        ("g", None, None, None),
    ]


def test_most_flops_come_first_then_names():
    big = module(main=[*parameters("f32[99]"), op("n", "negate", "f32[99]", "p0")])
    found = table(
        {"b(1)": fused(1), "a(2)": fused(1), "big(3)": big, "loop(4)": looped("")},
        compiled_s={"a(2)": 1.5},
    )
    assert cells(found, "executable", "compile_s") == [
        ("big", None),
        ("a", 1.5),
        ("b", None),
        ("loop", None),
    ]


def test_steps_of_each_executable_are_kept():
    use = use_of(ran((1, 5), (3, 5), (11, 6), (21, 5)))[2]
    assert {name: steps.tolist() for name, steps in use.steps.items()} == {
        "m(5)": [0, 2],
        "m(6)": [1],
    }
    assert list(use.steps_in_metadata(["m written out(5)", "other(7)"])) == ["m written out(5)"]


def test_on_a_tpu_too():
    runs = [at("jit_f(9)", 1, 2), at("jit_g(8)", 3, 4), at("jit_f(9)", 11, 12)]
    core = plane("/device:TPU:0", line("XLA Modules", *runs))
    trace = decode_trace(space(plane("/host:CPU", line("marks", *MARKS[:2])), core))
    trace, steps, use = use_of(trace)
    assert np.array_equal(use.steps["jit_f(9)"], [0, 1])
    assert fusions(steps, use, {"jit_f(9)": fused(2), "jit_g(8)": fused(1)}).high() == 3


def test_a_program_s_number_may_be_stored_unsigned():
    trace = decode_trace(
        space(
            plane(
                "/host:CPU",
                line("python", *MARKS[:1], at("CpuExecutable::ExecuteAsyncOnStream", 1, 2)),
                line("t", at("dot", 1.1, 1.2, hlo_module="m", program_id=Uint(5))),
            )
        )
    )
    assert fusions(*use_of(trace)[1:], {"m(5)": fused(2)}).number == 2

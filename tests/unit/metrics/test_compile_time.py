"""How long XLA compiled, of traces whose events are laid out by hand."""

import pytest
from helpers.xspace import at, field, line, plane, space

from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.executables import compile_seconds, compile_time
from pytest_tfperf.metrics.profile import profile_of
from pytest_tfperf.recording import Recording, XlaShown
from pytest_tfperf.trace.xspace import decode_trace
from pytest_tfperf.values import Source, Unknown

DRIVEN = Recording(name="", trace=None, workload={})
START = "ExecutorState::ProcessAsync::Start"
RUN = "CpuExecutable::ExecuteAsyncOnStream"


def traced(*lines, modules=(), more=()):
    threads = [line(f"thread {n}", *events) for n, events in enumerate(lines)]
    metadata = plane(
        "/host:metadata", metadata={name: {"Hlo Proto": field(1, b"")} for name in modules}
    )
    return decode_trace(space(plane("/host:CPU", *threads), metadata, *more))


def cpu(begin, end, name="f"):
    """Passes in the first half, then the backend with what is inside it."""
    half = (begin + end) / 2
    return [
        at("HLO passes through layout assignment", begin, begin + (half - begin) / 2),
        at("HLO passes after layout assignment", begin + (half - begin) / 2, half),
        at("CpuCompiler::RunBackend", half, end, name=name),
        at("CpuCompiler::CompileCpuExecutable", half, end, name=name),
    ]


def seconds(trace, recording=DRIVEN):
    return compile_time(trace, recording).number


def test_an_op_that_compiles_does_so_until_it_executes():
    # translated to HLO from 10 to 20, passes and backend from 20 to 60, executed from 62
    call = [
        at("f", 0, 70),
        at("tf.function-graph_building", 1, 9),
        at("__inference_f_1:__inference_f_1", 10, 70),
    ]
    trace = traced([*call, *cpu(20, 60), at(RUN, 62, 69)])
    value = compile_time(trace, DRIVEN)
    assert (value.number, value.source) == (pytest.approx(52e-3), Source.TRACE)


def test_a_compilation_ends_with_the_first_thunk_where_no_execution_shows():
    # as TensorFlow 2.18: translated from 10, compiled from 20 to 60, a thunk on another thread from 62
    call = [at("__inference_f_1:__inference_f_1", 10, 70)]
    compiler = at("CpuCompiler::CompileLegacyCpuExecutable", 20, 60, name="f")
    thunks = [
        at("dot", begin, begin + 5, hlo_op="dot", hlo_module="f", program_id=1) for begin in (1, 62)
    ]
    assert seconds(traced([*call, compiler], thunks)) == pytest.approx(52e-3)
    assert seconds(traced([*call, compiler], thunks[:1])) == pytest.approx(60e-3)


def test_no_compilation_is_known_where_the_self_check_showed_one():
    recording = Recording(name="", trace=None, workload={}, xla_shown=XlaShown())
    assert seconds(traced([at("FunctionRun", 0, 9)]), recording) == 0
    shown = XlaShown(compilations="not in 9.9")
    value = compile_time(traced([]), Recording(name="", trace=None, workload={}, xla_shown=shown))
    assert (value.number, value.why) == (None, "not in 9.9")


def test_the_innermost_op_is_what_compiles():
    for name in [START, "cluster_0_1/xla_compile:_XlaCompile", "__inference_f_1:__inference_f_1"]:
        assert seconds(
            traced(
                [
                    at("ExecutorState::Process", 0, 100),
                    at(START, 1, 99),
                    at(name, 10, 50),
                    *cpu(20, 40),
                ]
            )
        ) == pytest.approx(40e-3), name


def test_executions_before_the_compiler_ran_do_not_end_it():
    assert seconds(
        traced([at(START, 0, 100), at(RUN, 1, 2), *cpu(20, 60), at(RUN, 70, 90)])
    ) == pytest.approx(70e-3)


def test_what_compiles_at_once_counts_once():
    one, other = (
        [at(START, 0, 50), *cpu(20, 50, "f")],
        [at(START, 10, 80), *cpu(20, 70, "g"), at(RUN, 75, 80)],
    )
    trace = traced(one, other, modules=("f(1)", "g(2)"))
    assert seconds(trace) == pytest.approx(75e-3)
    assert compile_seconds(trace) == pytest.approx({"f(1)": 50e-3, "g(2)": 65e-3})
    assert compile_time(trace, DRIVEN).detail["where"] == "compiled: g 65 ms, f 50 ms"


def test_another_thread_s_execution_is_not_the_op_s():
    assert seconds(traced([at(START, 0, 50), *cpu(20, 50)], [at(RUN, 30, 40)])) == pytest.approx(
        50e-3
    )


def test_without_an_op_around_them_the_compiler_s_own_events_count():
    trace = traced(cpu(20, 60, "f"), modules=("f(1)",))
    assert seconds(trace) == pytest.approx(40e-3)
    assert compile_seconds(trace) == {}  # where its translation began is not known


REGION, REGION_END = "ThreadpoolListener::StartRegion", "ThreadpoolListener::StopRegion"


def test_an_op_whose_end_the_trace_does_not_see_began_with_what_its_thread_was_given():
    cases = [
        ([at(REGION, 5, 5)], 55),
        ([at(REGION, 1, 1), at(REGION_END, 4, 4), at(REGION, 5, 5)], 55),
        ([at(REGION, 1, 1), at("a/MatMul:MatMul", 2, 10)], 50),  # another op in the same work
        ([at("a/MatMul:MatMul", 2, 4), at(REGION, 5, 5)], 55),
        ([at(REGION, 1, 1), at(REGION_END, 4, 4)], 40),  # nobody knows
        ([at("a/MatMul:MatMul", 2, 4)], 40),
    ]
    for before, ms in cases:
        trace = traced(
            [*before, *cpu(20, 60), at(RUN, 62, 70)], [at(REGION, 15, 15)], modules=("f(1)",)
        )
        assert seconds(trace) == pytest.approx(ms * 1e-3), (before, ms)
        assert compile_seconds(trace) == ({} if ms == 40 else pytest.approx({"f(1)": ms * 1e-3})), (
            before,
            ms,
        )


def test_ops_that_compile_nothing_do_not_count():
    assert (
        seconds(
            traced(
                [
                    at(START, 0, 10),
                    at("a/MatMul:MatMul", 1, 9),
                    at(RUN, 11, 20),
                    at("CpuCompiler", 1, 2),
                ]
            )
        )
        == 0
    )


def test_on_a_gpu_an_op_that_transforms_hlo_compiles():
    passes = [at("HLO Transforms:f", 20, 40), at("HLO Transforms:autotuned", 25, 30)]
    trace = traced(
        [at(START, 10, 90), *passes, at("GpuExecutable::ExecuteAsyncOnStream", 80, 85)],
        modules=("f(4)",),
    )
    assert seconds(trace) == pytest.approx(70e-3)
    assert compile_seconds(trace) == pytest.approx({"f(4)": 70e-3})


def test_an_accelerator_whose_compiler_has_no_event_is_not_taken_for_one_that_did_not_compile():
    gpu = plane("/device:GPU:0", line("Stream #1", at("k", 1, 2)))
    value = compile_time(
        traced([at("GpuExecutable::ExecuteAsyncOnStream", 80, 85)], more=(gpu,)), DRIVEN
    )
    assert "no event of the device's compiler" in value.why


def test_nothing_compiled_is_0():
    assert seconds(traced([at("FunctionRun", 0, 9), at("a/MatMul:MatMul", 1, 9)])) == 0


WARM = "its functions had been traced before, so this was no first step"


def test_a_first_step_that_was_none_may_run_what_was_compiled_before():
    recording = Recording(name="", trace=None, workload={}, first_step_s=Unknown(WARM))
    assert seconds(traced([at("FunctionRun", 0, 9), at("a/MatMul:MatMul", 1, 9)]), recording) == 0
    for events in ([at(RUN, 1, 2)], [at(START, 0, 50), *cpu(20, 40), at(RUN, 42, 50)]):
        value = compile_time(traced(events), recording)
        assert value.why == f"{WARM}; executables may have been compiled before"


def test_without_a_trace_of_the_first_step_it_is_unknown():
    cases = [
        (DRIVEN, "only steps that tf_profile drives have a first step under a session of its own"),
        (
            Recording(name="", trace=None, workload={}, bare=True, ended="x"),
            "only steps that tf_profile drives",
        ),
        (
            Recording(name="", trace=None, workload={}, ended="the data were over"),
            "the data were over",
        ),
    ]
    for recording, why in cases:
        value = compile_time(None, recording)
        assert value.number is None, why
        assert value.why.startswith(why), why


def test_a_profile_without_a_traced_window_has_it_too():
    cold = traced([at(START, 0, 50), *cpu(20, 50)])
    assert profile_of(Evidence(DRIVEN, None, cold)).xla_compile_time == pytest.approx(50e-3)
    assert profile_of(Evidence(DRIVEN, None)).value("xla_compile_time").number is None


def test_the_longest_are_named():
    for n in [1, 2, 3, 4]:
        events = [
            event
            for k in range(n)
            for event in (
                at(START, 100 * k, 100 * k + 10 + k),
                *cpu(100 * k + 1, 100 * k + 9, f"f{k}"),
            )
        ]
        where = compile_time(
            traced(events, modules=[f"f{k}({k})" for k in range(n)]), DRIVEN
        ).detail["where"]
        shown = [f"f{k} {10 + k} ms" for k in range(n)][::-1]
        assert where == "compiled: " + ", ".join(shown[:3]) + (", and 1 more" if n == 4 else ""), n


def test_of_modules_of_one_name_the_latest_programs_are_those_of_the_trace():
    events = [
        event
        for begin in (0, 100)
        for event in (at(START, begin, begin + 20 + begin), *cpu(begin + 1, begin + 9))
    ]
    trace = traced(events, modules=("f(9)", "f(10)", "f(11)", "g(12)"))
    assert compile_seconds(trace) == pytest.approx({"f(10)": 20e-3, "f(11)": 120e-3})


def test_two_compilations_in_one_op_are_not_told_apart():
    trace = traced(
        [at(START, 0, 90), *cpu(10, 30, "f"), *cpu(40, 60, "g")], modules=("f(1)", "g(2)")
    )
    assert seconds(trace) == pytest.approx(90e-3)
    assert compile_seconds(trace) == {}

"""The executables of a trace with what they hold."""

import re

import pytest
from helpers.hlo import module, op, parameters, trace_of

from pytest_tfperf.errors import TraceError
from pytest_tfperf.facts.executions import Program, pick, programs_of, programs_of_run
from pytest_tfperf.trace.xspace import decode_trace


def chain(length):
    return module(
        main=[*parameters("f32[8]"), *(op(f"i{n}", "tanh", "f32[8]", "p0") for n in range(length))]
    )


def found(*args, **more):
    return [
        (program.title, program.runs)
        for program in programs_of(decode_trace(trace_of(*args, **more)))
    ]


def test_those_that_ran_come_first_by_the_instructions_that_a_step_runs():
    modules = {"f(1)": chain(4), "g(2)": chain(9), "h(3)": chain(100)}
    assert found(modules, ran=[1, 1, 1, 2]) == [("f(1)", 3), ("g(2)", 1)]
    assert found(modules, ran=[1, 2]) == [("g(2)", 1), ("f(1)", 1)]


def test_where_none_ran_all_are_there():
    modules = {"f(1)": chain(4), "g(2)": chain(9)}
    assert found(modules) == found(modules, steps=False) == [("g(2)", None), ("f(1)", None)]


def test_a_module_is_read_as_it_was_written():
    program, *others = programs_of(decode_trace(trace_of({"f(1)": chain(4)})))
    assert (program.module, program.n_instructions, others) == (chain(4), 5, [])


def test_of_several_hosts_the_first_that_has_any(tmp_path):
    for name, modules in (("a", {}), ("b", {"f(1)": chain(1)}), ("c", {"g(2)": chain(1)})):
        (tmp_path / name).write_bytes(trace_of(modules))
    assert [program.name for program in programs_of_run(sorted(tmp_path.iterdir()))] == ["f(1)"]
    with pytest.raises(
        TraceError, match=re.escape(f"{tmp_path / 'a'}: no HLO in it: XLA had compiled nothing")
    ):
        programs_of_run([tmp_path / "a"])


LONG = "a_inference_step_12__XlaMustCompile_true_config_proto_1_.2"
PROGRAMS = [
    Program(f"{LONG}(7)", chain(1)),
    Program("a_inference_loss_9__.2(8)", chain(1)),
    Program("a_inference_loss_9__.4(9)", chain(1)),
]


def test_an_executable_has_a_short_name():
    for name in ["step", "step(7)", f"{LONG}(7)"]:
        assert pick(PROGRAMS, name) is PROGRAMS[0], name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("loss", "2 executables are named 'loss'; take one of loss(8), loss(9)"),
        (
            "stp",
            "no executable is named 'stp'; did you mean 'step'? valid: loss, loss(8), loss(9), step, step(7)",
        ),
    ],
)
def test_a_name_that_is_none_or_several_says_which_there_are(name, words):
    with pytest.raises(TraceError, match=re.escape(words)):
        pick(PROGRAMS, name)

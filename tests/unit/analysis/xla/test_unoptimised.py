"""The programs of a step of JAX before optimisation, and those that are the same everywhere."""

import pytest
from helpers.hlo import encoded, module, op, parameters, trace_of

from pytest_tfperf.analysis.evidence import Evidence
from pytest_tfperf.analysis.xla.step_flops import analyse
from pytest_tfperf.analysis.xla.unoptimised import differs_by_platform, programs_before
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import decode_trace
from pytest_tfperf.values import OF_EXECUTABLES, Unknown


def test_each_program_runs_as_often_as_its_executable():
    found = programs_before({"f(1)": 2.0, "g(2)": 0.5}, 2, lambda name: name.encode())
    assert found == ((b"f(1)", 2.0), (b"g(2)", 0.5))


def test_one_unknown_program_leaves_the_step_unknown():
    found = programs_before({"f(1)": 1.0, "g(2)": 1.0}, 2, lambda name: Unknown(f"{name} is freed"))
    assert found == Unknown("f(1) is freed")
    missing = programs_before({"f(1)": 1.0}, 2, lambda name: b"")
    assert missing == Unknown("the trace names 1 of the 2 executables that ran")


@pytest.mark.parametrize(
    ("names", "differs"),
    [
        ({"op_name": "jit(f)/dot_general"}, False),
        ({"op_name": "jit(cumsum_of_losses)/add"}, False),
        ({"op_name": "jit(f)/jit(cumsum)"}, True),
        ({"op_name": "cumsum_0.3"}, True),
        ({"op_name": "jit(f)/threefry2x32"}, True),
        ({"opcode": "custom-call", "custom_call_target": "lapack_sgetrf_ffi"}, True),
    ],
)
def test_programs_that_jax_makes_for_a_platform(names, differs):
    result = op("r", names.pop("opcode", "tanh"), "f32[8]", "p0", **names)
    assert differs_by_platform(module(main=[*parameters("f32[8]"), result])) == differs


def test_the_name_of_a_function_tells_it_too():
    parts = {"threefry2x32.4": parameters("f32[8]"), "main": parameters("f32[8]")}
    assert differs_by_platform(module(**parts))


def twice(rows, name="jit(f)/add"):
    shape = f"f32[{rows},256]"
    return module(main=[*parameters(shape), op("r", "add", shape, "p0", "p0", op_name=name)])


class Inspection:
    """An inspection that gives one program, or a reason."""

    def __init__(self, found):
        self.found, self.lowering_notes = found, ()

    def unoptimised(self, executable):
        assert executable == "jit_f(4)"
        return self.found


def flops(inspection):
    trace = decode_trace(trace_of({"jit_f(4)": twice(3)}, ran=[4]))
    recording = Recording(name="", trace=None, workload={}, framework="JAX")
    return analyse(Evidence(recording, trace, inspection=inspection)).values["flops"]


def test_flops_are_of_the_program_before_optimisation():
    value = flops(Inspection(encoded(twice(64))))
    assert (value.number, OF_EXECUTABLES in value.detail) == (64 * 256, False)


@pytest.mark.parametrize("found", [encoded(twice(64, "cumsum")), Unknown("it was freed")])
def test_flops_of_the_executable_hold_on_its_platform(found):
    value = flops(Inspection(found))
    assert (value.number, value.detail[OF_EXECUTABLES]) == (3 * 256, True)


def test_a_saved_trace_has_executables_alone():
    value = flops(None)
    assert (value.number, value.detail[OF_EXECUTABLES]) == (3 * 256, True)

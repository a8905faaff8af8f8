"""The programs of a step of JAX before optimisation, and those that are the same everywhere."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.hlo import encoded, module, op, parameters, trace_of
from helpers.xspace import at, field, line, plane, space

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.facts.executions import XlaUse
from pytest_tfperf.facts.unoptimised import differs_by_platform, programs_before
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.flops import analyse
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import decode_trace
from pytest_tfperf.values import EXECUTABLES, OF_PLATFORM, Unknown


@dataclass(frozen=True)
class Program:
    """A program that JAX holds: its number, and the rows that it adds before and after."""

    number: int
    rows: int
    before: int | Unknown = 5

    @property
    def optimised(self):
        return encoded(twice(self.rows))

    @property
    def unoptimised(self):
        return self.before if isinstance(self.before, Unknown) else encoded(twice(self.before))


def before(*programs, executables=(("f(1)", 3),), ran=None):
    runs = ran or {name: 2.0 for name, _ in executables}
    none = np.zeros(1, int)
    found = {name: twice(rows) for name, rows in executables}
    held = programs[0] if programs and isinstance(programs[0], Unknown) else programs
    return programs_before(XlaUse(none, none, runs), found, lambda module: held)


def test_a_program_runs_as_often_as_its_executable():
    assert before(Program(1, 3)) == ((twice(5), 2.0),)


def test_what_nothing_reads_is_no_part_of_a_program():
    ops = [op("dead", "negate", "f32[8]", "p0"), op("y", "add", "f32[8]", "p0", "p0")]
    raw = encoded(module(main=[*parameters("f32[8]"), *ops]))
    held = SimpleNamespace(number=1, optimised=encoded(twice(3)), unoptimised=raw)
    ((found, _),) = before(held)
    assert [one.name for one in found.entry.instructions.values()] == ["p0", "y"]


def test_the_instructions_tell_the_program():
    cases = [
        (Program(7, 3),),  # compilers in plugins have numbers of their own
        (Program(1, 4, before=6), Program(2, 3)),
        (Program(1, 3), Program(2, 3, before=6)),  # of two alike, the number tells
        (Program(7, 3), Program(8, 3)),  # or they are the same before
    ]
    for programs in cases:
        assert before(*programs) == ((twice(5), 2.0),), programs


def test_why_there_is_no_program():
    cases = [
        ((), "JAX does not hold the program of f as it was before"),
        ((Program(7, 4),), "keep its jax.jit function alive"),
        ((Program(7, 3), Program(8, 3, before=6)), "JAX does not hold the program of f"),
        ((Program(1, 3, before=Unknown("it runs on 4 devices")),), "it runs on 4 devices"),
        ((Unknown("JAX 0.6.1 drops them"),), "JAX 0.6.1 drops them"),
    ]
    for programs, why in cases:
        assert why in before(*programs).why, why


def test_one_unknown_program_leaves_the_step_unknown():
    both = (("f(1)", 3), ("g(2)", 4))
    assert isinstance(before(Program(1, 3), executables=both), Unknown)
    missing = before(Program(1, 3), ran={"f(1)": 1.0, "g(2)": 1.0})
    assert missing == Unknown("the trace holds the HLO of 1 of the 2 executables that ran")


def test_an_error_of_jax_is_the_reason():
    class Broken(Program):
        @property
        def unoptimised(self):
            raise CaptureError("the program could not be read")

    assert before(Broken(1, 3)) == Unknown("the program could not be read")


def test_a_damaged_program_is_the_reason():
    class Damaged(Program):
        unoptimised = b"\x07"

    assert "f(1)" in before(Damaged(1, 3)).why


def differs(opcode="tanh", **names):
    """Return whether JAX makes a program with such an instruction anew for each platform."""
    result = op("r", opcode, "f32[8]", "p0", **names)
    return differs_by_platform(module(main=[*parameters("f32[8]"), result]))


def test_programs_that_jax_makes_for_a_platform():
    cases = [
        ({"op_name": "jit(f)/dot_general"}, False),
        ({"op_name": "jit(cumsum_of_losses)/add"}, False),
        ({"op_name": "jit(f)/jit(cumsum)"}, True),
        ({"op_name": "cumsum_0.3"}, True),
        ({"op_name": "jit(f)/threefry2x32"}, True),
        ({"opcode": "custom-call", "custom_call_target": "lapack_sgetrf_ffi"}, True),
    ]
    for names, expected in cases:
        assert differs(**names) == expected, names


def test_the_name_of_a_function_tells_it_too():
    parts = {"threefry2x32.4": parameters("f32[8]"), "main": parameters("f32[8]")}
    assert differs_by_platform(module(**parts))


CUSTOM_CALLS = """
    cholesky_update cudnn_fusion dot_product_attention_bwd dot_product_attention_fp8_bwd
    dot_product_attention_fp8_fwd dot_product_attention_fwd eig geqp3 geqrf hessenberg
    householder_product lu_pivots_to_permutation ormqr scaled_matmul schur symmetric_product
    tridiagonal debug_callback debug_print
"""
SAME_WORK = """
    all_gather all_gather_invariant all_gather_invariant_start all_gather_reduced
    all_gather_reduced_start all_gather_start pbroadcast pbroadcast_start precv psend
    device_put empty conv_general_dilated dot_general fft scatter-add scatter-sub
    select_and_scatter_add
"""


@pytest.mark.imports("jax")
def test_each_primitive_with_a_rule_of_its_own_for_a_platform_is_known():
    """A new version of JAX may add some: of those, read the rule, and add the name to a list."""
    import jax  # noqa: F401  registers them
    from jax._src.interpreters.mlir import _platform_specific_lowerings as rules

    names = {primitive.name for of_one in rules.values() for primitive in of_one}
    known = {*CUSTOM_CALLS.split(), *SAME_WORK.split()}
    wide = {name for name in names - known if not differs(op_name=f"jit(f)/{name}")}
    assert len(names) > 30
    assert not wide


def twice(rows, name="jit(f)/add"):
    shape = f"f32[{rows},256]"
    return module(main=[*parameters(shape), op("r", "add", shape, "p0", "p0", op_name=name)])


class Inspection:
    """An inspection of a step whose only program JAX holds, or a reason."""

    step_kinds = ()
    lowering_notes = ()

    def __init__(self, unoptimised):
        known = SimpleNamespace(number=4, unoptimised=unoptimised)
        self.found = unoptimised if isinstance(unoptimised, Unknown) else (known,)

    def places(self, names):
        return {}

    def programs(self, module):
        assert module == "jit_f"
        return self.found


def flops(inspection):
    trace = decode_trace(trace_of({"jit_f(4)": twice(3)}, ran=[4]))
    recording = Recording(name="", trace=None, workload={}, framework="JAX")
    return analyse(Evidence(recording, trace, inspection=inspection)).values["flops"]


@pytest.mark.parametrize(("name", "is_narrow"), [("add", False), ("cumsum", True)])
def test_flops_are_of_the_program_before_optimisation(name, is_narrow):
    value = flops(Inspection(encoded(twice(64, f"jit(f)/{name}"))))
    assert (value.number, OF_PLATFORM in value.detail) == (64 * 256, is_narrow)


@pytest.mark.parametrize("inspection", [None, Inspection(Unknown("it was freed"))])
def test_flops_of_the_executable_hold_on_its_platform(inspection):
    value = flops(inspection)
    assert (value.number, value.detail[OF_PLATFORM]) == (3 * 256, EXECUTABLES)


V100 = {
    "device_vendor": "Nvidia",
    "device_type_string": "NVIDIA V100",
    "compute_cap_major": 7,
    "compute_cap_minor": 0,
    "core_count": 80,
    "clock_rate": 1_380_000,
}


def on_gpus(*programs):
    """Return flops and flops_utilization of a step of 10 ms, in which each GPU runs a program."""

    def ran(program):
        return at("fusion", 1, 2, hlo_op="fusion", hlo_module="jit_f", program_id=program)

    gpus = [
        plane(f"/device:GPU:{n}", line("Stream #1(Compute)", ran(program)), stats=V100)
        for n, program in enumerate(programs)
    ]
    calls = [at("GpuExecutable::ExecuteAsyncOnStream", 0.1, 0.2) for _ in programs]
    marks = line("marks", at("train", 0, 10, step_num=0, _r=1), *calls)
    made = {f"jit_f({n})": {"Hlo Proto": field(1, encoded(twice(n)))} for n in programs}
    raw = space(plane("/host:CPU", marks), *gpus, plane("/host:metadata", metadata=made))
    recording = Recording(name="", trace=None, workload={}, framework="JAX")
    return analyse(Evidence(recording, decode_trace(raw))).values


def test_flops_and_utilization_are_of_what_each_device_ran():
    """Each of two devices has a part of a pipeline, or both run one program."""
    for programs, flops in [((3, 5), 8 * 256), ((3, 3), 6 * 256), ((3,), 3 * 256)]:
        values = on_gpus(*programs)
        share = values["flops_utilization"]
        assert values["flops"].number == flops, programs
        assert share.number == pytest.approx(flops / 10e-3 / share.detail["peak_flops"]), programs
        assert share.detail["n_devices"] == len(programs), programs

"""Functions in place of their calls, written by hand."""

import pytest
from helpers.hlo import module, op, parameters

from pytest_tfperf.hlo import walk
from pytest_tfperf.hlo.walk import with_calls_inlined


def shown(made):
    part = made.entry
    names = {key: one.name for key, one in part.instructions.items()}
    found = [
        (one.name, one.opcode, *(names[key] for key in one.operands))
        for one in part.instructions.values()
    ]
    assert all(key == one.id for key, one in part.instructions.items())
    return found, names[part.root_id]


def test_a_function_of_a_function_stands_in_place_of_its_call():
    relu = [*parameters("f32[8]"), op("zero", "constant", "f32[8]")]
    relu.append(op("max", "maximum", "f32[8]", "p0", "zero"))
    twice = [op("q0", "parameter", "f32[8]"), op("c", "call", "f32[8]", "q0", called=["relu"])]
    twice.append(op("sum", "add", "f32[8]", "c", "q0"))
    main = [*parameters("f32[8]"), op("t", "tanh", "f32[8]", "p0")]
    main += [op("r", "call", "f32[8]", "t", called=["twice"], op_name="jit(f)/jit(twice)")]
    found = with_calls_inlined(module(relu=relu, twice=twice, main=main))
    instructions = [
        ("p0", "parameter"),
        ("t", "tanh", "p0"),
        ("zero", "constant"),
        ("max", "maximum", "t", "zero"),
        ("sum", "add", "max", "t"),
    ]
    assert shown(found) == (instructions, "sum")
    assert found.entry.root.op_name == "jit(f)/jit(twice)"  # its own is empty


def test_results_are_read_through_tuples():
    both = [*parameters("f32[8]"), op("n", "negate", "f32[8]", "p0")]
    both.append(op("pair", "tuple", "(f32[8], f32[8])", "n", "p0"))
    main = [op("x", "parameter", "f32[8]")]
    main.append(op("c", "call", "(f32[8], f32[8])", "x", called=["both"]))
    main.append(op("second", "get-tuple-element", "f32[8]", "c", tuple_index=1))
    main.append(op("r", "tanh", "f32[8]", "second"))
    found, root = shown(with_calls_inlined(module(both=both, main=main)))
    assert (found[-1], root) == (("r", "tanh", "x"), "r")


def test_a_function_that_passes_its_argument_on_leaves_nothing():
    same = [op("y", "parameter", "f32[8]")]
    main = [*parameters("f32[8]"), op("c", "call", "f32[8]", "p0", called=["same"])]
    assert shown(with_calls_inlined(module(same=same, main=main))) == ([("p0", "parameter")], "p0")


def test_a_module_without_calls_is_unchanged():
    main = [*parameters("f32[8]"), op("r", "tanh", "f32[8]", "p0")]
    assert with_calls_inlined(module(main=main)) == module(main=main)


def nest_of_calls():
    """Functions that each call the one before twice: 2 to the 40 instructions, if all are inlined."""
    parts = {"f0": [op("y", "parameter", "f32[8]"), op("t", "tanh", "f32[8]", "y")]}
    for n in range(40):
        calls = [op("y", "parameter", "f32[8]")]
        calls.append(op("a", "call", "f32[8]", "y", called=[f"f{n}"]))
        calls.append(op("b", "call", "f32[8]", "a", called=[f"f{n}"]))
        parts[f"f{n + 1}"] = calls
    return module(**parts)


def test_a_module_that_would_become_too_large_is_unchanged(monkeypatch):
    monkeypatch.setattr(walk, "_MOST", 1000)  # of a million
    assert with_calls_inlined(nest_of_calls()) == nest_of_calls()


@pytest.mark.nightly
def test_a_module_that_would_blow_up_is_unchanged():
    assert with_calls_inlined(nest_of_calls()) == nest_of_calls()

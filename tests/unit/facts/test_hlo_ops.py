"""The ops of HLO that JAX lowers, by the rules of the op guide."""

import pytest
from helpers.hlo import dot, labels, module, op, parameters, window

from pytest_tfperf.facts.hlo_ops import ops_of_hlo
from pytest_tfperf.op_guide.rules import findings

ADD = [*parameters("f32[]", "f32[]"), op("sum", "add", "f32[]", "p0", "p1")]
MAX = [*parameters("f32[]", "f32[]"), op("max", "maximum", "f32[]", "p0", "p1")]


def codes(*main, shapes=(), **others):
    graph = ops_of_hlo([module(**others, main=[*parameters(*shapes), *main])])
    return [one.code for one in findings(graph)]


def transposed(*after, name="t"):
    shapes = ("f32[64,256,32]", "f32[64,256,32]")
    moved = op(name, "transpose", "f32[64,32,256]", "p0", dimensions=(0, 2, 1))
    return codes(moved, *after, shapes=shapes)


def test_a_transpose_that_nothing_absorbs_is_found():
    assert transposed(op("r", "tanh", "f32[64,32,256]", "t")) == ["TRANSPOSE"]


def test_a_product_absorbs_a_transpose():
    result = op("r", "dot", "f32[64,32,32]", "t", "p1", dot=dot([2], [1], [0], [0]))
    assert transposed(result) == []


def test_a_slice_along_the_lanes():
    for size, found in [(100, ["PADDED_MOVE"]), (128, []), (1, [])]:
        shapes = ("f32[64,256]",)
        result = op("r", "slice", f"f32[64,{size}]", "p0", slices=((0, 64, 1), (0, size, 1)))
        assert codes(result, shapes=shapes) == found, size


@pytest.mark.parametrize(("axis", "found"), [(0, []), (1, ["PADDED_MOVE"])])
def test_a_concatenation(axis, found):
    result = "f32[128,100]" if axis == 0 else "f32[64,200]"
    both = op("r", "concatenate", result, "p0", "p1", dimensions=(axis,))
    assert codes(both, shapes=("f32[64,100]",) * 2) == found


@pytest.mark.parametrize(
    ("result", "found"), [("f32[64,12,64]", ["PADDED_RESHAPE"]), ("f32[8,8,768]", [])]
)
def test_a_reshape(result, found):
    assert codes(op("r", "reshape", result, "p0"), shapes=("f32[64,768]",)) == found


def test_a_sum_that_one_number_multiplies_is_read_through_a_broadcast():
    main = [
        op("zero", "constant", "f32[]", constant=0.0),
        op("s", "reduce", "f32[64]", "p0", "zero", called=["add"], dimensions=(1,)),
        op("b", "broadcast", "f32[64]", "p1"),
        op("r", "multiply", "f32[64]", "s", "b"),
    ]
    assert codes(*main, shapes=("f32[64,256]", "f32[]"), add=ADD) == ["REDUCE_THEN_MUL"]


def test_reductions_in_turn_are_those_over_the_same_axes():
    main = [
        op("zero", "constant", "f32[]", constant=0.0),
        op("m", "reduce", "f32[64]", "p0", "zero", called=["max"], dimensions=(1,)),
        op("b", "broadcast", "f32[64,256]", "m", dimensions=(0,)),
        op("d", "subtract", "f32[64,256]", "p0", "b"),
        op("r", "reduce", "f32[64]", "d", "zero", called=["add"], dimensions=(1,)),
    ]
    assert codes(*main, shapes=("f32[64,256]",), add=ADD, max=MAX) == ["SEQ_REDUCTION"]


def test_gradients_of_max_pooling_are_named():
    scatter = op("r", "select-and-scatter", "f32[8,8]", "p0", "p1", window=window(2, 2))
    assert codes(scatter, shapes=("f32[8,8]", "f32[4,4]")) == ["MAXPOOL_GRAD"]


def test_an_activation_behind_a_moved_convolution_cannot_fuse():
    shapes = ("f32[8,16,16,32]", "f32[1,1,32,64]")
    main = [
        op(
            "c",
            "convolution",
            "f32[8,16,16,64]",
            *("p0", "p1"),
            convolution=labels("b01f_01io->b01f"),
            window=window(1, 1),
        ),
        op("t", "transpose", "f32[8,16,64,16]", "c", dimensions=(0, 1, 3, 2)),
        op("zero", "constant", "f32[]", constant=0.0),
        op("b", "broadcast", "f32[8,16,64,16]", "zero"),
        op("r", "maximum", "f32[8,16,64,16]", "t", "b"),
    ]
    assert codes(*main, shapes=shapes) == ["TRANSPOSE", "UNFUSED_EPILOGUE"]


def test_results_of_a_tuple_and_ops_of_loops_are_known():
    body = [*parameters("f32[8]"), op("n", "negate", "f32[8]", "p0")]
    main = [op("w", "while", "f32[8]", "p0", called=["body"])]
    main.append(op("r", "tuple", "(f32[8], f32[8])", "w", "p0"))
    graph = ops_of_hlo([module(body=body, main=[*parameters("f32[8]"), *main])])
    named = {one.name: one for one in graph.ops}
    assert named["n"].in_loop
    assert not named["w"].in_loop
    assert [graph.ops[place].name for place, _ in graph.results] == ["w", "p0"]

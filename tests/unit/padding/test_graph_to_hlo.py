"""
HLO made from a step's graph: products, convolutions, reductions and arrays as XLA writes them.
"""

import re

import pytest
from helpers.hlo import labels
from helpers.refusals import refusal
from helpers.tables import cells

from pytest_tfperf.hlo.traversal import is_kernel_gradient
from pytest_tfperf.padding.graph_to_hlo import NotStatic, module_of
from pytest_tfperf.padding.matrix_unit import matrix_work
from pytest_tfperf.padding.overhead import padding_values
from pytest_tfperf.padding.predict import predict
from pytest_tfperf.padding.tpu import generation
from pytest_tfperf.recorded_graphs import OpGraph, OpNode, Tensor
from pytest_tfperf.recording import Recording
from pytest_tfperf.values import Unknown


def graph(*rows):
    """Make a graph of ops (name, type, shape of the result, names of operands, further fields)."""
    places = {row[0]: place for place, row in enumerate(rows)}
    ops = [
        OpNode(
            name=name,
            op_type=kind,
            outputs=(Tensor(shape=shape, dtype=more.pop("dtype", "float32")),),
            inputs=tuple((places[one], 0) if one else None for one in operands),
            **more,
        )
        for name, kind, shape, operands, more in ((*row, {})[:5] for row in rows)
    ]
    return OpGraph(ops=tuple(ops), results=((len(ops) - 1, 0),))


X, K, Y = (
    ("x", "Placeholder", (None, 8, 8, 3), ()),
    ("k", "Placeholder", (3, 3, 3, 20), ()),
    ("y", "Placeholder", (None, 8, 8, 20), ()),
)
SIZES = ("sizes", "Const", (4,), (), {"dtype": "int32"})


def only(module, opcode):
    (found,) = [op for op in module.entry.instructions.values() if op.opcode == opcode]
    return found


@pytest.mark.parametrize(
    ("row", "how", "product"),
    [
        (
            ("c", "Conv2D", (None, 8, 8, 20), ("x", "k")),
            "b01f_01io->b01f",
            ((6400, 1), (20, 1), (3, 9)),
        ),
        (
            ("c", "Conv2DBackpropInput", (None, 8, 8, 3), ("sizes", "k", "y")),
            "b01f_01oi->b01f",
            ((6400, 1), (3, 1), (20, 9)),
        ),
        (
            ("c", "Conv2DBackpropFilter", (3, 3, 3, 20), ("x", "sizes", "y")),
            "f01b_i01o->01bf",
            ((3, 9), (20, 1), (6400, 1)),
        ),
    ],
)
def test_convolutions_and_their_gradients(row, how, product):
    made = module_of(graph(X, K, Y, SIZES, row), 100)
    found = only(made, "convolution")
    assert found.convolution == labels(how)
    assert is_kernel_gradient(found) == ("Filter" in row[1])
    (work,) = matrix_work([(made, 1.0)]).products
    assert (work.m, work.n, work.k) == product


def test_convolutions_with_features_before_the_image():
    row = ("c", "Conv2D", (2, 20, 8, 8), ("x", "k"), {"attrs": {"data_format": "NCHW"}})
    made = module_of(graph(("x", "Placeholder", (2, 3, 8, 8), ()), K, row), None)
    assert only(made, "convolution").convolution == labels("bf01_01io->bf01")


def test_depthwise_convolutions_are_skipped():
    made = module_of(
        graph(
            X,
            ("k", "Placeholder", (3, 3, 3, 1), ()),
            ("c", "DepthwiseConv2dNative", (None, 8, 8, 3), ("x", "k")),
        ),
        100,
    )
    assert matrix_work([(made, 1.0)]).skipped == ("c",)


MATMULS = [
    ((5, 7), (7, 9), (5, 9), "MatMul", {}, (5, 9, 7, 1)),
    ((7, 5), (7, 9), (5, 9), "MatMul", {}, (5, 9, 7, 1)),
    ((5, 7), (9, 7), (5, 9), "MatMul", {}, (5, 9, 7, 1)),
    ((2, 3, 5, 7), (2, 3, 7, 9), (2, 3, 5, 9), "BatchMatMulV2", {}, (5, 9, 7, 6)),
    (
        (2, 4, 5),
        (5, 3, 7),
        (2, 4, 3, 7),
        "Einsum",
        {"attrs": {"equation": "abc,cde->abde"}},
        (8, 21, 5, 1),
    ),
    (
        (2, 4, 3, 7),
        (2, 6, 3, 7),
        (2, 3, 4, 6),
        "Einsum",
        {"attrs": {"equation": "atnh, asnh->ants"}},
        (4, 6, 7, 6),
    ),
]


def test_matrix_multiplications():
    for left, right, result, kind, more, product in MATMULS:
        made = module_of(
            graph(
                ("l", "Placeholder", left, ()),
                ("r", "Placeholder", right, ()),
                ("p", kind, result, ("l", "r"), more),
            ),
            None,
        )
        (work,) = matrix_work([(made, 1.0)]).products
        assert (work.m[0], work.n[0], work.k[0], work.count) == product, (
            left,
            right,
            result,
            kind,
            more,
        )


def test_arrays_equal_those_of_hlo():
    made = module_of(
        graph(
            X,
            K,
            ("c", "Conv2D", (None, 8, 8, 20), ("x", "k")),
            ("r", "Relu", (None, 8, 8, 20), ("c",)),
            ("axes", "Const", (2,), (), {"dtype": "int32", "value": (1, 2)}),
            ("m", "Mean", (None, 20), ("r", "axes")),
        ),
        128,
    )
    found = {one.what: one.padded_shape for one in predict([made], generation("v5e")).buffers}
    assert found == {
        "parameter x": "f32[128,8,8,4]{0,3,2,1:T(4,128)}",
        "parameter k": "f32[3,3,4,128]{3,2,1,0:T(4,128)}",
        "convolution c": "f32[128,8,8,24]{0,3,2,1:T(8,128)}",
        "reduce m": "f32[128,24]{0,1:T(8,128)}",
    }


def test_a_variable_counts_once_however_often_it_is_read():
    handle = ("v", "Placeholder", (), (), {"dtype": "resource"})
    rows = [
        ("a", "ReadVariableOp", (999, 99), ("v",)),
        ("b", "ReadVariableOp", (999, 99), ("v",)),
        ("s", "AddV2", (999, 99), ("a", "b")),
    ]
    assert len(predict([module_of(graph(handle, *rows), None)], generation("v5e")).buffers) == 1


UNKNOWN_SIZES = [
    (
        [X, K, ("c", "Conv2D", (None, 8, 8, 20), ("x", "k"))],
        r"the shape of x \(Placeholder\) is unknown",
    ),
    ([("x", "Placeholder", None, ())], "is unknown"),
    ([("x", "Placeholder", (4, None), ())], "is unknown"),
    (
        [
            ("q", "Placeholder", (4, 4), ()),
            ("e", "Einsum", (4,), ("q", "q"), {"attrs": {"equation": "...a,ab->...b"}}),
        ],
        "Einsum",
    ),
    ([("q", "Placeholder", (4, 4), ()), ("e", "XlaDotV2", (4, 4), ("q", "q"))], "XlaDotV2"),
]


def test_an_unknown_size_raises_with_its_op():
    for rows, says in UNKNOWN_SIZES:
        assert re.search(says, refusal(NotStatic, module_of, graph(*rows), None)), rows


def test_a_step_without_hlo_is_predicted_from_its_graph_at_the_replica_batch():
    ops = graph(X, K, ("c", "Conv2D", (None, 8, 8, 20), ("x", "k")))
    recording = Recording(
        name="",
        trace=None,
        workload={"batch": 256, "replicas": 2},
        lowered=Unknown("XLA cannot"),
        ops=ops,
    )
    values, tables = padding_values(recording)
    assert values["padding_overhead"].detail["padding"] == "predicted"
    assert values["padding_overhead"].notes == (
        "predicted from the step's graph, since there is no HLO of it: XLA cannot",
    )
    assert cells(tables["padding"], "shape")[0] == "f32[128,8,8,20]"
    unknown, _ = padding_values(
        Recording(name="", trace=None, workload={}, lowered=Unknown("XLA cannot"), ops=ops)
    )
    assert (
        unknown["padding_overhead"].why
        == "XLA cannot; and the shape of x (Placeholder) is unknown in the step's graph"
    )

"""The op guide's rules on graphs written by hand, also with unknown shapes."""

from dataclasses import replace

import pytest
from helpers.op_graphs import Ops
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfperf.op_guide.rules import RULES, parse_codes


def transposed(shape, perm, consumer=None, source=None, out=None, **others):
    ops = Ops()
    x = ops.arg(*shape)
    x = ops(source, x, ops.arg(*shape), shape=shape, **others) if source else x
    y = ops("Transpose", x, list(perm), shape=tuple(shape[axis] for axis in perm))
    for one in consumer or ():
        y = (
            ops(*one[:1], y, *[ops.arg(4, 4)] * (len(one) > 1), shape=out, **others)
            if one[0] != "right"
            else ops(one[1], x, y, shape=out, **others)
        )
    return ops.codes(y)


TRANSPOSES = [
    ((8, 32, 64), (0, 2, 1), [("AddV2", "y")], None, True),
    ((8, 32, 64), (0, 2, 1), [], None, True),  # the step's result
    ((8, 32, 64), (0, 2, 1), [("BatchMatMulV2", "y")], None, False),
    ((8, 32, 64), (0, 2, 1), [("Cast",), ("BatchMatMulV2", "y")], None, False),
    ((8, 32, 64), (0, 2, 1), [("right", "BatchMatMulV2")], None, False),
    ((8, 32, 64), (1, 0, 2), [("BatchMatMulV2", "y")], None, True),
    ((8, 32, 4, 64), (0, 2, 1, 3), [("BatchMatMulV2", "y")], None, True),
    ((8, 32, 4, 64), (0, 2, 1, 3), [("Einsum", "y")], None, False),
    ((32, 64), (1, 0), [("AddV2", "y")], "MatMul", False),
    ((8, 32, 64), (2, 1, 0), [("AddV2", "y")], "BatchMatMulV2", True),
    ((8, 6, 6, 16), (3, 1, 2, 0), [("Conv2D", "y")], None, False),
    ((8, 6, 6, 16), (0, 3, 1, 2), [("Conv2D", "y")], None, True),
    ((3, 3, 16, 8), (0, 1, 3, 2), [("right", "Conv2D")], None, False),
    (
        (3, 3, 16, 8),
        (0, 1, 3, 2),
        [("Conv2D", "y")],
        None,
        True,
    ),  # the transposed operand is the activation
    ((8, 6, 6, 16), (3, 1, 2, 0), [("AddV2", "y")], "Conv2D", False),
    ((8, 6, 6, 16), (0, 3, 1, 2), [("AddV2", "y")], "Conv2D", True),
    ((8, 1, 64), (1, 0, 2), [("AddV2", "y")], None, False),  # nothing longer than one moves
    ((8, 1, 64), (1, 2, 0), [("AddV2", "y")], None, True),
    ((8, 32, 64), (0, 1, 2), [("AddV2", "y")], None, False),
    ((None, 32, 64), (0, 2, 1), [("AddV2", "y")], None, True),
    ((None, 32, 4, 64), (2, 0, 1, 3), [("AddV2", "y")], None, True),
    ((None, 32, 64), (1, 0, 2), [("AddV2", "y")], None, False),  # an unknown size may be one
    ((0, 32, 64), (0, 2, 1), [("AddV2", "y")], None, False),
]


def test_transposes_that_copy():
    for shape, perm, consumers, source, fires in TRANSPOSES:
        assert transposed(shape, perm, consumers, source).count("TRANSPOSE") == fires, (
            shape,
            perm,
            consumers,
            source,
        )


def test_a_transpose_is_free_only_if_every_consumer_absorbs_it():
    ops = Ops()
    y = ops("Transpose", ops.arg(8, 32, 64), [0, 2, 1], shape=(8, 64, 32))
    product = ops("BatchMatMulV2", y, ops.arg(8, 32, 4), shape=(8, 64, 4))
    assert ops.codes(product) == []
    assert ops.codes(product, y) == ["TRANSPOSE"]


def test_a_transpose_of_unknown_order_has_no_finding():
    ops = Ops()
    y = ops("Transpose", ops.arg(8, 32, 64), ops.arg(3), shape=(None, None, None))
    z = ops("Transpose", ops("Placeholder", shape=None), [0, 2, 1], shape=None)
    assert ops.codes(y, z) == []


def test_the_transpose_of_a_gradient_is_inverted():
    ops = Ops()
    perm = ops("InvertPermutation", [1, 2, 0], shape=(3,), dtype="int32")
    ops_found = ops.found(ops("Transpose", ops.arg(8, 32, 64), perm, shape=(64, 8, 32)))
    assert [one.what for one in ops_found] == ["float32[8,32,64] by (2,0,1)"]


def test_convolutions_with_features_second():
    swapped = transposed(
        (16, 8, 6, 6), (1, 0, 2, 3), [("Conv2D", "y")], attrs={"data_format": "NCHW"}
    )
    assert swapped == []
    assert transposed((16, 8, 6, 6), (1, 0, 2, 3), [("Conv2D", "y")]) == ["TRANSPOSE"]


def moved(op_type, before, after, *more):
    ops = Ops()
    x = ops.arg(*before)
    if op_type == "ConcatV2":
        return ops.codes(ops(op_type, x, ops.arg(*more[1]), more[0], shape=after))
    return ops.codes(
        ops(op_type, *([ops.const(0), x] if op_type == "Split" else [x, *more]), shape=after)
    )


MOVES = [
    ("Slice", (64, 256), (64, 100), (), True),
    ("Slice", (64, 256), (64, 128), (), False),
    ("Slice", (64, 256), (60, 256), (), True),
    ("Slice", (64, 256), (56, 256), (), False),
    ("Slice", (9, 64, 256), (7, 64, 256), (), False),  # a leading dimension
    ("StridedSlice", (64, 200), (64, 128), (), True),
    ("StridedSlice", (64, 256), (64,), (), False),  # the rank changes
    ("Slice", (4, 20), (4, 10), (), False),  # fits into a tile
    ("Slice", (None, 256), (None, 100), (), False),  # may fit
    ("Slice", (None, 2048), (None, 100), (), True),
    ("Slice", (64, None), (64, 100), (), False),
    ("Split", (64, 300), (64, 100), (), True),
    ("Split", (64, 256), (64, 128), (), False),
    ("Pad", (64, 250), (64, 256), (), True),
    ("Pad", (62, 256), (64, 256), (), True),
    ("Pad", (64, 128), (64, 256), (), False),
    ("ConcatV2", (64, 100), (64, 228), (1, (64, 128)), True),
    ("ConcatV2", (64, 128), (64, 256), (-1, (64, 128)), False),
    ("ConcatV2", (60, 256), (120, 256), (0, (60, 256)), True),
    ("ConcatV2", (64, 256), (128, 256), (0, (64, 256)), False),
    ("ConcatV2", (5, 64, 100), (8, 64, 100), (0, (3, 64, 100)), False),
]


def test_moves_along_padded_dimensions():
    for op_type, before, after, more, fires in MOVES:
        assert moved(op_type, before, after, *more) == ["PADDED_MOVE"] * fires, (
            op_type,
            before,
            after,
            more,
        )


def test_features_and_batch_are_padded_beside_a_convolution():
    for before, after, fires in [
        ((8, 31, 31, 64), (8, 33, 33, 64), False),  # spatial dimensions are not padded
        ((8, 31, 31, 60), (8, 31, 31, 64), True),
        ((100, 31, 31, 56), (100, 31, 31, 64), False),  # features lie along the rows
        ((100, 31, 31, 60), (100, 31, 31, 64), True),
    ]:
        ops = Ops()
        padded = ops("Pad", ops.arg(*before), ops.arg(4, 2), shape=after)
        assert (
            ops.codes(ops("Conv2D", padded, ops.arg(3, 3, 64, 8), shape=after))
            == ["PADDED_MOVE"] * fires
        ), after


def test_reshapes_of_padded_rows():
    for before, after, fires in [
        ((4, 128, 768), (512, 768), False),
        ((4, 128, 768), (4, 128, 12, 64), True),
        ((4, 100, 768), (400, 768), True),  # 100 rows are padded to 104
        ((4, 5, 16, 768), (20, 16, 768), False),
        ((4, 16, 768), (4, 2, 8, 768), False),
        ((4, 16, 768), (4, 4, 4, 768), True),
        ((8, 7, 7, 64), (8, 3136), True),  # Flatten
        ((8, 1, 768), (8, 768), False),
        ((8, 768), (8, 1, 1, 768), False),
        ((4, 4, 4), (4, 16), False),  # small
        ((None, 128, 768), (None, 12, 64), True),
        ((None, 768), (None, None), False),
        ((None, 100, 768), (None, 768), False),
    ]:
        ops = Ops()
        x = ops("AddV2", ops.arg(*before), ops.arg(*before), shape=before)
        assert (
            ops.codes(ops("Reshape", x, ops.arg(2), shape=after)) == ["PADDED_RESHAPE"] * fires
        ), after


def test_reshaping_a_flat_argument_is_allowed():
    ops = Ops()
    assert ops.codes(ops("Reshape", ops.arg(6400), ops.arg(2), shape=(100, 64))) == []
    assert ops.codes(
        ops("Reshape", ops("Exp", ops.arg(6400), shape=(6400,)), ops.arg(2), shape=(100, 64))
    ) == ["PADDED_RESHAPE"]


def test_space_to_batch_ops():
    for op_type in ["SpaceToBatchND", "BatchToSpaceND", "SpaceToDepth", "DepthToSpace"]:
        ops = Ops()
        (one,) = ops.found(
            ops(op_type, ops.arg(8, 8, 8, 16), shape=(8, 4, 4, 64), line="model.py:3")
        )
        assert (one.code, one.level, one.line, one.what) == (
            "SPACE_BATCH",
            "on",
            "model.py:3",
            "float32[8,8,8,16] to float32[8,4,4,64]",
        ), op_type


def batch_norm(axes, shape=(8, 6, 6, 16), epsilon=()):
    ops = Ops()
    x = ops.arg(*shape)
    variance = ops("Squeeze", ops("Mean", x, axes, shape=(1, 1, 1, 16)), shape=(16,))
    return ops.codes(
        ops("Rsqrt", ops("AddV2", variance, ops("Const", shape=epsilon), shape=(16,)), shape=(16,))
    )


def test_unfused_batch_norm():
    assert batch_norm([0, 1, 2]) == batch_norm([0, 1, -2]) == ["UNFUSED_BN"]
    assert batch_norm([3]) == batch_norm([1, 2]) == []  # of a layer, of an instance
    assert batch_norm([0, 1, 2], epsilon=(16,)) == []
    assert batch_norm([0, 1, 2], shape=(None, None, None, 16)) == ["UNFUSED_BN"]


def test_unfused_batch_norm_with_moving_statistics():
    ops = Ops()
    variance = ops("ReadVariableOp", ops.arg(), shape=(16,))
    scale = ops("Rsqrt", ops("AddV2", variance, ops("Const", shape=()), shape=(16,)), shape=(16,))
    assert ops.codes(scale) == []
    assert ops.codes(ops("Mul", ops.arg(8, 16), scale, shape=(8, 16))) == ["UNFUSED_BN"]


def test_fused_batch_norm_has_no_finding():
    ops = Ops()
    assert ops.codes(ops("FusedBatchNormV3", ops.arg(8, 6, 6, 16), shape=(8, 6, 6, 16))) == []


def test_gradients_of_max_pooling_and_normal_samples():
    ops = Ops()
    pooled = ops("MaxPool", ops.arg(8, 6, 6, 16), shape=(8, 3, 3, 16))
    assert (
        ops.codes(
            pooled,
            ops("RandomUniform", [4, 4], shape=(4, 4)),
            ops("StatelessRandomUniformV2", [4, 4], shape=(4, 4)),
        )
        == []
    )
    gradient = ops("MaxPoolGrad", ops.arg(8, 6, 6, 16), pooled, shape=(8, 6, 6, 16))
    normal = ops("StatelessRandomNormalV2", [4, 4], shape=(4, 4))
    assert [(one.code, one.level) for one in ops.found(gradient, normal)] == [
        ("MAXPOOL_GRAD", "info"),
        ("NORMAL_SAMPLING", "info"),
    ]


@pytest.mark.parametrize(("in_loop", "level"), [(False, "info"), (True, "on")])
def test_categorical_sampling_counts_in_loops(in_loop, level):
    ops = Ops()
    (one,) = ops.found(
        ops("Multinomial", ops.arg(4, 32), 1, shape=(4, 1), dtype="int64", in_loop=in_loop)
    )
    assert (one.code, one.level) == ("CATEGORICAL", level)


def summed(factor, shape=(8,), first=True, again=False):
    ops = Ops()
    total = ops("Sum", ops.arg(8, 64), [1], shape=shape)
    y = ops.arg(*factor)
    product = ops("Mul", *((total, y) if first else (y, total)), shape=shape)
    return ops.codes(product, *([total] if again else []))


def test_a_product_after_a_sum():
    assert summed(()) == summed((), first=False) == summed((1,)) == ["REDUCE_THEN_MUL"]
    assert summed((8,)) == []  # a vector
    assert summed((None,)) == []
    assert summed((1, 1)) == []  # the result has one dimension more
    assert summed((), again=True) == []  # the sum has another consumer


def in_turn(first_axes, second_axes, between="Sub", shape=(8, 64)):
    ops = Ops()
    x = ops.arg(*shape)
    mean = ops("Mean", x, first_axes, shape=(8, 1))
    spread = ops("Square", ops(between, x, mean, shape=shape), shape=shape)
    return ops.codes(ops("Mean", spread, second_axes, shape=(8,)))


def test_sequential_reductions():
    assert in_turn([1], [-1]) == ["SEQ_REDUCTION"]
    assert in_turn([1], [0]) == []
    assert in_turn([1], [1], between="MatMul") == []
    assert in_turn([1], [1], shape=(8, 1)) == []  # reduces nothing


def test_parallel_reductions_have_no_finding():
    ops = Ops()
    x = ops.arg(8, 64)
    means = [ops("Mean", y, [1], shape=(8,)) for y in (x, ops("Square", x, shape=(8, 64)))]
    assert ops.codes(ops("Sub", means[1], ops("Square", means[0], shape=(8,)), shape=(8,))) == []


def test_ops_without_a_tpu_kernel():
    ops = Ops()
    x = ops.arg(8, 64)
    fetched = ops("IteratorGetNext", x, shape=(8,), compiles=False)
    assert ops.codes(fetched, ops("MatMul", x, x, shape=(8, 8))) == []
    found = ops.found(ops("PyFunc", x, shape=(8,), compiles=False), ops("Svd", x, shape=(8,)))
    assert [(one.code, one.level, one.op_type) for one in found] == [
        ("NO_TPU_KERNEL", "on", "PyFunc"),
        ("NO_TPU_KERNEL", "on", "Svd"),
    ]


def test_consecutive_ops_without_a_kernel_are_one_finding():
    ops = Ops()
    text = ops("StringFormat", ops.arg(8), dtype="string", shape=(), compiles=False)
    printed = ops("PrintV2", text, compiles=False)
    assert [one.op_type for one in ops.found(printed)] == ["PrintV2"]
    assert [one.op_type for one in ops.found(printed, text)] == ["StringFormat", "PrintV2"]


def epilogue(mover, moved_shape, op_type="Relu", perm=None, product="Conv2D", shape=(8, 6, 6, 16)):
    ops = Ops()
    y = ops(product, ops.arg(*shape), ops.arg(3, 3, 16, 16), shape=shape)
    y = ops(mover, y, perm or ops.arg(2), shape=moved_shape)
    bias = ops("ReadVariableOp", ops.arg(), shape=(16,))
    return ops.codes(ops(op_type, y, *[bias] * (op_type != "Relu"), shape=moved_shape))


def test_epilogues_separated_from_their_product():
    assert epilogue("Transpose", (8, 16, 6, 6), perm=[0, 3, 1, 2]) == [
        "TRANSPOSE",
        "UNFUSED_EPILOGUE",
    ]
    assert epilogue("Transpose", (8, 16, 6, 6), "AddV2", perm=[0, 3, 1, 2]) == [
        "TRANSPOSE",
        "UNFUSED_EPILOGUE",
    ]
    assert epilogue("Transpose", (16, 6, 6, 8), perm=[3, 1, 2, 0]) == []  # free
    assert epilogue("Reshape", (8, 576)) == ["PADDED_RESHAPE", "UNFUSED_EPILOGUE"]
    assert (
        epilogue("Reshape", (64, 8, 12), product="MatMul", shape=(512, 12)) == []
    )  # rows stay whole
    assert epilogue("Identity", (8, 6, 6, 16)) == []
    assert epilogue("Transpose", (8, 16, 6, 6), "AddN", perm=[0, 3, 1, 2]) == ["TRANSPOSE"]


def test_parse_codes_accepts_registered_codes_only():
    assert [rule.code for rule in RULES.values() if rule.level == "on"] == [
        "TRANSPOSE",
        "SPACE_BATCH",
        "NO_TPU_KERNEL",
    ]
    assert [rule.code for rule in RULES.values() if rule.level == "off"] == [
        "UNFUSED_BN",
        "SEQ_REDUCTION",
    ]
    assert len(RULES) == 12
    assert parse_codes("TRANSPOSE") == parse_codes(["TRANSPOSE"]) == ("TRANSPOSE",)


def test_only_the_first_replica_counts():
    names = [
        "outer/transpose",
        "outer/replica_1/transpose",
        "replica_12/inner/transpose",
        "replica_0/transpose",
        "my_replica_1/transpose",
    ]
    ops = Ops()
    results = [ops("Transpose", ops.arg(8, 32), [1, 0], shape=(32, 8)) for _ in names]
    for (index, _), name in zip(results, names, strict=True):
        ops.ops[index] = replace(ops.ops[index], name=name)
    assert [one.op for one in ops.found(*results)] == [names[0], *names[3:]]


def test_an_empty_graph_has_no_findings():
    assert Ops().codes() == []


TYPES = [
    "Transpose",
    "Slice",
    "StridedSlice",
    "Split",
    "SplitV",
    "ConcatV2",
    "Concat",
    "Pad",
    "Reshape",
    "Relu",
    "AddV2",
    "BiasAdd",
    "Mul",
    "Sum",
    "Mean",
    "Rsqrt",
    "Conv2D",
    "MatMul",
    "Einsum",
    "Cast",
    "InvertPermutation",
    "ReadVariableOp",
    "Placeholder",
    "Multinomial",
    "SpaceToDepth",
]
SHAPES = st.none() | st.lists(st.none() | st.sampled_from([0, 1, 2, 8, 100, 128]), max_size=5).map(
    tuple
)
VALUES = (
    st.none()
    | st.integers(-6, 6)
    | st.lists(st.integers(-6, 6) | st.just((1, 1)), max_size=5).map(tuple)
)
SOURCES = st.lists(st.none() | st.integers(0, 7), max_size=4)


def test_a_concatenation_to_a_scalar_has_no_findings():
    ops = Ops()
    part, axis = ops("Placeholder", shape=()), ops("Const", shape=(), value=0)
    assert ops.found(ops("ConcatV2", part, part, axis, shape=())) == []


@given(st.lists(st.tuples(st.sampled_from(TYPES), SOURCES, SHAPES, VALUES), min_size=1, max_size=8))
def test_any_graph_is_checked_without_error(rows):
    ops = Ops()
    for op_type, sources, shape, value in rows:
        inputs = [
            None if source is None or not ops.ops else (source % len(ops.ops), 0)
            for source in sources
        ]
        ops(op_type, *inputs, shape=shape, value=value)
    for one in ops.found((len(ops.ops) - 1, 0)):
        assert one.code in RULES


@given(st.lists(st.tuples(st.sampled_from(TYPES[:20]), SOURCES), min_size=1, max_size=8))
def test_unknown_shapes_have_no_shape_findings(rows):
    ops = Ops()
    for op_type, sources in rows:
        ops(
            op_type,
            *[(source % len(ops.ops), 0) for source in sources if source is not None and ops.ops],
            shape=None,
            value=None,
        )
    assert ops.codes() == []

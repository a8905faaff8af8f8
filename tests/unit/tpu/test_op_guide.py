"""The op guide's rules on HLO as TensorFlow and JAX lower it; only TensorFlow's names types of ops."""

from dataclasses import replace

from helpers.hlo import dot, labels, module, op, parameters, window

from pytest_tfperf.graphs import GraphOp
from pytest_tfperf.op_types import NO_KERNEL, PYTHON, TEXT, UNASKED
from pytest_tfperf.tpu.op_guide import RULES, findings, parse_codes

ADD = [*parameters("f32[]", "f32[]"), op("sum", "add", "f32[]", "p0", "p1")]
MAX = [*parameters("f32[]", "f32[]"), op("max", "maximum", "f32[]", "p0", "p1")]
CONV = {"convolution": labels("b01f_01io->b01f"), "window": window(1, 1)}
NUMBER = op("number", "constant", "f32[]", constant=0.5)
ZERO = op("zero", "constant", "f32[]", constant=0.0)


def made(op_type, *instructions, name=None):
    """Instructions of one op of TensorFlow."""
    return [replace(one, op_type=op_type, op_name=name or op_type) for one in instructions]


def text(*sizes):
    return f"f32[{','.join(map(str, sizes))}]"


def found(*main, given=(), **parts):
    """The findings of a program with some parameters, and of its bodies."""
    return findings([module(add=ADD, max=MAX, **parts, main=[*parameters(*given), *main])])


def codes(*main, given=(), **parts):
    return [one.code for one in found(*main, given=given, **parts)]


def transposed(sizes, order, *others, given=()):
    """The findings of a transpose of p0 to t, with others behind it."""
    after = [sizes[axis] for axis in order]
    moved = op("t", "transpose", text(*after), "p0", dimensions=tuple(order))
    return codes(moved, *others, given=[text(*sizes), *given])


def test_transposes_that_move_data():
    for sizes, order, fires in [
        ((8, 32, 64), (0, 2, 1), True),
        ((8, 32, 64), (0, 1, 2), False),
        ((8, 1, 64), (1, 0, 2), False),  # nothing longer than one moves
        ((8, 1, 64), (1, 2, 0), True),
        ((0, 32, 64), (0, 2, 1), False),
    ]:
        assert transposed(sizes, order) == ["TRANSPOSE"] * fires, (sizes, order)


def test_products_absorb_transposes():
    batched = dot([2], [1], [0], [0])
    product = op("y", "dot", "f32[8,64,4]", "t", "p1", dot=batched)
    matmul, einsum = (made(kind, product) for kind in ("BatchMatMulV2", "Einsum"))
    rows = "f32[8,32,4]"
    assert transposed((8, 32, 64), (0, 2, 1), *matmul, given=[rows]) == []
    assert codes(*_moved("BatchMatMulV2")) == ["TRANSPOSE"]
    assert codes(*_moved("Einsum")) == []
    assert transposed((64, 8, 32), (1, 0, 2), *einsum, given=[rows]) == []
    assert transposed((64, 8, 32), (1, 0, 2), product, given=[rows]) == []  # a dot of JAX


def _moved(kind):
    """A transpose of other dimensions than the last two, in front of a product of TensorFlow."""
    return [
        *parameters("f32[64,8,32]", "f32[8,32,4]"),
        *made("Transpose", op("t", "transpose", "f32[8,64,32]", "p0", dimensions=(1, 0, 2))),
        *made(kind, op("y", "dot", "f32[8,64,4]", "t", "p1", dot=dot([2], [1], [0], [0]))),
    ]


def test_a_transpose_is_free_only_if_every_consumer_absorbs_it():
    product = op("y", "dot", "f32[8,64,4]", "t", "p1", dot=dot([2], [1], [0], [0]))
    both = op("both", "tuple", "(f32[8,64,4], f32[8,64,32])", "y", "t")
    for last, fires in [((), False), ((both,), True)]:
        assert (
            transposed((8, 32, 64), (0, 2, 1), product, *last, given=["f32[8,32,4]"])
            == ["TRANSPOSE"] * fires
        )


def test_a_convolution_absorbs_exchanges_of_batch_and_features():
    second = {"convolution": labels("bf01_01io->bf01"), "window": window(1, 1)}
    for order, kind, fires in [
        ((3, 1, 2, 0), CONV, False),
        ((0, 3, 1, 2), CONV, True),
        ((1, 0, 2, 3), second, False),
        ((1, 0, 2, 3), CONV, True),
    ]:
        after = op("y", "convolution", "f32[8,8,8,8]", "t", "p1", **kind)
        given = ["f32[1,1,8,8]"]
        assert transposed((8, 8, 8, 8), order, after, given=given) == ["TRANSPOSE"] * fires, order
        before = op("y", "convolution", "f32[8,8,8,8]", "p0", "p1", **kind)
        moved = op("t", "transpose", "f32[8,8,8,8]", "y", dimensions=order)
        assert codes(before, moved, given=["f32[8,8,8,8]", *given]) == ["TRANSPOSE"] * fires, order


def test_instructions_of_other_ops_are_no_findings():
    """An einsum is lowered to transposes around a dot."""
    moved = op("t", "transpose", "f32[8,64,32]", "p0", dimensions=(0, 2, 1))
    assert codes(*made("Einsum", moved), given=["f32[8,32,64]"]) == []
    assert codes(*made("Transpose", moved), given=["f32[8,32,64]"]) == ["TRANSPOSE"]


MOVES = [
    ("slice", (64, 256), (64, 100), True),
    ("slice", (64, 256), (64, 128), False),
    ("slice", (64, 256), (60, 256), True),
    ("slice", (64, 256), (56, 256), False),
    ("slice", (9, 64, 256), (7, 64, 256), False),  # a leading dimension
    ("slice", (4, 20), (4, 10), False),  # fits into a tile
    ("pad", (64, 250), (64, 256), True),
    ("pad", (62, 256), (64, 256), True),
    ("pad", (64, 128), (64, 256), False),
]


def test_moves_along_padded_dimensions():
    for opcode, before, after, fires in MOVES:
        moved = op("y", opcode, text(*after), "p0")
        assert codes(moved, given=[text(*before)]) == ["PADDED_MOVE"] * fires, (before, after)
    for axis, parts, after, fires in [
        (1, ("f32[64,100]", "f32[64,128]"), (64, 228), True),
        (1, ("f32[64,128]",) * 2, (64, 256), False),
        (0, ("f32[60,256]",) * 2, (120, 256), True),
        (0, ("f32[5,64,100]", "f32[3,64,100]"), (8, 64, 100), False),
    ]:
        joined = op("y", "concatenate", text(*after), "p0", "p1", dimensions=(axis,))
        assert codes(joined, given=parts) == ["PADDED_MOVE"] * fires, after


def test_features_and_batch_are_padded_beside_a_convolution():
    for before, after, fires in [
        ((8, 31, 31, 64), (8, 33, 33, 64), False),  # spatial dimensions are not padded
        ((8, 31, 31, 60), (8, 31, 31, 64), True),
        ((100, 31, 31, 56), (100, 31, 31, 64), False),  # features lie along the rows
        ((100, 31, 31, 60), (100, 31, 31, 64), True),
    ]:
        padded = op("x", "pad", text(*after), "p0")
        product = op("y", "convolution", text(*after), "x", "p1", **CONV)
        given = [text(*before), "f32[1,1,64,64]"]
        assert codes(padded, product, given=given) == ["PADDED_MOVE"] * fires, after


def test_a_slice_at_one_position_is_none_of_a_padded_dimension():
    one = op("y", "slice", "f32[64,1]", "p0")
    assert codes(one, given=["f32[64,256]"]) == ["PADDED_MOVE"]
    assert codes(one, op("z", "reshape", "f32[64]", "y"), given=["f32[64,256]"]) == []


def test_a_split_is_one_finding():
    parts = [op(name, "slice", "f32[64,64]", "p0", op_name="f/split") for name in ("a", "b", "c")]
    both = op("y", "tuple", "(f32[64,64], f32[64,64], f32[64,64])", "a", "b", "c")
    for slices in (parts, made("Split", *parts, name="split")):
        assert codes(*slices, both, given=["f32[64,192]"]) == ["PADDED_MOVE"]
    apart = [replace(one, op_name="f/slice") for one in parts]
    assert codes(*apart, both, given=["f32[64,192]"]) == ["PADDED_MOVE"] * 3


def test_reshapes_of_padded_rows():
    for before, after, fires in [
        ((4, 128, 768), (512, 768), False),
        ((4, 128, 768), (4, 128, 12, 64), True),
        ((4, 100, 768), (400, 768), True),  # 100 rows are padded to 104
        ((4, 5, 16, 768), (20, 16, 768), False),
        ((4, 16, 768), (4, 4, 4, 768), True),
        ((8, 7, 7, 64), (8, 3136), True),  # Flatten
        ((8, 1, 768), (8, 768), False),
        ((4, 4, 4), (4, 16), False),  # small
        ((6400,), (100, 64), False),  # the host feeds it flat
    ]:
        changed = op("y", "reshape", text(*after), "p0")
        assert codes(changed, given=[text(*before)]) == ["PADDED_RESHAPE"] * fires, after
    flat = op("x", "exponential", "f32[6400]", "p0")
    changed = op("y", "reshape", "f32[100,64]", "x")
    assert codes(flat, changed, given=["f32[6400]"]) == ["PADDED_RESHAPE"]


CROSSING = made(
    "SpaceToDepth",
    op("a", "reshape", "f32[8,4,2,4,2,16]", "p0"),
    op("b", "transpose", "f32[8,4,4,2,2,16]", "a", dimensions=(0, 1, 3, 2, 4, 5)),
    op("c", "reshape", "f32[8,4,4,64]", "b"),
)


def test_an_op_of_several_instructions_is_one_finding():
    (one,) = found(*CROSSING, given=["f32[8,8,8,16]"])
    assert (one.code, one.level, one.op, one.op_type) == (
        "SPACE_BATCH",
        "on",
        "SpaceToDepth",
        "SpaceToDepth",
    )
    assert one.what == "f32[8,8,8,16] to f32[8,4,4,64]"
    assert (
        codes(*CROSSING, *CROSSING, given=["f32[8,8,8,16]"]) == ["SPACE_BATCH"] * 2
    )  # inlined twice


def batch_norm(axes, after="f32[16]", epsilon=NUMBER):
    scaled = [
        *made("Mean", ZERO, op("s", "reduce", after, "p0", "zero", called=["add"], dimensions=axes)),
        *made("Mean", op("n", "broadcast", after, "zero"), op("m", "divide", after, "s", "n")),
        *made("AddV2", epsilon, op("e", "broadcast", after, epsilon.name), op("v", "add", after, "m", "e")),
        *made("Rsqrt", op("r", "rsqrt", after, "v")),
    ]  # fmt: skip
    return codes(*scaled, given=["f32[8,6,6,16]"])


def test_unfused_batch_norm():
    assert batch_norm((0, 1, 2)) == ["UNFUSED_BN"]
    assert batch_norm((3,), "f32[8,6,6]") == batch_norm((1, 2), "f32[8,16]") == []
    vector = op("number", "constant", "f32[16]")
    assert batch_norm((0, 1, 2), epsilon=vector) == []


def test_unfused_batch_norm_with_moving_statistics():
    root = [
        *made("AddV2", NUMBER, op("e", "broadcast", "f32[16]", "number")),
        *made("AddV2", op("v", "add", "f32[16]", "p1", "e")),
        *made("Rsqrt", op("r", "rsqrt", "f32[16]", "v")),
    ]
    spread = op("b", "broadcast", "f32[8,16]", "r", dimensions=(1,))
    scaled = made("Mul", spread, op("y", "multiply", "f32[8,16]", "p0", "b"))
    given = ["f32[8,16]", "f32[16]"]
    assert codes(*root, given=given) == []
    assert codes(*root, *scaled, given=given) == ["UNFUSED_BN"]


def test_gradients_of_max_pooling_and_normal_samples():
    scattered = op("g", "select-and-scatter", "f32[8,8]", "p0", "p1", window=window(2, 2))
    given = ["f32[8,8]", "f32[4,4]"]
    assert codes(scattered, given=given) == ["MAXPOOL_GRAD"]
    gradient = made("MaxPoolGrad", scattered)
    normal, uniform = (
        made(kind, op(kind, "rng", "f32[4,4]"))
        for kind in ("RandomStandardNormal", "RandomUniform")
    )
    assert [(one.code, one.level) for one in found(*gradient, *normal, *uniform, given=given)] == [
        ("MAXPOOL_GRAD", "info"),
        ("NORMAL_SAMPLING", "info"),
    ]


def test_categorical_sampling_counts_in_loops():
    drawn = made(
        "Multinomial", op("u", "rng", "f32[4,32]"), op("y", "subtract", "f32[4,32]", "p0", "u")
    )
    (one,) = found(*drawn, given=["f32[4,32]"])
    assert (one.level, one.what) == ("info", "from logits[4,32]")
    loop = op("w", "while", "f32[4,32]", "p0", called=["body"])
    (one,) = found(loop, given=["f32[4,32]"], body=[*parameters("f32[4,32]"), *drawn])
    assert (one.code, one.level, one.what) == ("CATEGORICAL", "on", "from logits[4,32] in a loop")


def summed(factor, *more, after="f32[8]"):
    main = [
        ZERO,
        op("s", "reduce", "f32[8]", "p0", "zero", called=["add"], dimensions=(1,)),
        op("b", "broadcast", after, "p1"),
        op("y", "multiply", after, "s", "b"),
    ]
    return codes(*main, *more, given=["f32[8,64]", factor])


def test_a_product_after_a_sum():
    assert summed("f32[]") == summed("f32[1]") == ["REDUCE_THEN_MUL"]
    assert summed("f32[8]") == []  # a vector
    both = op("both", "tuple", "(f32[8], f32[8])", "y", "s")
    assert summed("f32[]", both) == []  # the sum has another consumer


def in_turn(axes, opcode="subtract"):
    main = [
        ZERO,
        op("m", "reduce", "f32[64]", "p0", "zero", called=["max"], dimensions=(1,)),
        op("b", "broadcast", "f32[64,64]", "m", dimensions=(0,)),
        op("d", opcode, "f32[64,64]", "p0", "b"),
        op("y", "reduce", "f32[64]", "d", "zero", called=["add"], dimensions=axes),
    ]
    return codes(*main, given=["f32[64,64]"])


def test_reductions_in_turn_are_those_over_the_same_axes():
    assert in_turn((1,)) == ["SEQ_REDUCTION"]
    assert in_turn((0,)) == []
    assert in_turn((1,), "dot") == []


def node(op_type, why, line="model.py:3", name=None):
    return GraphOp(name=name or op_type, op_type=op_type, line=line, why=why)


def test_ops_without_a_tpu_kernel():
    outside = [
        node("MatMul", UNASKED),
        node("Assert", TEXT),
        node("StringFormat", TEXT),
        node("PrintV2", TEXT),  # of the same line
        node("PyFunc", PYTHON, "model.py:4"),
        node("Bincount", NO_KERNEL, None),
    ]
    lacking = made("Svd", op("s", "sqrt", "f32[8]", "p0"), op("q", "negate", "f32[8]", "s"))
    made_of = [module(main=[*parameters("f32[8]"), *lacking])]
    shown = findings(made_of, outside)
    assert {(one.code, one.level) for one in shown} == {("NO_TPU_KERNEL", "on")}
    assert [(one.op_type, one.line) for one in shown] == [
        ("Svd", None),
        ("PrintV2", "model.py:3"),
        ("PyFunc", "model.py:4"),
        ("Bincount", None),
    ]


def epilogue(*between, product="Conv2D", last="f32[8,16,6,6]"):
    """The findings of a bias and an activation behind a product that others move."""
    main = [
        *made(product, op("c", "convolution", "f32[8,6,6,16]", "p0", "p1", **CONV)),
        *between,
        *made("AddV2", op("b", "broadcast", last, "p2"), op("s", "add", last, "t", "b")),
        *made("Relu", ZERO, op("z", "broadcast", last, "zero"), op("y", "maximum", last, "s", "z")),
    ]
    return codes(*main, given=["f32[8,6,6,16]", "f32[1,1,16,16]", "f32[16]"])


def test_epilogues_separated_from_their_product():
    def moved(order, after):
        return made("Transpose", op("t", "transpose", after, "c", dimensions=order))

    assert epilogue(*moved((0, 3, 1, 2), "f32[8,16,6,6]")) == ["TRANSPOSE", "UNFUSED_EPILOGUE"]
    flat = made("Reshape", op("t", "reshape", "f32[8,576]", "c"))
    assert epilogue(*flat, last="f32[8,576]") == ["PADDED_RESHAPE", "UNFUSED_EPILOGUE"]
    assert epilogue(*moved((3, 1, 2, 0), "f32[16,6,6,8]"), last="f32[16,6,6,8]") == []  # free
    kept = made("Cast", op("t", "convert", "f32[8,6,6,16]", "c"))
    assert epilogue(*kept, last="f32[8,6,6,16]") == []
    gradient = "Conv2DBackpropInput"
    assert epilogue(*moved((0, 3, 1, 2), "f32[8,16,6,6]"), product=gradient) == ["TRANSPOSE"]


def test_only_the_first_replica_counts():
    names = ["outer/t", "outer/replica_1/t", "replica_12/in/t", "replica_0/t", "my_replica_1/t"]
    moved = [
        op(name, "transpose", "f32[32,8]", "p0", dimensions=(1, 0), op_name=name) for name in names
    ]
    assert [one.op for one in found(*moved, given=["f32[8,32]"])] == [names[0], *names[3:]]


def test_parse_codes_accepts_registered_codes_only():
    levels = {level: [one.code for one in RULES.values() if one.level == level] for level in ("on", "off")}  # fmt: skip
    assert levels == {
        "on": ["TRANSPOSE", "SPACE_BATCH", "NO_TPU_KERNEL"],
        "off": ["UNFUSED_BN", "SEQ_REDUCTION"],
    }
    assert len(RULES) == 12
    assert parse_codes("TRANSPOSE") == parse_codes(["TRANSPOSE"]) == ("TRANSPOSE",)

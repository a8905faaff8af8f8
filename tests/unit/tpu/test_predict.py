"""Predicted layouts and bytes of arrays, against reference tables, and the arrays that count."""

from dataclasses import replace

import pytest
from helpers.hlo import dot, labels, module, op, parameters, shape, window
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfperf.hlo.layout import logical_bytes, padded_bytes, padded_dimensions
from pytest_tfperf.hlo.walk import ConvolutionData
from pytest_tfperf.tpu.predict import key_arrays, padded_text, predict
from pytest_tfperf.tpu.tiles import (
    common_batches,
    compact,
    convolution_order,
    generation,
    row_major,
    tiled,
)

V5E = generation("v5e")


def overhead(made):
    return round(padded_bytes(made) / logical_bytes(made) - 1, 6)


ROW_MAJOR = [
    ("f32[100,1000]", (104, 1024), 0.064960, "v5e"),
    ("f32[104,1024]", (104, 1024), 0, "v5e"),
    ("f32[30522,768]", (30528, 768), 0.000197, "v5e"),
    ("f32[30522,65]", (30528, 128), 0.969618, "v5e"),
    ("f32[1024,10]", (1024, 128), 11.8, "v5e"),
    ("f32[64,32]", (64, 128), 3.0, "v5e"),
    ("f32[1024,129]", (1024, 256), 0.984496, "v5e"),
    ("f32[9,129]", (16, 256), 2.527993, "v5e"),
    ("f32[1,1000]", (1, 1024), 0.024, "v5e"),
    ("bf16[1,1000]", (2, 1024), 1.048, "v5e"),
    ("s8[1,1000]", (4, 1024), 3.096, "v5e"),
    ("s8[100,1000]", (128, 1024), 0.310720, "v5e"),
    ("bf16[100,1000]", (104, 1024), 0.064960, "v6e"),
    ("bf16[100,1000]", (112, 1024), 0.146880, "v7x"),
    ("f32[1000]", (1024,), 0.024, "v5e"),
    ("f32[1025]", (2048,), 0.998049, "v5e"),
]


def test_row_major_layouts():
    for text, padded, expected, name in ROW_MAJOR:
        made = row_major(shape(text), generation(name))
        assert (padded_dimensions(made), overhead(made)) == (padded, expected), (text, name)


def test_parameters_are_laid_out_compactly():
    for text, expected, order in [
        ("f32[30522,65]", 0.110233, (0, 1)),
        ("f32[1024,10]", 0.6, (0, 1)),
        ("f32[64,32]", 1.0, (0, 1)),
        ("f32[1024,129]", 0.054264, (0, 1)),
        ("f32[128,128]", 0, (1, 0)),  # among equally good orders, its own
        ("f32[5,128,8]", 0, (1, 2, 0)),
        ("f32[77]", 0.662338, (0,)),
        ("f32[]", 127, ()),
    ]:
        made = compact(shape(text), V5E)
        assert (overhead(made), made.minor_to_major) == (expected, order), text


def test_layouts_of_convolution_data():
    for sizes, layout, expected, name in [
        ((100, 32, 32, 20), "[128,32,32,24]{0,3,2,1:T(8,128)}", 0.536, "v5e"),
        ((100, 224, 224, 3), "[128,224,224,4]{0,3,2,1:T(4,128)}", 0.706667, "v5e"),
        ((128, 256, 896, 18), "[128,256,896,24]{0,3,2,1:T(8,128)}", 0.333333, "v5e"),
        ((64, 8, 8, 64), "[128,8,8,64]{0,3,2,1:T(8,128)}", 1.0, "v5e"),
        ((63, 8, 8, 64), "[64,8,8,128]{3,0,2,1:T(8,128)}", 1.031746, "v5e"),
        ((32, 128, 32, 64), "[32,128,32,128]{3,0,2,1:T(8,128)}", 1.0, "v5e"),
        ((32, 224, 224, 3), "[32,224,224,128]{3,0,2,1:T(8,128)}", 41.666667, "v5e"),
        ((4, 256, 256, 256), "[4,256,256,256]{3,0,2,1:T(4,128)}", 0, "v5e"),
        ((1, 7, 7, 512), "[1,7,7,512]{3,0,2,1:T(1,128)}", 0, "v4"),
        ((1, 7, 7, 512), "[2,7,7,512]{3,0,2,1:T(2,128)}", 1.0, "v3"),
        ((1, 224, 224, 3), "[1,224,224,128]{3,0,2,1:T(1,128)}", 41.666667, "v6e"),
        ((1, 224, 224, 3), "[2,224,224,128]{3,0,2,1:T(2,128)}", 84.333333, "v3"),
    ]:
        plain = shape(f"f32[{','.join(map(str, sizes))}]")
        made = tiled(
            plain, convolution_order(4, ConvolutionData(0, 0, 3), sizes[0]), generation(name)
        )
        assert (padded_text(made), overhead(made)) == (f"f32{layout}", expected), (sizes, name)


def test_layouts_with_features_before_the_image():
    assert convolution_order(4, ConvolutionData(0, 0, 1), 128) == (0, 1, 3, 2)


def conv(name, result, data, kernel, how="b01f_01io->b01f", **more):
    return op(
        name,
        "convolution",
        result,
        data,
        kernel,
        convolution=labels(how),
        window=window(3, 3, pad=(1, 1)),
        **more,
    )


def two_convolutions(batch):
    """
    Make a training step of two convolutions with both kernel gradients and the gradient in between.
    """
    activation, image = f"f32[{batch},32,32,20]", f"f32[{batch},32,32,3]"
    return module(
        main=[
            *parameters(image, "f32[3,3,3,20]", "f32[3,3,20,20]"),
            conv("h1", activation, "p0", "p1"),
            op("zero", "constant", "f32[]"),
            op("zeros", "broadcast", activation, "zero"),
            op("r1", "maximum", activation, "h1", "zeros"),
            conv("h2", activation, "r1", "p2"),
            op("dh2", "multiply", activation, "h2", "h2"),
            op("k2", "reverse", "f32[3,3,20,20]", "p2"),
            conv("dr1", activation, "dh2", "k2", "b01f_01oi->b01f"),
            conv("dp1", "f32[3,3,3,20]", "p0", "dr1", "f01b_i01o->01bf"),
            conv("dp2", "f32[3,3,20,20]", "r1", "dh2", "f01b_i01o->01bf"),
            op("new1", "subtract", "f32[3,3,3,20]", "p1", "dp1"),
            op("new2", "subtract", "f32[3,3,20,20]", "p2", "dp2"),
            op("results", "tuple", "(f32[3,3,3,20],f32[3,3,20,20])", "new1", "new2"),
        ]
    )


@pytest.mark.parametrize(
    ("batch", "logical", "padded", "expected"),
    [(100, 25804800, 39845888, 0.544127), (32, 8257536, 67108864, 7.126984)],
)
def test_a_training_step_of_two_convolutions(batch, logical, padded, expected):
    made = predict([two_convolutions(batch)], V5E)
    activations = [one for one in made.buffers if one.shape.startswith(f"f32[{batch},")]
    assert [one.name for one in activations] == ["p0", "h1", "h2", "dr1"]
    assert [
        sum(getattr(one, size) for one in activations) for size in ("logical_bytes", "padded_bytes")
    ] == [logical, padded]
    assert round(replace(made, buffers=tuple(activations)).overhead, 6) == expected
    assert {one.name for one in made.buffers} == {
        "p0",
        "h1",
        "h2",
        "dr1",
        "p1",
        "p2",
        "dp1",
        "dp2",
    }  # updated in place: p1 and p2


def test_the_batch_of_a_kernel_gradient_is_that_of_its_data():
    assert common_batches([two_convolutions(100)]) == (100,)


def test_kernels_may_have_either_order():
    kernel = next(one for one in predict([two_convolutions(100)], V5E).buffers if one.name == "p1")
    assert (kernel.logical_bytes, kernel.lower_bytes) == (3 * 3 * 3 * 20 * 4, 9 * 4 * 128 * 4)
    assert (kernel.padded_bytes, kernel.upper_bytes) == (9 * 4 * 128 * 4, 9 * 24 * 128 * 4)


def one_convolution(first, second, **more):
    """Make two convolutions of different batches."""
    parts = []
    for name, batch in (("a", first), ("b", second)):
        parts += [
            op(f"{name}x", "parameter", f"f32[{batch},8,8,16]", parameter_number=len(parts)),
            op(f"{name}k", "parameter", "f32[3,3,16,16]", parameter_number=len(parts) + 1),
            conv(f"{name}y", f"f32[{batch},8,8,16]", f"{name}x", f"{name}k", **more),
        ]
    return module(
        main=[*parts, op("out", "tuple", f"(f32[{first},8,8,16],f32[{second},8,8,16])", "ay", "by")]
    )


def test_equally_common_batches_above_and_below_64_give_a_range():
    made = predict([one_convolution(32, 128)], V5E)
    result = next(one for one in made.buffers if one.name == "by")
    assert (
        result.padded_bytes == result.lower_bytes == 128 * 64 * 16 * 4
    )  # of the larger batch: all lanes are full
    assert result.upper_bytes == 128 * 64 * 128 * 4
    assert "128 and 32 are equally common" in made.notes[0]


def test_equally_common_batches_on_one_side_give_no_range():
    made = predict([one_convolution(256, 128)], V5E)
    assert not made.notes
    assert all(
        one.padded_bytes == one.upper_bytes for one in made.buffers if one.name in ("ay", "by")
    )


def test_a_depthwise_convolution_has_the_usual_layout():
    x, k = parameters("f32[128,8,8,20]", "f32[3,3,1,20]")
    made = predict(
        [module(main=[x, k, conv("y", "f32[128,8,8,20]", "p0", "p1", feature_groups=20)])], V5E
    )
    assert (
        next(one for one in made.buffers if one.name == "y").padded_shape
        == "f32[128,8,8,24]{0,3,2,1:T(8,128)}"
    )


def around(*after, root=None):
    """Return the layouts of ops behind a convolution with a batch of 128."""
    return module(
        main=[
            *parameters("f32[128,8,8,20]", "f32[3,3,20,20]"),
            conv("y", "f32[128,8,8,20]", "p0", "p1"),
            *after,
        ]
    )


BEHIND = [
    (
        op("z", "reduce-window", "f32[128,4,4,20]", "y", window=window(1, 2, 2, 1)),
        "f32[128,4,4,24]{0,3,2,1:T(8,128)}",
    ),
    (
        op("z", "concatenate", "f32[128,8,8,40]", "y", "y", dimensions=(3,)),
        "f32[128,8,8,40]{0,3,2,1:T(8,128)}",
    ),
    (op("z", "slice", "f32[128,8,8,9]", "y"), "f32[128,8,8,16]{0,3,2,1:T(8,128)}"),
    (op("z", "reduce", "f32[128,20]", "y", dimensions=(1, 2)), "f32[128,24]{0,1:T(8,128)}"),
    (op("z", "reshape", "f32[128,1280]", "y"), "f32[128,1280]{1,0:T(8,128)}"),
    (
        op("z", "transpose", "f32[8,8,20,128]", "y", dimensions=(1, 2, 3, 0)),
        "f32[8,8,20,128]{3,1,2,0:T(8,128)}",
    ),
]


def test_layouts_of_ops_behind_a_convolution():
    for after, expected in BEHIND:
        made = predict([around(after)], V5E)
        assert next(one for one in made.buffers if one.name == "z").padded_shape == expected, after


def test_elementwise_ops_fuse_and_scalars_and_single_tiles_do_not_count():
    ops = [
        *parameters("f32[8,256]", "f32[256,512]", "f32[]", "f32[8,128]"),
        op("half", "convert", "bf16[8,256]", "p0"),
        op("w", "convert", "bf16[256,512]", "p1"),
        op("y", "dot", "bf16[8,512]", "half", "w", dot=dot([1], [0])),
        op("z", "tanh", "bf16[8,512]", "y"),
    ]
    made = predict([module(main=ops)], V5E)
    assert [one.name for one in made.buffers] == ["p0", "p1", "y"]
    assert made.overhead == 0


def test_the_operand_behind_a_move_is_in_memory():
    ops = [
        *parameters("f32[100,1000]", "f32[1000,100]"),
        op("t", "transpose", "f32[1000,100]", "p0", dimensions=(1, 0)),
        op("y", "dot", "f32[1000,1000]", "t", "p1", dot=dot([1], [1])),
    ]
    entry = module(main=ops).entry
    assert [one.name for one in key_arrays(entry, True)] == ["p0", "p1", "t", "y"]


def test_bodies_of_loops_count_and_reducers_do_not():
    body = [
        *parameters("f32[300,300]"),
        op("y", "dot", "f32[300,300]", "p0", "p0", dot=dot([1], [0])),
    ]
    condition = [*parameters("f32[300,300]"), op("c", "constant", "pred[]")]
    reducer = [*parameters("f32[2000]"), op("bad", "reduce", "f32[2000]", "p0")]
    made = module(
        r=reducer,
        b=body,
        c=condition,
        main=[
            *parameters("f32[300,300]"),
            op("l", "while", "f32[300,300]", "p0", called=("b", "c")),
            op("s", "reduce", "f32[300]", "l", called=("r",), dimensions=(0,)),
        ],
    )
    assert [(one.name, one.what.split()[0]) for one in predict([made], V5E).buffers] == [
        ("p0", "parameter"),
        ("y", "dot"),
    ]


def test_a_better_size_names_its_saving():
    made = predict([around()], V5E).buffers
    assert [one.advice for one in made if one.name == "y"] == ["20 → 24: saves 128 KiB"]
    assert not [
        one.advice for one in predict([two_convolutions(128)], V5E).worst(50) if not one.advice
    ]


def test_source_lines_come_from_the_op_or_the_reader_of_a_parameter():
    x, k = parameters("f32[128,8,8,20]", "f32[3,3,20,20]")
    made = predict(
        [module(main=[x, k, conv("y", "f32[128,8,8,20]", "p0", "p1", op_name="net/conv")])],
        V5E,
        {"net/conv": "model.py:12"},
    )
    assert {one.line for one in made.buffers} == {"model.py:12"}


def test_only_parameters_take_the_source_line_of_their_first_use():
    ops = [
        *parameters("f32[300,300]"),
        op("r", "reshape", "f32[300,300]", "p0"),
        op(
            "y",
            "dot",
            "f32[300,300]",
            "r",
            "r",
            dot=dot([1], [0]),
            op_name="einsum/Einsum;call/einsum/Einsum",
        ),
        op("s", "reduce", "f32[300,30]", "y", op_name="unknown"),
        op("z", "tanh", "f32[300,30]", "s", op_name="late"),
    ]
    made = predict([module(main=ops)], V5E, {"einsum/Einsum": "model.py:3", "late": "model.py:9"})
    assert {one.name: one.line for one in made.buffers} == {
        "p0": "model.py:3",
        "y": "model.py:3",
        "s": None,
    }


def test_a_step_without_large_arrays_has_no_overhead():
    made = predict([module(main=[*parameters("f32[8]"), op("y", "tanh", "f32[8]", "p0")])], V5E)
    assert (made.buffers, made.overhead, made.low, made.high) == ((), None, None, None)


def test_arrays_without_elements_do_not_count():
    assert predict([module(main=parameters("f32[0,9000]"))], V5E).buffers == ()


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=4),
    st.sampled_from(["f32", "bf16", "s8", "pred", "f64", "s4"]),
    st.sampled_from(["v3", "v5e", "v7x"]),
)
def test_compact_bytes_lie_between_logical_and_row_major(sizes, dtype, name):
    plain = replace(shape(f"{dtype}[1]"), dimensions=tuple(sizes))
    least, usual = compact(plain, generation(name)), row_major(plain, generation(name))
    assert logical_bytes(least) <= padded_bytes(least) <= padded_bytes(usual)

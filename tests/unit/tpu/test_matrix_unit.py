"""The overhead of sizes that do not fill the matrix unit, against the reference table."""

import pytest
from helpers.hlo import dot, labels, module, op, parameters, window

from pytest_tfperf.hlo.cost import module_costs, products_in
from pytest_tfperf.hlo.products import Matmul, Product
from pytest_tfperf.tpu.padding import (
    better_sizes,
    filling_steps,
    macs,
    padded_macs,
    sizes_of,
    values_of,
)
from pytest_tfperf.tpu.tiles import generation
from pytest_tfperf.values import Source, Unknown


def product(m, n, k):
    return Product(op="x", matmul=Matmul(rows=m, columns=n, depth=k))


def overhead(*products, tpu="v5e"):
    values, _ = values_of(Unknown(""), products, generation(tpu), Source.PREDICTED)
    return values["mxu_padding_overhead"]


def test_overhead_of_one_product():
    for sizes, expected, name in [
        ((128, 128, 128), 0, "v5e"),
        ((8, 128, 128), 0, "v5e"),
        ((100, 1000, 2048), 0.064960, "v5e"),
        ((1, 1000, 2048), 7.192, "v5e"),
        ((100, 10, 20), 12.1072, "v5e"),
        ((512, 30522, 768), 0.000197, "v5e"),
        ((64, 65, 65), 2.877870, "v5e"),
        ((129, 129, 129), 3.151927, "v5e"),
        ((2048, 2048, 64), 1.0, "v5e"),
        ((1024, 4096, 1000), 0.024, "v5e"),
        ((128, 128, 128), 3.0, "v6e"),
        ((2048, 2048, 64), 3.0, "v7x"),
    ]:
        found = overhead(product(*sizes), tpu=name)
        assert round(found.low(), 6) == round(found.high(), 6) == expected, (sizes, name)


def test_the_sizes_that_are_suggested_leave_no_padding():
    for sizes in [(128, 129, 129), (5, 128, 128), (7, 300, 70), (1000, 100, 2048)]:
        changes = dict(change.split(" → ") for change in better_sizes([product(*sizes)], 128))
        assert changes, sizes
        for choose in (min, max):
            better = [
                choose(map(int, changes.get(str(size), str(size)).split(" or "))) for size in sizes
            ]
            assert padded_macs(product(*better), 128)[0] == macs(product(*better)), (sizes, better)
    assert better_sizes([product(128, 256, 128)], 128) == []


def test_one_size_of_several_products_has_one_change_and_a_given_one_has_none():
    layer, gradient = product(128, 130, 300), product(128, 300, 130)
    assert filling_steps(gradient, 128)[300] == 8
    assert better_sizes([gradient, layer], 128) == ["300 → 256 or 384", "130 → 128 or 256"]
    assert better_sizes([product(128, 1, 128)], 128) == []


def work(*ops):
    return products_in([(module_costs(module(main=list(ops))), 1.0)])


def sizes(*ops):
    """M, N and K of the only product, each with its repeats."""
    (found,) = work(*ops)
    return sizes_of(found)


def convolution(data, kernel, result, how="b01f_01io->b01f", **more):
    sizes = more.pop("sizes", (7, 7))
    return [
        *parameters(data, kernel),
        op(
            "y",
            "convolution",
            result,
            "p0",
            "p1",
            convolution=labels(how),
            window=window(*sizes),
            **more,
        ),
    ]


def test_a_convolution_with_few_channels_has_a_range():
    found = work(*convolution("f32[128,224,224,3]", "f32[7,7,3,128]", "f32[128,218,218,128]"))
    value = overhead(*found)
    assert (round(value.low(), 2), round(value.high(), 1)) == (0.74, 41.7)


def test_dots_count_their_free_contracted_and_batch_dimensions():
    found = work(
        *parameters("f32[4,8,16,32]", "f32[4,8,32,64]"),
        op("y", "dot", "f32[4,8,16,64]", "p0", "p1", dot=dot([3], [2], [0, 1], [0, 1])),
    )
    assert sizes_of(found[0]) == ((16, 1), (64, 1), (32, 1))
    assert macs(found[0]) == 32 * 16 * 64 * 32


def test_gradients_have_the_flops_of_their_convolution():
    x, k, y = "f32[10,8,8,3]", "f32[3,3,3,5]", "f32[10,8,8,5]"
    forward = sizes(*convolution(x, k, y, sizes=(3, 3)))
    of_input = sizes(*convolution(y, k, x, "b01f_01oi->b01f", sizes=(3, 3)))
    of_kernel = sizes(*convolution(x, y, k, "f01b_i01o->01bf", sizes=(8, 8)))
    assert forward == ((640, 1), (5, 1), (3, 9))
    assert of_input == ((640, 1), (3, 1), (5, 9))
    assert of_kernel == ((3, 9), (5, 1), (640, 1))


def test_the_gradient_of_a_strided_convolution_counts_only_input_positions():
    ops = [
        *parameters("f32[10,4,4,5]", "f32[3,3,3,5]"),
        op(
            "y",
            "convolution",
            "f32[10,8,8,3]",
            "p0",
            "p1",
            convolution=labels("b01f_01oi->b01f"),
            window=window(3, 3, base=2),
        ),
    ]
    assert sizes(*ops)[0] == (160, 1)


@pytest.mark.parametrize("groups", [{"feature_groups": 3}, {"batch_groups": 3}])
def test_grouped_convolutions_are_skipped(groups):
    found = work(
        *convolution(
            "f32[8,8,8,3]", "f32[3,3,1,3]", "f32[8,8,8,3]", op_name="net/depthwise", **groups
        )
    )
    value = overhead(*found)
    assert value.number is None
    assert "grouped convolutions (net/depthwise)" in value.why
    assert overhead(*found, product(8, 128, 128)).detail["without"].startswith("1 grouped")


def test_products_are_weighted_by_their_runs():
    first = module(
        main=[
            *parameters("f32[8,128]", "f32[128,128]"),
            op("y", "dot", "f32[8,128]", "p0", "p1", dot=dot([1], [0])),
        ]
    )
    second = module(
        main=[
            *parameters("f32[1,128]", "f32[128,128]"),
            op("y", "dot", "f32[1,128]", "p0", "p1", dot=dot([1], [0])),
        ]
    )
    products = products_in([(module_costs(first), 1.0), (module_costs(second), 8.0)])
    assert overhead(*products).low() == (8 + 8 * 8) / (8 + 8) - 1

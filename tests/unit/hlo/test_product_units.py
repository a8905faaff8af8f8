"""The units of products in kernels that XLA generates, by their types and precision."""

from helpers.hlo import dot, module, op, parameters

from pytest_tfperf.hlo.products import kernel_of, product_units, products_of

DEFAULT, HIGH, HIGHEST = range(3)
ALG_DOT_BF16_BF16_F32_X3, ALG_DOT_TF32_TF32_F32, ALG_DOT_F32_F32_F32 = 7, 9, 11


def fused(dtype, precision=(DEFAULT, 0)):
    """A fusion of a product of this type, and one without."""
    product = [
        *parameters(f"{dtype}[8,4]", f"{dtype}[4,8]"),
        op("d", "dot", "f32[8,8]", "p0", "p1", dot=dot([1], [0]), precision=precision),
    ]
    sums = [*parameters("f32[8,8]"), op("n", "negate", "f32[8,8]", "p0")]
    main = [
        *parameters(f"{dtype}[8,4]", f"{dtype}[4,8]"),
        op("gemm_fusion_dot.20", "fusion", "f32[8,8]", "p0", "p1", called=["product"]),
        op("loop-fusion", "fusion", "f32[8,8]", "gemm_fusion_dot.20", called=["sums"]),
    ]
    return module(product=product, sums=sums, main=main)


def of_programs(modules):
    return product_units({name: products_of(made).values() for name, made in modules.items()})


def units_of(**modules):
    """Return the units by program."""
    found = of_programs({f"jit_{name}": made for name, made in modules.items()})
    assert {kernel for _, kernel in found} <= {"gemm_fusion_dot_20"}
    return {name.removeprefix("jit_"): units for (name, _), units in found.items() if name}


def test_products_in_16_bits_or_fewer():
    for dtype in ["bf16", "f16", "f8e4m3fn"]:
        assert units_of(f=fused(dtype, (HIGHEST, 0))) == {"f": True}, dtype


def test_products_in_more_bits_depend_on_the_precision():
    for dtype, precision, on_tensor_cores in [
        ("f32", (DEFAULT, 0), True),
        ("f32", (HIGH, 0), True),
        ("f32", (HIGHEST, 0), False),
        ("f32", (HIGHEST, ALG_DOT_TF32_TF32_F32), True),
        ("f32", (DEFAULT, ALG_DOT_BF16_BF16_F32_X3), True),
        ("f32", (DEFAULT, ALG_DOT_F32_F32_F32), False),
        ("f64", (DEFAULT, 0), False),
    ]:
        found = units_of(f=fused(dtype, precision))
        assert found == {"f": on_tensor_cores}, (dtype, precision)


def test_kernels_of_two_programs_may_have_one_name():
    half, wide = fused("bf16"), fused("f64")
    in_any = ("", "gemm_fusion_dot_20")
    assert of_programs({"jit_f(1)": half, "jit_g(2)": half})[in_any] is True
    assert in_any not in of_programs({"jit_f(1)": half, "jit_g(2)": wide})
    programs = {"f(1)": half, "f(2)": half, "g(3)": half, "g(4)": wide}
    assert units_of(**programs) == {
        **dict.fromkeys(["f", "f(1)", "f(2)", "g(3)"], True),
        "g(4)": False,
    }


def test_names_of_kernels():
    assert kernel_of("loop_add-fusion.1") == "loop_add_fusion_1"

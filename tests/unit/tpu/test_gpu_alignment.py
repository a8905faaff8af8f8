"""Sizes on tensor cores, by the examples of NVIDIA's guide and by hand."""

import pytest
from helpers.hlo import dot, labels, module, op, parameters, window
from helpers.traces import real
from helpers.xspace import at, line, plane, space

from pytest_tfperf.hlo.cost import module_costs, products_in
from pytest_tfperf.tpu.gpu_alignment import (
    SMS,
    aligned_size,
    alignment_advice,
    alignment_table,
    always_good,
    best,
    gpu_alignment,
    misaligned,
    on_tensor_cores,
    tile_overhead,
    tiles_of,
    wave_overhead,
)
from pytest_tfperf.trace.xspace import decode_trace


def test_good_alignment_depends_on_bytes():
    for dtype, good, at_best in [
        ("f16", 8, 64),
        ("bf16", 8, 64),
        ("s8", 16, 128),
        ("f8e4m3fn", 16, 128),
        ("f32", 4, 32),
        ("f64", 2, 16),
    ]:
        assert (always_good(dtype), best(dtype)) == (good, at_best), dtype


def test_tile_overhead_counts_whole_tiles():
    for rows, columns, tile, overhead in [
        (136, 128, (128, 128), 0.882353),
        (2304, 1793, (256, 128), 0.070831),
        (2304, 1792, (256, 128), 0.0),
        (512, 30522, (128, 128), 0.002293),
        (4096, 50257, (256, 128), 0.000935),
        (4096, 50304, (256, 128), 0.0),
    ]:
        assert round(tile_overhead(rows, columns, tile), 6) == overhead, (rows, columns, tile)


@pytest.mark.parametrize(
    ("rows", "columns", "tile", "tiles", "a100", "h100"),
    [
        (2304, 1792, (256, 128), 126, 0.714286, 0.047619),
        (512, 30522, (128, 128), 956, 0.016736, 0.104603),
    ],
)
def test_wave_overhead_counts_the_last_wave(rows, columns, tile, tiles, a100, h100):
    assert tiles_of(rows, columns, tile) == tiles
    assert [round(wave_overhead(tiles, sms), 6) for sms in (SMS["A100"], SMS["H100 SXM"])] == [
        a100,
        h100,
    ]


def test_aligned_size():
    for size, dtype, good in [
        (50257, "bf16", 50304),
        (30522, "f16", 30528),
        (50257, "f32", 50272),
        (100, "f16", 104),
        (20, "bf16", 24),
        (3, "f16", 8),
        (3, "f32", 4),
        (129, "f16", 128),
        (1000, "s8", 1024),
        (64, "bf16", 64),
    ]:
        assert aligned_size(size, dtype) == good, (size, dtype)


def dense(rows, columns, depth, dtype="bf16", **more):
    ops = parameters(f"{dtype}[{rows},{depth}]", f"{dtype}[{depth},{columns}]")
    return module(
        main=[
            *ops,
            op("d", "dot", f"{dtype}[{rows},{columns}]", "p0", "p1", dot=dot([1], [0]), **more),
        ]
    )


def found_in(*modules):
    return on_tensor_cores(products_in((module_costs(one), 1.0) for one in modules))


def only(made):
    (found,) = found_in(made)
    return found


def test_a_dot_is_a_gemm():
    found = only(dense(512, 30522, 768, op_name="logits", source_file="m.py", source_line=3))
    assert (
        found.op,
        found.line,
        found.matmul.rows,
        found.matmul.columns,
        found.matmul.depth,
        found.matmul.batch,
    ) == (
        "logits",
        "m.py:3",
        512,
        30522,
        768,
        1,
    )
    assert found.matmul.flops == 2 * 512 * 30522 * 768
    assert misaligned(found) == (("columns", 30522, 30528),)


def test_a_batched_dot_in_any_dimension_order():
    ops = parameters("f16[7,64,12,100]", "f16[7,12,50,64]")
    made = module(
        main=[
            *ops,
            op("d", "dot", "f16[7,12,100,50]", "p0", "p1", dot=dot([1], [3], [0, 2], [0, 1])),
        ]
    )
    found = only(made)
    assert (found.matmul.rows, found.matmul.columns, found.matmul.depth, found.matmul.batch) == (
        100,
        50,
        64,
        84,
    )
    assert misaligned(found) == (("rows", 100, 104), ("columns", 50, 56))


def product(opcode, result, data, kernel, **more):
    return [*parameters(data, kernel), op("c", opcode, result, "p0", "p1", **more)]


def cudnn(name, result, data, kernel):
    return product(
        "custom-call",
        result,
        data,
        kernel,
        custom_call_target=f"__cudnn$conv{name}",
        convolution=labels("b01f_o01i->b01f"),
        window=window(3, 3),
    )


DATA, KERNEL, OUT = "f16[8,9,9,30]", "f16[50,3,3,30]", "f16[8,7,7,50]"
STRIDED = {"window": window(7, 7, stride=2), "convolution": labels("b01f_01io->b01f")}
GRADIENT = {"window": window(28, 28), "convolution": labels("f01b_i01o->01bf")}
DENSE = {"convolution": labels("bf_io->bf")}
GEMM = {
    "custom_call_target": "__cublas$gemm",
    "backend_config": '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}',
}
IN_30_OUT_50 = (("channels in", 30), ("channels out", 50))
PRODUCTS = [
    (
        product(
            "convolution", "bf16[32,28,28,64]", "bf16[32,56,56,3]", "bf16[7,7,3,64]", **STRIDED
        ),
        (32 * 28 * 28, 64, 147, (("channels in", 3), ("channels out", 64))),
    ),
    (
        product(
            "convolution", "bf16[3,3,20,48]", "bf16[32,56,56,20]", "bf16[32,28,28,48]", **GRADIENT
        ),
        (9 * 20, 48, 32 * 28 * 28, (("channels in", 20), ("channels out", 48))),
    ),
    (
        product("convolution", "f16[8,33]", "f16[8,64]", "f16[64,33]", **DENSE),
        (8, 33, 64, (("rows", 8), ("columns", 33), ("depth", 64))),
    ),
    (
        cudnn("Forward", "(f16[8,7,7,50], u8[0])", DATA, KERNEL),
        (8 * 49, 50, 270, IN_30_OUT_50),
    ),
    (
        cudnn("BackwardInput", "(f16[8,9,9,30], u8[0])", OUT, KERNEL),
        (8 * 81, 30, 450, IN_30_OUT_50),
    ),
    (
        cudnn("BackwardFilter", "(f16[50,3,3,30], u8[0])", DATA, OUT),
        (270, 50, 8 * 49, IN_30_OUT_50),
    ),
    (
        product("custom-call", "(f16[100,50], s8[99])", "f16[100,70]", "f16[70,50]", **GEMM),
        (100, 50, 70, (("rows", 100), ("columns", 50), ("depth", 70))),
    ),
]


def test_sizes_of_convolutions_and_library_calls():
    for ops, expected in PRODUCTS:
        found = only(module(main=ops))
        assert (
            found.matmul.rows,
            found.matmul.columns,
            found.matmul.depth,
            found.matmul.aligned_sizes,
        ) == expected, ops


DEPTHWISE = {"window": window(3, 3), "convolution": labels("b01f_01io->b01f"), "feature_groups": 30}
OTHER_PRODUCTS = [
    product("dot", "f32[1,50]", "f32[1,70]", "f32[70,50]", dot=dot([1], [0])),  # a vector
    product("dot", "s32[7,50]", "s32[7,70]", "s32[70,50]", dot=dot([1], [0])),  # integers
    product("dot", "f32[0,50]", "f32[0,70]", "f32[70,50]", dot=dot([1], [0])),
    product("convolution", "f32[8,9,9,30]", "f32[8,9,9,30]", "f32[3,3,1,30]", **DEPTHWISE),
    [*parameters("f32[8]"), op("c", "custom-call", "f32[8]", "p0", custom_call_target="other")],
]


def test_products_that_tensor_cores_do_not_compute_are_left_out():
    for ops in OTHER_PRODUCTS:
        assert found_in(module(main=ops)) == [], ops
    assert alignment_table([]) is None


def test_the_table_lists_each_product_once_with_its_overheads():
    gemms = found_in(dense(2304, 1793, 64), dense(64, 64, 64), dense(64, 64, 64))
    table = alignment_table(gemms)
    rows = table.records()
    assert [row["size"] for row in rows] == ["2304 × 1793 × 64", "64 × 64 × 64"]
    assert (rows[0]["not_aligned"], rows[0]["good_size"], rows[1]["times"]) == (
        "columns 1793",
        "1793 → 1792",
        2,
    )
    assert round(rows[0]["at_most"], 6) == 0.070831
    assert rows[0]["alignment_overhead"] == tile_overhead(2304, 1793, (64, 64))
    assert (rows[1]["alignment_overhead"], rows[1]["at_most"], rows[1]["wave_overhead"]) == (
        0.0,
        7.0,
        "",
    )  # 256 × 128 for 64 × 64
    assert rows[0]["wave_overhead"].startswith("A100 ")
    assert not alignment_table(gemms, sms=80).records()[0]["wave_overhead"].startswith("A100")


def test_the_advice_names_the_largest_misaligned_product():
    (advice,) = alignment_advice(
        found_in(dense(4096, 50257, 768), dense(100, 64, 64), dense(8192, 65536, 1024))
    )
    assert (
        advice.what
        == "make sizes multiples of 16 bytes for the tensor cores: columns 50257 → 50304"
    )
    assert (
        advice.because
        == "d multiplies 4096 × 50257 × 768 in bf16, for which tensor cores need multiples of 8; 1 more such product"
    )
    assert alignment_advice(found_in(dense(64, 64, 64))) == ()


def gpu_trace(**stats):
    return decode_trace(
        space(plane("/device:GPU:0", line("stream", at("k", 0, 1)), stats=stats)), "t"
    )


def test_only_nvidia_gpus_have_table_and_advice():
    made = found_in(dense(4096, 50257, 768))
    table, advice = gpu_alignment(gpu_trace(compute_cap_major=8, core_count=108), made)
    assert len(table.rows) == len(advice) == 1
    assert gpu_alignment(
        gpu_trace(compute_cap_major=9, core_count=304, device_vendor="AMD"), made
    ) == (None, ())
    assert gpu_alignment(
        decode_trace(space(plane("/host:CPU", line("t", at("k", 0, 1)))), "t"), made
    ) == (None, ())


def test_older_gpus_have_tensor_cores_only_for_16_bits():
    for capability, dtype, known in [
        (6, "f16", False),
        (7, "f32", False),
        (7, "f16", True),
        (8, "f32", True),
        (8, "f64", True),
    ]:
        table, _ = gpu_alignment(
            gpu_trace(compute_cap_major=capability, core_count=80),
            found_in(dense(256, 256, 256, dtype)),
        )
        assert (table is not None) == known, (capability, dtype)


def test_a_recorded_convolution():
    trace, _ = real("gpu_mi300_jax_conv")
    from pytest_tfperf.facts.executions import programs_of

    (found,) = found_in(*(program.module for program in programs_of(trace)))
    assert found.matmul.aligned_sizes == (("channels in", 16), ("channels out", 5120))
    assert (found.matmul.columns, found.matmul.depth) == (5120, 16 * 4)
    assert gpu_alignment(trace, []) == (None, ())  # AMD's

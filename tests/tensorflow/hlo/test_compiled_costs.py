"""Costs of modules that TensorFlow lowers and compiles, against counts by hand."""

import random
from functools import cache

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_tfperf.errors import TraceError
from pytest_tfperf.hlo.cost import module_costs
from pytest_tfperf.hlo.decode import decode_module


def lowered(function, *shapes, stage="hlo_serialized"):
    specs = [tf.TensorSpec(sizes, dtype) for dtype, *sizes in shapes]
    return tf.function(function, jit_compile=True).experimental_get_compiler_ir(*specs)(stage=stage)


def as_bfloat16(*tensors):
    return [tf.cast(tensor, tf.bfloat16) for tensor in tensors]


def convolution(image, kernel, **options):
    return tf.nn.conv2d(image, kernel, **{"strides": 1, "padding": "VALID", **options})


def gradients(function):
    def run(*args):
        with tf.GradientTape() as tape:
            tape.watch(args)
            loss = tf.reduce_sum(tf.cast(function(*args), tf.float32) ** 2)
        return tape.gradient(loss, args)

    return run


def product(lhs, rhs):
    return tf.matmul(lhs, rhs)


def einsum(lhs, rhs):
    return tf.einsum("bij,bjk->bik", lhs, rhs)


def mixed(x, w, v):
    """Make a module with a product in bfloat16 and one in float32."""
    return product(tf.cast(product(*as_bfloat16(x, w)), tf.float32), v)


F = "float32"
CASES = {
    "matmul": (product, [(F, 8, 4), (F, 4, 16)], 2 * 8 * 4 * 16, 0),
    "bfloat16 matmul": (
        lambda *x: product(*as_bfloat16(*x)),
        [(F, 8, 4), (F, 4, 16)],
        2 * 8 * 4 * 16,
        1,
    ),
    "float16 matmul": (product, [("float16", 8, 4), ("float16", 4, 16)], 2 * 8 * 4 * 16, 1),
    "einsum": (einsum, [(F, 3, 8, 4), (F, 3, 4, 5)], 2 * 3 * 8 * 4 * 5, 0),
    "mixed": (mixed, [(F, 8, 4), (F, 4, 16), (F, 16, 4)], 2 * 2 * 8 * 4 * 16, 0.5),
    "matmul gradients": (gradients(product), [(F, 8, 4), (F, 4, 16)], 3 * 2 * 8 * 4 * 16, 0),
    "bfloat16 gradients": (
        gradients(lambda *x: product(*as_bfloat16(*x))),
        [(F, 8, 4), (F, 4, 16)],
        3 * 2 * 8 * 4 * 16,
        1,
    ),
    "conv VALID": (
        convolution,
        [(F, 2, 6, 6, 3), (F, 3, 3, 3, 5)],
        2 * 2 * (4 * 3) ** 2 * 3 * 5,
        0,
    ),
    "conv SAME": (
        lambda x, k: convolution(x, k, padding="SAME"),
        [(F, 2, 6, 6, 3), (F, 3, 3, 3, 5)],
        2 * 2 * 16**2 * 3 * 5,
        0,
    ),
    "conv strides": (
        lambda x, k: convolution(x, k, strides=2),
        [(F, 2, 7, 7, 3), (F, 3, 3, 3, 5)],
        2 * 2 * 9**2 * 3 * 5,
        0,
    ),
    "conv dilation": (
        lambda x, k: convolution(x, k, dilations=2),
        [(F, 2, 7, 7, 3), (F, 3, 3, 3, 5)],
        2 * 2 * 9**2 * 3 * 5,
        0,
    ),
    "conv groups": (convolution, [(F, 2, 6, 6, 4), (F, 3, 3, 2, 6)], 2 * 2 * 12**2 * 2 * 6, 0),
    "bfloat16 conv": (
        lambda *x: convolution(*as_bfloat16(*x)),
        [(F, 2, 6, 6, 3), (F, 3, 3, 3, 5)],
        2 * 2 * 12**2 * 3 * 5,
        1,
    ),
    "conv gradients": (
        gradients(convolution),
        [(F, 2, 6, 6, 3), (F, 3, 3, 3, 5)],
        3 * 2 * 2 * 12**2 * 3 * 5,
        0,
    ),
    "strided gradients": (
        gradients(lambda x, k: convolution(*as_bfloat16(x, k), strides=2)),
        [(F, 2, 7, 7, 3), (F, 3, 3, 3, 5)],
        3 * 2 * 2 * 9**2 * 3 * 5,
        1,
    ),
    "group gradients": (
        gradients(convolution),
        [(F, 2, 6, 6, 4), (F, 3, 3, 2, 6)],
        3 * 2 * 2 * 12**2 * 2 * 6,
        0,
    ),
}


MAIN = ["einsum", "mixed", "matmul gradients", "conv SAME", "conv groups"]


def assert_equal_hand_counts(name, stage):
    function, shapes, flops, share = CASES[name]
    costs = module_costs(decode_module(lowered(function, *shapes, stage=stage), name))
    widened = stage == "optimized_hlo_serialized" and share
    # the compiler of a CPU widens products of 16 bits
    half, unsure = (0, flops) if widened else (flops * share, 0)
    assert (costs.matmul_flops, costs.half_flops, costs.unsure_flops) == (flops, half, unsure), (
        name,
        stage,
    )
    assert costs.flops >= costs.matmul_flops, (name, stage)
    assert costs.uncounted == costs.once == (), (name, stage)


def test_costs_of_tensorflow_modules_equal_hand_counts_before_and_after_compilation():
    for name in MAIN:
        for stage in ("hlo_serialized", "optimized_hlo_serialized"):
            assert_equal_hand_counts(name, stage)
    for name in ("float16 matmul", "strided gradients"):
        assert_equal_hand_counts(name, "hlo_serialized")


@pytest.mark.full
@pytest.mark.parametrize("stage", ["hlo_serialized", "optimized_hlo_serialized"])
def test_costs_of_other_tensorflow_modules_equal_hand_counts(stage):
    for name in set(CASES) - set(MAIN):
        assert_equal_hand_counts(name, stage)


def test_a_cast_back_to_float32_is_known_only_before_compilation():
    def lost(x, w):
        return product(*(tf.cast(narrow, tf.float32) for narrow in as_bfloat16(x, w)))

    shapes = [(F, 8, 4), (F, 4, 16)]
    assert module_costs(decode_module(lowered(lost, *shapes), "m")).half_flops == 0
    assert (
        module_costs(
            decode_module(lowered(lost, *shapes, stage="optimized_hlo_serialized"), "m")
        ).unsure_flops
        == 2 * 8 * 4 * 16
    )


@cache
def real_module():
    return lowered(
        CASES["strided gradients"][0],
        *CASES["strided gradients"][1],
        stage="optimized_hlo_serialized",
    )


@pytest.mark.nightly
@given(at=st.integers(0, 1 << 20), bits=st.integers(1, 255))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_module_with_any_damage_has_costs_or_raises_a_trace_error(at, bits):
    assert_costs_or_trace_error(real_module(), at, bits)


def test_a_damaged_module_has_costs_or_raises_a_trace_error():
    function, shapes, *_ = CASES["strided gradients"]
    raw, chance = lowered(function, *shapes), random.Random(0)
    for _ in range(50):
        assert_costs_or_trace_error(raw, chance.randrange(1 << 20), chance.randrange(1, 256))


def assert_costs_or_trace_error(module, at, bits):
    raw = bytearray(module)
    raw[at % len(raw)] ^= bits
    try:
        costs = module_costs(decode_module(bytes(raw), "m"))
    except TraceError:
        return
    assert costs.flops >= costs.matmul_flops >= costs.half_flops >= 0

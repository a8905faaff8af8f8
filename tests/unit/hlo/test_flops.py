import json
from itertools import product

import pytest
from helpers.hlo import dot, labels, module, op, parameters, window
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfperf.hlo.cost import module_costs
from pytest_tfperf.hlo.module import WindowDimension
from pytest_tfperf.hlo.products import _taps


def cost(opcode, result, *shapes, **more):
    """Return the FLOPs of a one-instruction module, and those of matrix multiplications."""
    names = [f"p{number}" for number in range(len(shapes))]
    costs = module_costs(
        module(main=[*parameters(*shapes), op("x", opcode, result, *names, **more)])
    )
    return costs.flops, costs.matmul_flops


def matmul(*args, **more):
    flops, matmul_flops = cost(*args, **more)
    assert flops == matmul_flops
    return flops


def test_a_dot_counts_a_multiply_add_for_each_result_and_contracted_element():
    for result, lhs, rhs, dimensions, flops in [
        ("f32[8,16]", "f32[8,4]", "f32[4,16]", dot([1], [0]), 2 * 8 * 4 * 16),
        ("f32[8,16]", "f32[4,8]", "f32[16,4]", dot([0], [1]), 2 * 8 * 4 * 16),
        ("f32[3,8,16]", "f32[3,8,4]", "f32[3,4,16]", dot([2], [1], [0], [0]), 2 * 3 * 8 * 4 * 16),
        ("f32[8]", "f32[8,4,5]", "f32[4,5]", dot([1, 2], [0, 1]), 2 * 8 * 20),
        ("f32[]", "f32[7]", "f32[7]", dot([0], [0]), 14),
        ("f32[3,5]", "f32[3]", "f32[5]", dot([], []), 2 * 15),
        ("f32[0,16]", "f32[0,4]", "f32[4,16]", dot([1], [0]), 0),
    ]:
        assert matmul("dot", result, lhs, rhs, dot=dimensions) == flops, (
            result,
            lhs,
            rhs,
            dimensions,
        )


CONVOLUTIONS = [
    # 3x3 over 4x4, unpadded: each of 2x2 results has all 9 taps
    ("f32[1,2,2,5]", "f32[1,4,4,3]", "f32[3,3,3,5]", window(3, 3), {}, 2 * 36 * 3 * 5),
    # padded to 4x4 results: along a dimension the taps are 2, 3, 3, 2
    (
        "f32[1,4,4,5]",
        "f32[1,4,4,3]",
        "f32[3,3,3,5]",
        window(3, 3, pad=(1, 1)),
        {},
        2 * 100 * 3 * 5,
    ),
    # stride 2, padding 0 and 1: of outputs 0 and 2 the taps are 3 and 2
    (
        "f32[1,2,2,5]",
        "f32[1,4,4,3]",
        "f32[3,3,3,5]",
        window(3, 3, stride=2, pad=(0, 1)),
        {},
        2 * 25 * 3 * 5,
    ),
    # kernel dilated to 5x5: one result
    ("f32[1,1,1,5]", "f32[1,5,5,3]", "f32[3,3,3,5]", window(3, 3, dilate=2), {}, 2 * 9 * 3 * 5),
    # transposed, stride 2: input 2x2 with a hole between, padded by 2: outputs 5, taps 1+1+2+1+1 along a dimension
    (
        "f32[1,5,5,5]",
        "f32[1,2,2,3]",
        "f32[3,3,3,5]",
        window(3, 3, pad=(2, 2), base=2),
        {},
        2 * 36 * 3 * 5,
    ),
    ("f32[7,2,2,5]", "f32[7,4,4,3]", "f32[3,3,3,5]", window(3, 3), {}, 7 * 2 * 36 * 3 * 5),
    (
        "f32[1,2,2,6]",
        "f32[1,4,4,6]",
        "f32[3,3,1,6]",
        window(3, 3),
        {"feature_groups": 6},
        2 * 36 * 6,
    ),
    (
        "f32[1,2,2,6]",
        "f32[6,4,4,3]",
        "f32[3,3,3,6]",
        window(3, 3),
        {"batch_groups": 6},
        2 * 36 * 3 * 6,
    ),
    ("f32[1,4,4,5]", "f32[1,4,4,3]", "f32[1,1,3,5]", window(1, 1), {}, 2 * 16 * 3 * 5),
    ("f32[1,0,2,5]", "f32[1,2,4,3]", "f32[3,3,3,5]", window(3, 3), {}, 0),
]


def test_a_convolution_counts_only_elements_of_the_input():
    for result, data, kernel, windows, more, flops in CONVOLUTIONS:
        assert (
            matmul(
                "convolution",
                result,
                data,
                kernel,
                window=windows,
                convolution=labels("b01f_01io->b01f"),
                **more,
            )
            == flops
        ), (result, data, kernel, windows, more)


def test_a_convolution_without_a_window_is_a_matrix_multiplication():
    assert (
        matmul("convolution", "f32[8,16]", "f32[8,4]", "f32[4,16]", convolution=labels("bf_io->bf"))
        == 2 * 8 * 4 * 16
    )


def test_the_gradient_of_a_kernel_is_a_convolution_whose_window_is_the_gradient():
    # input 4x4, kernel 3x3: its gradient slides 2x2 over 4x4; batch and features change places
    flops = matmul(
        "convolution",
        "f32[3,3,3,5]",
        "f32[8,4,4,3]",
        "f32[8,2,2,5]",
        window=window(2, 2),
        convolution=labels("f01b_i01o->01bf"),
    )
    assert flops == 8 * 2 * 36 * 3 * 5


def slowly_counted(window, n_input, n_kernel, n_output):
    """Count the pairs one by one."""
    places = [
        output * window.stride + kernel * window.window_dilation - window.padding_low
        for kernel, output in product(range(n_kernel), range(n_output))
    ]
    return sum(
        place % window.base_dilation == 0 and 0 <= place // window.base_dilation < n_input
        for place in places
    )


small = st.integers(1, 7)


@given(
    st.builds(WindowDimension, small, small, st.integers(-5, 9), st.just(0), small, small),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_closed_form_pair_count_equals_enumeration(window, n_input, n_kernel, n_output):
    assert _taps(window, n_input, n_kernel, n_output) == slowly_counted(
        window, n_input, n_kernel, n_output
    )


# libraries of a GPU

GEMM = {
    "alpha_real": 1,
    "dot_dimension_numbers": {
        "lhs_contracting_dimensions": ["1"],
        "rhs_contracting_dimensions": ["0"],
    },
}


def test_a_library_matmul_reads_its_dimensions_from_its_configuration():
    for target in ["__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8"]:
        for config in [{"gemm_backend_config": GEMM, "operation_queue_id": "0"}, GEMM]:
            flops = matmul(
                "custom-call",
                "(f16[8,16], s8[4096])",
                "f16[8,4]",
                "f16[4,16]",
                custom_call_target=target,
                backend_config=json.dumps(config),
            )
            assert flops == 2 * 8 * 4 * 16, (target, config)


def test_a_batched_library_matmul_counts_its_batch():
    numbers = {
        "lhs_contracting_dimensions": [2],
        "rhs_contracting_dimensions": [1],
        "lhs_batch_dimensions": [0],
        "rhs_batch_dimensions": [0],
    }
    config = json.dumps({"gemm_backend_config": {"dot_dimension_numbers": numbers}})
    flops = matmul(
        "custom-call",
        "f16[3,8,16]",
        "f16[3,8,4]",
        "f16[3,4,16]",
        custom_call_target="__cublas$gemm",
        backend_config=config,
    )
    assert flops == 2 * 3 * 8 * 4 * 16


DATA, KERNEL, OUTPUT = "f16[8,4,4,3]", "f16[3,3,3,5]", "f16[8,2,2,5]"


def test_a_library_convolution_and_its_gradients_have_equal_flops():
    """Window and dimensions are always those of the forward convolution."""
    for target, operands, result in [
        ("__cudnn$convForward", (DATA, KERNEL), OUTPUT),
        ("__cudnn$convForwardGraph", (DATA, KERNEL, "f16[5]"), OUTPUT),
        ("__cudnn$convBiasActivationForward", (DATA, KERNEL, "f16[5]"), OUTPUT),
        ("__cudnn$convBackwardInput", (OUTPUT, KERNEL), DATA),
        ("__cudnn$convBackwardFilter", (DATA, OUTPUT), KERNEL),
    ]:
        flops = matmul(
            "custom-call",
            f"({result}, u8[77])",
            *operands,
            custom_call_target=target,
            window=window(3, 3),
            convolution=labels("b01f_01io->b01f"),
        )
        assert flops == 8 * 2 * 36 * 3 * 5, (target, operands, result)


def test_calls_of_unknown_work_are_named():
    for target, config in [
        ("__cublas$gemm", ""),
        ("__cublas$gemm", "no JSON"),
        ("__cublas$gemm", '{"gemm_backend_config": 1}'),
        ("__cublas$gemm", "{}"),
        ("tpu_custom_call", ""),
        ("__cudnn$convForward", ""),
        ("__onednn$matmul", ""),
    ]:
        ops = [
            *parameters("f32[8,4]", "f32[4,16]"),
            op(
                "x",
                "custom-call",
                "f32[8,16]",
                "p0",
                "p1",
                custom_call_target=target,
                backend_config=config,
            ),
        ]
        costs = module_costs(module(main=ops))
        assert (costs.flops, costs.uncounted) == (0, (target,)), (target, config)
        fused = module(
            inside=ops,
            main=[
                *parameters("f32[8,4]", "f32[4,16]"),
                op("f", "fusion", "f32[8,16]", "p0", "p1", called=("inside",)),
            ],
        )
        assert module_costs(fused).uncounted == (target,), (target, config)


def calling(target, config=""):
    """The costs of a module that only makes a custom call."""
    call = op("x", "custom-call", "f32[8]", "p0", custom_call_target=target, backend_config=config)
    return module_costs(module(main=[*parameters("f32[8]"), call]))


def test_calls_that_compute_nothing_are_free():
    moves, sorts = ["Sharding", "MoveToHost", "X64Combine"], ["TopK", "__cub$DeviceRadixSort"]
    for target in [*moves, *sorts, "cu_threefry2x32_ffi"]:
        costs = calling(target)
        assert (costs.flops, costs.uncounted, costs.opaque) == (0, (), ()), target


def test_calls_of_python_are_no_work_of_the_program_unless_they_get_the_device_s_memory():
    for device in ("cpu", "gpu"):
        for form in ("", "ffi_", "ffi_partitioned_"):
            costs = calling(f"xla_{form}python_{device}_callback")
            assert (costs.flops, costs.uncounted, costs.opaque) == (0, (), ()), (form, device)
        target = f"xla_buffer_python_{device}_callback"
        assert calling(target).uncounted == calling(target).opaque == (target,)


@pytest.mark.parametrize(
    ("config", "flops"),
    [
        (
            '{"custom_call_config": {"body": "", "cost_estimate": {"flops": 8589934592}}}',
            8589934592,
        ),
        ('{"custom_call_config":{"cost_estimate":{"bytes_accessed":"7","flops":"12"}}}', 12),
    ],
)
def test_a_kernel_has_the_flops_that_it_declares_and_an_unknown_precision(config, flops):
    costs = calling("tpu_custom_call", config)
    assert (costs.flops, costs.uncounted, costs.opaque) == (flops, (), ("tpu_custom_call",))
    assert (costs.ops[0].work.flops, costs.ops[0].counted) == (flops, True)


def test_a_kernel_that_declares_no_flop_multiplies_nothing():
    costs = calling("tpu_custom_call", '{"custom_call_config": {"cost_estimate": {"flops": 0}}}')
    assert (costs.flops, costs.uncounted, costs.opaque) == (0, (), ())


def test_a_kernel_without_a_declaration_is_unknown():
    for config in [
        "",
        "{}",
        '{"custom_call_config": 1}',
        '{"custom_call_config": {"cost_estimate": []}}',
        '{"custom_call_config": {"cost_estimate": {"flops": -1}}}',
        '{"custom_call_config": {"cost_estimate": {"flops": true}}}',
        '{"custom_call_config": {"cost_estimate": {"flops": 1.5}}}',
        '{"custom_call_config": {"cost_estimate": {}}}',
    ]:
        costs = calling("tpu_custom_call", config)
        assert costs.uncounted == costs.opaque == ("tpu_custom_call",), config
        assert not costs.ops[0].counted, config


def test_opcodes_whose_work_is_not_read_are_unknown():
    for opcode in ("ragged-dot", "scan"):
        costs = module_costs(module(main=[*parameters("f32[8]"), op("x", opcode, "f32[8]", "p0")]))
        assert costs.uncounted == costs.opaque == (opcode,)
        assert not costs.ops[0].counted


def test_what_runs_a_kernel_of_unknown_work_is_not_counted_either():
    call = op("x", "custom-call", "f32[8]", "p0", custom_call_target="triton_kernel_call")
    condition = [*parameters("f32[8]"), op("less", "constant", "pred[]")]
    main = [
        *parameters("f32[8]"),
        op("loop", "while", "f32[8]", "p0", called=("body", "condition")),
        op("neg", "negate", "f32[8]", "loop"),
    ]
    costs = module_costs(module(body=[*parameters("f32[8]"), call], condition=condition, main=main))
    assert {cost.name for cost in costs.ops if not cost.counted} == {"x", "loop"}


# everything else


COUNTS = [
    ("add", "f32[8,4]", ["f32[8,4]", "f32[8,4]"], {}, 32),
    ("add", "f32[]", ["f32[]", "f32[]"], {}, 1),
    ("multiply", "bf16[8]", ["bf16[8]", "bf16[8]"], {}, 8),
    ("maximum", "f8e5m2[8]", ["f8e5m2[8]", "f8e5m2[8]"], {}, 8),
    ("clamp", "f64[8]", ["f64[]", "f64[8]", "f64[]"], {}, 8),
    ("multiply", "c64[8]", ["c64[8]", "c64[8]"], {}, 8),
    ("abs", "f32[8]", ["c64[8]"], {}, 8),
    # functions that XLA counts apart
    *(
        (function, "f32[8,4]", ["f32[8,4]"], {}, 32)
        for function in (
            *("exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "tanh"),
            *("sine", "cosine", "tan", "sqrt", "rsqrt", "cbrt", "erf"),
        )
    ),
    ("power", "f32[8]", ["f32[8]", "f32[8]"], {}, 8),
    ("atan2", "f32[8]", ["f32[8]", "f32[8]"], {}, 8),
    # integers and booleans
    ("add", "s32[8]", ["s32[8]", "s32[8]"], {}, 0),
    ("multiply", "u64[8]", ["u64[8]", "u64[8]"], {}, 0),
    ("divide", "s4[8]", ["s4[8]", "s4[8]"], {}, 0),
    ("xor", "u32[8]", ["u32[8]", "u32[8]"], {}, 0),
    ("shift-right-logical", "u32[8]", ["u32[8]", "u32[8]"], {}, 0),
    ("popcnt", "u32[8]", ["u32[8]"], {}, 0),
    ("count-leading-zeros", "u32[8]", ["u32[8]"], {}, 0),
    ("and", "pred[8]", ["pred[8]", "pred[8]"], {}, 0),
    ("maximum", "pred[8]", ["pred[8]", "pred[8]"], {}, 0),
    ("all-reduce", "s32[8]", ["s32[8]"], {}, 0),
    ("rng-bit-generator", "(u64[2], u32[8])", ["u64[2]"], {}, 0),
    # casts, comparisons, selections, sorts, moves
    ("convert", "bf16[8]", ["f32[8]"], {}, 0),
    ("convert", "f32[8]", ["s32[8]"], {}, 0),
    ("bitcast-convert", "f32[8]", ["u32[8]"], {}, 0),
    ("reduce-precision", "f32[8]", ["f32[8]"], {}, 0),
    ("stochastic-convert", "bf16[8]", ["f32[8]", "u32[8]"], {}, 0),
    ("real", "f32[8]", ["c64[8]"], {}, 0),
    ("complex", "c64[8]", ["f32[8]", "f32[8]"], {}, 0),
    ("compare", "pred[8]", ["f32[8]", "f32[8]"], {}, 0),
    ("is-finite", "pred[8]", ["f32[8]"], {}, 0),
    ("select", "f32[8,4]", ["pred[8,4]", "f32[8,4]", "f32[8,4]"], {}, 0),
    ("sort", "f32[9]", ["f32[9]"], {}, 0),
    ("copy", "f32[8,4]", ["f32[8,4]"], {}, 0),
    ("transpose", "f32[4,8]", ["f32[8,4]"], {}, 0),
    ("broadcast", "f32[8,4]", ["f32[4]"], {}, 0),
    # collectives and linear algebra
    ("all-reduce", "(f32[8], f32[4])", ["f32[8]", "f32[4]"], {}, 12),
    ("all-reduce-start", "f32[8]", ["f32[8]"], {}, 8),
    ("all-reduce-done", "f32[8]", ["f32[8]"], {}, 0),
    ("all-gather", "f32[8]", ["f32[4]"], {}, 0),
    ("fft", "c64[2,16]", ["c64[2,16]"], {"fft_length": (16,)}, 8 * 4 * 32),
    ("triangular-solve", "f32[4,3]", ["f32[4,4]", "f32[4,3]"], {}, 2 * 4 * 12),
    ("cholesky", "f32[6,6]", ["f32[6,6]"], {}, 6 * 36 // 3),
]


def test_other_instructions_count_operations_on_floating_point_numbers():
    for opcode, result, shapes, more, flops in COUNTS:
        assert cost(opcode, result, *shapes, **more) == (flops, 0), (opcode, result, shapes, more)


def test_a_product_of_integers_counts_like_one_of_floats():
    assert matmul("dot", "s32[8,16]", "s8[8,4]", "s8[4,16]", dot=dot([1], [0])) == 2 * 8 * 4 * 16


SUM = [*parameters("f32[]", "f32[]"), op("s", "add", "f32[]", "p0", "p1")]
LARGER = [*parameters("f32[]", "f32[]"), op("s", "compare", "pred[]", "p0", "p1")]


WHOLE = [*parameters("s32[]", "s32[]"), op("s", "add", "s32[]", "p0", "p1")]


def reduced(opcode, result, *shapes, by=SUM, **more):
    """Return the FLOPs of a module of one instruction that runs a reducer."""
    names = [f"p{number}" for number in range(len(shapes))]
    main = [*parameters(*shapes), op("x", opcode, result, *names, called=("by",), **more)]
    return module_costs(module(by=by, main=main)).flops


def test_a_reducer_counts_each_of_its_runs():
    for opcode, result, shapes, more, flops in [
        ("reduce", "f32[8]", ["f32[8,4]", "f32[]"], {}, 24),
        ("reduce", "f32[]", ["f32[8,4]", "f32[]"], {}, 31),
        ("reduce", "(f32[8], f32[8])", ["f32[8,4]", "f32[8,4]", "f32[]", "f32[]"], {}, 24),
        ("reduce-window", "f32[4]", ["f32[8]", "f32[]"], {"window": window(2, stride=2)}, 4),
        ("map", "f32[8]", ["f32[8]", "f32[8]"], {}, 8),
        ("scatter", "f32[100]", ["f32[100]", "s32[3,1]", "f32[3]"], {}, 3),
        ("all-reduce", "f32[8]", ["f32[8]"], {}, 8),
    ]:
        assert reduced(opcode, result, *shapes, **more) == flops, (opcode, result, shapes, more)


def test_a_reducer_of_integers_or_booleans_counts_nothing():
    for opcode, result, shapes, more in [
        ("reduce", "s32[8]", ["s32[8,4]", "s32[]"], {}),
        ("reduce-window", "s32[8]", ["s32[8]", "s32[]"], {"window": window(8, pad=(7, 0))}),
        ("scatter", "s32[100]", ["s32[100]", "s32[3,1]", "s32[3]"], {}),
    ]:
        assert reduced(opcode, result, *shapes, by=WHOLE, **more) == 0, opcode
    assert reduced("reduce", "f32[]", "f32[8]", "f32[]", by=LARGER) == 0


def windows(*dimensions):
    """Return windows of (size, low padding, high padding)."""
    return tuple(WindowDimension(size, 1, low, high) for size, low, high in dimensions)


def test_a_cumulative_sum_counts_an_addition_for_each_element_but_the_first():
    for result, data, moved, flops in [
        ("f32[8]", "f32[8]", windows((8, 7, 0)), 7),
        ("f32[8]", "f32[8]", windows((8, 0, 7)), 7),  # from the end
        ("f32[9]", "f32[8]", windows((8, 8, 0)), 7),  # without the element itself
        ("f32[5,8]", "f32[5,8]", windows((1, 0, 0), (8, 7, 0)), 5 * 7),
        ("f32[5,8]", "f32[5,8]", windows((5, 4, 0), (1, 0, 0)), 4 * 8),
        ("(f32[8], f32[8])", "f32[8]", windows((8, 7, 0)), 7),
        ("f32[1]", "f32[8]", windows((8, 0, 0)), 7),  # a sum
        ("f32[0]", "f32[0]", windows((1, 0, 0)), 0),
    ]:
        counted = reduced("reduce-window", result, data, "f32[]", window=moved)
        assert counted == flops, (result, data, moved)


def test_other_windows_count_each_of_their_elements():
    for result, data, moved, flops in [
        ("f32[8]", "f32[8]", windows((3, 2, 0)), 8 * 2),  # a moving sum
        ("f32[9]", "f32[8]", windows((8, 4, 4)), 9 * 7),  # padded on both sides
        ("f32[8,8]", "f32[8,8]", windows((8, 7, 0), (8, 7, 0)), 64 * 63),
        ("f32[8]", "f32[8]", (WindowDimension(8, 1, 14, 0, 2),), 8 * 7),  # dilated
    ]:
        counted = reduced("reduce-window", result, data, "f32[]", window=moved)
        assert counted == flops, (result, data, moved)


def test_select_and_scatter_adds_once_and_its_comparisons_count_nothing():
    ops = [
        *parameters("f32[8]", "f32[4]", "f32[]"),
        op(
            "x",
            "select-and-scatter",
            "f32[8]",
            "p0",
            "p1",
            "p2",
            called=("larger", "sum"),
            window=window(3),
        ),
    ]
    assert module_costs(module(larger=LARGER, sum=SUM, main=ops)).flops == 4

from helpers.hlo import dot, module, op, parameters
from helpers.refusals import refusal
from helpers.traces import real

from pytest_tfperf.errors import TraceError
from pytest_tfperf.hlo.cost import module_costs, products_in
from pytest_tfperf.trace.hlo_modules import modules_of

A, W, Y = "f32[8,4]", "f32[4,16]", "f32[8,16]"
FLOPS = 2 * 8 * 4 * 16


def half(text):
    return text.replace("f32", "bf16")


def matmul(name, *operands, result=Y, **more):
    return op(name, "dot", result, *operands, dot=dot([1], [0]), **more)


def work(**computations):
    return module_costs(module(**computations))


def shares(costs):
    """Return matmul FLOPs and those with 16 bits, in multiples of the test's product."""
    return costs.matmul_flops / FLOPS, costs.half_flops / FLOPS


# totals

BODY = [*parameters(A, W), matmul("d", "p0", "p1"), op("n", "negate", Y, "d")]


def test_a_called_computation_counts_once():
    for opcode in ["fusion", "call", "async-start"]:
        costs = work(
            body=BODY,
            main=[
                *parameters(A, W),
                op("x", opcode, Y, "p0", "p1", called=("body",)),
                op("y", "negate", Y, "x"),
            ],
        )
        assert (costs.flops, costs.matmul_flops) == (FLOPS + 2 * 128, FLOPS), opcode


def test_the_end_of_an_asynchronous_call_counts_nothing():
    start = op("x", "async-start", Y, "p0", "p1", called=("body",))
    costs = work(
        body=BODY, main=[*parameters(A, W), start, op("y", "async-done", Y, "x", called=("body",))]
    )
    assert costs.matmul_flops == FLOPS


def loop(config=""):
    state = f"(f32[], {A}, {W})"
    body = [
        *parameters(state),
        *(
            op(f"e{place}", "get-tuple-element", kind, "p0", tuple_index=place)
            for place, kind in enumerate(["f32[]", A, W])
        ),
        matmul("d", "e1", "e2"),
        op("r", "tuple", state, "e0", "e1", "e2"),
    ]
    test = [
        *parameters(state),
        op("e", "get-tuple-element", "f32[]", "p0"),
        op("a", "add", "f32[]", "e", "e"),
        op("c", "compare", "pred[]", "a", "e"),
    ]
    start = op("t", "tuple", state, "p0", "p1", "p2")
    main = [
        *parameters("f32[]", A, W),
        start,
        op("loop", "while", state, "t", called=("body", "test"), backend_config=config),
    ]
    return {"body": body, "test": test, "main": main}


def test_a_loop_counts_as_often_as_it_runs_and_its_condition_once_more():
    costs = work(**loop('{"known_trip_count":{"n":"7"}}'))
    assert (costs.flops, costs.matmul_flops, costs.once) == (7 * FLOPS + 8, 7 * FLOPS, ())


def test_a_loop_that_never_runs_is_tested_once():
    costs = work(**loop('{"known_trip_count":{"n":"0"}}'))
    assert (costs.flops, costs.matmul_flops) == (1, 0)


def test_a_loop_of_unknown_length_counts_once_and_is_named():
    costs = work(**loop())
    assert (costs.flops, costs.matmul_flops, costs.once) == (FLOPS + 1, FLOPS, ("loop",))


def test_a_loop_without_work_on_floats_needs_no_length():
    state = "(s32[], s32[8])"
    hashed = [
        *parameters(state),
        op("n", "get-tuple-element", "s32[]", "p0"),
        op("x", "get-tuple-element", "s32[8]", "p0", tuple_index=1),
        op("y", "xor", "s32[8]", "x", "x"),
        op("r", "tuple", state, "n", "y"),
    ]
    going = [
        *parameters(state),
        op("n", "get-tuple-element", "s32[]", "p0"),
        op("c", "compare", "pred[]", "n", "n"),
    ]
    loop = op("loop", "while", state, "p0", called=("hashed", "going"))
    costs = work(hashed=hashed, going=going, main=[*parameters(state), loop])
    assert (costs.flops, costs.once) == (0, ())


def test_the_largest_branch_of_a_conditional_counts():
    branch = op("x", "conditional", Y, "p2", "t", "t", called=("add", "body"))
    add = [*parameters(f"({A}, {W})"), op("a", "constant", Y), op("b", "add", Y, "a", "a")]
    inside = [
        *parameters(f"({A}, {W})"),
        op("g0", "get-tuple-element", A, "p0", tuple_index=0),
        op("g1", "get-tuple-element", W, "p0", tuple_index=1),
        matmul("d", "g0", "g1"),
    ]
    costs = work(
        add=add,
        body=inside,
        main=[*parameters(A, W, "pred[]"), op("t", "tuple", f"({A}, {W})", "p0", "p1"), branch],
    )
    assert (costs.flops, costs.matmul_flops) == (FLOPS, FLOPS)


def test_instructions_that_run_have_costs_and_those_in_fusions_have_none():
    fusion = op("f", "fusion", Y, "p0", "p1", called=("body",), op_name="model/dense")
    costs = work(body=BODY, main=[*parameters(A, W), fusion, op("y", "negate", Y, "f")])
    assert [
        (cost.name, cost.opcode, cost.op_name, cost.dtype, cost.work.flops, cost.work.matmul_flops)
        for cost in costs.ops
    ] == [
        ("f", "fusion", "model/dense", "f32", FLOPS + 128, FLOPS),
        ("y", "negate", "", "f32", 128, 0),
    ]
    assert [cost.bytes for cost in costs.ops] == [4 * (32 + 64 + 128), 4 * 256]


def test_the_instructions_of_a_loop_have_the_costs_of_one_iteration():
    costs = {
        cost.name: cost.work.matmul_flops
        for cost in work(**loop('{"known_trip_count":{"n":"7"}}')).ops
    }
    assert (costs["d"], costs["loop"]) == (FLOPS, 7 * FLOPS)


def test_products_are_listed_with_their_runs_and_their_fusion():
    costs = work(**loop('{"known_trip_count":{"n":"7"}}'))
    assert [(one.op, one.runs, one.flops) for one in costs.products] == [("d", 7, FLOPS)]
    assert [one.runs for one in products_in([(costs, 0.5)])] == [3.5]
    fusion = op("f", "fusion", Y, "p0", "p1", called=("body",))
    (product,) = work(body=BODY, main=[*parameters(A, W), fusion]).products
    assert (product.fusion, product.runs, product.dtype) == ("f", 1, "f32")


def test_products_of_a_branch_that_is_left_out_do_not_run():
    small, large = (
        [*parameters(shape, W), op("d", "dot", f"f32[{rows},16]", "p0", "p1", dot=dot([1], [0]))]
        for shape, rows in (("f32[2,4]", 2), (A, 8))
    )
    choice = op("y", "conditional", Y, "p2", "p0", "p1", called=("small", "large"))
    costs = work(small=small, large=large, main=[*parameters(A, W, "pred[]"), choice])
    assert [(one.matmul.rows, one.runs) for one in costs.products] == [(2, 0), (8, 1)]
    assert [one.matmul.rows for one in products_in([(costs, 1.0)])] == [8]


def test_a_module_without_work_has_none():
    costs = work(main=parameters(A))
    assert (costs.flops, costs.matmul_flops, costs.half_flops) == (0, 0, 0)
    assert (costs.ops, costs.products) == ((), ())


# operand types as written


def test_half_precision_needs_two_narrow_operands_and_ignores_the_result():
    for lhs, rhs, share in [
        ("bf16", "bf16", 1),
        ("f16", "f16", 1),
        ("f8e4m3fn", "f8e5m2", 1),
        ("bf16", "s8", 1),
        ("s8", "s8", 1),
        ("f32", "f32", 0),
        ("bf16", "f32", 0),
        ("f32", "bf16", 0),
        ("f64", "f64", 0),
        ("c64", "c64", 0),
        ("s32", "s32", 0),
    ]:
        for scheduled in [False, True]:
            ops = [
                *parameters(A.replace("f32", lhs), W.replace("f32", rhs)),
                matmul("d", "p0", "p1"),
            ]
            costs = work(scheduled=scheduled, main=[*ops, op("sum", "convert", Y, "d")])
            if scheduled and {lhs, rhs} == {"bf16", "f32"}:  # may have been widened
                assert costs.unsure_flops == FLOPS, (lhs, rhs)
            else:
                assert costs.unsure_flops == 0, (lhs, rhs, scheduled)
                assert shares(costs) == (1, share), (lhs, rhs, scheduled)


def test_the_half_precision_share_is_weighted_by_flops():
    ops = [
        *parameters(half(A), half(W), "f32[16,2]"),
        matmul("d", "p0", "p1"),
        op("c", "convert", Y, "d"),
    ]
    costs = work(main=[*ops, op("e", "dot", "f32[8,2]", "c", "p2", dot=dot([1], [0]))])
    assert (costs.matmul_flops, costs.half_flops) == (
        2 * 8 * 4 * 16 + 2 * 8 * 16 * 2,
        2 * 8 * 4 * 16,
    )


def widened(name, source, result, **more):
    return [
        op(f"{name}h", "convert", half(result), source),
        op(name, "convert", result, f"{name}h", **more),
    ]


def test_before_compilation_a_cast_to_float32_means_float32():
    assert shares(
        work(
            main=[
                *parameters(A, W),
                *widened("a", "p0", A),
                *widened("w", "p1", W),
                matmul("d", "a", "w"),
            ]
        )
    ) == (1, 0)


TILES = {"tiles": ((8, 128),)}


def test_only_a_cpu_widens():
    for extra in [
        op("k", "copy", A, "p0", layout=TILES),  # a TPU
        op("k", "copy", A, "p0", backend_config='{"operation_queue_id":"0"}'),  # a GPU
        op("k", "custom-call", A, "p0", custom_call_target="__cudnn$convForwardX"),  # a GPU
    ]:
        ops = [
            *parameters(A, W),
            extra,
            *widened("a", "p0", A),
            *widened("w", "p1", W),
            matmul("d", "a", "w"),
        ]
        assert shares(work(scheduled=True, main=ops)) == (1, 0), extra


def test_a_cpus_program_without_16_bits_has_no_half_precision():
    assert shares(work(scheduled=True, main=[*parameters(A, W), matmul("d", "p0", "p1")])) == (1, 0)


def test_wide_products_in_a_cpus_program_with_16_bits_make_the_share_unknown():
    narrow = [*parameters(half(A), half(W), "f32[16,4]"), matmul("d", "p0", "p1", result=half(Y))]
    wide = [op("c", "convert", Y, "d"), op("e", "dot", A, "c", "p2", dot=dot([1], [0]))]
    costs = work(scheduled=True, main=[*narrow, *wide])
    assert (costs.half_flops, costs.unsure_flops) == (FLOPS, 2 * 8 * 16 * 4)


# invalid modules


def test_an_instruction_that_does_not_fit_its_operands_is_an_error_or_free():
    for broken in [
        op("d", "dot", Y, dot=dot([1], [0])),
        op("d", "dot", Y, "p0", "p1", dot=dot([9], [0])),
        op("d", "reduce", Y, called=()),
        op("d", "convolution", Y, "p0"),
        op("d", "cholesky", "f32[]", "p2"),
        op("d", "dynamic-slice", Y, "p0"),
        op("d", "fusion", Y, "p0"),
    ]:
        said = refusal(TraceError, work, main=[*parameters(A, W, "f32[]"), broken])
        assert said.startswith("module m: an instruction does not fit its operands: "), broken
    free = op("d", "slice", Y, "p0", called=())
    assert work(main=[*parameters(A, W, "f32[]"), free]).flops == 0


# against the numbers of compilers and devices


def said_by_the_tpu(tpu):
    """
    Return (flops, bytes_accessed) of each operation by program and name, from the event metadata.
    """
    plane = tpu.plane("/device:TPU:0")
    said = {}
    for text, spans in plane.metadata_stats.items():
        stats = {}
        for span in spans:
            fields = {
                number: value
                for number, wire, value, _ in plane.message.fields(*span, "XStat")
                if wire == 0
            }
            stats[plane.stat_names.get(fields.get(1))] = fields.get(3, fields.get(4))
        if "flops" in stats:
            said[stats["program_id"], text.partition(" = ")[0].lstrip("%")] = (
                stats["flops"],
                stats["bytes_accessed"],
            )
    return said


def test_costs_equal_those_that_the_tpu_reports():
    tpu, _ = real("tpu_v6e_jax_inference")
    said = said_by_the_tpu(tpu)
    ours = {
        (int(name.rpartition("(")[2].rstrip(")")), cost.name): (cost.work.flops, cost.bytes)
        for name, found in modules_of(tpu).items()
        for cost in module_costs(found).ops
    }
    assert len(said) == 17
    different = {
        name: (ours[key], said[key]) for key in said if ours[key] != said[key] for name in [key[1]]
    }
    assert different == {
        "broadcast.2": ((0, 5368709124), (0, 5368709120))
    }  # the TPU keeps the scalar in a register


def test_a_convolution_of_a_gpu_library_is_counted():
    modules = modules_of(real("gpu_mi300_jax_conv")[0])
    costs = module_costs(modules["jit_forward_3d_conv(15)"])
    # [1,16,32,60,104] * [5120,16,1,2,2], stride 2 and padded by 1: each input element meets one tap
    assert costs.flops == costs.matmul_flops == costs.half_flops == 2 * 32 * 60 * 104 * 16 * 5120
    assert {
        name: module_costs(found).matmul_flops
        for name, found in modules.items()
        if "conv(" not in name
    } == dict.fromkeys((name for name in modules if "conv(" not in name), 0)

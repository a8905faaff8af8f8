from helpers.hlo import module, op, parameters

from pytest_tfperf.hlo.cost import module_costs


def traffic(opcode, result, *shapes, called=(), inside=None, **more):
    names = [f"p{number}" for number in range(len(shapes))]
    parts = {"inside": inside} if inside else {}
    main = [*parameters(*shapes), op("x", opcode, result, *names, called=tuple(parts), **more)]
    (cost,) = module_costs(module(**parts, main=main)).ops
    return cost.bytes


def test_an_instruction_reads_its_operands_and_writes_its_result():
    for opcode, result, shapes, size in [
        ("add", "f32[8]", ["f32[8]", "f32[8]"], 96),
        ("convert", "bf16[8]", ["f32[8]"], 48),
        ("bitcast", "f32[8]", ["f32[8]"], 0),
        ("tuple", "(f32[8], f32[8])", ["f32[8]", "f32[8]"], 0),
        ("slice", "f32[2]", ["f32[1000]"], 16),
        ("dynamic-slice", "f32[2]", ["f32[1000]", "s32[]"], 20),
        ("gather", "f32[3,4]", ["f32[1000,4]", "s32[3]"], 108),
        ("dynamic-update-slice", "f32[1000]", ["f32[1000]", "f32[2]", "s32[]"], 20),
        ("copy-start", "(f32[8], f32[8], u32[])", ["f32[8]"], 32),
        ("copy-done", "f32[8]", ["(f32[8], f32[8], u32[])"], 32),
        ("async-update", "f32[8]", ["f32[8]"], 0),
    ]:
        assert traffic(opcode, result, *shapes) == size, (opcode, result, shapes)


def test_scatter_reads_and_writes_only_the_updated_elements():
    add = [*parameters("f32[]", "f32[]"), op("s", "add", "f32[]", "p0", "p1")]
    assert (
        traffic("scatter", "f32[1000]", "f32[1000]", "s32[3]", "f32[3]", inside=add) == 3 * 12 + 12
    )


def test_scratch_memory_of_a_library_does_not_count():
    assert (
        traffic("custom-call", "(f16[8], u8[4096])", "f16[8]", custom_call_target="__cublas$gemm")
        == 32
    )


FUSIONS = [
    # intermediate values stay in registers
    (
        "f32[8]",
        ["f32[8]", "f32[8]"],
        [op("a", "add", "f32[8]", "p0", "p1"), op("b", "multiply", "f32[8]", "a", "p0")],
        96,
    ),
    (
        "f32[2]",
        ["f32[1000]"],
        [op("a", "slice", "f32[2]", "p0"), op("b", "add", "f32[2]", "a", "a")],
        16,
    ),
    (
        "f32[2]",
        ["f32[1000]"],
        [
            op("a", "slice", "f32[2]", "p0"),
            op("b", "slice", "f32[2]", "p0"),
            op("c", "add", "f32[2]", "a", "b"),
        ],
        24,
    ),
    (
        "f32[2]",
        ["f32[1000]", "s32[]"],
        [op("a", "dynamic-slice", "f32[2]", "p0", "p1"), op("b", "negate", "f32[2]", "a")],
        20,
    ),
    (
        "f32[6]",
        ["f32[8]"],
        [
            op("a", "slice", "f32[6]", "p0"),
            op("b", "slice", "f32[6]", "p0"),
            op("c", "add", "f32[6]", "a", "b"),
        ],
        56,
    ),
    # updated in place
    (
        "f32[1000]",
        ["f32[1000]", "f32[2]", "s32[]"],
        [op("a", "dynamic-update-slice", "f32[1000]", "p0", "p1", "p2")],
        20,
    ),
    (
        "(f32[8], f32[4])",
        ["f32[8]"],
        [
            op("a", "negate", "f32[8]", "p0"),
            op("b", "slice", "f32[4]", "a"),
            op("t", "tuple", "(f32[8], f32[4])", "a", "b"),
        ],
        80,
    ),
    (
        "f32[32]",
        ["f32[32]"],
        [op("c", "constant", "f32[32]"), op("a", "add", "f32[32]", "p0", "c")],
        3 * 128,
    ),
    (
        "f32[8]",
        ["f32[8]"],
        [op("c", "constant", "f32[8]"), op("a", "add", "f32[8]", "p0", "c")],
        64,
    ),
    (
        "f32[8]",
        ["(f32[8], f32[1000])"],
        [op("g", "get-tuple-element", "f32[8]", "p0"), op("a", "negate", "f32[8]", "g")],
        64,
    ),
]


def test_a_fusion_counts_the_read_parts_of_parameters_and_the_written_parts_of_results():
    for result, shapes, inside, size in FUSIONS:
        assert traffic("fusion", result, *shapes, inside=[*parameters(*shapes), *inside]) == size, (
            result,
            shapes,
            inside,
        )

"""HLO text of modules made by hand."""

from textwrap import dedent

from helpers.hlo import dot, labels, module, op, parameters, shape, window

from pytest_tfperf.hlo.module import Shape
from pytest_tfperf.hlo.printer import instruction_text, shape_text, text_of

ADD = [*parameters("f32[]", "f32[]"), op("sum", "add", "f32[]", "p0", "p1")]


def test_a_module_is_written_as_in_xla():
    fused = [
        *parameters("f32[8,4]", "f32[]"),
        op("reduce.1", "reduce", "f32[8]", "p0", "p1", called=["add"], dimensions=(1,)),
    ]
    main = [
        *parameters("f32[8,4]"),
        op("zero", "constant", "f32[]", constant=0.0),
        op(
            "fusion.1",
            "fusion",
            "f32[8]",
            "p0",
            "zero",
            called=["fused_computation"],
            fusion_kind="kLoop",
            layout={"minor_to_major": (0,)},
            op_type="Sum",
            op_name="loss/Sum",
            source_file="model.py",
            source_line=12,
        ),
    ]
    assert text_of(module(scheduled=True, add=ADD, fused_computation=fused, main=main)) == dedent("""\
        HloModule m, is_scheduled=true, entry_computation_layout={(f32[8,4])->f32[8]{0}}

        %add (p0: f32[], p1: f32[]) -> f32[] {
          %p0 = f32[] parameter(0)
          %p1 = f32[] parameter(1)
          ROOT %sum = f32[] add(%p0, %p1)
        }

        %fused_computation (p0: f32[8,4], p1: f32[]) -> f32[8] {
          %p0 = f32[8,4] parameter(0)
          %p1 = f32[] parameter(1)
          ROOT %reduce.1 = f32[8] reduce(%p0, %p1), dimensions={1}, to_apply=%add
        }

        ENTRY %main (p0: f32[8,4]) -> f32[8] {
          %p0 = f32[8,4] parameter(0)
          %zero = f32[] constant(0)
          ROOT %fusion.1 = f32[8]{0} fusion(%p0, %zero), kind=kLoop, calls=%fused_computation, \
metadata={op_type="Sum" op_name="loss/Sum" source_file="model.py" source_line=12}
        }
        """)


def test_the_head_lists_parameters_in_order():
    main = [
        *reversed(parameters(*["s32[]"] * 6)),
        op("t", "tuple", "(s32[], s32[], s32[], s32[], s32[], s32[])", *["p0"] * 6),
    ]
    head = next(
        line for line in text_of(module(main=main)).splitlines() if line.startswith("ENTRY")
    )
    given = ", ".join(f"p{number}: s32[]" for number in range(6))
    assert (
        head == f"ENTRY %main ({given}) -> (s32[], s32[], s32[], s32[], s32[], /*index=5*/s32[]) {{"
    )


def root_text(*ops, **called):
    """Return the text of the last instruction from its opcode on."""
    made = module(**called, main=ops)
    return instruction_text(made, made.entry, made.entry.root).partition(" = ")[2].partition(" ")[2]


F, G = parameters("f32[2,9,9,4]", "f32[3,3,4,8]")
FLAG, TUPLE = parameters("pred[]", "(s32[], f32[8])")
BODY = [op("t", "parameter", "(s32[], f32[8])")]


ATTRIBUTES = [
    ([F, op("r", "broadcast", "f32[2]", "p0")], {}, "broadcast(%p0), dimensions={}"),
    ([op("r", "iota", "s32[8,4]", dimensions=(1,))], {}, "iota(), iota_dimension=1"),
    (
        [F, op("r", "transpose", "f32[9]", "p0", dimensions=(3, 0, 1, 2))],
        {},
        "transpose(%p0), dimensions={3,0,1,2}",
    ),
    (
        [TUPLE, op("r", "get-tuple-element", "f32[8]", "p1", tuple_index=1)],
        {},
        "get-tuple-element(%p1), index=1",
    ),
    (
        [FLAG, op("r", "compare", "pred[]", "p0", "p0", direction="LT")],
        {},
        "compare(%p0, %p0), direction=LT",
    ),
    (
        [F, op("r", "slice", "f32[1]", "p0", slices=((0, 1, 1), (2, 9, 3)))],
        {},
        "slice(%p0), slice={[0:1:1], [2:9:3]}",
    ),
    (
        [F, op("r", "slice", "f32[1]", "p0", slices=((0, 1, 1), (2, 9, 1)))],
        {},
        "slice(%p0), slice={[0:1], [2:9]}",
    ),
    (
        [F, op("r", "dynamic-slice", "f32[1,9]", "p0")],
        {},
        "dynamic-slice(%p0), dynamic_slice_sizes={1,9}",
    ),
    (
        [F, op("r", "pad", "f32[9]", "p0", "p0", padding=((0, -1, 0), (2, 3, 0)))],
        {},
        "pad(%p0, %p0), padding=0_-1x2_3",
    ),
    (
        [F, op("r", "pad", "f32[9]", "p0", "p0", padding=((0, 0, 0), (2, 3, 1)))],
        {},
        "pad(%p0, %p0), padding=0_0_0x2_3_1",
    ),
    (
        [F, op("r", "dot", "f32[2]", "p0", "p0", dot=dot([3], [1], [0], [0]))],
        {},
        "dot(%p0, %p0), lhs_batch_dims={0}, lhs_contracting_dims={3}, rhs_batch_dims={0}, rhs_contracting_dims={1}",
    ),
    (
        [
            F,
            G,
            op(
                "r",
                "convolution",
                "f32[2]",
                "p0",
                "p1",
                window=window(3, 3, stride=2, pad=(1, 0)),
                convolution=labels("b01f_01io->b01f"),
                feature_groups=2,
                batch_groups=4,
            ),
        ],
        {},
        "convolution(%p0, %p1), window={size=3x3 stride=2x2 pad=1_0x1_0}, dim_labels=b01f_01io->b01f, feature_group_count=2, batch_group_count=4",
    ),
    (
        [
            F,
            op(
                "r",
                "reduce-window",
                "f32[2]",
                "p0",
                called=["add"],
                window=window(1, 2, dilate=2, base=3),
            ),
        ],
        {"add": ADD},
        "reduce-window(%p0), window={size=1x2 lhs_dilate=3x3 rhs_dilate=2x2}, to_apply=%add",
    ),
    ([F, op("r", "fft", "c64[9]", "p0", fft_length=(9,))], {}, "fft(%p0), fft_length={9}"),
    (
        [
            TUPLE,
            op(
                "r",
                "while",
                "f32[8]",
                "p1",
                called=["body", "test"],
                backend_config='{"n":"7"}',
            ),
        ],
        {"body": BODY, "test": BODY},
        'while(%p1), condition=%test, body=%body, backend_config={"n":"7"}',
    ),
    (
        [FLAG, op("r", "conditional", "f32[]", "p0", called=["yes", "no"])],
        {"yes": BODY, "no": BODY},
        "conditional(%p0), true_computation=%yes, false_computation=%no",
    ),
    (
        [
            op("n", "constant", "s32[]"),
            op("r", "conditional", "f32[]", "n", called=["yes", "no"]),
        ],
        {"yes": BODY, "no": BODY},
        "conditional(%n), branch_computations={%yes, %no}",
    ),
    (
        [F, op("r", "select-and-scatter", "f32[]", "p0", called=["yes", "no"])],
        {"yes": BODY, "no": BODY},
        "select-and-scatter(%p0), select=%yes, scatter=%no",
    ),
    (
        [
            F,
            op(
                "r",
                "custom-call",
                "f32[9]",
                "p0",
                called=["add"],
                custom_call_target='a "b"',
                backend_config="é\n",
            ),
        ],
        {"add": ADD},
        r'custom-call(%p0), custom_call_target="a \"b\"", called_computations={%add}, backend_config="é\n"',
    ),
    (
        [F, op("r", "tuple", "(f32[1])", *["p0"] * 6)],
        {},
        "tuple(%p0, %p0, %p0, %p0, %p0, /*index=5*/%p0)",
    ),
]


def test_attributes_of_each_opcode():
    for ops, called, text in ATTRIBUTES:
        assert root_text(*ops, **called) == text


SCALARS = [
    ("pred", True, "true"),
    ("s32", -7, "-7"),
    ("f32", 0.5, "0.5"),
    ("f32", 0.10000000149011612, "0.1"),
    ("f32", 1 / 3, "0.333333333"),
    ("f32", float("-inf"), "-inf"),
    ("f32", float("nan"), "nan"),
    ("f32", 9.999999747378752e-06, "1e-05"),
    ("f64", 0.1, "0.1"),
    ("f64", 1 / 3, "0.33333333333333331"),
    ("bf16", 1.5, "1.5"),
    ("bf16", 0.099609375, "0.09961"),
    ("f16", 0.0999755859375, "0.099976"),
    ("f32", None, "{...}"),
    ("u64", 2**64 - 1, "18446744073709551615"),
]


def test_scalars_are_written_in_full():
    for dtype, value, text in SCALARS:
        made = root_text(op("c", "constant", f"{dtype}[]", constant=value))
        assert made == f"constant({text})", (dtype, value)


SHAPES = [
    (shape("f32[]"), "f32[]"),
    (shape("f32[8,4]", minor_to_major=(1, 0)), "f32[8,4]{1,0}"),
    (
        shape("bf16[8,4]", minor_to_major=(1, 0), tiles=((8, 128), (-(2**63), 1)), memory_space=1),
        "bf16[8,4]{1,0:T(8,128)(*,1)S(1)}",
    ),
    (shape("s4[8]", minor_to_major=(0,), element_bits=4), "s4[8]{0:E(4)}"),
    (shape("f32[]", tiles=((128,),)), "f32[]{:T(128)}"),
    (shape("f32[8,4]", dynamic=(True, False)), "f32[<=8,4]"),
    (shape("(s32[], f32[8])"), "(s32[], f32[8])"),
    (Shape("token"), "token[]"),
    (Shape("tuple"), "()"),
]


def test_shape_text():
    for made, text in SHAPES:
        assert shape_text(made) == text


def test_shape_text_without_layouts():
    inner = shape("f32[8]", minor_to_major=(0,))
    assert (
        shape_text(Shape("tuple", parts=(inner, Shape("tuple", parts=(inner,)))), layout=False)
        == "(f32[8], (f32[8]))"
    )

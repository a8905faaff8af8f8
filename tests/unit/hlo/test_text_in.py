"""HLO text to modules, by hand and from printed modules."""

import random
import re
from textwrap import dedent

import pytest
from helpers.refusals import refusal

from pytest_tfperf.errors import TraceError
from pytest_tfperf.hlo.layout import parse_shape
from pytest_tfperf.hlo.module import ConvolutionDimensions, DotDimensions, WindowDimension
from pytest_tfperf.hlo.printer import text_of
from pytest_tfperf.hlo.text_in import read_hlo

WHOLE = dedent(r"""
    HloModule jit_step, is_scheduled=true, entry_computation_layout={(f32[100,1000]{1,0:T(8,128)})->f32[100,10]{1,0:T(8,128)}}

    FileNames
    1 "model.py"

    FunctionNames
    1 "step"

    FileLocations
    1 {file_name_id=1 function_name_id=1 line=42 end_line=42 column=4 end_column=9}

    StackFrames
    1 {file_location_id=1 parent_frame_id=1}

    %add (a: f32[], /* two of them */ b: f32[]) -> f32[] {
      %a = f32[]{:T(128)} parameter(0)
      %b = f32[]{:T(128)} parameter(1)
      ROOT %sum = f32[]{:T(128)} add(f32[]{:T(128)} %a, f32[]{:T(128)} %b)
    }

    ENTRY %main.9 (x: f32[100,1000]) -> f32[100,10] {
      x = f32[100,1000]{1,0:T(8,128)} parameter(0), metadata={op_name="x /* no comment */"}
      %w = f32[1000,10]{0,1:T(8,128)S(1)} constant({ { 1, 2, 3 }, { 4, 5, 6 } }), metadata={stack_frame_id=1}
      %t = (s32[], /*index=1*/f32[2]{0}) custom-call(%x, %w), custom_call_target="a \"b\", {", backend_config={"k":"}","n":[1,2]}
      %g = f32[2]{0} get-tuple-element((s32[], f32[2]{0}) %t), index=1
      ROOT %dot = f32[100,10]{1,0:T(8,128)} dot(%x, %w), metadata={source_line=7 op_type="MatMul" source_file="m.py"}, rhs_contracting_dims={0}, lhs_contracting_dims={1}
      %r = f32[] reduce(%g, %g), dimensions={0}, to_apply=%add
    }, execution_thread="main"
    """)


def test_a_module_by_hand():
    (made,) = read_hlo(WHOLE, "a.hlo")
    ops = {op.name: op for op in made.entry.instructions.values()}
    assert (
        made.name,
        made.scheduled,
        made.entry.name,
        [part.name for part in made.computations.values()],
    ) == (
        "jit_step",
        True,
        "main.9",
        ["add", "main.9"],
    )
    assert ops["x"].shape == parse_shape("f32[100,1000]{1,0:T(8,128)}")
    assert ops["x"].op_name == "x /* no comment */"
    assert (ops["w"].source_file, ops["w"].source_line, ops["w"].constant) == ("model.py", 42, None)
    assert (ops["t"].custom_call_target, ops["t"].config) == ('a "b", {', {"k": "}", "n": [1, 2]})
    assert made.entry.operands(ops["g"]) == (ops["t"],)
    assert ops["g"].tuple_index == 1
    assert made.entry.root is ops["dot"]
    assert (ops["dot"].dot, ops["dot"].op_type) == (DotDimensions((1,), (0,)), "MatMul")
    assert (ops["dot"].source_file, ops["dot"].source_line) == ("m.py", 7)
    assert [made.computations[key].name for key in ops["r"].called] == ["add"]


UNUSED = [
    "channel_id=1, replica_groups=[2,4]<=[8], dimensions={0}, use_global_device_ids=true",
    "replica_groups={{0,1},{2,3}}, source_target_pairs={{0,1},{1,0}}",
    'sharding={devices=[2,1]<=[2] last_tile_dim_replicate}, frontend_attributes={a="}",b={x}}',
    "operand_layout_constraints={f32[8]{0}, f32[4]{0}}, api_version=API_VERSION_STATUS_RETURNING, output_to_operand_aliasing={{0}: (0, {})}",
    'control-predecessors={%p}, async_execution_thread="x", origin={{"a" {0}}}',
    'metadata={op_name="a" profile_type={1} source_end_line=3 scheduling_name="b, c=d"}',
]


def test_unused_attributes_are_skipped():
    for attributes in UNUSED:
        made = last(f"a = f32[9]{{0}} all-gather(p), {attributes}", P)
        assert made.opcode == "all-gather", attributes


def test_several_modules_in_one_text():
    (made,) = read_hlo(WHOLE, "a.hlo")
    assert [one.name for one in read_hlo(WHOLE + text_of(made), "a.hlo")] == [
        "jit_step",
        "jit_step",
    ]


def last(line, *before):
    """Return the last instruction of a module of these lines."""
    (made,) = read_hlo(
        "\n".join(
            [
                "HloModule m",
                "e {",
                "z = s32[] parameter(0)",
                "}",
                "ENTRY main {",
                *before,
                f"ROOT {line}",
                "}",
            ]
        ),
        "m",
    )
    return made.entry.root


P = "p = f32[2,9,9,4]{3,2,1,0} parameter(0)"


READ = [
    ("c = pred[] constant(true)", {"constant": True}),
    ("c = s32[] constant(-7)", {"constant": -7}),
    ("c = u64[] constant(18446744073709551615)", {"constant": 2**64 - 1}),
    ("c = f32[] constant(0.1)", {"constant": 0.10000000149011612}),
    ("c = f32[] constant(-inf)", {"constant": float("-inf")}),
    ("c = bf16[] constant(0.09961)", {"constant": 0.099609375}),
    ("c = f16[] constant(0.1)", {"constant": 0.0999755859375}),
    ("c = f8e4m3fn[] constant(0.1)", {"constant": None}),
    ("c = c64[] constant((1, 2))", {"constant": None}),
    ("i = s32[2,3]{1,0} iota(), iota_dimension=1", {"dimensions": (1,)}),
    ("a = f32[9]{0} transpose(p), dimensions={3,0,1,2}", {"dimensions": (3, 0, 1, 2)}),
    ("a = f32[9]{0} slice(p), slice={[0:1], [2:9:3]}", {"slices": ((0, 1, 1), (2, 9, 3))}),
    ("a = f32[9]{0} pad(p, p), padding=0_-1x2_3_1", {"padding": ((0, -1, 0), (2, 3, 1))}),
    ("a = pred[] compare(p, p), direction=LT", {"direction": "LT"}),
    ("a = c64[5]{0} fft(p), fft_type=RFFT, fft_length={9}", {"fft_length": (9,)}),
    ("a = f32[9]{0} fusion(p), kind=kLoop, calls=%e", {"fusion_kind": "kLoop", "called": (1,)}),
    ("a = f32[9]{0} while(p), condition=%e, body=e", {"called": (1, 1)}),
    ("a = f32[9]{0} conditional(p, p, p), branch_computations={%e, %e}", {"called": (1, 1)}),
    (
        'a = f32[9]{0} custom-call(p), custom_call_target="f", called_computations={%e}, backend_config="x\\ny"',
        {"called": (1,), "custom_call_target": "f", "backend_config": "x\ny"},
    ),
    (
        r'a = f32[9]{0} custom-call(p), custom_call_target="f", backend_config="\x41\102\"\\"',
        {"backend_config": 'AB"\\'},
    ),
    (
        "a = f32[2]{0} convolution(p, p), dim_labels=bf01_oi01->bf01, window={size=3x2 stride=2x2 pad=1_0x0_1 rhs_reversal=1x1 lhs_dilate=2x1}, "
        "batch_group_count=2, feature_group_count=4",
        {
            "convolution": ConvolutionDimensions(0, 1, (2, 3), 1, 0, (2, 3), 0, 1, (2, 3)),
            "feature_groups": 4,
            "batch_groups": 2,
            "window": (
                WindowDimension(3, 2, 1, 0, 1, 2, True),
                WindowDimension(2, 2, 0, 1, 1, 1, True),
            ),
        },
    ),
    (
        "a = bf16[8,16]{1,0:T(8,128)(2,1)} convolution(p, p), dim_labels=bf_io->bf",
        {"convolution": ConvolutionDimensions(0, 1, (), 0, 1, (), 0, 1, ())},
    ),
    ("%a.b-c = f32[] copy-start(%p), control-predecessors={%p}", {"opcode": "copy-start"}),
]


def test_attributes_are_read():
    for line, expected in READ:
        found = last(line, P)
        assert {name: getattr(found, name) for name in expected} == expected, line


INVALID = [
    ("", "a.hlo:1: not HLO text, which begins with a line 'HloModule …'"),
    (
        "\n\nhello {",
        "a.hlo:3: not HLO text, which begins with a line 'HloModule …': 'hello {'",
    ),
    (
        "HloModule m\n/*\n*/ENTRY e (a: f32[]",
        "a.hlo:2: not closed on its line: '/",
    ),
    ("HloModule m\n)", "a.hlo:2: neither a computation nor its end: '[)]'"),
    ("hello\nHloModule m", "a.hlo:1: not HLO text, .*: 'hello'"),
    (
        "HloModule\nENTRY e {\na = f32[] parameter(0)\n}",
        "a.hlo:1: the module has no name",
    ),
    ("HloModule m", "a.hlo:1: a module has one ENTRY computation, this one has 0"),
    (
        "HloModule m\nENTRY e {\n}",
        "a.hlo:3: the computation 'e' holds no instruction",
    ),
    (
        "HloModule m\nENTRY e {\na = f32[] parameter(0)",
        "a.hlo:2: the computation 'e' has no end",
    ),
    (
        "HloModule m\nENTRY e {\na = f32[] parameter(0)\na = f32[] parameter(1)\n}",
        "a.hlo:4: two instructions have the name 'a'",
    ),
    (
        "HloModule m\nENTRY e {\nb = f32[] negate(a)\n}",
        "a.hlo:3: it needs 'a', which does not come before it",
    ),
    (
        "HloModule m\nENTRY e {\nb = f32[] map(), to_apply=f\n}",
        "a.hlo:3: it needs 'f', which does not come before it",
    ),
    (
        "HloModule m\nENTRY e {\n\nb = f32[8]{1,0} parameter(0)\n}",
        r"a.hlo:4: .*is not an order of 1 dimensions",
    ),
    (
        "HloModule m\nENTRY e {\nb = f33[8] parameter(0)\n}",
        "a.hlo:3: .*'f33' is not an element type; did you mean 'f32'",
    ),
    ("HloModule m\nENTRY e {\nb = f32[8]{0:T(8} parameter(0)\n}", "a.hlo:3: "),
    (
        "HloModule m\nENTRY e {\nb = f32[?] parameter(0)\n}",
        "a.hlo:3: .*are not sizes",
    ),
    (
        "HloModule m\nENTRY e {\nb = f32[8] parameter(x)\n}",
        "a.hlo:3: parameter cannot be read: 'x'",
    ),
    (
        "HloModule m\nENTRY e {\nb is no instruction\n}",
        "a.hlo:3: not an instruction, which XLA prints on one line as 'name = shape opcode",
    ),
    (
        "HloModule m\nENTRY e {\nb = f32[8] and nothing\n}",
        "a.hlo:3: not an instruction, .*: 'b = f32.8. and nothing'",
    ),
    ("HloModule m\nENTRY e {\nb = f32[8]\n  parameter(0)\n}", "a.hlo:3: not an instruction"),
    ("HloModule m\nENTRY e {\nb = f32[8] parameter(\n0)\n}", "a.hlo:3: not an instruction"),
    ("HloModule m\nENTRY e {\nb = f32[8] parameter(0))\n}", "a.hlo:3: not an instruction"),
    ("HloModule m\nENTRY e {\nb = (f32[8],\nf32[8]) parameter(0)\n}", "a.hlo:3: not an instr"),
    ('HloModule m\nENTRY e {\nb = f32[] f(), x="a\n"\n}', "a.hlo:3: not closed on its line: '\"a'"),
    ("HloModule m\nENTRY e {\nb = f32[8] parameter(0)\n} // end", "a.hlo:4: not an instruction"),
    ("HloModule m\nENTRY e {\nb = f32[] f(), x={{}\n}", "a.hlo:3: not an instruction"),
    ("HloModule m\nENTRY e {\nb = f32[] f(), x={}}\n}", "a.hlo:3: not an instruction"),
    ("HloModule m\n1 {line=2}", "a.hlo:2: neither a computation nor its end"),
    (
        "HloModule m\nENTRY e {\nb = f32[] parameter(0), metadata={op}\n}",
        "a.hlo:3: metadata cannot be read: '{op}'",
    ),
    (
        "HloModule m\n\nStackFrames\n1 0\n\nENTRY e {\nb = f32[] parameter(0)\n}",
        "a.hlo:4: StackFrames cannot be read: '0'",
    ),
    (
        "HloModule m\n\nFileLocations\n1 {line=x}\n\nStackFrames\n1 {file_location_id=1}\n\n"
        "ENTRY e {\nb = f32[] parameter(0)\n}",
        "a.hlo:4: line cannot be read: 'x'",
    ),
    (
        "HloModule m\nENTRY e {\nb = f32[] parameter(0), loose\n}",
        "a.hlo:3: 'loose' is not an attribute",
    ),
    (
        "HloModule m\nENTRY e {\nb = f32[] parameter(0)\nc = f32[] convolution(b, b)\n}",
        "a.hlo:4: 'c' lacks operands or attributes",
    ),
]


def test_invalid_hlo_raises_with_its_line():
    for text, words in INVALID:
        assert re.match(words, refusal(TraceError, read_hlo, text, "a.hlo")), text


@pytest.mark.parametrize("seeds", [(0, 2), pytest.param((2, 20), marks=pytest.mark.nightly)])
def test_damaged_text_raises_only_our_errors(seeds):
    for seed in range(*seeds):
        assert_only_our_errors(random.Random(seed))


def assert_only_our_errors(rng):
    for _ in range(20):
        text = WHOLE
        for _ in range(rng.randint(1, 4)):
            begin = rng.randrange(len(text))
            middle = rng.choice(
                ["", "", rng.choice('(){}[]",=%*/\\\n0x_'), text[rng.randrange(len(text)) :][:9]]
            )
            text = text[:begin] + middle + text[begin + rng.choice([0, 1, 5, 40]) :]
        try:
            read_hlo(text, "a.hlo")
        except TraceError as error:
            assert str(error).startswith("a.hlo"), text  # noqa: PT017 (the result may also be a module)


def test_long_constants_and_deep_tuples_are_read_quickly():
    numbers = "{ " + ", ".join(["{ 1.5, 2.5 }"] * 100_000) + " }"
    assert last(f"c = f32[100000,2]{{1,0}} constant({numbers})").shape.elements == 200_000
    with pytest.raises(TraceError, match="nested tuples"):
        last(f"c = {'(' * 5000}f32[]{')' * 5000} parameter(0)")

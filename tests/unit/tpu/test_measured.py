"""Arrays of a TPU's executables that count, and the cost of their layouts."""

from dataclasses import replace

from helpers.traces import real

from pytest_tfperf.facts.executions import programs_of
from pytest_tfperf.hlo.module import HloModule, Shape
from pytest_tfperf.hlo.text_in import read_hlo
from pytest_tfperf.tpu.padding import has_tiles, measured_padding, trace_generation
from pytest_tfperf.tpu.tiles import generation
from pytest_tfperf.values import Unknown

V5E = generation("v5e")
BIG, THIN = (
    "f32[1024,1024]{1,0:T(8,128)}",
    "f32[1024,10]{1,0:T(8,128)}",
)  # 4 MiB; 40,960 bytes in 524,288


def hlo(*lines, before=""):
    (made,) = read_hlo(
        "\n".join(["HloModule m, is_scheduled=true", before, "ENTRY main {", *lines, "}"]), "m"
    )
    return made


def counted(*lines, before="", tpu=V5E):
    found = measured_padding([hlo(*lines, before=before)], tpu)
    return (
        [buffer.name for buffer in found.buffers] if not isinstance(found, Unknown) else found.why
    )


def test_overhead_is_the_ratio_of_bytes_of_all_arrays():
    module = hlo(
        f'p = {THIN} parameter(0), metadata={{op_name="x"}}',
        f'ROOT a = {BIG} custom-call(p), metadata={{op_type="MatMul" op_name="model/dense" source_file="model.py" source_line=7}}',
    )
    found = measured_padding([module], V5E)
    assert (found.source, found.generation, found.notes) == ("measured", "v5e", ())
    assert found.low == found.high == (524288 + 4 * 2**20) / (40960 + 4 * 2**20) - 1
    thin, big = found.buffers
    assert (thin.name, thin.what, thin.line) == ("p", "parameter x", None)
    assert (thin.shape, thin.padded_shape) == (THIN, "f32[1024,128]")
    assert (thin.logical_bytes, thin.padded_bytes, thin.upper_bytes) == (40960, 524288, 524288)
    assert (big.what, big.line, big.waste, big.advice) == (
        "custom-call model/dense",
        "model.py:7",
        0,
        "",
    )
    assert found.worst() == (thin,)


LAYOUTS = [
    ("f32[1024,10]{1,0:T(8,128)}", 11.8),
    ("s4[1000,1000]{1,0:T(8,128)(8,1)E(4)}", 0.024),
    ("bf16[6144]{0:T(1024)(128)(2,1)}", 0.0),
    (
        "(f32[1024,10]{1,0:T(8,128)}, f32[]{:T(128)S(6)})",
        11.8,
    ),  # of the tuple's arrays the one in HBM
]


def test_overhead_of_known_layouts():
    for shape, overhead in LAYOUTS:
        found = measured_padding([hlo(f"p = {shape} parameter(0)")], V5E)
        assert (round(found.low, 6), round(found.high, 6), found.source) == (
            overhead,
            overhead,
            "measured",
        ), shape


def test_arrays_of_one_tile_have_no_overhead():
    for shape in [
        "s8[1,4,4]{2,1,0:T(4,128)(4,1)}",
        "f32[]{:T(128)}",
        "u8[5]{0:T(1024)(128)(4,1)L(16)}",
        "f32[0,128]{1,0:T(8,128)}",
    ]:
        assert isinstance(measured_padding([hlo(f"p = {shape} parameter(0)")], V5E), Unknown), shape


def test_several_executables_count_together():
    thin, big = hlo(f"p = {THIN} parameter(0)"), hlo(f"p = {BIG} parameter(0)")
    assert measured_padding([thin, big], V5E).logical_bytes == 40960 + 4 * 2**20


def test_instructions_that_make_no_array_do_not_count():
    for line in [
        "a = f32[]{:T(128)} parameter(1)",
        "a = f32[8,128]{1,0:T(8,128)} parameter(1)",  # one tile
        "a = f32[0,128]{1,0:T(8,128)} parameter(1)",
        "a = f32[1024,10]{1,0:T(8,128)S(5)} parameter(1)",  # the host's
        "a = f32[1024,10]{1,0:T(8,128)S(6)} parameter(1)",
        "a = token[] after-all()",
        "a = f32[1024,10]{1,0:T(8,128)} constant({...})",
        "a = f32[1024,10]{1,0:T(8,128)} bitcast(p)",
        "a = (f32[1024,10]{1,0:T(8,128)}, f32[1024,10]{1,0:T(8,128)}) tuple(p, p)",
        "a = (f32[1024,10]{1,0:T(8,128)S(1)}, f32[1024,10]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(p)",
        "a = f32[1024,10]{1,0:T(8,128)S(1)} copy-done(p)",
        "a = (f32[1024,10]{1,0:T(8,128)}, f32[4096,10]{1,0:T(8,128)}) all-gather-start(p), dimensions={0}",
    ]:
        assert counted(f"p = {THIN} parameter(0)", line) == ["p"], line


def test_new_arrays_count():
    for line, names in [
        ("a = f32[16,128]{1,0:T(8,128)} parameter(1)", ["a"]),  # 8 KiB, more than a tile
        ("a = f32[1024,10]{1,0:T(8,128)S(1)} add(p, p)", ["a"]),
        (
            "a = (f32[1024,10]{1,0:T(8,128)}, f32[], bf16[99,99]{1,0:T(8,128)(2,1)}) custom-call(p)",
            ["a.0", "a.2"],
        ),
        ("a = f32[<=100,60]{1,0:T(8,128)} custom-call(p)", ["a"]),
        ("a = f32[4096,10]{1,0:T(8,128)} all-gather-done(p)", ["a"]),
    ]:
        assert counted(f"p = {THIN} parameter(0)", line) == ["p", *names], line


def test_arrays_inside_a_fusion_do_not_count():
    inside = f"f {{\nq = {THIN} parameter(0)\nROOT n = {THIN} negate(q)\n}}"
    assert counted(
        f"p = {THIN} parameter(0)", f"a = {BIG} fusion(p), kind=kLoop, calls=f", before=inside
    ) == ["p", "a"]


def test_the_state_of_a_loop_counts_once():
    body = f"""
        body {{
        t = ({THIN}, {BIG}) parameter(0)
        x = {THIN} get-tuple-element(t), index=0
        y = {BIG} get-tuple-element(t), index=1
        own = {THIN} negate(x)
        next = {THIN} negate(own)
        ROOT r = ({THIN}, {BIG}) tuple(next, y)
        }}
        test {{
        t = ({THIN}, {BIG}) parameter(0)
        x = {THIN} get-tuple-element(t), index=0
        many = {THIN} abs(x)
        ROOT r = pred[] custom-call(many)
        }}"""
    lines = [
        f"p = {THIN} parameter(0)",
        f"b = {BIG} broadcast(p)",
        f"t = ({THIN}, {BIG}) tuple(p, b)",
        f"w = ({THIN}, {BIG}) while(t), body=body, condition=test",
    ]
    assert sorted(counted(*lines, before=body)) == ["b", "many", "own", "p"]


def test_the_result_of_a_branch_counts_once():
    branch = f"f {{\nq = {THIN} parameter(0)\nown = {THIN} abs(q)\nROOT n = {THIN} negate(own)\n}}"
    line = f"c = {THIN} conditional(p, p, p), branch_computations={{f, f}}"
    assert sorted(counted(f"p = {THIN} parameter(0)", line, before=branch)) == ["c", "own", "p"]


def test_arrays_without_tiles_are_estimated_with_those_of_the_generation():
    lines = ["p = f32[128,3]{1,0} parameter(0)", f"a = {BIG} parameter(1)"]
    found = measured_padding([hlo(*lines)], V5E)
    assert (found.source, found.notes) == (
        "estimated",
        ("1 of 2 arrays have no tile in their layout: they are counted with that of v5e",),
    )
    assert (found.buffers[0].padded_bytes, found.buffers[0].shape) == (
        65536,
        "f32[128,3]{1,0:T(8,128)}",
    )
    one_row = hlo("p = f32[1,4096]{1,0} parameter(0)")
    assert measured_padding([one_row], V5E).low == 0.0
    assert measured_padding([one_row], generation("v3")).low == 1.0


def test_a_note_names_arrays_of_dynamic_sizes():
    found = measured_padding([hlo("p = f32[<=100,60]{1,0:T(8,128)} parameter(0)")], V5E)
    assert (round(found.low, 6), found.notes) == (
        1.218667,
        ("1 of 1 arrays have dynamic sizes: they are counted at their bounds",),
    )


def test_a_module_without_large_arrays_has_a_reason():
    words = "none of the 1 arrays that the executables keep in the TPU's memory takes more than 4 KiB, which is one tile"
    assert measured_padding([hlo("p = f32[8]{0:T(128)} parameter(0)")], V5E) == Unknown(words)
    assert measured_padding([], V5E).why.startswith("none of the 0 arrays")


def test_an_unknown_type_is_a_reason():
    part = hlo(f"p = {BIG} parameter(0)").computations[1]
    damaged = {
        key: replace(op, shape=Shape("type 77", (8, 8))) for key, op in part.instructions.items()
    }
    made = HloModule("m", 1, {1: type(part)(1, "main", part.root_id, damaged)}, True)
    assert isinstance(measured_padding([made], V5E), Unknown)


def test_has_tiles():
    assert has_tiles(hlo(f"p = {THIN} parameter(0)"))
    assert not has_tiles(hlo("p = f32[1024,10]{1,0} parameter(0)"))


def test_the_recorded_tpu_trace_holds_only_aligned_arrays():
    trace, _ = real("tpu_v6e_jax_inference")
    tpu = trace_generation(trace)
    found = measured_padding([program.module for program in programs_of(trace)], tpu)
    assert (tpu.name, found.source, found.low, found.high, found.worst()) == (
        "v6e",
        "measured",
        0.0,
        0.0,
        (),
    )
    assert [buffer.padded_bytes for buffer in found.buffers] == [
        5 * 2**30
    ] * 3  # without arrays in the host's memory


def test_a_trace_without_a_tpu_has_no_generation():
    assert trace_generation(real("gpu_mi300_jax_conv")[0]) is None

"""The padding of a step as metrics: bounds, details, and reasons for unknown values."""

import pytest
from helpers.hlo import dot, encoded, module, op, parameters
from helpers.tables import cells

from pytest_tfperf.hlo.cost import module_costs, products_in
from pytest_tfperf.hlo.decode import decode_module
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.quantities import BYTES
from pytest_tfperf.recording import Recording
from pytest_tfperf.tpu.padding import padding_values, values_of
from pytest_tfperf.tpu.tiles import DEFAULT, generation
from pytest_tfperf.values import Column, Source, Unknown


def recording(*modules, **more):
    return Recording(
        name="",
        trace=None,
        workload={},
        lowered=tuple((one, 1.0) for one in modules),
        **more,
    )


def padded(found, *more, lines=None, asked=DEFAULT):
    evidence = Evidence(found)
    costs = evidence.lowered_costs
    products = [] if isinstance(costs, Unknown) else products_in(costs)
    given = generation(asked), evidence.inlined, lines or {}, products
    return padding_values(found.eager, *given, *more)


ADD = module(
    main=[*parameters("f32[1024,10]"), op("y", "reduce", "f32[1024]", "p0", op_name="net/sum")]
)


def test_the_range_of_a_parameter_spans_its_best_order_and_its_own():
    values, tables = padded(recording(ADD))
    value = values["padding_overhead"]
    assert (value.number, value.low(), value.high()) == pytest.approx(
        (0.6, 0.6, 11.8)
    )  # of 4096 bytes, the result is left out
    assert value.source is Source.PREDICTED
    assert (value.detail["tpu"], value.detail["padding"]) == ("v5e", "predicted")
    assert (
        value.detail["where"] == "most in parameter: f32[1024,10] takes f32[1024,16]{0,1:T(8,128)}"
    )
    assert value.detail["try"] == "10 → 16: saves 24 KiB"
    assert tables["padding"].title == "Padding on a TPU v5e (predicted)"
    assert tables["padding"].columns[4] == Column("bytes", "bytes", BYTES)
    assert tables["padding"].rows == (
        (
            "p0",
            "parameter",
            "f32[1024,10]",
            "f32[1024,16]{0,1:T(8,128)}",
            40960,
            65536,
            "",
            "10 → 16: saves 24 KiB",
        ),
    )


def test_source_lines_are_those_of_the_ops():
    values, tables = padded(recording(ADD), lines={"net/sum": "model.py:3"})
    assert cells(tables["padding"], "line")[0] == "model.py:3"
    assert " at model.py:3: " in values["padding_overhead"].detail["where"]


def test_the_requested_generation_is_used():
    ops = parameters("bf16[17,1024]")
    assert [
        padded(recording(module(main=ops)), asked=tpu)[0]["padding_overhead"].number
        for tpu in ("v6e", "v7x")
    ] == pytest.approx([24 / 17 - 1, 32 / 17 - 1])
    assert "v7x" in padded(recording(module(main=ops)), asked="v7x")[1]["padding"].title


def test_aligned_arrays_have_no_overhead_and_no_table():
    values, tables = padded(recording(module(main=parameters("f32[128,1024]"))))
    assert values["padding_overhead"].number == 0
    assert "bounds" not in values["padding_overhead"].detail
    assert tables == {}


REASONS = [
    (
        recording(module(main=parameters("f32[8]"))),
        "no array of the step takes more than the 4,096 bytes of one tile",
        "no matrix",
    ),
    (recording(module(main=parameters("f32[0,4096]"))), "no array of the step", "no matrix"),
    (recording(), "no array of the step", "no matrix"),
    (
        Recording(name="", trace=None, workload={}),
        "padding is predicted only if pytest runs the step",
        "padding is predicted",
    ),
    (
        Recording(name="", trace=None, workload={}, lowered=Unknown("it is too large")),
        "it is too large",
        "it is too large",
    ),
    (
        recording(ADD, eager=(("MatMul", "a.py:1", 1), ("Relu", None, 2))),
        "the step runs MatMul eagerly",
        "the step runs MatMul",
    ),
]


def test_unknown_padding_has_a_reason():
    for made, memory, matrix_unit in REASONS:
        values, tables = padded(made)
        assert [value.number for value in values.values()] == [None, None], made
        assert memory in values["padding_overhead"].why, made
        assert matrix_unit in values["mxu_padding_overhead"].why, made
        assert tables == {}, made


def test_an_unknown_type_is_named():
    odd = module(main=parameters("f32[2000]"))
    raw = encoded(odd).replace(b"\x10\x0b", b"\x10\x63")  # ShapeProto element_type = 2: 99
    values, _ = padded(recording(decode_module(raw, "m")))
    assert "'type 99' is not an element type" in values["padding_overhead"].why


def tiled_module():
    layout = {"minor_to_major": (1, 0), "tiles": ((8, 128),)}
    return module(main=[op("p0", "parameter", "f32[100,1000]", layout=layout)], scheduled=True)


def test_executables_with_tiles_are_measured():
    values, tables = padded(recording(ADD), [(module_costs(tiled_module()), 1.0)])
    value = values["padding_overhead"]
    assert (round(value.number, 6), value.source, value.detail["padding"]) == (
        0.06496,
        Source.HLO,
        "measured",
    )
    assert "bounds" not in value.detail
    assert tables["padding"].title == "Padding on a TPU v5e (measured)"


def test_a_tpu_trace_without_hlo_is_unknown():
    values, _ = padded(recording(ADD), (), generation("v6e"))
    assert "does not hold the HLO of what ran on the TPU" in values["padding_overhead"].why


def test_matrix_unit_overhead_of_a_step():
    layer = [
        *parameters("f32[100,2048]", "f32[2048,1000]"),
        op("y", "dot", "f32[100,1000]", "p0", "p1", dot=dot([1], [0]), op_name="net/dot"),
    ]
    products = products_in([(module_costs(module(main=layer)), 2.0)])
    values, _ = values_of(Unknown("nothing"), products, generation("v5e"), Source.PREDICTED)
    value = values["mxu_padding_overhead"]
    assert round(value.number, 6) == 0.06496
    assert value.detail["where"] == "net/dot (100×1000×2048)"

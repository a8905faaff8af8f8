"""The ops behind flops and half_precision: their places, widths and remedies."""

from pytest_tfperf.facts.host_activity import TENSORFLOW
from pytest_tfperf.hlo.avoidable import LOOK_UP
from pytest_tfperf.hlo.cost import Costs, OpCost, Work
from pytest_tfperf.metrics.flops import work_values
from pytest_tfperf.metrics.op_work import ops_of, with_ops


def op(op_name, matmul, half, opcode="dot", line="", op_type="MatMul", **more):
    work = Work(matmul, matmul, half)
    return OpCost("dot.1", opcode, op_name, "f32", work, 8, line=line, op_type=op_type, **more)


CALL = "StatefulPartitionedCall/"
LAYERS = (
    op(f"{CALL}model/wide/MatMul", 60, 0),
    op(f"{CALL}gradient_tape/model/wide/MatMul/MatMul_1", 60, 0),
    op("model/attention/einsum", 100, 0, line="/home/me/model.py:9", op_type="Einsum"),
    op("model/small/MatMul", 10, 0),
    op("", 5, 5, opcode="fusion", op_type=""),
    op("loop", 235, 5, opcode="while"),  # its body counts
    op("model/relu", 0, 0, op_type="Relu"),
)


def explained(metric, half=0, layers=LAYERS, lines=None, in_keras=False):
    """The detail of a metric of a step with these ops."""
    programs = [(Costs(work=Work(235, 235, half), ops=layers, uncounted=(), once=()), 1.0)]
    ops = ops_of(programs, lambda names: lines or {}, in_keras)
    return with_ops(metric, work_values(programs)[metric], ops, TENSORFLOW).detail


def test_a_mixed_step_names_the_ops_of_either_width():
    """The gradient counts for its layer, and the line is that of the graph or of the module."""
    detail = explained("half_precision", half=5, lines={"model/wide/MatMul": ("layers.py:3", "")})
    wide, narrow = detail["where"].split(";")
    assert wide == (
        "more than 16 bits: MatMul and gradient in model/wide at layers.py:3 (51.1 %, float32), "
        "Einsum in model/attention at model.py:9 (42.6 %, float32), and 1 more"
    )
    assert narrow == " 16 bits: fusion (float32)"
    assert "follow the precision of the others" in detail["try"]


def test_a_product_of_a_branch_that_is_not_counted_saves_nothing():
    layers = [op("small/MatMul", 60, 0, runs=0, avoidable=LOOK_UP, needed=0.1), LAYERS[3]]
    assert (
        explained("flops", layers=layers)["where"]
        == "MatMul in model/small: 10 FLOP (100 % of all)"
    )


def test_a_step_in_16_bits_names_no_ops():
    assert not {"where", "try"} & explained("half_precision", half=235).keys()


def test_a_step_without_16_bits_names_its_ops_and_the_policy():
    detail = explained("half_precision")
    assert detail["where"].startswith(
        "more than 16 bits: MatMul and gradient in model/wide (51.1 %, float"
    )
    assert "mixed_bfloat16" in detail["try"]


def test_flops_name_the_largest_ops_with_their_share_and_no_remedy_by_guess():
    detail = explained("flops")
    assert detail["where"] == (
        "MatMul and gradient in model/wide: 120 FLOP (51.1 % of all); "
        "Einsum in model/attention at model.py:9: 100 FLOP (42.6 % of all)"
    )
    assert detail["accounted"] == 220 / 235
    assert "try" not in detail


def test_a_product_with_one_hot_rows_is_to_be_a_look_up():
    rows = (op("words/MatMul", 200, 0, avoidable=LOOK_UP, needed=0.0), op("out/MatMul", 35, 0))
    assert explained("flops", layers=rows)["try"].endswith("; flops is 35 FLOP then")
    rare = (op("words/MatMul", 20, 0, avoidable=LOOK_UP, needed=0.0), op("out/MatMul", 215, 0))
    assert "try" not in explained("flops", layers=rare)


def test_the_line_of_fit_is_not_shown_beside_a_layer():
    lines = {f"model/{name}/MatMul": ("train.py:8", "train.py:main") for name in ("wide", "small")}
    assert "train.py:8" in explained("flops", lines=lines)["where"]
    assert "train.py:8" not in explained("flops", lines=lines, in_keras=True)["where"]

"""What differs between the HLO of two runs, counted by hand."""

from dataclasses import replace

from helpers.hlo import module, op, parameters

from pytest_tfperf.differences.hlo_diff import hlo_diff
from pytest_tfperf.facts.executions import Program


def program(runs=None, name="f(1)", **computations):
    return Program(name, module(**computations), runs)


def unary(*names, opcode="tanh", dtype="f32"):
    """A computation of one op after the other, made of framework ops of these names."""
    ops = parameters(f"{dtype}[8]")
    for number, name in enumerate(names):
        ops.append(
            op(f"i.{number}", opcode, f"{dtype}[8]", ops[-1].name, op_type="Tanh", op_name=name)
        )
    return ops


def fusing(*fusions):
    """A module with one fusion of each of these groups of framework ops."""
    parts = {f"fused.{number}": unary(*names) for number, names in enumerate(fusions)}
    main = parameters("f32[8]")
    for number, names in enumerate(fusions):
        main.append(
            op(
                f"fusion.{number}",
                "fusion",
                "f32[8]",
                main[-1].name,
                called=[f"fused.{number}"],
                op_name=names[-1],
            )
        )
    return program(**parts, main=main)


def rows(tables, key):
    return list(tables[key].rows)


EMPTY = {"ops": [], "fusions": [], "shapes": []}


def differences(before, after):
    return {key: list(table.rows) for key, table in hlo_diff(before, after).items()}


def test_equal_runs_differ_in_nothing():
    assert differences([fusing(["a", "b"], ["c"])], [fusing(["a", "b"], ["c"])]) == EMPTY
    assert differences([], []) == EMPTY


def test_other_names_and_ids_are_no_difference():
    before, after = fusing(["a", "b"], ["c"]), fusing(["c"], ["a", "b"])
    assert [one.name for one in before.module.entry.instructions.values()] == [
        one.name for one in after.module.entry.instructions.values()
    ]
    assert differences([before], [replace(after, name="g(77)")]) == EMPTY


def test_ops_are_counted_and_the_largest_difference_is_first():
    before, after = program(main=unary("a", "b", "b", "b")), program(main=unary("a", "a", "c"))
    assert rows(hlo_diff([before], [after]), "ops") == [
        ("tanh", "Tanh", "b", 3, 0, -3),
        ("tanh", "Tanh", "a", 1, 2, 1),
        ("tanh", "Tanh", "c", 0, 1, 1),
    ]


def test_opcodes_of_one_op_are_apart():
    found = rows(
        hlo_diff([program(main=unary("a"))], [program(main=unary("a", opcode="logistic"))]), "ops"
    )
    assert found == [("logistic", "Tanh", "a", 0, 1, 1), ("tanh", "Tanh", "a", 1, 0, -1)]


def test_what_moves_values_about_does_not_count():
    for opcode in ["parameter", "constant", "tuple", "get-tuple-element", "bitcast"]:
        assert (
            differences(
                [program(main=unary("a"))],
                [program(main=[*unary("a"), op("x", opcode, "f32[8]", op_name="x")])],
            )
            == EMPTY
        ), opcode


def test_an_executable_counts_as_often_as_a_step_runs_it():
    before = [program(1.0, main=unary("a")), program(0.5, main=unary("b"))]
    after = [
        program(2.0, main=unary("a")),
        program(0.25, main=unary("b")),
        program(0.25, main=unary("b")),
    ]
    assert rows(hlo_diff(before, after), "ops") == [("tanh", "Tanh", "a", 1, 2, 1)]


def test_instructions_in_all_computations_count():
    assert rows(hlo_diff([fusing(["a"])], [fusing(["a", "b"])]), "ops") == [
        ("fusion", "", "a", 1, 0, -1),
        ("fusion", "", "b", 0, 1, 1),
        ("tanh", "Tanh", "b", 0, 1, 1),
    ]


def test_fusions_are_known_by_what_they_cover():
    found = rows(
        hlo_diff([fusing(["a", "b"], ["c"], ["d"])], [fusing(["c"], ["a", "b", "d"], ["c"])]),
        "fusions",
    )
    assert found == [
        ("lost", 2, "a, b", 1, 0),
        ("gained", 3, "a, b, d", 0, 1),
        ("gained", 1, "c", 1, 2),
        ("lost", 1, "d", 1, 0),
    ]


def test_a_fusion_of_many_ops_names_three():
    assert rows(hlo_diff([], [fusing(["a", "b", "c", "d", "e"])]), "fusions") == [
        ("gained", 5, "a, b, c, and 2 more", 0, 1)
    ]


def test_an_op_without_a_name_is_covered_as_its_opcode():
    assert rows(hlo_diff([fusing([""])], [fusing(["a"])]), "fusions") == [
        ("gained", 1, "a", 0, 1),
        ("lost", 1, "tanh", 1, 0),
    ]


def test_shapes_and_types_that_changed():
    before, after = (
        program(main=unary("a", "b")),
        program(
            main=[*unary("a", dtype="bf16"), op("x", "tanh", "f32[8]", op_name="b", op_type="Tanh")]
        ),
    )
    assert differences([before], [after]) == EMPTY | {
        "shapes": [("tanh", "Tanh", "a", "f32[8]", "bf16[8]")]
    }


def test_a_layout_is_no_shape_and_one_more_op_no_change_of_shape():
    before = program(main=[op("a", "iota", "f32[8,4]")])
    after = program(
        main=[
            op("a", "iota", "f32[8,4]", layout={"minor_to_major": (0, 1)}),
            op("b", "iota", "(f32[8,4], s32[])"),
        ]
    )
    assert rows(hlo_diff([before], [after]), "shapes") == []
    other = program(main=[op("b", "iota", "(f32[8,4], s32[])")])
    assert rows(hlo_diff([before], [other]), "shapes") == [
        ("iota", "", "", "f32[8,4]", "(f32[8,4], s32[])")
    ]


def test_numbers_that_a_framework_counts_up_are_matched_in_order():
    cases = [
        (["m/dense/MatMul", "m/dense_1/MatMul"], ["m/dense_2/MatMul", "m/dense_3/MatMul"], True),
        (["sequential/a", "sequential/a_1"], ["sequential_1/a", "sequential_1/a_1"], True),
        (["while/body/_1/a"], ["while/body/_77/a"], True),
        (
            ["dense/a", "dense_1/a", "dense_2/b"],
            ["dense_9/a", "dense_10/a", "dense_11/b"],
            True,
        ),  # 10 is after 9
        (["dense/a", "dense_1/b"], ["dense_4/b", "dense_3/a"], True),
        (["dense/a", "dense_1/b"], ["dense_3/b", "dense_4/a"], False),
        (["dense/a", "dense_1/a"], ["dense_1/a"], False),
        (["dense/a", "dense_1/a"], ["dense/b", "dense_1/a"], False),
    ]
    for before, after, same in cases:
        found = differences([program(main=unary(*before))], [program(main=unary(*after))])
        assert (found == EMPTY) == same, after


def test_of_layers_fewer_than_before_the_others_keep_their_numbers():
    before, after = unary("dense/a", "dense_1/a", "dense_2/a"), unary("dense/a", "dense_2/a")
    assert rows(hlo_diff([program(main=before)], [program(main=after)]), "ops") == [
        ("tanh", "Tanh", "dense_1/a", 1, 0, -1)
    ]

"""Hashes of modules."""

from dataclasses import replace

from helpers.hlo import dot, module, op, parameters

from pytest_tfperf.hlo.walk import hlo_hash


def made(*, opcode="add", result="f32[8]", operands=("p0", "p1"), called=("first",), **more):
    """
    Make a module with two functions, one of them called by a fusion, and an instruction after it.
    """
    functions = {
        name: [*parameters("f32[8]"), op(f"{name}_op", opcode_, "f32[8]", "p0")]
        for name, opcode_ in (("first", "negate"), ("second", "exponential"))
    }
    main = [
        *parameters("f32[8]", "f32[8]"),
        op("fusion", "fusion", "f32[8]", "p0", called=called),
        op("last", opcode, result, *operands, **more),
    ]
    return module(**functions, main=main)


SAME = hlo_hash(made())


def test_the_hash_has_eight_digits():
    assert len(SAME) == 8
    assert int(SAME, 16) >= 0


def test_names_lines_and_backend_configurations_do_not_count():
    for named in [
        {"op_name": "step/add", "op_type": "AddV2"},
        {"source_file": "model.py", "source_line": 12},
        {"backend_config": '{"tuned": 1}'},
    ]:
        assert hlo_hash(made(**named)) == SAME, named


def renumbered(found):
    """Make the same module with other ids and names."""

    def part(one):
        ops = {
            key + 70: replace(
                op,
                id=key + 70,
                name=f"other.{key}",
                operands=tuple(k + 70 for k in op.operands),
                called=tuple(k + 50 for k in op.called),
            )
            for key, op in one.instructions.items()
        }
        return replace(
            one, id=one.id + 50, name=f"part.{one.id}", root_id=one.root_id + 70, instructions=ops
        )

    parts = {key + 50: part(one) for key, one in found.computations.items()}
    return replace(found, name="other", entry_id=found.entry_id + 50, computations=parts)


def test_ids_and_names_do_not_count():
    assert hlo_hash(renumbered(made())) == SAME


def test_every_computed_field_counts():
    for other in [
        {"opcode": "multiply"},
        {"result": "f16[8]"},
        {"result": "f32[9]"},
        {"operands": ("p1", "p0")},
        {"operands": ("p0", "fusion")},
        {"called": ("second",)},
        {"dimensions": (0,)},
        {"constant": 1.0},
        {"custom_call_target": "onednn"},
        {"dot": dot([0], [0])},
        {"layout": {"minor_to_major": (0,)}},
    ]:
        assert hlo_hash(made(**other)) != SAME, other


def test_an_additional_instruction_counts():
    assert hlo_hash(
        module(main=[*parameters("f32[8]"), op("n", "negate", "f32[8]", "p0")])
    ) != hlo_hash(module(main=parameters("f32[8]")))

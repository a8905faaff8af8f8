"""Iterations of loops in hand-made modules: bounds, steps and counters counted by hand."""

from dataclasses import replace

from helpers.hlo import module, op, parameters

from pytest_tfperf.hlo.cost import module_costs
from pytest_tfperf.hlo.trip_counts import with_trip_counts

STATE = "(s32[], s32[])"


def constant(name, value, dtype="s32"):
    return op(name, "constant", f"{dtype}[]", constant=value)


def element(name, index, of="p0", dtype="s32"):
    return op(name, "get-tuple-element", f"{dtype}[]", of, tuple_index=index)


def condition(direction="LT", flipped=False):
    """`i < n`, where both are the state's."""
    ends = ("n", "i") if flipped else ("i", "n")
    return [
        *parameters(STATE),
        element("i", 0),
        element("n", 1),
        op("again", "compare", "pred[]", *ends, direction=direction),
    ]


def body(opcode="add", by=1):
    """`i = i + 1`; the bound stays."""
    return [
        *parameters(STATE),
        element("i", 0),
        element("n", 1),
        constant("by", by),
        op("next", opcode, "s32[]", "i", "by"),
        op("state", "tuple", STATE, "next", "n"),
    ]


def main(start=0, bound=5):
    return [
        constant("start", start),
        constant("bound", bound),
        op("init", "tuple", STATE, "start", "bound"),
        op("loop", "while", STATE, "init", called=("body", "test")),
    ]


def counts(**parts):
    """Iterations of each loop by name."""
    made = with_trip_counts(module(**parts))
    return {
        one.name: one.trip_count
        for part in made.computations.values()
        for one in part.instructions.values()
        if one.opcode == "while"
    }


LOOPS = [
    (0, 5, "add", 1, "LT", 5),
    (0, 5, "add", 1, "LE", 6),
    (0, 5, "add", 2, "LT", 3),
    (1, 5, "add", 2, "LT", 2),
    (5, 5, "add", 1, "LT", 0),
    (9, 5, "add", 1, "LT", 0),
    (0, 0, "add", 1, "LE", 1),
    (7, 0, "subtract", 1, "GT", 7),
    (7, 0, "add", -2, "GE", 4),  # 7, 5, 3, 1
    (1, 100, "multiply", 3, "LT", None),  # 1, 3, 9, 27, 81: no number is added
    (0, 6, "add", 3, "NE", 2),
    (6, 6, "add", 1, "EQ", 1),
]


def test_loops_with_constant_bounds_are_counted():
    for start, bound, opcode, by, direction, trips in LOOPS:
        found = counts(test=condition(direction), body=body(opcode, by), main=main(start, bound))
        assert found == {"loop": trips}, (start, bound, opcode, by, direction)


def test_the_bound_may_stand_on_the_left():
    assert counts(test=condition("GT", flipped=True), body=body(), main=main()) == {"loop": 5}


def test_very_long_loops_are_unknown():
    for n, trips in [(20_000, 20_000), (10_000_000, None)]:
        found = counts(test=condition(), body=body(), main=main(0, n))
        assert found == {"loop": trips}, n


def test_an_endless_loop_is_unknown():
    assert counts(test=condition(), body=body(by=0), main=main()) == {"loop": None}


def test_bounds_that_are_no_constants_are_unknown():
    for start in [
        op("start", "parameter", "s32[]", parameter_number=0),
        op("start", "rng", "s32[]"),
        op("start", "constant", "s32[]"),  # of a value that is not decoded
    ]:
        parts = {"test": condition(), "body": body(), "main": [start, *main()[1:]]}
        assert counts(**parts) == {"loop": None}, start


def test_a_count_that_the_compiler_states_stays():
    stated = [
        replace(one, backend_config='{"known_trip_count":{"n":"3"}}') if one.name == "loop" else one
        for one in main()
    ]
    assert counts(test=condition(), body=body(), main=stated) == {"loop": 3}


def test_overflow_ends_what_is_known():
    parts = {"test": condition("NE"), "body": body(by=2**30), "main": main(1, 0)}
    assert counts(**parts) == {"loop": None}


def wrapped():
    """A condition that calls a function with the whole state, as TensorFlow's bridge makes it."""
    inner = [*condition(), op("found", "tuple", "(pred[])", "again")]
    outer = [
        *parameters(STATE),
        op("call", "call", "(pred[])", "p0", called=("inner",)),
        element("again", 0, "call", "pred"),
    ]
    return {"inner": inner, "test": outer}


def test_conditions_in_called_functions_are_followed():
    assert counts(**wrapped(), body=body(), main=main()) == {"loop": 5}


def test_a_number_added_in_a_called_function_is_unknown():
    inner = [*parameters("s32[]"), constant("by", 1), op("sum", "add", "s32[]", "p0", "by")]
    outer = [
        op("next", "call", "s32[]", "i", called=("inner",)) if one.name == "next" else one
        for one in body()
    ]
    assert counts(inner=inner, test=condition(), body=outer, main=main()) == {"loop": None}


def test_a_second_condition_ends_the_loop_first():
    """`i < n and i != 3`, with casts and copies on the way."""
    test = [
        *condition(),
        constant("three", 3),
        op("copy", "copy", "s32[]", "i"),
        op("wide", "convert", "s64[]", "copy"),
        op("other", "compare", "pred[]", "wide", "three", direction="NE"),
        op("both", "and", "pred[]", "again", "other"),
    ]
    assert counts(test=test, body=body(), main=main()) == {"loop": 3}


def test_inner_loops_take_their_bound_from_the_outer_state():
    """The outer loop hands its bound on unchanged; the inner one starts at zero each time."""
    inner = [
        *parameters(STATE),
        element("i", 0),
        element("n", 1),
        constant("zero", 0),
        op("again", "tuple", STATE, "zero", "n"),
        op("inside", "while", STATE, "again", called=("body", "test")),
        constant("one", 1),
        op("next", "add", "s32[]", "i", "one"),
        op("state", "tuple", STATE, "next", "n"),
    ]
    outer = [
        replace(one, called=("middle", "test")) if one.name == "loop" else one for one in main()
    ]
    parts = {"test": condition(), "body": body(), "middle": inner, "main": outer}
    assert counts(**parts) == {"inside": 5, "loop": 5}


def test_a_loop_that_depends_on_the_result_of_another_is_counted():
    """The gradient's loop runs as often as the forward loop counted."""
    second = [
        *main(0, 5),
        element("count", 0, "loop"),
        constant("zero", 0),
        op("again", "tuple", STATE, "zero", "count"),
        op("gradient", "while", STATE, "again", called=("body", "test")),
    ]
    found = counts(test=condition(), body=body(by=2), main=second)
    assert found == {"loop": 3, "gradient": 3}  # to 6: 0, 2, 4


def test_a_body_called_with_two_bounds_is_counted_for_each_loop():
    second = [
        *main(0, 5),
        constant("three", 3),
        op("again", "tuple", STATE, "start", "three"),
        op("other", "while", STATE, "again", called=("body", "test")),
    ]
    assert counts(test=condition(), body=body(), main=second) == {"loop": 5, "other": 3}


def test_the_cost_of_a_module_has_the_iterations():
    """Each of five iterations adds two numbers; the condition, which runs once more, adds one."""
    two = [op("w", "constant", "f32[2]"), op("v", "add", "f32[2]", "w", "w")]
    one = [op("w", "constant", "f32[1]"), op("v", "add", "f32[1]", "w", "w")]
    parts = {"test": [*one, *condition()], "body": [*two, *body()]}
    costs = module_costs(module(**parts, main=main()))
    assert (costs.flops, costs.once) == (5 * 2 + 6 * 1, ())

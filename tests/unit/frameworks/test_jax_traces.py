"""Explanations of JAX 0.9 and 0.10 as their logs had them, in plain words; and modules of compilations."""

from pytest_tfperf.frameworks.jax_traces import changes_in, explained_function, module_name
from pytest_tfperf.function_traces import CONTEXT as OF_CONTEXT
from pytest_tfperf.function_traces import (
    DTYPE,
    FIRST,
    FUNCTION_ARGUMENT,
    LENGTH,
    NEW_FUNCTION,
    OBJECT,
    SHARDING,
    STATIC,
    STRUCTURE,
    UNKNOWN,
    WEAK_TYPE,
)
from pytest_tfperf.function_traces import SHAPE as OF_SHAPE

AT = "TRACING CACHE MISS at /home/user/test_step.py:80:20 (main):\n"
NEW = AT + "  never seen function:\n    step id=1398938 defined at /home/user/test_step.py:18"
AGAIN = NEW.replace("step id", "<lambda> id") + (
    "\n  but seen another function defined on the same line; maybe the function is\n"
    "  being re-defined repeatedly, preventing caching?"
)
DIFFERS = (
    AT + "  for step defined at /home/user/test_step.py:18\n"
    "  all previously seen cache keys differ. For the closest previous key:\n"
)
SHAPE = DIFFERS + "  different input types:\n  * at batch, now f32[9] and before f32[8]"
CONTEXT = "  Tracing context doesn't match, e.g. due to config or context manager."
WEAK = "https://docs.jax.dev/en/latest/type_promotion.html#weak-types"


def static(path, now, before):
    kind = "<class 'jax._src.tree_util.Static'> with pytree metadata Static(val="
    why = "so the pytree node metadata does not match"
    return f"  * at input path {path}, now {kind}{now}) and before {kind}{before}), {why}"


def texts_in(explanation, parameters=()):
    """The texts of the changes, each once."""
    texts = dict.fromkeys(change.text for change in changes_in(explanation, parameters))
    return ", ".join(texts)


def types(*differences):
    return DIFFERS + "\n".join(["  different input types:", *differences])


def tree(*differences):
    return DIFFERS + "\n".join(["  different input pytree:", *differences])


TYPE_CHANGES = [
    (SHAPE, "batch f32[8] → f32[9]"),
    (
        types(
            "  * at batch['image'], now i32[4] and before f32[3]",
            "  * at power, now f32[1,3]({}) and before f32[3]({})",
        ),
        "batch['image'] f32[3] → i32[4], power f32[3] → f32[1,3]",
    ),
    (
        types("  * at power, now f32[]{weak_type=False} and before f32[]{weak_type=True}" + WEAK),
        "power f32[] (weakly typed) → f32[]",
    ),
    (tree(static("[0][1]", "3", "2")), "static argument power: 2 → 3"),
    (tree(static("[1]['power']", "'a, b'", "2")), "static argument power: 2 → 'a, b'"),
    (tree(static("[0][1]", "(1, 3)", "(1, 2)")), "static argument power: (1, 2) → (1, 3)"),
    (tree(static("[0][2]", "Two(\n  a=1)", "2")), "static argument 2: 2 → Two( a=1)"),
    (
        tree(static("[0][1]", *(f"<function <lambda> at 0x7fb9adc35{n}>" for n in "12"))),
        "static argument power: another <function <lambda>>, which does not equal the one before",
    ),
]


def test_changes_of_types_and_static_values():
    for text, change in TYPE_CHANGES:
        assert texts_in(text, ["batch", "power"]) == change, text


CHILDREN = "so the numbers of children do not match, with the symmetric difference of key sets: "
TYPES = "so their Python types differ"
ONE, TWO = "<class 'dict'> with 1 child", "<class 'dict'> with 2 children"


STRUCTURE_CHANGES = [
    (
        f"[0][0]['a'], now {ONE} and before {TWO}, {CHILDREN}{{'mask'}}",
        "argument batch['a']: keys differ by 'mask'",
        STRUCTURE,
    ),
    (
        "[0][0], now <class 'dict'> with pytree metadata ('img',) and before <class 'dict'> "
        "with pytree metadata ('image',), so the pytree node metadata does not match",
        "argument batch: <class 'dict'> with pytree metadata ('image',) → "
        "<class 'dict'> with pytree metadata ('img',)",
        STRUCTURE,
    ),
    (
        f"[1], now {ONE} and before <class 'dict'> with 0 child, {CHILDREN}{{'power'}}",
        "its keyword arguments: keys differ by 'power'",
        STRUCTURE,
    ),
    (
        f"[1]['power'], now {TWO} and before {ONE}, {CHILDREN}{{'b'}}",
        "argument power: keys differ by 'b'",
        STRUCTURE,
    ),
    (
        "[0], now tuple of length 2 and before tuple of length 1, so the lengths do not match",
        "its positional arguments: tuple of length 1 → tuple of length 2",
        STRUCTURE,
    ),
    (
        "[0][5], now list of length 3 and before list of length 2, so the lengths do not match",
        "argument 5: list of length 2 → list of length 3",
        LENGTH,
    ),
    (
        f"[0][0], now <class 'tuple'> and before <class '__main__.P'>, {TYPES}",
        "argument batch: <class '__main__.P'> → <class 'tuple'>",
        STRUCTURE,
    ),
    (
        f"[0][1], now pytree leaf and before <class 'NoneType'>, {TYPES}",
        "argument power: <class 'NoneType'> → pytree leaf",
        STRUCTURE,
    ),
    (
        "[0][0], now <class 'a.State'> with pytree metadata (3,) and before <class 'a.State'> "
        "with pytree metadata (2,), so the pytree node metadata does not match",
        "argument batch: the metadata of State: (2,) → (3,)",
        STATIC,
    ),
]


def test_changes_of_the_structure():
    for difference, said, kind in STRUCTURE_CHANGES:
        [change] = changes_in(tree(f"  * at input path {difference}"), ["batch", "power"])
        assert (change.text, change.kind) == (said, kind), difference


OTHERS = [
    ("", ""),
    (NEW, "for the first time"),
    (AGAIN, "a new function of a line that was traced before"),
    (
        DIFFERS + CONTEXT + "\n  * jax_enable_x64 differs: now True and before False",
        "the setting jax_enable_x64 False → True",
    ),
    # JAX 0.9 does not name the setting
    (DIFFERS + CONTEXT, "a setting of JAX changed, in jax.config or by a context manager"),
    (DIFFERS + "  Debug info doesn't match.", "Debug info doesn't match."),
    (
        DIFFERS + "  cache miss explanation unavailable",
        "JAX does not say what changed; from 0.11 on it names no static argument",
    ),
    (DIFFERS + "  another kind:\n  * of a later version", "of a later version"),
]


def test_other_explanations():
    for text, change in OTHERS:
        assert texts_in(text) == change, text


KINDS = [
    (SHAPE, [(OF_SHAPE, "axis 0 of batch")]),
    (
        types("  * at x, now i32[4,3] and before f32[2]"),
        [(DTYPE, "x"), (OF_SHAPE, "the rank of x")],
    ),
    (types("  * at x, now f32[4,5,3] and before f32[2,5,1]"), [(OF_SHAPE, "axes 0 and 2 of x")]),
    (
        types("  * at x, now f32[]{weak_type=False} and before f32[]{weak_type=True}"),
        [(WEAK_TYPE, "x")],
    ),
    (types("  * at w, now f32[8]({Auto: ('data',)}) and before f32[8]({})"), [(SHARDING, "w")]),
    (tree(static("[0][1]", "3", "2")), [(STATIC, "argument power")]),
    (tree(static("[0][1]", "Config(1)", "Config(1)")), [(OBJECT, "argument power")]),
    (tree(static("[0][1]", "<C at 0x7f1>", "<C at 0x7f2>")), [(OBJECT, "argument power")]),
    (
        tree(static("[0][1]", "<function f at 0x7f1>", "<function f at 0x7f2>")),
        [(FUNCTION_ARGUMENT, "argument power")],
    ),
    (
        tree(f"  * at input path [0][0], now {TWO} and before {ONE}, {CHILDREN}{{'m'}}"),
        [(STRUCTURE, "argument batch")],
    ),
    (
        DIFFERS + CONTEXT + "\n  * jax_x64 differs: now True and before False",
        [(OF_CONTEXT, "jax_x64")],
    ),
    (NEW, [(FIRST, "")]),
    (AGAIN, [(NEW_FUNCTION, "jax.jit function")]),
    (DIFFERS + "  cache miss explanation unavailable", [(UNKNOWN, "")]),
]


def test_each_change_has_a_kind_and_what_changed():
    for text, kinds in KINDS:
        found = changes_in(text, ["batch", "power"])
        assert [(change.kind, change.of) for change in found] == kinds, text


def test_two_objects_that_read_alike_are_said_to_be_unequal():
    [change] = changes_in(tree(static("[0][1]", "Config(1)", "Config(1)")), ["batch", "power"])
    assert change.text == (
        "static argument power: another Config(1), equal to the eye and not to =="
    )


def test_the_function_of_an_explanation_is_named():
    for text, name in [
        (NEW, "step"),
        (AGAIN, "<lambda>"),
        (SHAPE, "step"),
        ("another text", "function"),
    ]:
        assert explained_function(text) == name, text


def test_the_module_of_a_function():
    for function, module in [
        ("jit(step)", "jit_step"),
        ("jit(<lambda>)", "jit__lambda"),
        ("pmap(step)", "pmap_step"),
        ("step", "jit_step"),
    ]:
        assert module_name(function) == module, function

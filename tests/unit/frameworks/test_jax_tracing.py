"""Explanations of JAX 0.9 and 0.10, as its log had them; see `explain` in its partial_eval.py."""

import pytest

from pytest_tfperf.frameworks.jax_tracing import change_in, explained_function, explains_first

AT = "TRACING CACHE MISS at /home/user/test_step.py:16:19 (step):\n"
NEW = AT + "  never seen function:\n    step id=1398938 defined at /home/user/test_step.py:14"
AGAIN = NEW.replace("step id", "<lambda> id") + (
    "\n  but seen another function defined on the same line; maybe the function is\n"
    "  being re-defined repeatedly, preventing caching?"
)
DIFFERS = (
    AT + "  for step defined at /home/user/test_step.py:14\n"
    "  all previously seen cache keys differ. For the closest previous key:\n"
)
SHAPE = DIFFERS + "  different input types:\n  * at x, now f32[9] and before f32[8]"
STATIC = DIFFERS + (
    "  different input pytree:\n  * at input path [0][1], now <class 'jax._src.tree_util.Static'> "
    "with pytree metadata Static(val=3) and before <class 'jax._src.tree_util.Static'> with pytree "
    "metadata Static(val=2), so the pytree node metadata does not match"
)
NEST = DIFFERS + (
    "  different input pytree:\n  * at input path [0][0], now <class 'dict'> and before pytree leaf, "
    "so their Python types differ"
)
CONTEXT = (
    DIFFERS + "  Tracing context doesn't match, e.g. due to config or context manager.\n"
    "  * enable_x64: now True and before False"
)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("", ""),
        (NEW, ""),
        (AGAIN, "a new function of a line that was traced before: define it once"),
        (SHAPE, "x f32[8] → f32[9]"),
        (STATIC, "static argument [1] 2 → 3"),
        (
            NEST,
            "argument [0][0]: <class 'dict'> and before pytree leaf, so their Python types differ",
        ),
        (CONTEXT, "enable_x64: now True and before False"),
    ],
)
def test_the_change_of_an_explanation_is_named(text, change):
    assert change_in(text) == change


@pytest.mark.parametrize(
    ("text", "name"),
    [(NEW, "step"), (AGAIN, "<lambda>"), (SHAPE, "step"), ("another text", "function")],
)
def test_the_function_of_an_explanation_is_named(text, name):
    assert explained_function(text) == name


@pytest.mark.parametrize(
    ("version", "first"),
    [("0.8.3", False), ("0.9.0", True), ("0.9.0.1", True), ("0.10.2", True), ("1.0.0", True)],
)
def test_jax_explains_first_from_0_9_on(version, first):
    assert explains_first(version) == first

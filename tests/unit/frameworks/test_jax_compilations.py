"""The module that an event of a compilation is of, as a trace names it."""

import pytest

from pytest_tfperf.frameworks.jax_compilations import module_name


@pytest.mark.parametrize(
    ("function", "module"),
    [
        ("jit(step)", "jit_step"),
        ("jit(<lambda>)", "jit__lambda"),
        ("pmap(step)", "pmap_step"),
        ("step", "jit_step"),
    ],
)
def test_the_module_of_a_function(function, module):
    assert module_name(function) == module

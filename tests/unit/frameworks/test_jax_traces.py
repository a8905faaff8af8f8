"""Versions of JAX whose explanations are read, and the modules of compilations."""

from pytest_tfperf.frameworks.jax_traces import explains_first, module_name


def test_jax_explains_first_from_0_9_on():
    for version, first in [
        ("0.8.3", False),
        ("0.9.0", True),
        ("0.9.0.1", True),
        ("0.10.2", True),
        ("1.0.0", True),
    ]:
        assert explains_first(version) == first, version


def test_the_module_of_a_function():
    for function, module in [
        ("jit(step)", "jit_step"),
        ("jit(<lambda>)", "jit__lambda"),
        ("pmap(step)", "pmap_step"),
        ("step", "jit_step"),
    ]:
        assert module_name(function) == module, function

"""The module of a compilation, as a trace names it."""

from pytest_tfperf.frameworks.jax_traces import module_name


def test_the_module_of_a_function():
    for function, module in [
        ("jit(step)", "jit_step"),
        ("jit(<lambda>)", "jit__lambda"),
        ("pmap(step)", "pmap_step"),
        ("step", "jit_step"),
    ]:
        assert module_name(function) == module, function

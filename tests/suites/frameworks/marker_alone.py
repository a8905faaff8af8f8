"""Tests of JAX that have only the marker: which calls are the steps, and what compiled in them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

DATA = jnp.ones((64, 8))
LIMITS = pytest.mark.tfperf(max_xla_compiles=0, max_retraces=0)
double = jax.jit(lambda x: x * 2)
triple = jax.jit(lambda x: x * 3)


@jax.jit
def step(x):
    """The function of a test below has its name."""
    return x + 7


@LIMITS
@pytest.mark.parametrize("number", [1, 2])
def test_a_function_of_the_test_compiles_in_its_first_call_alone(number):
    step = jax.jit(lambda x: x * 2)
    for _ in range(4):
        step(DATA)


@LIMITS
def test_arrays_may_be_made_and_checked_around_the_steps():
    step = jax.jit(lambda x, y: x @ y)
    x, y = jnp.ones((32, 8)), jnp.ones((8, 3))
    for _ in range(4):
        z = step(x, y)
    assert float(z.sum()) > 0
    assert jnp.allclose(z, 8)


@LIMITS
def test_a_function_may_have_the_name_of_one_of_jax():
    @jax.jit
    def softmax(x):
        return jnp.exp(x) / jnp.exp(x).sum()

    jax.nn.softmax(DATA)
    for _ in range(4):
        softmax(DATA)


@LIMITS
def test_ops_may_run_between_the_steps():
    step = jax.jit(lambda x: x * 5)
    for _ in range(4):
        jnp.mean(step(DATA))


@LIMITS
def test_a_function_under_jvp_is_one():
    square = jax.jit(lambda x: x * x)
    for _ in range(4):
        jax.jvp(square, (DATA,), (DATA,))


@LIMITS
def test_another_function_of_the_name_may_be_alive():
    """The module has another function `step`, which this test does not call."""

    def step(x):
        return x * 2

    step = jax.jit(step)
    for _ in range(4):
        step(DATA)


@LIMITS
def test_one_of_two_lambdas_is_the_step():
    for _ in range(4):
        double(DATA)


@LIMITS
def test_fails_with_a_new_shape():
    def step(x):
        return x * 2

    step = jax.jit(step)
    for rows in (1, 1, 1, 2):
        step(np.ones((rows, 8), np.float32))


@LIMITS
def test_fails_with_a_function_for_each_step():
    """The module has other lambdas, which these calls are not of."""
    for _ in range(4):
        jax.jit(lambda x: x * 4)(DATA)


@LIMITS
def test_fails_with_two_lambdas_of_the_test():
    first, second = jax.jit(lambda x: x + 2), jax.jit(lambda x: x + 3)
    for _ in range(4):
        first(second(DATA))


@LIMITS
@pytest.mark.parametrize("number", [1, 2])
def test_fails_with_two_lambdas_of_the_module(number):
    """In the second test both are traced already."""
    for _ in range(4):
        double(triple(DATA))


@LIMITS
def test_fails_with_two_functions():
    def model(x):
        return x * 2

    def loss(x):
        return x.sum()

    model, loss = jax.jit(model), jax.jit(loss)
    for _ in range(4):
        loss(model(DATA))


@LIMITS
def test_fails_with_a_derivative():
    loss = jax.jit(lambda x: (x * x).sum())
    for _ in range(4):
        jax.value_and_grad(loss)(DATA)


@LIMITS
def test_fails_without_a_function():
    for _ in range(4):
        DATA.T * 2

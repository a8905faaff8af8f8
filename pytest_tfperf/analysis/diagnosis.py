"""Name the cause of a metric and a remedy, in a sentence each."""

from __future__ import annotations

from pytest_tfperf.analysis.host.shown import JAX

_OVERHEAD = (
    "Python code in the step or its loop, with neither TensorFlow nor input active",
    "Python code or JAX's dispatch, with no device active",
)
"""The place of host_overhead, of TensorFlow and of JAX."""
_LESS_OVERHEAD = {
    (False, False): (
        "move the step's Python code into a tf.function, run it less often, or loop over "
        "several steps inside one (steps_per_execution in Keras)"
    ),
    (False, True): (
        "do more in each call of the tf.function (larger batches, or a loop over several steps: "
        "steps_per_execution in Keras), and run less Python between the calls"
    ),
    (True, False): (
        "move the step's Python code into one jax.jit function, loop over several steps "
        "inside it (jax.lax.scan), or load the input ahead (Grain)"
    ),
    (True, True): (
        "do more in each call of the jax.jit function (larger batches, or several steps in a "
        "jax.lax.scan), or load the input ahead (Grain)"
    ),
}
"""Remedies by framework, true for JAX, and true if each step is one call of a function."""


def overhead_cause(framework: str, is_function: bool) -> dict[str, str]:
    """
    Return `where` and `try` for steps whose time goes to Python.

    Args:
        framework: The framework that ran the steps.
        is_function: True if each step is one call of a tf.function or jax.jit function.
    """
    of_jax = framework == JAX
    return {"where": _OVERHEAD[of_jax], "try": _LESS_OVERHEAD[of_jax, is_function]}

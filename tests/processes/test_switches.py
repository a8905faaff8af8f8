"""Switches of a whole process: whatever a user has set, the first profile does not raise."""

import pytest

pytestmark = pytest.mark.full

STEP = """
import pytest
import tensorflow as tf

def check(tf_profile, unknown):
    step = tf.function(lambda x: x @ x)
    found = tf_profile(step, [tf.ones((3, 3))] * 4, steps=5, warmup=1)
    assert float(step(tf.ones((3, 3)))[0, 0]) == 3  # the step still runs
    assert found.step_time > 0
    why = found.value("graph_ops").why
    assert (unknown in why) if why else not unknown, why
"""
AT_ANY_TIME = """
debugging = tf.debugging.experimental
# each switch, what puts it back, and why graphs are unknown under it
SWITCHES = [
    (tf.debugging.enable_check_numerics, tf.debugging.disable_check_numerics, ""),
    (
        lambda: debugging.enable_dump_debug_info("dump", "NO_TENSOR"),
        debugging.disable_dump_debug_info,
        "",
    ),
    (
        lambda: tf.config.run_functions_eagerly(True),
        lambda: tf.config.run_functions_eagerly(False),
        "calls no tf.function",
    ),
]

@pytest.mark.parametrize(("switch", "back", "unknown"), SWITCHES)
def test_step(tf_profile, switch, back, unknown):
    switch()
    try:
        check(tf_profile, unknown)
    finally:
        back()
"""
AT_THE_START = """
tf.config.experimental.set_synchronous_execution(False)

def test_step(tf_profile):
    check(tf_profile, "ops run asynchronously")
"""


@pytest.mark.parametrize(("suite", "n_tests"), [(AT_ANY_TIME, 3), (AT_THE_START, 1)])
def test_a_profile_works_under_a_switch_of_tensorflow(pytester, processes, suite, n_tests):
    pytester.makepyfile(STEP + suite)
    pytester.runpytest_subprocess("-Wignore").assert_outcomes(passed=n_tests)

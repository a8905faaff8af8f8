"""Switches of a whole process: whatever a user has set, the first profile does not raise."""

import pytest

pytestmark = pytest.mark.full

SWITCHES = {
    "debugging.enable_check_numerics()": "",
    "debugging.experimental.enable_dump_debug_info('dump', 'NO_TENSOR')": "",
    "config.run_functions_eagerly(True)": "calls no tf.function",
    "config.experimental.set_synchronous_execution(False)": "ops run asynchronously",
}
"""Each switch, and why graphs are unknown under it."""


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_profile_works_under_a_switch_of_tensorflow(pytester, processes, switch):
    pytester.makepyfile(
        f"""
        import pytest
        import tensorflow as tf

        tf.{switch}

        def test_step(tf_profile):
            step = tf.function(lambda x: x @ x)
            found = tf_profile(step, [tf.ones((3, 3))] * 4, steps=5, warmup=1)
            assert found.step_time > 0
            why = found.value("graph_ops").why
            assert ({SWITCHES[switch]!r} in why) if why else {not SWITCHES[switch]}
            assert float(step(tf.ones((3, 3)))[0, 0]) == 3  # the step still runs
        """
    )
    pytester.runpytest_subprocess("-Wignore").assert_outcomes(passed=1)

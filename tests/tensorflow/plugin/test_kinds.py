"""Kinds of tests that profile TensorFlow itself: test cases of TensorFlow, and async ones."""

import pytest

TEST_CASES = """
class TestSteps(tf.test.TestCase):
    @pytest.fixture(autouse=True)
    def profiler(self, tf_profile):
        self.tf_profile = tf_profile

    @pytest.mark.tfperf(max_eager_ops=0)
    def test_eager(self):
        profile = self.tf_profile(lambda: tf.ones(3) + 1, **STEP_ARGUMENTS)
        self.assertAllEqual(profile.result, [2, 2, 2])

class TestMarked(tf.test.TestCase):
    @pytest.mark.tfperf(max_retraces=0)
    def test_retraces(self):
        step = tf.function(lambda x, n: x * n)
        for n in range(4):
            step(DATA[0], n)
"""
ASYNC = """
import asyncio

@pytest.mark.asyncio
@pytest.mark.tfperf(max_eager_ops=0)
async def test_loop(tf_profile):
    step = tf.function(lambda x: x + 1)
    for batch in tf_profile.steps(DATA, **STEP_ARGUMENTS):
        await asyncio.sleep(0)
        step(batch)
    assert tf_profile.profile.step_time > 0

@pytest.mark.asyncio
@pytest.mark.tfperf(max_eager_ops=0)
async def test_call(tf_profile):
    await asyncio.sleep(0)
    tf_profile(lambda x: x + 1, DATA, **STEP_ARGUMENTS)

@pytest.mark.asyncio
async def test_coroutine(tf_profile):
    async def step(x):
        return x + 1

    with pytest.raises(TypeError, match="step is a coroutine function"):
        tf_profile(step, DATA)
"""


def test_test_cases_of_tensorflow(suite):
    suite.gives(
        TEST_CASES,
        "*eager_ops is 2, above the limit of 0*",
        "*retraces is 3, above the limit of 0*",
        failed=2,
        skipped=2,  # test_session, which each brings along
    )


@pytest.mark.full
def test_async_tests(suite):
    suite.write(ASYNC)
    scope = "asyncio_default_fixture_loop_scope=function"  # unset is a warning, an error before pytest 9
    result = suite("-p", "asyncio", "-o", scope)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["*eager_ops is 1, above the limit of 0*", "PERF test_suite.py::test_call*"]
    )

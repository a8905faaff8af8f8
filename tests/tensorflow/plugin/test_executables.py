"""What a user sees of the executables of a step."""

import pytest

FIT = """
import pytest
import keras

LIMITS = dict(max_xla_compiles=0, min_fusions=1, max_xla_compile_time="1 ms")

@pytest.mark.tfperf(**LIMITS, warmup=6, steps=4, trace_steps=10)
def test_fit(tf_profile):
    model = keras.Sequential([keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=True)
    x, y = np.ones((37, 3), "float32"), np.ones((37, 1), "float32")
    profile = tf_profile.fit(model, x, y, batch_size=8, epochs=12, verbose=0)
    rows = profile.tables["executables"].records()
    assert {row["executable"] for row in rows} == {"one_step_on_data"} and len(rows) == 2
    assert sum(row["runs"] for row in rows) == 1
    assert 0 < profile.xla_compile_time < profile.first_step_time
"""


@pytest.mark.imports("keras")
def test_a_partial_batch_is_named_with_its_shapes(suite):
    suite.write(FIT)
    result = suite()
    result.assert_outcomes(failed=1)
    shown = result.stdout.str()
    assert (
        "where: compiled: one_step_on_data: argument 0 f32[8,3] → f32[5,3], argument 1 f32[8,1] → f32[5,1]"
        in shown
    )
    result.stdout.fnmatch_lines(
        [
            "*xla_compile_time is *, above the limit of 1 ms*",
            "  where: compiled: one_step_on_data * *s",
        ]
    )
    result.stdout.no_fnmatch_line("*fusions is*")


def test_executables_are_named_with_their_runs_and_what_was_compiled_before_is_not_known(suite):
    suite.write("""
@tf.function(jit_compile=True)
def double(x):
    return x * 2

@tf.function(jit_compile=True)
def total(x):
    return tf.reduce_sum(x)

@pytest.mark.tfperf(xla_clusters=1)
def test_step(tf_profile):
    tf_profile(lambda x: total(double(double(x))), DATA, **STEP_ARGUMENTS)

@tf.function
def plain(x):
    return tf.reduce_sum(x)

@pytest.mark.tfperf(max_xla_compile_time=0, fusions=0)
def test_steps_without_xla_have_no_fusion_and_compile_nothing(tf_profile):
    profile = tf_profile(plain, DATA, **STEP_ARGUMENTS)
    assert "executables" not in profile.tables

jitted = tf.function(lambda x: tf.reduce_sum(tf.tanh(x) * x), jit_compile=True)

@pytest.mark.tfperf(min_fusions=1, max_xla_compile_time=0)
def test_what_was_compiled_before_is_not_known(tf_profile):
    jitted(DATA[0])
    tf_profile(jitted, DATA, **STEP_ARGUMENTS)
""")
    result = suite()
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*xla_clusters is 2, *1*",
            "  where: ran in a step: double ×2, total",
            "  try: put the whole step into one tf.function(jit_compile=True); *",
            "*xla_compile_time*executables may have been compiled before*",
        ]
    )

"""Tracebacks of errors: the test's own line and the sentence, without frames of the plugin."""

import re

import keras  # noqa: F401  # before any test, since pytester forgets what a test imports
import pytest

SUITE = """
STEP = tf.function(lambda x: tf.reduce_sum(x))

def test_attribute_unknown(tf_profile):
    tf_profile(STEP, DATA, **STEP_ARGUMENTS).device_busy

def test_attribute_misspelt(tf_profile):
    tf_profile(STEP, DATA, **STEP_ARGUMENTS).step_tim

def test_value(tf_profile):
    tf_profile(STEP, DATA, **STEP_ARGUMENTS).value("step_tim")

def test_no_profile(tf_profile):
    tf_profile.profile

def test_name_taken(tf_profile):
    tf_profile(STEP, DATA, name="one", **STEP_ARGUMENTS)
    tf_profile(STEP, DATA, name="one", **STEP_ARGUMENTS)

def test_limit_unknown(tf_profile):
    tf_profile(STEP, DATA, limits={"max_retrace": 0})

def test_limit_quantity(tf_profile):
    tf_profile(STEP, DATA, limits={"max_input_bound": "5 apples"})

def test_no_function(tf_profile):
    tf_profile(5, DATA)

def test_arguments(tf_profile):
    tf_profile(lambda a, b, c: a, DATA)

def test_data_ends(tf_profile):
    tf_profile(STEP, iter(DATA[:1]), **STEP_ARGUMENTS)

def test_restore(tf_profile):
    tf_profile(STEP, DATA, restore="a model")

def test_steps_limit(tf_profile):
    for x in tf_profile.steps(DATA, limits={"max_retrace": 0}):
        STEP(x)

def test_steps_end(tf_profile):
    for x in tf_profile.steps(iter(DATA[:1]), **STEP_ARGUMENTS):
        STEP(x)

def test_steps_restore(tf_profile):
    for x in tf_profile.steps(DATA, restore="a model"):
        STEP(x)

def test_nested(tf_profile):
    for x in tf_profile.steps(DATA * 50, **STEP_ARGUMENTS):
        tf_profile(STEP, DATA)

def test_fit_model(tf_profile):
    tf_profile.fit("a model", DATA)

def test_compare_one(tf_profile):
    tf_profile.compare({"a": STEP})

def test_compare_arguments(tf_profile):
    tf_profile.compare({"a": STEP, "b": STEP})

def test_compare_outputs(tf_profile):
    steps = {"a": lambda: tf.ones(3), "b": lambda: tf.zeros(3)}
    tf_profile.compare(steps, warmup=2, trace_steps=3)

def test_compare_data(tf_profile):
    tf_profile.compare({"a": STEP, "b": STEP}, data={"a": DATA})

def test_trace_without_step(tf_profile):
    with tf_profile.trace():
        pass

def test_trace_nested(tf_profile):
    with tf_profile.trace():
        tf_profile(STEP, DATA)

def test_trace_limit(tf_profile):
    with tf_profile.trace(limits={"max_retrace": 0}):
        pass

def test_trace_in_session(tf_profile, tmp_path):
    tf.profiler.experimental.start(str(tmp_path))
    try:
        with tf_profile.trace():
            pass
    finally:
        tf.profiler.experimental.stop(save=False)

def test_grappler(tf_profile):
    with tf_profile.grappler(remaping=True):
        pass

def test_grappler_value(tf_profile):
    with tf_profile.grappler(remapping=1):
        pass

def test_export_none(tf_profile):
    tf_profile.export("timeline.json")

def test_export_format(tf_profile):
    tf_profile(STEP, DATA, **STEP_ARGUMENTS)
    tf_profile.export("timeline.doc")

def test_export_stage(tf_profile):
    tf_profile(STEP, DATA, **STEP_ARGUMENTS)
    tf_profile.export("hlo.txt", stage="raw")

@pytest.mark.tfperf
def test_marker_alone():
    pass

def test_step_raises(tf_profile):
    def step(x):
        raise KeyError("of the step")
    tf_profile(step, DATA)
"""


def test_errors_show_no_frame_of_the_plugin(suite):
    suite.write(SUITE)
    result = suite("-p", "no:randomly", "--tb=long")
    n_tests = SUITE.count("def test_")
    outcomes = result.parseoutcomes()
    assert outcomes.get("failed", 0) + outcomes.get("errors", 0) == n_tests
    output = result.stdout.str()
    sections = re.split(r"^_+ (?:ERROR at setup of )?(test_\w+) _+$", output, flags=re.MULTILINE)
    shown = dict(zip(sections[1::2], sections[2::2], strict=True))
    assert len(shown) == n_tests
    own = {
        name: re.findall(r"^\S*(?:pytest_tfperf|contextlib)\S*:\d+.*$", text, re.M)
        for name, text in shown.items()
    }
    assert {name: frames for name, frames in own.items() if frames} == {}
    assert "All traceback entries are hidden" not in output


def test_lines_of_the_profiler_are_no_part_of_a_failure_s_stderr(suite):
    body = """
def test_loud(tf_profile):
    import os
    os.write(2, b"the user's own line\\nI0000 00:00:1.2 3 other.cc:1] another's\\n")
    tf_profile(tf.function(lambda x: x + 1), DATA, **STEP_ARGUMENTS)
    assert False
"""
    suite.write(body)
    shown = suite("--capture=fd").stdout.str()
    assert "the user's own line" in shown
    assert "other.cc:1] another's" in shown
    assert "profiler_session.cc" not in shown
    assert "save_profile.cc" not in shown


KERAS = """
import inspect

import keras

X, Y = np.ones((64, 8), "float32"), np.ones((64, 1), "float32")

def model(**options):
    made = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse", **options)
    return made

@pytest.mark.tfperf(max_retraces=0)
def test_metric_alone():
    model(metrics=["no_such_metric"]).fit(X, Y, verbose=0)

def test_metric(tf_profile):
    tf_profile.fit(model(metrics=["no_such_metric"]), X, Y, verbose=0)

@pytest.mark.tfperf(max_retraces=0)
def test_shape_alone():
    model().fit(X[:, :4], Y, verbose=0)

@pytest.mark.tfperf(max_retraces=0)
def test_signatures():
    made = model()
    for method in (made.fit, made.evaluate, made.predict):
        assert list(inspect.signature(method).parameters)[0] == "x"
        assert method.__name__ in ("fit", "evaluate", "predict")
    made.fit(X, Y, verbose=0, epochs=40)
"""


@pytest.mark.imports("keras")
def test_errors_that_keras_filters_end_as_without_the_plugin(suite):
    suite.write(KERAS)
    result = suite("-p", "no:randomly")
    result.assert_outcomes(passed=1, failed=3)
    assert "pytest_tfperf/" not in result.stdout.str()

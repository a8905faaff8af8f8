"""The op guide as a user meets it: limits, what is switched on and suppressed, and what cannot be known."""

import pytest

BODY = """
@tf.function
def swapped(x):
    return tf.transpose(x, (0, 2, 1))

@tf.function
def step(x):
    return tf.reduce_sum(swapped(x) + 1.0, 1) * 0.5 + tf.random.normal((32,))

CUBES = [tf.ones((8, 32, 64))] * 4
"""


def test_findings_fail_a_limit_with_line_and_rewrite_and_are_switched_on_and_suppressed(suite):
    suite.gives(
        BODY
        + """
@pytest.mark.tfperf(max_op_guide_findings=0, **STEP_ARGUMENTS)
def test_step(tf_profile):
    profile = tf_profile(step, CUBES)
    table = profile.tables["op_guide"]
    assert [column.key for column in table.columns] == ["code", "level", "op", "type", "line", "what", "why", "rewrite"]
    rows = [(row["code"], row["level"], row["type"], row["line"]) for row in table.records()]
    assert rows == [
        ("TRANSPOSE", "on", "Transpose", "test_suite.py:10"),
        ("REDUCE_THEN_MUL", "info", "Mul", "test_suite.py:14"),
        ("NORMAL_SAMPLING", "info", "RandomStandardNormal", "test_suite.py:14"),
    ]
    assert profile.op_guide_findings == 1
    assert profile.value("op_guide_findings").source.value == "graph"

@pytest.mark.tfperf(op_guide_findings=0, ignore_findings=["TRANSPOSE", "UNFUSED_BN"], **STEP_ARGUMENTS)
def test_suppressed(tf_profile):
    profile = tf_profile(step, CUBES)
    assert [row["level"] for row in profile.tables["op_guide"].records() if row["code"] == "TRANSPOSE"] == ["suppressed"]
    assert "ignore_findings names UNFUSED_BN, and the step has no such finding" in profile.notes

@pytest.mark.tfperf(op_guide_findings=2, findings="REDUCE_THEN_MUL", **STEP_ARGUMENTS)
def test_switched_on(tf_profile):
    tf_profile(step, CUBES)

@pytest.mark.tfperf(op_guide_findings=2, findings="all", ignore_findings="NORMAL_SAMPLING", **STEP_ARGUMENTS)
def test_all_but_one(tf_profile):
    tf_profile(step, CUBES)

@pytest.mark.tfperf(max_op_guide_findings=0, **STEP_ARGUMENTS)
def test_eager_is_unknown(tf_profile):
    tf_profile(lambda x: x + 1, DATA)
""",
        "*op_guide_findings is 1, above the limit of 0 (max_op_guide_findings=0)",
        "  where: TRANSPOSE at test_suite.py:10: Transpose, f32*8,32,64* by (0,2,1)",
        "  try: move this transpose next to the matrix product *",
        "*op_guide_findings is unknown, limit 0 (max_op_guide_findings=0): the steps called no tf.function*",
        passed=3,
        failed=2,
    )


def test_a_code_that_is_none_is_an_error_of_the_file(suite):
    suite.gives(
        "@pytest.mark.tfperf(ignore_findings='TRANSPOS')\ndef test_step(tf_profile): pass\n",
        "*no finding 'TRANSPOS'; did you mean 'TRANSPOSE'?*",
        errors=1,
    )


@pytest.mark.full
@pytest.mark.parametrize("drop", [True, False])
def test_a_keras_loop(suite, drop):
    suite.write(
        f"""
import keras

@pytest.mark.tfperf(op_guide_findings=3, **STEP_ARGUMENTS)
def test_fit(tf_profile):
    layers = [keras.Input((16, 16, 4)), keras.layers.Conv2D(8, 3, dilation_rate=2), keras.layers.MaxPooling2D(2), keras.layers.Flatten()]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensors((np.ones((16, 16, 4), "float32"), np.ones(1, "float32"))).repeat(160).batch(8, drop_remainder={drop})
    profile = tf_profile.fit(model, data, epochs=2, verbose=0)
    rows = profile.tables["op_guide"].records()
    assert {{row["code"] for row in rows}} == {{"MAXPOOL_GRAD", "PADDED_RESHAPE", "SPACE_BATCH"}}
    assert rows[0]["line"] == "test_suite.py:16"
"""
    )
    suite().assert_outcomes(passed=1)

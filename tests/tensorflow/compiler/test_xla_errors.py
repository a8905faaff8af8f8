"""Uncompilable ops in the errors that TensorFlow raises."""

from pathlib import Path

import pytest
import tensorflow as tf

from pytest_tfperf.compiler import step_graph
from pytest_tfperf.compiler.step_graph import explain


@tf.function
def through_text(x):
    return tf.strings.to_number(tf.strings.as_string(x))  # TEXT LINE


@tf.function(jit_compile=True)
def broken(x):
    y = tf.py_function(lambda v: v * 2, [x], tf.float32)  # PYTHON LINE
    return through_text(x) + y


LINES = {
    text: n
    for n, line in enumerate(Path(__file__).read_text().splitlines(), 1)
    for text in ("TEXT LINE", "PYTHON LINE")
    if line.endswith(f"# {text}")
}


def error_of(call):
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        call()
    return caught.value


def notes(error):
    """Notes of an error; Python 3.10 has them in the message."""
    added = str(error).partition("\ntfperf: ")
    return "\n".join(getattr(error, "__notes__", ())) or "".join(added[1:]).lstrip()


def test_every_op_is_named_with_its_line_also_in_nested_functions():
    error = error_of(lambda: broken(tf.ones((2,))))
    explain(error)
    assert notes(error).splitlines() == [
        "tfperf: XLA cannot compile",
        f"  EagerPyFunc (EagerPyFunc) at test_xla_errors.py:{LINES['PYTHON LINE']}: a Python function",
        f"  AsString (PartitionedCall/AsString) at test_xla_errors.py:{LINES['TEXT LINE']}: handles text, which XLA has no type for",
        f"  StringToNumber (PartitionedCall/StringToNumber) at test_xla_errors.py:{LINES['TEXT LINE']}: "
        "handles text, which XLA has no type for",
    ]


@pytest.mark.full
def test_op_in_a_called_function_is_named():
    outer = tf.function(lambda x: broken(x) + 1.0)
    error = error_of(lambda: outer(tf.ones((2,))))
    explain(error)
    assert "EagerPyFunc" in notes(error)


@pytest.mark.full
def test_op_in_a_lambda_is_named():
    error = error_of(
        lambda: tf.function(lambda x: through_text(x), jit_compile=True)(tf.ones((2,)))
    )
    explain(error)
    assert "AsString" in notes(error)


def test_long_list_of_ops_is_cut():
    def body(x):
        for _ in range(12):
            x = tf.strings.to_number(tf.strings.as_string(x))
        return x

    error = error_of(lambda: tf.function(body, jit_compile=True)(tf.ones((2,))))
    explain(error)
    assert notes(error).splitlines()[-1] == "  and 14 more"


def test_other_errors_are_left_alone():
    for error in (ValueError("x"), tf.errors.InvalidArgumentError(None, None, "shapes differ")):
        before = str(error)
        explain(error)
        assert (str(error), notes(error)) == (before, "")


def test_deleted_function_causes_no_second_error():
    error = tf.errors.InvalidArgumentError(
        None, None, "trying to compile graph __inference_gone_1[x] on XLA_CPU_JIT"
    )
    explain(error)
    assert notes(error) == ""


def test_message_is_extended_without_exception_notes():
    for kind, arguments in (
        (tf.errors.InvalidArgumentError, (None, None, "m")),
        (RuntimeError, ("m",)),
    ):
        old = type("Old", (kind,), {"add_note": property()})(*arguments)  # as in Python 3.10
        step_graph._add_note(old, "a\nb")
        assert (str(old), getattr(old, "__notes__", [])) == ("m\na\nb", []), kind


def test_message_is_unchanged_with_exception_notes():
    class New(RuntimeError):
        def add_note(self, note):
            self.__notes__ = [note]

    new = New("m")
    step_graph._add_note(new, "a\nb")
    assert (str(new), notes(new)) == ("m", "a\nb")

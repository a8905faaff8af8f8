"""JSON files that another person may have written: what is read, and what is refused in one sentence."""

import json
import math
import os
import re

import numpy as np
import pytest

from pytest_tfperf.json_file import (
    MOST_BYTES,
    MOST_DEEP,
    JsonFileError,
    indented_json,
    parse_json,
    plain_strings,
    read_json,
)


def refusal(read, given):
    """What is said of JSON that is refused."""
    try:
        read(given)
    except JsonFileError as error:
        return str(error)
    return "it is read"


def nested(depth):
    return "[" * depth + "]" * depth


def test_json_is_read_as_python_reads_it():
    for text in [
        '{"a": [1, 2.5, -3e8, null, true, "b"]}',
        "1",
        '""',
        nested(MOST_DEEP),
        f"[{10**18}]",
    ]:
        assert parse_json(text) == json.loads(text), text


def test_other_json_is_refused():
    for text, why in [
        ("{", "not JSON: Expecting property name"),
        ("NaN", "NaN is no number"),
        ("[-Infinity]", "-Infinity is no number"),
        ("[1e999]", "a number out of range: 1e999"),
        (f"[{'9' * 400}]", "a number out of range: 9999"),
        (f"[{'9' * 5000}]", "a number out of range: 9999"),
        ('{"a": 1, "b": 2, "a": 3}', "the key 'a' stands twice in one object"),
        (nested(MOST_DEEP + 1), f"nested deeper than {MOST_DEEP} levels"),
        (nested(100_000), f"nested deeper than {MOST_DEEP} levels"),
    ]:
        assert why in refusal(parse_json, text), text[:80]
        assert "\n" not in refusal(parse_json, text), text[:80]


def test_json_is_written_as_python_writes_it():
    content = {
        "a": [1, 2.5, -3e-8, 1e22, None, True, np.float64(0.1)],
        "ü\u2028😀": '\x1b"\\/<##[x]\x7f',
        "empty": [{}, [], ()],
        "tuple": (1, (2, "ß")),
    }
    for one in (content, {**content, "half": "\ud800"}):
        text = indented_json(one)
        assert text.isascii()
        assert json.loads(text) == json.loads(json.dumps(one))
        assert text.splitlines()[1] == ' "a": ['


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, np.float64("nan")])
def test_numbers_that_are_not_finite_are_not_written(number):
    for content in (number, {"a": [1, {"b": (2, number)}]}):
        with pytest.raises(ValueError, match="is no number of JSON"):
            indented_json(content)


def test_what_json_has_not_is_not_written():
    with pytest.raises(TypeError, match="JSON has no object"):
        indented_json([object()])


def test_a_file_is_read(tmp_path):
    (tmp_path / "a.json").write_text('{"ü": 1}', encoding="utf-8")
    assert read_json(tmp_path / "a.json") == {"ü": 1}


def test_a_missing_file_is_an_error_of_its_own(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("content", "why"), [(b"\xff\xfe{}", "not UTF-8 text"), (b"\xef\xbb\xbf{}", "not JSON")]
)
def test_other_encodings_are_refused(tmp_path, content, why):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(JsonFileError, match=why):
        read_json(tmp_path / "a.json")


def test_a_fifo_a_device_and_a_folder_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for path in (tmp_path / "fifo", tmp_path / "zero", tmp_path):
        assert re.search("not a regular file|Is a directory", refusal(read_json, path)), path


def test_a_file_above_the_limit_is_refused_unread(tmp_path):
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(JsonFileError, match="50 MB, and at most 50 are read"):
        read_json(tmp_path / "large.json")


def test_texts_lose_control_characters_and_changes_of_direction():
    hostile = "\x1b[31m\u202e\x9b\r\x00\u2066b\nc\td"
    assert plain_strings({hostile: [hostile, 1, None]}) == {
        "\ufffd[31m\ufffd\ufffd\ufffd\ufffd\ufffdb\nc\td": [
            "\ufffd[31m\ufffd\ufffd\ufffd\ufffd\ufffdb\nc\td",
            1,
            None,
        ]
    }


def test_texts_in_tuples_lose_them_too():
    assert plain_strings((("\x1b", 1), ["\ud800"])) == [["\ufffd", 1], ["\ufffd"]]


def test_numbers_keep_a_magnitude_whose_ratios_are_finite():
    numbers = [("1e100", 1e100), ("-1e-100", -1e-100), ("9e-101", 0.0), ("5e-324", 0.0)]
    for text, number in numbers:
        assert parse_json(text) == number, text
    assert "a number out of range: 1.1e100" in refusal(parse_json, "1.1e100")

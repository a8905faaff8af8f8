"""The command tfperf in this process, and what holds of all that it prints and writes."""

import contextlib
import io
import json
import re

from pytest_tfperf.cli.main import main

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# what GitHub's runner takes for a command: TryParseV2 and TryParse of src/Runner.Common/ActionCommand.cs
COMMAND = re.compile(r"^\s*::[^\n]*::|##\w*\[", re.MULTILINE)
NO_NUMBER = re.compile(r"(?<![\w.])[-+]?(nan|inf|infinity)(?!\w)", re.IGNORECASE)
REFUSED = re.compile(r"tfperf: [^\n]+(\n  [^\n]+)*\n")
GOOD, FAILED, USAGE, UNKNOWN = 0, 1, 2, 3


def ran(*words):
    """Exit status, standard output and standard error."""
    streams = [
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors, newline="")
        for errors in ("strict", "backslashreplace")
    ]
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        status = main(list(map(str, words)))
        for stream in streams:
            stream.flush()
    return status, *(stream.buffer.getvalue().decode("utf-8") for stream in streams)


def strict_json(text):
    """The content of JSON text, which has no NaN or Infinity."""

    def refuse(name):
        raise AssertionError(f"{name} in JSON")

    return json.loads(text, parse_constant=refuse)


def check_terminal(text):
    """Check that nothing in the text controls a terminal or the log of a job."""
    _check_absent(CONTROL, text)
    _check_absent(COMMAND, text)


def check_numbers(text):
    """Check that no number for people is none; scripts and styles of a page are not for people."""
    _check_absent(NO_NUMBER, re.sub(r"(?s)<(script|style)\b.*?</\1>", "", text))


def _check_absent(pattern, text):
    found = pattern.search(text)
    assert not found, f"{found[0]!r} in {text[max(found.start() - 80, 0) : found.end() + 40]!r}"


def check_answer(status, out, err, as_json=False):
    """Check that a command gave an answer, or refused its input in one sentence."""
    assert status in (GOOD, FAILED, USAGE, UNKNOWN), status
    check_terminal(out + err)
    if status == USAGE:
        assert REFUSED.fullmatch(err), err
        assert not out, out
    elif as_json:
        strict_json(out)
    else:
        check_numbers(out)


def contents(folder):
    """The bytes of every file below a folder, and the targets of links."""
    return {
        path: path.readlink() if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }

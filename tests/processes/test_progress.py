"""The line that says which window runs: on a real terminal, behind what pytest wrote there, and gone when the test has ended."""

import os
import re
import subprocess
import sys
from textwrap import dedent

import pytest
from helpers.paths import ROOT

pytestmark = pytest.mark.usefixtures("processes")

SUITE = dedent("""\
    import os
    import pytest
    from pytest_tfperf.plugin import progress
    from pytest_tfperf.plugin.progress import announcer

    if "EVERY" in os.environ:
        progress._INTERVAL_S = float(os.environ["EVERY"])

    @pytest.mark.parametrize("kind", ["short", "long" * 20])
    def test_step(request, kind):
        announce = announcer(request.node, "QUIET" not in os.environ)
        announce("waiting for the lock, for as long as it takes")
        announce("measuring, about 3 s")
        announce("")
    """)


def written(tmp_path, *options, columns=80, name="test_a.py", **environment):
    """What pytest writes on a terminal of so many columns."""
    (tmp_path / name).write_text(SUITE, encoding="utf-8")
    ours, theirs = os.openpty()
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=no"]
    where = "-c", os.devnull, "--rootdir=."
    settings = {
        "COLUMNS": str(columns),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(ROOT),
    }
    run = subprocess.Popen(
        [*command, *where, *options, name],
        cwd=tmp_path,
        stdout=theirs,
        stderr=theirs,
        env={**clean, **settings, **environment},
    )
    os.close(theirs)
    found = b""
    while chunk := _read(ours):
        found += chunk
    os.close(ours)
    assert run.wait(60) == 0
    return found.decode()


def _read(ours):
    try:
        return os.read(ours, 4096)
    except OSError:  # Linux: the other end is closed
        return b""


def on_screen(text, columns):
    """What stays on a terminal when this is written: it wraps lines, goes back, and knows nothing else."""
    rows, row, column = [[]], 0, 0
    for letter in text:
        if letter == "\n" or (letter not in "\r\b" and column == columns):
            row, column = row + 1, 0
            rows += [[]] * (row == len(rows))
        if letter == "\r":
            column = 0
        elif letter == "\b":
            column = max(column - 1, 0)
        elif letter != "\n":
            rows[row] += [" "] * (column + 1 - len(rows[row]))
            rows[row][column] = letter
            column += 1
    return ["".join(letters).rstrip() for letters in rows]


def check_what_stays(with_it, without, columns):
    """Check that a terminal shows the same as after a run without the line."""
    assert "about 3 s" in with_it
    assert "\b" not in without
    shown, plain = (
        [re.sub(r" in \d+\.\d+s.*", "", line).strip("= ") for line in on_screen(text, columns)]
        for text in (with_it, without)
    )
    assert shown == plain


MEASURING = " tfperf: measuring, about 3 s"
SHORT = " tfperf test_step[short]: measuring, about 3 s"
SHORT_LINE = "tfperf: test_step[short]: measuring, about 3 s"


def test_the_line_is_shown_as_it_fits_and_leaves_nothing(tmp_path):
    with_it, without = (written(tmp_path, **more) for more in ({}, {"QUIET": "1"}))
    assert re.findall(r" tfperf[^\b\n]*about 3 s", with_it) == [SHORT, MEASURING]
    check_what_stays(with_it, without, 80)


@pytest.mark.full
def test_what_stays_is_what_pytest_writes_without_it(tmp_path):
    for columns, options in ((60, ("-q",)), (80, ("-v",)), (200, ("-vv",))):
        with_it, without = (
            written(tmp_path, *options, columns=columns, **more) for more in ({}, {"QUIET": "1"})
        )
        check_what_stays(with_it, without, columns)


@pytest.mark.full
def test_it_takes_the_room_that_the_line_has(tmp_path):
    long = f" tfperf test_step[{'long' * 20}]: measuring, about 3 s"
    for columns, first, second in ((200, SHORT, long), (45, MEASURING, MEASURING)):
        found = re.findall(r" tfperf[^\b\n]*about 3 s", written(tmp_path, columns=columns))
        assert found == [first, second], columns


@pytest.mark.full
def test_it_is_silent_where_the_test_may_write_on_that_line_and_at_first_in_ci(tmp_path):
    for options in (("-s",), ("--capture=tee-sys",)):
        assert "measuring" not in written(tmp_path, *options), options
    assert "measuring" not in written(tmp_path, CI="true")  # for ten seconds


@pytest.mark.full
def test_in_ci_it_writes_a_line_then(tmp_path):
    """Each text is a line of its own, and nothing goes back on a line."""
    lines = written(tmp_path, CI="true", EVERY="0").splitlines()
    assert SHORT_LINE in lines
    assert not any("\b" in line for line in lines)
    assert "measuring" not in written(tmp_path, "-s", CI="true", EVERY="0")


def in_log(tmp_path, *options, **environment):
    """The lines that pytest writes to a pipe."""
    (tmp_path / "test_a.py").write_text(SUITE, encoding="utf-8")
    clean = {key: value for key, value in os.environ.items() if key != "CI"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, "test_a.py"],
        cwd=tmp_path,
        env={**clean, "PYTHONPATH": str(ROOT), "QUIET": "1", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    return (done.stdout + done.stderr).splitlines()


def test_a_log_has_lines_of_its_own_between_those_of_pytest(tmp_path):
    lines = in_log(tmp_path, "-v", EVERY="0")
    assert SHORT_LINE in lines
    [passed] = [line for line in lines if line.startswith("test_a.py::test_step[short] P")]
    assert passed.startswith("test_a.py::test_step[short] PASSED")


@pytest.mark.full
def test_a_log_has_few_lines_and_none_with_q_but_in_ci(tmp_path):
    assert not any("measuring" in line for line in in_log(tmp_path))
    assert SHORT_LINE not in in_log(tmp_path, "-q", EVERY="0")
    assert SHORT_LINE in in_log(tmp_path, "-q", EVERY="0", CI="true")


WORKERS = ("-p", "xdist", "-n", "2")


@pytest.mark.full
def test_workers_write_lines(tmp_path):
    for ci in ({}, {"CI": "true"}):
        lines = written(tmp_path, *WORKERS, EVERY="0", **ci).splitlines()
        assert SHORT_LINE in lines, ci
    assert "measuring" not in written(tmp_path, *WORKERS, "-s", EVERY="0")
    assert "measuring" not in written(tmp_path, *WORKERS)  # at first


@pytest.mark.full
def test_workers_write_lines_to_a_log_too(tmp_path):
    assert SHORT_LINE in in_log(tmp_path, *WORKERS, EVERY="0")
    assert SHORT_LINE not in in_log(tmp_path, *WORKERS)  # at first

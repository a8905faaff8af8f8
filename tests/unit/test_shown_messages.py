"""Blocks of text on pages: each is run, made by the package here, or marked with its date."""

import re

import pytest
from helpers.builders import LAPTOP, profile, record_of, run_of, value
from helpers.paths import ROOT
from helpers.sample_run import DIFFERENCES

from pytest_tfperf.analysis.differences.call_differences import call_differences
from pytest_tfperf.analysis.differences.difference import Difference
from pytest_tfperf.analysis.timing import timing_notes
from pytest_tfperf.baseline.compare import compare_with_baseline
from pytest_tfperf.baseline.history import Merged
from pytest_tfperf.baseline.record import record
from pytest_tfperf.baseline.store import Place
from pytest_tfperf.recording import Recording
from pytest_tfperf.values import Column, Table

PAGES = sorted((ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(r"^(?:<!-- ([^\n]+) -->\n)?```(\S*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
DATE = re.compile(r"recorded: \d+ \w+ 20\d\d\b")


def blocks():
    """(page, comment, language, content) of each block at the left margin of a page."""
    for page in PAGES:
        for comment, language, content in BLOCK.findall(page.read_text("utf-8")):
            yield page.relative_to(ROOT).as_posix(), comment, language, content.rstrip()


def another_machine_class(folder):
    place = Place.of("test_model.py", folder, None)
    before = record_of(profile(step_time=0.010), environment=LAPTOP)
    record({place: [run_of(before)]}, False)
    other = {**LAPTOP, "machine": {**LAPTOP["machine"], "cores": 8}}
    now = profile(step_time=0.012)
    [found] = compare_with_baseline(now, "test_step", place, other, "timing", None)
    return f"{found.verdict.value}: {found.sentence}"


def a_history_that_starts_anew(folder):
    return Merged(entry={"runs": [{}]}, n_added=1, level=(0.0125, 0.0091)).what


def a_disturbed_time(folder):
    why = "other processes used 83% of the 2 cores in the timed window: stop what else runs there"
    noisy = value("step_time", 0.1, settled=True, interference=[why])
    place = Place.of("test_model.py", folder, None)
    test = record_of(profile(step_time=noisy), key="test_train_step")
    [left_out] = record({place: [run_of(test)]}, False).left_out
    return f"not recorded: {left_out.key}: {left_out.what}"


def a_trend(folder):
    seconds = tuple(((0.110 - 0.0005 * number) * 2, 2) for number in range(24))
    [note] = timing_notes(Recording(name="", trace=None, workload={}, blocks=seconds))
    return note


def more_python_calls(folder):
    name = "keras/src/utils/traceback_utils.py:inject_argument_info_in_traceback.error_handler"
    columns = tuple(Column(key, key) for key in ("function", "line", "calls", "self_s"))
    [found] = call_differences({name: 20}, Table.of("", columns, [(name, 113, 60, 350e-6)]))
    return found.line


def differences(folder):
    return "\n".join(Difference(**one).line for one in DIFFERENCES)


MESSAGES = {
    made.__name__: made
    for made in (
        another_machine_class,
        a_history_that_starts_anew,
        a_disturbed_time,
        a_trend,
        more_python_calls,
        differences,
    )
}


@pytest.mark.parametrize("name", MESSAGES)
def test_pages_show_messages_as_the_package_makes_them(tmp_path, name):
    shown = [content for _, comment, _, content in blocks() if comment == f"message: {name}"]
    assert shown == [MESSAGES[name](tmp_path)]


def test_every_block_of_output_is_held():
    loose = [
        f"{page}: {content[:60]}"
        for page, comment, language, content in blocks()
        if not language
        and comment.removeprefix("message: ") not in MESSAGES
        and not (DATE.match(comment) or comment == "generated")
    ]
    assert loose == []


def test_commands_that_are_not_run_have_no_output():
    shown = [
        f"{page}: {line}"
        for page, comment, language, content in blocks()
        if language == "console" and comment.startswith("not run: ")
        for line in content.splitlines()
        if not line.startswith("$ ")
    ]
    assert shown == []

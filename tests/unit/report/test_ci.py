"""What GitHub Actions is told."""

from pathlib import Path

import pytest
from helpers.builders import check, profile, record_of
from helpers.processes import files_of_at_most

from pytest_tfperf.errors import TfperfError
from pytest_tfperf.report.ci import MOST_BYTES, annotate, append_summary
from pytest_tfperf.report.markdown import render_markdown
from pytest_tfperf.results import BROKEN
from pytest_tfperf.runs import Run

FAILED = check("FAIL", advice=(("try", "prefetch"),))
ROOT = Path("/repository")


def run_of(*tests):
    return Run(created="now", tests=tests)


def said(*tests, rootdir=ROOT):
    return annotate(run_of(*tests), rootdir, ROOT, lambda one: one.verdict in BROKEN)


def test_an_annotation_names_the_test_s_line_and_failures():
    checks = [
        FAILED,
        check("PASS", "retraces"),
        check("UNKNOWN", "epoch_gap", "epoch_gap is unknown", name="eval"),
    ]
    assert said(record_of(profile(), checks=checks, line=12)) == [
        "::error file=test_model.py,line=12,title=test_step%3A input_bound FAIL%2C epoch_gap UNKNOWN"
        "::test_step: input_bound is 9 %25, above the limit of 5 %25%0A  try: prefetch%0Aeval: epoch_gap is unknown"
    ]


def test_passing_tests_have_no_annotation():
    assert said(record_of(checks=[check("PASS"), check("INCONCLUSIVE")], line=1), record_of()) == []


def test_an_expected_failure_has_no_annotation():
    assert said(record_of(checks=[FAILED], outcome="skipped")) == []  # as pytest calls it


def test_a_test_without_a_line_is_annotated_at_its_file():
    assert said(record_of(checks=[FAILED]))[0].startswith("::error file=test_model.py,title=")


@pytest.mark.parametrize(
    ("rootdir", "file"),
    [
        (ROOT / "models", "models/test_model.py"),
        (ROOT, "test_model.py"),
        (Path("/"), "../test_model.py"),
    ],
)
def test_files_are_relative_to_the_repository(rootdir, file):
    assert said(record_of(checks=[FAILED], line=3), rootdir=rootdir)[0].startswith(
        f"::error file={file},line=3,"
    )


def test_special_characters_of_workflow_commands_are_escaped():
    [line] = said(
        record_of(
            key="test_x[a:b,c%\r\n::error::]",
            checks=[check("FAIL", sentence="one\r\ntwo::three")],
            line=1,
        )
    )
    assert "\n" not in line
    assert "\r" not in line
    assert (
        "title=test_x[a%3Ab%2Cc%25%0D%0A%3A%3Aerror%3A%3A]%3A input_bound FAIL::test_x[a:b,c%25%0D%0A::error::]: one%0D%0Atwo::three"
        in line
    )


@pytest.mark.parametrize(
    ("n_tests", "n_shown", "last"),
    [(10, 10, None), (11, 9, "::error title=tfperf::2 more tests failed for their performance")],
)
def test_annotations_are_limited_to_those_github_shows(n_tests, n_shown, last):
    lines = said(*[record_of(key=f"test_{n}", checks=[FAILED], line=n) for n in range(n_tests)])
    assert len(lines) <= 10
    assert sum("file=" in line for line in lines) == n_shown
    assert last is None or lines[-1] == last


def test_long_names_and_messages_are_cut():
    [line] = said(
        record_of(key="k" * 10_000, checks=[check("FAIL", sentence="m" * 10_000)], line=1)
    )
    assert len(line) < 5000


def test_the_summary_is_appended(tmp_path):
    path, run = tmp_path / "summary", run_of(record_of(profile(step_time=0.1)))
    append_summary(run, path)
    append_summary(run, path)
    assert path.read_text(encoding="utf-8") == 2 * f"{render_markdown(run)}\n"


def test_a_summary_too_large_for_github_is_not_written(tmp_path):
    path = tmp_path / "summary"
    path.write_bytes(b"x" * (MOST_BYTES - 10))
    with pytest.raises(
        TfperfError, match=r"with 1,048,566 bytes in it there is no room for \d+ more"
    ):
        append_summary(run_of(), path)
    assert path.stat().st_size == MOST_BYTES - 10


def test_a_full_disk_leaves_the_summary_unchanged(tmp_path):
    path = tmp_path / "summary"
    path.write_text("before\n")
    with (
        files_of_at_most(100),
        pytest.raises(TfperfError, match="cannot be written: No space left on device"),
    ):
        append_summary(run_of(record_of(profile(step_time=0.1))), path)
    assert path.read_text() == "before\n"

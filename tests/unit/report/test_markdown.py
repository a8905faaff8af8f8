"""Markdown: the page as a whole, what is read into names, and how it is cut."""

import re
from dataclasses import replace

import pytest
from helpers.builders import check, profile, record_of, value
from helpers.golden import assert_golden
from helpers.sample_run import a_run, compared

from pytest_tfperf.report.markdown import MOST, render_markdown
from pytest_tfperf.runs import Run

NASTY = "test_x[</script>|`a``b`|@team|#12|[x](http://y)|*b*|\n\x1b[31m|😀]"


def run_of(*tests):
    return Run(created="2026-01-31T12:00:00+00:00", tests=tests)


def titles(text):
    return re.findall(r"^##? .*$", text, re.MULTILINE)


def many(n_tests, name="test_step"):
    """Tests with one of each kind of check, whose comparison has twenty differences."""
    differences = [{"what": f"{n} new Transpose", "seconds": n / 1e3} for n in range(20)]
    checks = [
        compared(
            "REGRESSION",
            "step_time",
            "slower",
            details=(("", "why"),) * 9,
            before=0.1,
            after=0.2,
            ratio=2.0,
            differences=differences,
        ),
        check("FAIL"),
        check("INCONCLUSIVE", "step_time_p90", "not decided"),
    ]
    return run_of(
        *[
            record_of(profile(step_time=0.1), key=f"{name}_{n}", checks=checks, outcome="failed")
            for n in range(n_tests)
        ]
    )


def test_the_page_as_a_whole():
    assert_golden("report.md", render_markdown(a_run()))


def test_a_run_without_tests_has_only_a_head():
    assert (
        render_markdown(run_of())
        == "# ✅ tfperf: 0 checks passed\n\n0 tests · `2026-01-31T12:00:00+00:00`\n"
    )


def test_sections_have_a_fixed_order():
    assert [title.strip("# ") for title in titles(render_markdown(many(1)))[1:]] == [
        "What changed",
        "Why",
        "Limits",
        "Not decided",
        "Measured",
    ]


def test_interference_stands_with_the_time_that_it_concerns():
    remarks = ["other processes used 83% of the 2 cores: stop what else runs there"]
    noisy = profile(step_time=value("step_time", 0.0125, interference=remarks))
    text = render_markdown(run_of(record_of(noisy), record_of(profile(step_time=0.1))))
    section = text.partition("## Disturbed times\n\n")[2]
    assert section == f"- `test_model.py::test_step`: step_time 12.5 ms: `{remarks[0]}`\n"
    assert "Disturbed" not in render_markdown(run_of(record_of(profile(step_time=0.1))))


def test_differences_are_shown_unless_the_check_passed():
    for verdict, shown in [
        ("REGRESSION", True),
        ("IMPROVED", True),
        ("INCONCLUSIVE", True),
        ("PASS", False),
    ]:
        differences = [{"what": "input_bound 2 % → 9 %", "seconds": None}]
        checks = [
            compared(
                verdict,
                "step_time",
                "said",
                before=0.1,
                after=0.1,
                ratio=1.0,
                differences=differences,
            )
        ]
        assert (
            "input_bound 2 % → 9 %"
            in render_markdown(run_of(record_of(profile(step_time=0.1), checks=checks)))
        ) is shown, verdict


def test_unchanged_values_are_counted():
    same = [
        compared("PASS", name, "as before", before=1.0, after=1.0)
        for name in ("retraces", "xla_compiles")
    ]
    assert "## What changed\n\n2 values are as they were.\n" in render_markdown(
        run_of(record_of(profile(), checks=same))
    )
    assert "## What changed\n\n1 value is as it was.\n" in render_markdown(
        run_of(record_of(profile(), checks=same[:1]))
    )


def test_names_and_messages_are_not_interpreted_as_markdown():
    checks = [
        check("FAIL", sentence=f"````\n{NASTY}"),
        compared("REGRESSION", "step_time", NASTY, before=1.0, after=2.0),
    ]
    text = render_markdown(
        run_of(record_of(profile(NASTY, step_time=0.1), key=NASTY, checks=checks, outcome="failed"))
    )
    assert "\x1b" not in text
    outside = re.sub(r"(?s)^(`{3,})text\n.*?^\1$", "", text, flags=re.MULTILINE)
    outside = re.sub(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", "", outside)
    assert not re.search(r"script|@team|#12|http|😀", outside)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {
        7,
        4,
    }  # as many cells as there are columns
    assert "`````text" in text


def test_characters_invalid_in_utf8_are_left_out():
    checks = [
        check("FAIL", sentence="c\udcffd"),
        compared("REGRESSION", "step_time", "e\udcfff", before=1.0, after=2.0),
    ]
    assert (
        "a b"
        in render_markdown(run_of(record_of(profile("g\udcff"), key="a\udcffb", checks=checks)))
        .encode()
        .decode()
    )


def test_long_names_and_messages_are_cut():
    checks = [
        check("FAIL", sentence="m" * 10_000),
        compared("REGRESSION", "step_time", "m" * 10_000, before=1.0, after=2.0),
    ]
    text = render_markdown(
        run_of(record_of(profile("p" * 10_000, step_time=0.1), key="k" * 10_000, checks=checks))
    )
    assert len(text) < 5000


def assert_fits(n_tests, name):
    """Every section shows some tests and counts the others."""
    text = render_markdown(many(n_tests, name))
    assert len(text) <= MOST, (n_tests, name)
    assert len(titles(text)) == 6, (n_tests, name)
    blocks = {
        "What changed": r"^\| ❌",
        "Why": "REGRESSION `",
        "Limits": "FAIL `",
        "Not decided": "^- INCONCLUSIVE",
        "Measured": r"^\| `",
    }
    sections = re.split(r"^## .*$", text, flags=re.MULTILINE)[1:]
    for (title, block), section in zip(blocks.items(), sections, strict=True):
        n_shown = len(re.findall(block, section, re.MULTILINE))
        more = re.search(r"^… and ([\d,]+) more, left out to fit$", section, re.MULTILINE)
        n_more = int(more[1].replace(",", "")) if more else 0
        assert n_shown + n_more == n_tests, (n_tests, name, title)


def test_the_page_fits_and_counts_what_it_leaves_out():
    for n_tests in (1, 30, 31, 200):
        assert_fits(n_tests, "test_step")
    for name in ("n" * 10_000, "`" * 119):
        assert_fits(31, name)


@pytest.mark.full
def test_the_page_of_two_thousand_tests_fits():
    for name in ("test_step", "n" * 10_000, "`" * 119):
        assert_fits(2000, name)


def test_every_size_limit_is_kept():
    for most in range(900, 2400, 50):
        text = render_markdown(many(5), most)
        assert len(text) <= most, most
        if most > 1500:
            assert "| ❌ REGRESSION |" in text, most


def test_many_other_pythons_of_a_run_file_leave_room_for_the_rest():
    tests = [
        record_of(
            profile(),
            key=f"test_{n}",
            environment={"against": {"name": f"{n}" * 500, "python": "", "packages": {}}},
        )
        for n in range(200)
    ]
    text = render_markdown(run_of(*tests))
    assert len(text) <= MOST
    assert len(re.findall("^Against ", text, re.MULTILINE)) == 1
    assert titles(text)[-1] == "## Measured"


def test_a_large_run_shows_some_of_every_section():
    text = render_markdown(many(500))
    assert len(text) <= MOST
    sections = dict(
        zip(
            (title.strip("# ") for title in titles(text)[1:]),
            re.split(r"^## .*$", text, flags=re.MULTILINE)[1:],
            strict=True,
        )
    )
    shown = {title: re.findall(r"test_step_(\d+)`", section) for title, section in sections.items()}
    assert all(found[0] == "0" and len(found) >= 10 for found in shown.values()), shown


def test_a_run_file_of_an_earlier_version_has_no_environment():
    assert "1 test ·" in render_markdown(run_of(replace(record_of(profile()), environment={})))


def test_the_head_says_what_failed_and_what_was_not_checked():
    for outcome, n_unchecked, verdict, title in [
        ("passed", 0, "PASS", "# ✅ tfperf: 1 check passed"),
        ("failed", 0, "FAIL", "# ❌ tfperf: 0 checks passed, 1 failed"),
        ("failed", 0, "PASS", "# ❌ tfperf: 1 check passed; 1 test failed for another reason"),
        ("error", 2, "PASS", "# ❌ tfperf: 1 check passed; 1 test failed for another reason; 2 limits not checked"),
        ("passed", 1, "PASS", "# ⚠️ tfperf: 1 check passed; 1 limit not checked"),
        ("skipped", 0, "PASS", "# ✅ tfperf: 1 check passed"),
    ]:  # fmt: skip
        test = replace(
            record_of(profile(), checks=[check(verdict)], outcome=outcome), n_unchecked=n_unchecked
        )
        assert render_markdown(run_of(test)).splitlines()[0] == title, (
            outcome,
            n_unchecked,
            verdict,
        )

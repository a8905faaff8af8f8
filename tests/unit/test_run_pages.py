"""The parts of docs/run_pages.py that start no process."""

import importlib.util
import sys

import pytest
from helpers.paths import ROOT

SPEC = importlib.util.spec_from_file_location("run_pages", ROOT / "docs" / "run_pages.py")
run_pages = importlib.util.module_from_spec(SPEC)
sys.modules["run_pages"] = run_pages  # dataclasses look for their module there
SPEC.loader.exec_module(run_pages)

PAGE = """# Page

<!-- copy: tests/a.pb logdir/a.pb -->
<!-- file: model.py -->
```python
x = 1
```

<!-- run: touch hidden -->
```console
$ one
first
…
$ two
$ three
third
```

<!-- not run: slow -->
```console
$ four
```

```sh
five
```
"""


def test_a_page_is_read_in_its_order():
    found = run_pages.actions(PAGE)
    assert [(one.kind, one.argument, one.lines) for one in found] == [
        ("copy", "tests/a.pb logdir/a.pb", ()),
        ("file", "model.py", ("x = 1",)),
        ("run", "touch hidden", ()),
        ("command", "one", ("first", "…")),
        ("command", "two", ()),
        ("command", "three", ("third",)),
    ]
    lines = PAGE.splitlines()
    assert [lines[one.place - 1] for one in found[3:]] == ["$ one", "$ two", "$ three"]


def test_a_comment_without_its_block_is_an_error():
    with pytest.raises(ValueError, match=r"line 3: no block behind <!-- file: a\.py -->"):
        run_pages.actions("<!-- file: a.py -->\n\nText\n")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("step_time 45.2 ms", "step_time   980 µs"),
        ("ratio 1.013 (0.9 to 1,024)", "ratio 2 (1e-3 to 7)"),
        ("---- ------", "-------- ---"),
        ("=== 1 passed in 3.20s ===", "== 1 passed in 61.00s (0:01:01) =="),
        ("main (2c1f0a9be871)", "main (0123456789ab)"),
        ("peak 1.5 GiB, 164,515 FLOP", "peak 12 MiB, 3 MFLOP"),
    ],
)
def test_lines_that_differ_in_numbers_are_the_same(first, second):
    assert run_pages.masked(first) == run_pages.masked(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("1 passed", "2 passed"),
        ("1 failed, 1 passed in 2s", "2 passed in 2s"),
        ("input_bound was 5 %", "input_bound was 5 ms"),
        ("FAIL: retraces", "PASS: retraces"),
    ],
)
def test_lines_that_say_another_thing_differ(first, second):
    assert run_pages.masked(first) != run_pages.masked(second)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a b", "a b", True),
        ("a b", "a b c", False),
        ("a b", "a", False),
        ("… b", "x y b", True),
        ("… b", "x y b c", False),
        ("… b … d …", "a b c c d e", True),
        ("… b … d …", "a d c c b e", False),
        ("…", "", True),
        ("", "a", False),
    ],
)
def test_an_ellipsis_stands_for_any_lines(shown, printed, same):
    assert run_pages.matches(shown.split(), printed.split()) is same


def test_new_output_keeps_the_lines_that_were_shown():
    shown = ["…", "FAIL: input_bound was 10 %", "  where: Map", "…", "1 failed in 2s"]
    printed = [
        "head",
        "",
        "FAIL: input_bound was 61 %",
        "  where: Batch",
        "  try: x",
        "1 failed in 9s",
    ]
    assert run_pages.refreshed(shown, printed) == [
        "…",
        "FAIL: input_bound was 61 %",
        "  where: Batch",
        "…",
        "1 failed in 9s",
    ]
    assert run_pages.refreshed(["old"], ["new", "lines"]) == ["new", "lines"]

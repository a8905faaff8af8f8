"""The documents have every threshold with its value, and every page that advice refers to."""

import re
from dataclasses import fields

from helpers.paths import ROOT

from pytest_tfperf.advice import guides
from pytest_tfperf.advice.thresholds import THRESHOLDS

ROW = re.compile(r"\| `(\w+)` \| ([\d.e-]+) \| (\S+) \| (\S+) \| (\d+) \|")
ROWS = {
    row[1]: row.groups()[1:]
    for row in ROW.finditer((ROOT / "docs/evidence/thresholds.md").read_text("utf-8"))
}


def test_the_page_has_a_row_for_each_threshold():
    assert list(ROWS) == [field.name for field in fields(THRESHOLDS)]


def test_each_row_has_the_value_within_its_range():
    for name in ROWS:
        value, least, most, _ = ROWS[name]
        assert float(value) == getattr(THRESHOLDS, name), name
        assert least == "any" or float(least) <= float(value), name
        assert most == "any" or float(value) <= float(most), name


def test_a_threshold_that_decides_nothing_has_no_bounds():
    for _, least, most, n_profiles in ROWS.values():
        assert (least == most == "any") == (n_profiles == "0")


def test_every_page_of_a_guide_is_in_the_documents():
    page = (ROOT / "docs/explanation/advice.md").read_text("utf-8")
    named = {name: value for name, value in vars(guides).items() if name[0] != "_"}
    urls = {value for value in named.values() if str(value).startswith("https://")}
    assert len(urls) > 10
    assert {url for url in urls if f"({url})" not in page} == set()

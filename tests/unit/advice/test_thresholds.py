"""The documents have every page that advice refers to."""

from helpers.paths import ROOT

from pytest_tfperf.advice import guides


def test_every_page_of_a_guide_is_in_the_documents():
    page = (ROOT / "docs/explanation/advice.md").read_text("utf-8")
    named = {name: value for name, value in vars(guides).items() if name[0] != "_"}
    urls = {value for value in named.values() if str(value).startswith("https://")}
    assert len(urls) > 10
    assert {url for url in urls if f"({url})" not in page} == set()

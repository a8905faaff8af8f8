"""Documents that are generated, and documents that name every option, argument and name."""

import importlib.util
import re

import pytest
from helpers.paths import ROOT

import pytest_tfperf
from pytest_tfperf.checks.arguments import OPTION_NAMES
from pytest_tfperf.results import Verdict

DOCS = ROOT / "docs"


def read(name):
    return (DOCS / name).read_text(encoding="utf-8")


def module(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.mark.parametrize(
    ("generator", "pages"),
    [
        (
            "generate",
            {
                "reference/metrics.md",
                "reference/op_guide.md",
                "reference/options.md",
                "run.schema.json",
            },
        ),
        ("generate_cli", {"reference/cli.md"}),
    ],
)
def test_generated_pages_match_the_registries(generator, pages):
    makers = module(generator).PAGES
    assert set(makers) == pages
    assert {name: read(name) for name in makers} == {name: make() for name, make in makers.items()}


def first_cells(page):
    return re.findall(r"^\| `?(\w+)`? \|", read(page), re.MULTILINE)


def test_the_page_of_the_marker_has_a_row_for_every_argument():
    assert OPTION_NAMES - set(first_cells("reference/marker.md")) == set()


def test_the_page_of_verdicts_has_a_row_for_each_in_their_order():
    rows = [cell for cell in first_cells("reference/verdicts.md") if cell in Verdict.__members__]
    assert rows == list(Verdict.__members__)


def test_the_page_of_the_api_has_every_exported_name():
    documented = re.findall(
        r"^\.\. auto\w+:: pytest_tfperf\.(\w+)$", read("reference/api.md"), re.M
    )
    assert set(pytest_tfperf.__all__) <= set(documented)


@pytest.mark.parametrize("page", sorted((DOCS / "how_to").glob("*.md")), ids=lambda page: page.stem)
def test_a_guide_is_short_and_begins_with_its_goal(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 80
    assert lines[2].startswith("**Goal**: ")

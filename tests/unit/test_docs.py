"""Documents that are generated, and documents that name every option, argument and name."""

import importlib.util
import re

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


def test_generated_pages_match_the_registries():
    pages = {
        "generate": {"metrics.md", "op_guide.md", "options.md", "run.schema.json"},
        "generate_api": {"api.md"},
        "generate_cli": {"cli.md"},
    }
    for generator, names in pages.items():
        makers = module(generator).PAGES
        assert {name.removeprefix("reference/") for name in makers} == names
        for name, make in makers.items():
            assert read(name) == make(), name


def test_links_of_files_that_are_no_pages_of_the_site_lead_somewhere():
    """Sphinx checks those of the site."""
    files = [
        *ROOT.glob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "changelog.d").glob("*.md"),
    ]
    assert len(files) > 10
    for file in files:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", file.read_text("utf-8")):
            assert (file.parent / target).exists(), f"{file.name}: {target}"


def first_cells(page):
    return re.findall(r"^\| `?(\w+)`? \|", read(page), re.MULTILINE)


def test_the_page_of_the_marker_has_a_row_for_every_argument():
    assert OPTION_NAMES - set(first_cells("reference/marker.md")) == set()


def test_the_page_of_verdicts_has_a_row_for_each_in_their_order():
    rows = [cell for cell in first_cells("reference/verdicts.md") if cell in Verdict.__members__]
    assert rows == list(Verdict.__members__)


def test_the_page_of_the_api_has_every_exported_name():
    documented = re.findall(r"^(?:#+ |\| `)(\w+)\b", read("reference/api.md"), re.M)
    of = {
        name: getattr(getattr(pytest_tfperf, name), "__module__", "") for name in dir(pytest_tfperf)
    }
    exported = {name for name, module in of.items() if module.startswith("pytest_tfperf.")}
    assert {*pytest_tfperf.__all__, "analyze_traces"} <= exported <= set(documented)

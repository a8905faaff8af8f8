"""Pages show what their commands print: tutorials and guides are run as a reader would type them."""

import importlib.util
import sys

import pytest
from helpers.paths import ROOT

SPEC = importlib.util.spec_from_file_location("run_pages", ROOT / "docs" / "run_pages.py")
run_pages = importlib.util.module_from_spec(SPEC)
sys.modules["run_pages"] = run_pages  # dataclasses look for their module there
SPEC.loader.exec_module(run_pages)


def measures_steps(page):
    commands = [one.argument for one in run_pages.actions(page.read_text("utf-8"))]
    return any(word in one for one in commands for word in ("pytest", "doctor", "capture"))


PAGES = [
    pytest.param(
        page,
        id=page.relative_to(ROOT).as_posix(),
        marks=pytest.mark.nightly if measures_steps(page) else pytest.mark.full,
    )
    for page in run_pages.pages()
]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_what_its_commands_print(page, tmp_path, processes):
    folder = tmp_path / "project"
    folder.mkdir()
    assert run_pages.differences(page, folder) == []


def test_tutorials_and_guides_are_among_them():
    found = {page.relative_to(ROOT).as_posix() for page in run_pages.pages()}
    tutorials = {f"docs/tutorials/{name}.md" for name in ("first_test", "jax", "pull_request")}
    assert tutorials | {"docs/how_to/retraces.md", "README.md"} <= found
    assert len(found) > 10

"""Links between the pages of the repository: files and headings exist. Sphinx checks those of the site again."""

import re

import pytest
from helpers.paths import ROOT

PAGES = sorted(
    page
    for folder in ("", "docs/**/", "examples/**/", "tests/data/", ".github/**/")
    for page in ROOT.glob(f"{folder}*.md")
)
LINK = re.compile(r"\]\(([^()\s]+)\)")
ELSEWHERE = re.compile(r"[a-z]+:")


def without_code(text):
    text = re.sub(r"^\s*```.*?^\s*```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", lambda code: code[0].replace("]", ""), text)


def anchors(page):
    """The anchors that GitHub and MyST make of a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles)
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_relative_links_lead_somewhere(page):
    broken = []
    for target in LINK.findall(without_code(page.read_text("utf-8"))):
        if ELSEWHERE.match(target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_anchors_are_those_of_github(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Two Words\n\n```\n# code\n```\n\n## `tfperf doctor`, and [a link](b.md)\n")
    assert anchors(page) == {"two-words", "tfperf-doctor-and-a-link"}

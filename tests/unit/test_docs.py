"""Documents that are generated, and documents that name every option."""

import importlib.util

from helpers.paths import ROOT

from pytest_tfperf.plugin.options import TABLE


def test_generated_pages_match_the_registries():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert set(generate.PAGES) == {"metrics.md", "op_guide.md", "options.md"}
    assert {
        name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in generate.PAGES
    } == {name: make() for name, make in generate.PAGES.items()}


def test_the_readme_names_every_option():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(TABLE) > 15
    assert {
        option.flag or option.ini
        for option in TABLE.values()
        if (option.flag or option.ini) not in readme
    } == set()


def test_the_readme_marks_every_flag_with_an_ini_value():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| `--tfperf-")]
    flags = [option.flag for option in TABLE.values() if option.flag and option.ini]
    assert len(rows) > 8
    for row in rows:
        assert ("†" in row) == any(f"`{flag}" in row for flag in flags), row

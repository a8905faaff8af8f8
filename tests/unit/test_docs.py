import importlib.util
import re

from helpers.paths import ROOT


def test_the_generated_pages_are_what_the_registries_say():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert set(generate.PAGES) == {"metrics.md", "op_guide.md"}
    assert {
        name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in generate.PAGES
    } == {name: make() for name, make in generate.PAGES.items()}


def test_the_readme_names_every_option_and_ini_value():
    readme, plugin = (
        (ROOT / "README.md").read_text(encoding="utf-8"),
        (ROOT / "pytest_tfperf" / "plugin" / "hooks.py").read_text(encoding="utf-8"),
    )
    options = set(re.findall(r'add\(\s*"(--tfperf-[a-z-]+)"', plugin))
    inis = set(re.findall(r'^    "(tfperf_[a-z_]+)": "(?!see --)', plugin, re.MULTILINE)) - {
        "tfperf_baseline",
        "tfperf_update",
        "tfperf_update_new",
        "tfperf_disable",
    }
    assert len(options) > 10
    assert len(inis) > 5
    assert {name for name in options | inis if name not in readme} == set()

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_page_of_metrics_is_what_the_registry_says():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == generate.page()


def test_the_readme_names_every_option_and_ini_value():
    readme, plugin = (ROOT / "README.md").read_text(encoding="utf-8"), (ROOT / "pytest_tfperf" / "plugin.py").read_text(encoding="utf-8")
    named = {
        word.strip('"')
        for word in plugin.replace("(", " ").replace(",", " ").replace(":", " ").split()
        if word.startswith(('"--tfperf', '"tfperf_'))
    }
    inis = {word for word in named if word.startswith("tfperf_") and f"--{word.replace('_', '-')}" not in named}
    options = {word for word in named if word.startswith("--")}
    assert options
    assert {option for option in options if option not in readme} == set()
    assert {"tfperf_limits", "tfperf_max_seconds"} <= inis
    assert {name for name in inis if name not in readme} - {"tfperf_baseline", "tfperf_update", "tfperf_disable"} == set()

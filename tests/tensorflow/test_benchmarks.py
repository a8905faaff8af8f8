"""Benchmarks stay runnable: all that they import from the package and from the tests' helpers is there."""

import ast
import importlib
import importlib.util

from helpers.paths import TESTS
from helpers.sources import tree

FOLDER = TESTS.parent / "benchmarks"
OWN = ("pytest_tfperf", "helpers")


def imports_of(path):
    """Module and name of each import of the project's own code, at any depth of the file."""
    return [
        (node.module, alias.name)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OWN
        for alias in node.names
    ]


def is_there(module, name):
    """Return whether a module has a name, be it that of a submodule that nothing has imported."""
    found = importlib.import_module(module)
    if hasattr(found, name):
        return True
    return hasattr(found, "__path__") and importlib.util.find_spec(f"{module}.{name}") is not None


def test_what_benchmarks_import_is_there():
    imports = [(path.name, *one) for path in FOLDER.rglob("*.py") for one in imports_of(path)]
    assert len(imports) > 50
    assert [one for one in imports if not is_there(*one[1:])] == []

"""Names of Python functions, alike wherever a project or a package lies."""

import json
import os
import sys
from pathlib import Path

import pytest_tfperf
from pytest_tfperf.machine.calls import function_name, shown_file


def test_files_are_shown_from_their_package_on():
    for file, shown in [
        ("/venv/lib/python3.11/site-packages/keras/src/ops/numpy.py", "keras/src/ops/numpy.py"),
        ("/usr/lib/python3/dist-packages/numpy/core.py", "numpy/core.py"),
        (r"C:\venv\Lib\site-packages\keras\src\layer.py", "keras/src/layer.py"),
        (
            "/a/site-packages/b/site-packages/vendored/one.py",
            "vendored/one.py",
        ),
        (json.decoder.__file__, "json/decoder.py"),
        (os.__file__, "os.py"),
        ("<string>", "<string>"),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
        ("/tmp/__autograph_generated_file1a2b3c.py", "<autograph>"),
        (str(Path(pytest_tfperf.__file__).parent / "capture" / "loop.py"), None),
    ]:
        assert shown_file(file) == shown, file


def test_a_project_s_file_is_shown_from_its_outermost_package_on(tmp_path):
    inner = tmp_path / "checkout" / "models" / "layers"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
    assert shown_file(str(inner / "dense.py")) == "models/layers/dense.py"
    assert shown_file(str(inner.parents[1] / "train.py")) == "train.py"


def test_a_checkout_that_is_a_package_itself_has_no_name(tmp_path):
    for name in ("tree", "ref"):
        root = tmp_path / name
        root.mkdir()
        for file in ("__init__.py", ".git"):
            (root / file).touch()
        assert shown_file(str(root / "model.py")) == "model.py"


def test_a_function_has_the_name_of_what_it_stands_in():
    class Layer:
        def call(self):
            return lambda: None

    code = Layer().call().__code__
    name = function_name(code)
    here = "test_code_names.py"
    if sys.version_info < (3, 11):
        assert name == f"{here}:<lambda>"
    else:
        around = "test_a_function_has_the_name_of_what_it_stands_in"
        assert name == f"{here}:{around}.Layer.call.<lambda>"

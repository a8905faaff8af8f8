"""Configuration of the documentation site."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pytest_tfperf import __version__

project = "pytest-tfperf"
author = "the authors of pytest-tfperf"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"pytest-tfperf {release}"
html_copy_source = False

smartquotes = False  # options begin with two hyphens
myst_heading_anchors = 4  # links to headings, as GitHub makes them

# Docstrings are written for readers of the source: single backticks are code there.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_numpy_docstring = False

# The build needs no network, so types of other packages are not linked. Ours must be.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!pytest_tfperf\.).*")]


def without_constructor(_app: object, what: str, *_rest: object) -> tuple[str, None] | None:
    """Leave out the constructor's arguments of a class: users make none of these objects."""
    return ("", None) if what == "class" else None


def setup(app: Any) -> None:
    """Connect what this file adds to Sphinx."""
    app.connect("autodoc-process-signature", without_constructor)

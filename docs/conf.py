"""Configuration of the documentation site."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pytest_tfperf import __version__

project = "pytest-tfperf"
author = "the authors of pytest-tfperf"
release = version = __version__

extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"pytest-tfperf {release}"
html_copy_source = False

smartquotes = False  # options begin with two hyphens
myst_heading_anchors = 4  # links to headings, as GitHub makes them

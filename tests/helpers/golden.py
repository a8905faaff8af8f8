"""Files that hold what is written for people, to be read as a whole where they change: `TFPERF_GOLDEN=write pytest tests/unit/report`."""

import os

from helpers.paths import DATA

FOLDER = DATA / "golden"


def assert_golden(name, text):
    """The text is what the file of that name holds."""
    path = FOLDER / name
    if os.environ.get("TFPERF_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")

"""Where in the user's code an instruction comes from."""

from __future__ import annotations

import re

from pytest_tfperf.hlo.module import HloInstruction

_PACKAGES = re.compile(r"[/\\](site|dist)-packages[/\\]")


def source_line(op: HloInstruction) -> str | None:
    """`model.py:12`; None where the module does not say, or names a line of an installed package, as TensorFlow's own are."""
    if not op.source_file or _PACKAGES.search(op.source_file):
        return None
    return f"{op.source_file}:{op.source_line}"

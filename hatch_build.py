"""
Compile the decoder of events where there is a C compiler.

Without one the wheel is pure Python, and NumPy decodes. So it is with HATCH_BUILD_NO_HOOKS=true.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("pytest_tfperf", "trace", "compiled_decoder.c")


class EventDecoder(BuildHookInterface):  # type: ignore[type-arg]
    """The compiled decoder as a part of the wheel, and beside its source in an editable one."""

    PLUGIN_NAME = "custom"

    def initialize(self, _: str, build_data: dict[str, Any]) -> None:
        """Compile it; a wheel with it is for one platform, and for any version of Python."""
        library = SOURCE.with_suffix(".so")
        if not self._compiled(Path(self.root, library)):
            return
        platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
        build_data["artifacts"].append(library.as_posix())

    def _compiled(self, library: Path) -> bool:
        compiler = shlex.split(os.environ.get("CC", "cc"))
        if not compiler or shutil.which(compiler[0]) is None:
            self.app.display_info("No C compiler: NumPy decodes traces.")
            return False
        made = library.with_suffix(f".{os.getpid()}")
        options = ["-O2", "-shared", "-fPIC", "-o", str(made)]
        result = subprocess.run([*compiler, *options, str(Path(self.root, SOURCE))], check=False)
        if result.returncode:
            self.app.display_warning(f"{compiler[0]} failed: NumPy decodes traces.")
            return False
        made.replace(library)
        return True

"""
Compile the decoder of events where there is a C compiler.

Without one the wheel is pure Python, and NumPy decodes. So it is with HATCH_BUILD_NO_HOOKS=true.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import tempfile
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("pytest_tfperf", "trace", "compiled_decoder.c")
_LIMIT_S = 60


class EventDecoder(BuildHookInterface):  # type: ignore[type-arg]
    """The compiled decoder as a part of the wheel, and beside its source in an editable one."""

    PLUGIN_NAME = "custom"

    def initialize(self, _: str, build_data: dict[str, Any]) -> None:
        """Compile it; a wheel with it is for one platform, and for any version of Python."""
        library = SOURCE.with_suffix(".so")
        try:
            self._compile(Path(self.root, library))
        except FileNotFoundError:
            self.app.display_info("No C compiler: NumPy decodes traces.")
            return
        except (OSError, ValueError, AttributeError, subprocess.SubprocessError) as error:
            self.app.display_warning(f"No C compiler that works: NumPy decodes traces. {error}")
            return
        platform = self.build_config.builder.get_best_matching_tag().rpartition("-")[2]
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
        build_data["force_include"][str(Path(self.root, library))] = library.as_posix()

    def _compile(self, library: Path) -> None:
        source = Path(self.root, SOURCE)
        # beside the package, so that a build that is killed leaves nothing in it
        with tempfile.TemporaryDirectory(prefix=".compiled-", dir=self.root) as folder:
            made = Path(folder, library.name)
            macro = f"-DTFPERF_SOURCE={zlib.crc32(source.read_bytes())}u"
            options = ["-O2", "-shared", "-fPIC", macro, "-o", str(made), str(source)]
            subprocess.run(
                [*shlex.split(os.environ.get("CC", "cc")), *options],
                check=True,
                stdin=subprocess.DEVNULL,
                timeout=_LIMIT_S,
            )
            if "_PYTHON_HOST_PLATFORM" not in os.environ:  # else it may be for another machine
                loaded = ctypes.CDLL(str(made))
                assert loaded.tfperf_find_events
                assert loaded.tfperf_decode_events
            made.replace(library)

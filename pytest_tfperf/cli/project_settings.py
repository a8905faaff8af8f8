"""The ini values of the project that a command runs in, without a run of pytest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from _pytest.config.exceptions import UsageError
from _pytest.config.findpaths import locate_config  # private, the same in pytest 8.4 to 9.2

from pytest_tfperf.errors import TfperfError
from pytest_tfperf.machine.description import project_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSettings:
    """The settings of a project that commands share with pytest."""

    rootdir: Path
    """Folder of the file of the settings; the given one without such a file."""
    values: Mapping[str, str]
    """Ini values by name; none that is a list."""

    @property
    def history(self) -> str:
        """Address of the history; empty if there is none."""
        given = self.values.get("tfperf_history", "")
        return given if "://" in given or not given else str(self.rootdir / given)

    @property
    def project(self) -> str:
        """Name of the project in the history."""
        return self.values.get("tfperf_history_project") or project_name(self.rootdir)

    @property
    def branch(self) -> str:
        """Branch whose runs are compared with."""
        return self.values.get("tfperf_history_branch") or "main"


def project_settings(folder: Path = Path()) -> ProjectSettings:
    """Read the settings that pytest would take in a folder. Raises: TfperfError."""
    try:
        found = locate_config(folder.absolute(), ())
    except UsageError as error:
        raise TfperfError(" ".join(str(error).split())) from error
    # pytest 9 wraps values, to know their source
    values = {name: getattr(value, "value", value) for name, value in found[2].items()}
    return ProjectSettings(
        rootdir=found[0] or folder.absolute(),
        values={name: value for name, value in values.items() if isinstance(value, str)},
    )

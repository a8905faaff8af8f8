"""The results of a pytest run, as frozen values and their JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pytest_tfperf.errors import TfperfError
from pytest_tfperf.results import FORMAT, Check, Profile
from pytest_tfperf.text import elide
from pytest_tfperf.values import Json, Number, builtin

_WIDTH = 160
"""Characters of what is wrong with a file."""
Outcome = Literal["passed", "failed", "skipped", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledTest:
    """Profiles and checks of one test."""

    nodeid: str
    """Node id of the test."""
    file: str
    """Path of the test file, relative to pytest's rootdir."""
    key: str
    """Name of the test in its file."""
    outcome: Outcome
    """`passed`, `failed`, `skipped` or `error`."""
    profiles: tuple[Profile, ...]
    """Its profiles."""
    checks: tuple[Check, ...]
    """Its checks."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """Platform, machine and setting that the test ran in."""
    max_regression: Annotated[float, Meta(ge=0)] | None = None
    """Slow-down that the test tolerates, None for the default."""
    n_unchecked: Number = 0
    """Number of limits that `--tfperf-only` left out."""
    shared_cpu: bool = False
    """True if other workers may have used the test's CPU."""
    line: Annotated[int, Meta(ge=1)] | None = None
    """Line of the test in its file, from 1."""

    def to_json(self) -> Json:
        """Return all fields as plain JSON values."""
        return {
            **builtin(replace(self, profiles=(), checks=())),
            "profiles": [profile.to_json() for profile in self.profiles],
            "checks": [check.to_json() for check in self.checks],
        }

    @classmethod
    def from_json(cls, data: Json) -> ProfiledTest:
        """Invert `to_json`."""
        return msgspec.convert(data, cls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Results of one pytest run."""

    created: str
    """End of the run, as an ISO 8601 time in UTC."""
    tests: tuple[ProfiledTest, ...]
    """The profiled tests."""
    commit: str = ""
    """Git commit, with + if the working tree differs from it; empty outside git."""
    branch: str = ""
    """Git branch; empty if it is not known."""
    not_checked: tuple[str, ...] = ()
    """Sentences on what the run was to check besides its tests' limits, and did not."""

    def to_json(self) -> Json:
        """Return the content of a run file."""
        return {
            "format": FORMAT,
            "created": self.created,
            "commit": self.commit,
            "branch": self.branch,
            **({"not_checked": list(self.not_checked)} if self.not_checked else {}),
            "tests": [test.to_json() for test in self.tests],
        }

    @classmethod
    def from_json(cls, data: Any, where: str) -> Run:
        """Invert `to_json`; TfperfError if it is no run file of this format, named by `where`."""
        refuse_format(data, where)
        try:
            return msgspec.convert(data, cls)
        except msgspec.ValidationError as error:
            raise damaged(where, error) from error


def damaged(where: str, error: msgspec.ValidationError) -> TfperfError:
    """Return the error of a run file that holds something else than it should, in one line."""
    why = elide(" ".join(str(error).split()), _WIDTH)
    advice = "write it again with pytest --tfperf-report"
    return TfperfError(f"{where}: damaged run file: {why}; {advice}")


def refuse_format(data: Any, where: str) -> None:
    """Raise a TfperfError if this is no run file, or of another format; `where` names it."""
    version = data.get("format") if isinstance(data, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise TfperfError(f"{where}: not a run file of pytest --tfperf-report")
    if version > FORMAT:
        raise TfperfError(
            f"{where}: format {version}, this version reads format {FORMAT}; upgrade pytest-tfperf"
        )
    if version < FORMAT:
        raise TfperfError(
            f"{where}: format {version}, written by an older version; record it again"
        )

"""What a test measured as properties of its JUnit report."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from pytest_tfperf.errors import TfperfError
from pytest_tfperf.report.markdown import render_markdown
from pytest_tfperf.results import Check, Profile, ProfiledTest, Run

PREFIX = "tfperf."


def properties(profiles: Iterable[Profile]) -> list[tuple[str, float]]:
    """`tfperf.step_time` and its number in base units, of each metric that is known; of a profile with a name `tfperf.eval.step_time`."""
    return [
        (f"{PREFIX}{f'{_plain(profile.name)}.' if profile.name else ''}{name}", value.number)
        for profile in profiles
        for name, value in profile.metrics.items()
        if value.number is not None
    ]


def _plain(name: str) -> str:
    """Return a name that XML can hold: pytest escapes what a property's value may not have, and not what its name may not."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)


MOST_ANNOTATIONS = 10


MOST_BYTES = 1 << 20


def annotate(run: Run, rootdir: Path, workspace: Path, fails: Callable[[Check], bool]) -> list[str]:
    """
    Return a workflow command for each test that checks fail (not of one that is expected to), `::error file=…,line=…,title=…::message`.

    Args:
        workspace: The repository's folder, which the files of annotations are relative to.
    """
    bad = [
        (test, [check for check in test.checks if fails(check)])
        for test in run.tests
        if test.outcome != "skipped"
    ]
    bad = [(test, checks) for test, checks in bad if checks]
    n_shown = len(bad) if len(bad) <= MOST_ANNOTATIONS else MOST_ANNOTATIONS - 1
    lines = [_annotation(test, checks, rootdir, workspace) for test, checks in bad[:n_shown]]
    if len(bad) > n_shown:
        lines.append(
            f"::error title=tfperf::{len(bad) - n_shown} more tests failed for their performance"
        )
    return lines


def _annotation(test: ProfiledTest, checks: list[Check], rootdir: Path, workspace: Path) -> str:
    file = Path(os.path.relpath(rootdir / test.file, workspace)).as_posix()
    line = f",line={test.line}" if test.line is not None else ""
    title = f"{test.key}: {', '.join(dict.fromkeys(f'{check.metric} {check.verdict.value}' for check in checks))}"
    message = "\n".join(
        f"{f'[{check.profile}] ' if check.profile else ''}{check.verdict.value}: {check.message}"
        for check in checks
    )
    return f"::error file={_property(file)}{line},title={_property(title[:200])}::{_data(message[:4000])}"


def _data(text: str) -> str:
    """As actions/toolkit escapes a message (packages/core/src/command.ts, escapeData)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """As it escapes a property (escapeProperty)."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def append_summary(run: Run, path: Path) -> None:
    """
    Add a run to a job's summary; other commands of the step may have written theirs.

    Raises:
        TfperfError: If that cannot be done, or would make it so large that GitHub shows none of it.
    """
    try:
        size = path.stat().st_size if path.exists() else 0
        text = f"{render_markdown(run)}\n".encode()
        if size + len(text) > MOST_BYTES:
            raise TfperfError(
                f"summary {path}: with {size:,} bytes in it there is no room for {len(text):,} more"
            )
        with path.open("ab", buffering=0) as file:
            if file.write(text) < len(text):  # the disk is full
                file.truncate(size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        raise TfperfError(f"summary {path}: cannot be written: {error.strerror}") from error

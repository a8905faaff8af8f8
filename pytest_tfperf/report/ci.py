"""Output for CI: JUnit properties, GitHub annotations and job summaries."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from pytest_tfperf.errors import TfperfError
from pytest_tfperf.report.failure import failure_message
from pytest_tfperf.report.markdown import render_markdown
from pytest_tfperf.results import Check, Profile
from pytest_tfperf.runs import ProfiledTest, Run
from pytest_tfperf.text import elide, plain

PREFIX = "tfperf."


def properties(profiles: Iterable[Profile]) -> list[tuple[str, float]]:
    """Return JUnit properties of known metrics in base units, as in `tfperf.eval.step_time`."""
    found = []
    for profile in profiles:
        prefix = f"{PREFIX}{profile.name}." if profile.name else PREFIX
        for name, value in profile.metrics.items():
            if value.number is not None:
                found.append((_plain(f"{prefix}{name}"), value.number))
    return found


def _plain(name: str) -> str:
    """Return a name that XML can hold; pytest escapes the values of properties, not their names."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)


MOST_ANNOTATIONS = 10
"""Annotations of one kind that GitHub shows for a step."""
MOST_BYTES = 1 << 20
"""Bytes of a step's summary that GitHub shows."""
_TITLE_WIDTH, _MESSAGE_WIDTH = 200, 4000  # characters


def annotate(run: Run, rootdir: Path, workspace: Path, fails: Callable[[Check], bool]) -> list[str]:
    """
    Return a workflow command for each test whose checks fail: `::error file=…,title=…::message`.

    Tests that are expected to fail have none. The tests' files are relative to `rootdir`, those of
    annotations to the repository's folder, `workspace`. `fails` tells whether a check fails a test.
    """
    bad = []
    for test in run.tests:
        checks = [check for check in test.checks if fails(check)]
        if checks and test.outcome != "skipped":
            bad.append((test, checks))
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
    failed = dict.fromkeys(f"{check.metric} {check.verdict.value}" for check in checks)
    title = _property(elide(f"{test.key}: {', '.join(failed)}", _TITLE_WIDTH))
    message = _data(elide(failure_message(test.key, checks), _MESSAGE_WIDTH))
    return f"::error file={_property(file)}{line},title={title}::{message}"


def _data(text: str) -> str:
    """Escape a message. Source: actions/toolkit, packages/core/src/command.ts, escapeData."""
    return plain(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(text: str) -> str:
    """Escape a property. Source: as `_data`, escapeProperty."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def append_summary(run: Run, path: Path) -> None:
    """Add a run to a job's summary, or raise TfperfError if that would not be shown."""
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

"""
Run the commands that pages show, and compare their outputs with those on the page.

    python docs/run_pages.py                    # all pages with commands
    python docs/run_pages.py --write PAGE...    # write the outputs of this run into the pages

A page runs from top to bottom in an empty folder. Each line `$ command` of a `console` block runs
in it, and the lines below are the output. A line `…` stands for any lines. Numbers, times and
rules are not compared, since they differ from run to run. Comments before a block direct the run:

    <!-- file: model.py -->           the next block is the content of this file
    <!-- not run: why -->             the next block is not run
    <!-- copy: SOURCE TARGET -->      copy a file or folder of the repository
    <!-- run: command -->             run a command that readers need not see
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
ANY = "…"
TIMEOUT_S = 600
_COMMENT = re.compile(r"<!-- (file|not run|copy|run): (.+) -->")
_RULE = re.compile(r"([-=_])\1+")
_NUMBER = r"[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
_UNIT = r"(?:[µm]?s|[KMG]iB|[kMGT]?B|[kMGT]?FLOP)"
_QUANTITY = re.compile(rf"{_NUMBER}(?: ?{_UNIT}\b)?")
_OUTCOME = re.compile(r"\b\d+ (?:passed|failed|error|xfailed)")
_HASH = re.compile(r"\b[0-9a-f]{7,40}\b")
_OTHER_PLUGINS = (
    "asyncio",
    "benchmark",
    "hypothesispytest",
    "pytest_cov",
    "randomly",
    "rerunfailures",
    "timeout",
)
"""Plugins that a reader's project need not have, by the names that pytest knows them by."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that a page does, in the order of the page."""

    kind: str
    """`file`, `copy`, `run` (hidden), or `command` (shown)."""
    argument: str
    """Path, paths or command."""
    lines: tuple[str, ...] = ()
    """Content of the file, or output that the page shows."""
    place: int = 0
    """Index of the page's first line below a shown command."""


def actions(text: str) -> list[Action]:
    """
    Return what a page does.

    Raises:
        ValueError: If a comment for the next block has no block behind it.
    """
    lines = text.splitlines()
    found: list[Action] = []
    mark: tuple[str, str] | None = None
    number = 0
    while number < len(lines):
        line = lines[number]
        if match := _COMMENT.fullmatch(line):
            if match[1] in ("copy", "run"):
                found.append(Action(match[1], match[2]))
            else:
                mark = (match[1], match[2])
        elif line.startswith("```"):
            end = lines.index("```", number + 1)
            found += _of_block(line[3:], lines[number + 1 : end], number + 1, mark)
            mark, number = None, end
        elif line and mark:
            raise ValueError(f"line {number + 1}: no block behind <!-- {mark[0]}: {mark[1]} -->")
        number += 1
    return found


def _of_block(
    language: str, block: list[str], place: int, mark: tuple[str, str] | None
) -> Iterator[Action]:
    if mark and mark[0] == "file":
        yield Action("file", mark[1], tuple(block))
    elif language == "console" and not mark:
        starts = [number for number, line in enumerate(block) if line.startswith("$ ")]
        for start, end in zip(starts, [*starts[1:], len(block)], strict=True):
            shown = tuple(block[start + 1 : end])
            yield Action("command", block[start][2:], shown, place + start + 1)


def masked(line: str) -> str:
    """Return a line without what differs from run to run: times, other numbers, hashes, rules."""
    line = _RULE.sub(r"\1", line)
    if _OUTCOME.search(line):
        return re.sub(r" in [\d.]+s.*", "", line)
    return " ".join(_QUANTITY.sub("0", _HASH.sub("0", line)).split())


def matches(shown: Sequence[str], printed: Sequence[str]) -> bool:
    """Return whether masked lines agree; `…` stands for any lines."""
    if not shown:
        return not printed
    if shown[0] == ANY:
        return any(matches(shown[1:], printed[n:]) for n in range(len(printed) + 1))
    return bool(printed) and shown[0] == printed[0] and matches(shown[1:], printed[1:])


def refreshed(shown: Sequence[str], printed: Sequence[str]) -> list[str]:
    """Return new lines for the page: all, or between `…` as many as before from the likeliest on."""
    if ANY not in shown:
        return list(printed)
    found: list[str] = []
    position, segment = 0, 0
    for number, line in enumerate([*shown, ANY]):
        if line != ANY:
            continue
        if number > segment:
            length = number - segment
            start = _likeliest(shown[segment], printed, position)
            found += printed[start : start + length]
            position = start + length
        if number < len(shown):
            found.append(ANY)
        segment = number + 1
    return found


def _likeliest(wanted: str, printed: Sequence[str], first: int) -> int:
    """Return the index of the line from `first` on that is most like the wanted one."""
    ratios = [
        difflib.SequenceMatcher(None, masked(wanted), masked(line)).ratio()
        for line in printed[first:]
    ]
    return first + ratios.index(max(ratios)) if ratios else first


def run_page(page: Path, folder: Path) -> Iterator[tuple[Action, list[str]]]:
    """
    Run a page in a folder, and yield each shown command with the lines that it printed.

    Raises:
        RuntimeError: If a command without shown output fails.
    """
    for action in actions(page.read_text(encoding="utf-8")):
        if action.kind == "file":
            path = folder / action.argument
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(action.lines) + "\n", encoding="utf-8")
        elif action.kind == "copy":
            source, target = action.argument.split()
            (folder / target).parent.mkdir(parents=True, exist_ok=True)
            _copy(ROOT / source, folder / target)
        else:
            status, printed = _run(action.argument, folder)
            if status and not action.lines:
                raise RuntimeError(f"$ {action.argument}\n" + "\n".join(printed))
            if action.kind == "command":
                yield action, printed


def _copy(source: Path, target: Path) -> None:
    """Copy a file, or what a folder holds."""
    if source.is_dir():
        caches = shutil.ignore_patterns("__pycache__", ".pytest_cache")
        shutil.copytree(source, target, ignore=caches, dirs_exist_ok=True)
    else:
        shutil.copy(source, target)


def _run(command: str, folder: Path) -> tuple[int, list[str]]:
    """Run a command as a reader would, and return its exit status and output."""
    addopts = " ".join(f"-pno:{name}" for name in _OTHER_PLUGINS)
    tools = Path(sys.executable).parent
    temporary = folder.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    author = {
        f"GIT_{role}_{key}": "me" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")
    }
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")},
        **author,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTEST_ADDOPTS": addopts,
        "COLUMNS": "100",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "XDG_CACHE_HOME": str(folder.parent / "cache"),
        "TMPDIR": str(temporary),  # with locks of its own: another run would wait for its end
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
    )
    output = done.stdout.replace(str(folder.resolve()), "/home/me/project")
    return done.returncode, [line.rstrip() for line in output.splitlines()]


def differences(page: Path, folder: Path) -> list[str]:
    """Return a message for each command of a page that prints other lines than the page shows."""
    found = []
    for action, printed in run_page(page, folder):
        shown = [masked(line) if line != ANY else ANY for line in action.lines]
        if not matches(shown, list(map(masked, printed))):
            wanted, output = "\n".join(action.lines), "\n".join(printed)
            found.append(f"$ {action.argument}\n--- shown\n{wanted}\n--- printed\n{output}")
    return found


def write_page(page: Path, folder: Path) -> None:
    """Write the outputs of a run into a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    ran = list(run_page(page, folder))
    for action, printed in reversed(ran):
        end = action.place + len(action.lines)
        lines[action.place : end] = refreshed(action.lines, printed)
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def pages() -> list[Path]:
    """Return all pages with commands to run."""
    found = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("examples/*/*.md")])
    return [page for page in found if actions(page.read_text(encoding="utf-8"))]


def main() -> int:
    """Run pages, and print the differences or write the outputs."""
    parser = argparse.ArgumentParser(description="Run the commands that pages show.")
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="default: all pages")
    parser.add_argument("--write", action="store_true", help="write the outputs into the pages")
    options = parser.parse_args()
    found = []
    for page in options.pages or pages():
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "project"
            place.mkdir()
            if options.write:
                write_page(page, place)
            else:
                found += [f"{page}: {text}" for text in differences(page, place)]
    print("\n\n".join(found) or "no differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""Write docs/reference/cli.md from the parsers of the `tfperf` command."""

import argparse

from pytest_tfperf.cli.main import command_parser

HEAD = """# The tfperf command

{description} All commands but `doctor` work without TensorFlow and JAX. {epilog}

On a terminal, tables fit its width and say what they left out. In a file or a pipe they are whole, and `COLUMNS=100` sets a width.
This page is written by `docs/generate.py` from the parsers in `pytest_tfperf/cli`.

| command | purpose |
|---|---|
"""

LIMITS = (
    "| `--max-METRIC`, `--min-METRIC`, `--METRIC VALUE` | limit on a [metric](metrics.md), the last on a count; `--help` lists all |\n"
    "| `--target-step-time TIME` | time of a step on a faster device, for a limit on input_bound_at_target |\n"
)


def page() -> str:
    """Return the whole page."""
    parser = command_parser()
    (commands,) = (action for action in parser._actions if isinstance(action.choices, dict))
    rows = [
        f"| [{one.dest}](#tfperf-{one.dest}) | {one.help} |\n" for one in commands._choices_actions
    ]
    sections = [section(name, command) for name, command in commands.choices.items()]
    head = HEAD.format(description=parser.description, epilog=parser.epilog)
    return head + "".join(rows) + "".join(sections)


def section(name: str, parser: argparse.ArgumentParser) -> str:
    """Return the section of a command."""
    shown = [one for one in parser._actions if one.dest not in ("help", "limits")]
    rows = "".join(map(row, shown))
    if any(one.dest == "limits" for one in parser._actions):
        rows += LIMITS
    example = (parser.epilog or "").removeprefix("Example: ")
    return (
        f"\n## tfperf {name}\n\n```sh\n{example}\n```\n\n{parser.description}\n\n"
        f"| argument | meaning |\n|---|---|\n{rows}"
    )


def row(action: argparse.Action) -> str:
    """Return the row of an argument."""
    value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
    several = " …" if action.nargs == "+" else ""
    names = ", ".join(action.option_strings)
    shown = f"{names} {value}{several}".strip().replace("|", "\\|")
    meaning = (action.help or "") % vars(action)
    return f"| `{shown}` | {meaning.replace('|', chr(92) + '|')} |\n"


PAGES = {"reference/cli.md": page}

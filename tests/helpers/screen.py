"""What commands show, as text of a terminal of any width, without colours."""

import io

from pytest_tfperf.cli.terminal import Screen, shown


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self):
        return True


def screen(width=1_000_000, encoding="utf-8"):
    """A terminal without colours."""
    return Screen(width, encoding == "ascii")


def text_of(lines, screen):
    """The lines that a screen shows of these."""
    return shown(lines, screen).split("\n")[:-1]

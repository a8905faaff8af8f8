"""Source files as syntax trees, parsed once."""

import ast
from functools import cache


@cache
def tree(path):
    """The syntax tree of a file."""
    return ast.parse(path.read_text("utf-8"))

"""
Count the files that one analysis passes through, and the lines of each package.

    python benchmarks/walks.py [--files] [TRACE]

A walk counts the modules of the package whose functions one call runs, the changes from one of them to another, and the functions. The
trace is a small one of a CPU by default; --files names the modules of each walk. Lines are those of all modules but `__init__`; code is what remains without blank lines, comments,
docstrings and imports.
"""

import ast
import io
import sys
import tokenize
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from tabulate import tabulate

import pytest_tfperf
from pytest_tfperf.metrics import flops, graph_ops, shares, step_code
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.multi_host import analyse_trace
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import read_trace

PACKAGE = Path(pytest_tfperf.__file__).parent
TRACE = Path(__file__).parent.parent / "tests" / "data" / "traces" / "c5_seven.xplane.pb"


def walked(call: Callable[[], object]) -> tuple[set[str], int, int]:
    """Return the files of one call, the changes of file and the functions, without those of `<string>`."""
    files, functions, changes, last = set(), set(), 0, None

    def note(frame, event, _):
        nonlocal changes, last
        name = frame.f_code.co_filename
        if event in ("call", "return") and name.startswith(str(PACKAGE)):
            frame = frame if event == "call" else frame.f_back
            name = frame.f_code.co_filename if frame else ""
            if name.startswith(str(PACKAGE)) and name != last:
                changes += last is not None
                files.add(name)
                last = name
            if event == "call":
                functions.add(frame.f_code)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return files, changes, len(functions)


def lines(path: Path) -> tuple[int, int]:
    """Return the lines of a module, and those of code."""
    text = path.read_text(encoding="utf-8")
    code = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (
            tokenize.COMMENT,
            tokenize.NL,
            tokenize.NEWLINE,
            tokenize.INDENT,
            tokenize.DEDENT,
            tokenize.ENDMARKER,
        ):
            code |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        is_text = (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )
        if is_text or isinstance(node, (ast.Import, ast.ImportFrom)):
            code -= set(range(node.lineno, node.end_lineno + 1))
    return len(text.splitlines()), len(code)


def main() -> None:
    """Print both tables."""
    arguments = [one for one in sys.argv[1:] if one != "--files"]
    path = Path(arguments[0]) if arguments else TRACE
    trace = read_trace(path)

    def evidence() -> Evidence:
        return Evidence(Recording(name="", trace=None, workload={}, bare=True), trace)

    walks = {
        "tfperf analyze": lambda: analyse_trace(read_trace(path)),
        "input_bound": lambda: shares.analyse(evidence()),
        "flops": lambda: flops.analyse(evidence()),
        "padding_overhead": lambda: step_code.analyse_padding(evidence()),
        "xla_coverage": lambda: graph_ops.analyse(evidence()),
    }
    rows = []
    for name, call in walks.items():
        files, changes, functions = walked(call)
        rows.append((name, len(files), changes, functions))
        if "--files" in sys.argv:
            modules = sorted(Path(one).relative_to(PACKAGE).with_suffix("") for one in files)
            print(f"{name}: {', '.join(map(str, modules))}", end="\n\n")
    print(tabulate(rows, ("walk", "files", "changes", "functions")), end="\n\n")
    packages = defaultdict(lambda: [0, 0, 0])
    for module in sorted(PACKAGE.rglob("*.py")):
        if module.name != "__init__.py":
            inside = module.relative_to(PACKAGE).parts
            for name in (inside[0] if len(inside) > 1 else "(loose)", "all"):
                for place, number in enumerate((1, *lines(module))):
                    packages[name][place] += number
    rows = [
        (name, n, total, f"{code / total:.0%}")
        for name, (n, total, code) in sorted(packages.items(), key=lambda row: row[1][1])
    ]
    print(tabulate(rows, ("package", "modules", "lines", "code")))


main()

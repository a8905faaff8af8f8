"""
Count the files that one analysis passes through, and the lines of each package.

    python benchmarks/walks.py [--files] [TRACE]

A walk counts the modules of the package whose functions one call runs, the changes from one of them to another, and the functions. The
trace is a small one of a CPU by default. The walks of a test are of one run of pytest, whose step is JAX's: from
the fixture to its checks, its comparison with a baseline, and the end of the run. `own` leaves out the packages that measure and
analyse, and loose modules; --files names the modules of each walk. Lines are those of all modules but `__init__`; code is what remains without blank lines, comments,
docstrings and imports.
"""

import ast
import inspect
import io
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tabulate import tabulate

import pytest_tfperf
from pytest_tfperf.baseline import compare as baseline
from pytest_tfperf.metrics import flops, graph_ops, shares, step_code
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.multi_host import analyse_trace
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import read_trace

TEST = """
import jax

X = jax.numpy.ones((64, 64))
step = jax.jit(lambda x: x @ x)

def test_first(tf_profile):  # which imports what the second walks through
    tf_profile(step, [X], warmup=2, steps=4, trace_steps=2)

def test_step(tf_profile):
    tf_profile(step, [X], warmup=2, steps=4, trace_steps=2)
"""
ROOMS = {
    *("advice", "capture", "compiler", "differences", "facts", "frameworks", "hlo", "machine"),
    *("metrics", "stats", "tpu", "trace"),
}
PACKAGE = Path(pytest_tfperf.__file__).parent
TRACE = Path(__file__).parent.parent / "tests" / "data" / "traces" / "c5_seven.xplane.pb"


class Walk:
    """The files, the changes of file and the functions of what runs in the context, without those of `<string>`."""

    def __init__(self):
        self._files, self._functions, self._changes, self._last = set(), set(), 0, None

    def __enter__(self):
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def _note(self, frame, event, _):
        name = frame.f_code.co_filename
        if event in ("call", "return") and name.startswith(str(PACKAGE)):
            frame = frame if event == "call" else frame.f_back
            name = frame.f_code.co_filename if frame else ""
            if name.startswith(str(PACKAGE)) and name != self._last:
                self._changes += self._last is not None
                self._files.add(name)
                self._last = name
            if (
                event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED
            ):  # no body of a class
                self._functions.add(frame.f_code)

    def modules(self):
        """The parts of the path of each module."""
        files = {code.co_filename for code in self._functions}
        return sorted(Path(path).relative_to(PACKAGE).with_suffix("").parts for path in files)

    def row(self):
        """All files, those of the plugin's own way, the changes and the functions."""
        inside = self.modules()
        own = [parts for parts in inside if len(parts) > 1 and parts[0] not in ROOMS]
        return len(inside), len(own), self._changes, len(self._functions)


def walked(call: Callable[[], object]) -> Walk:
    """Return the walk of one call."""
    with Walk() as walk:
        call()
    return walk


class Walks:
    """A plugin of pytest that takes the walks of one test."""

    def __init__(self):
        self.walks = {"fixture to checks": Walk(), "end of a run": Walk()}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef, request):
        if fixturedef.argname != "tf_profile" or request.node.name != "test_step":
            return (yield)
        with self.walks["fixture to checks"]:
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item):
        if item.name != "test_step":
            return (yield)
        with self.walks["fixture to checks"]:
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self):
        with self.walks["end of a run"]:
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self):
        with self.walks["end of a run"]:
            return (yield)


def of_a_test() -> dict[str, Walk]:
    """Return the walks of a test that profiles a step of JAX, and of its comparison with a baseline."""
    with TemporaryDirectory() as folder:
        Path(folder, "test_walk.py").write_text(TEST)
        common = ["-q", "-p", "no:cacheprovider", f"--rootdir={folder}", "-c", "/dev/null", folder]
        record = [
            sys.executable,
            "-m",
            "pytest",
            *common,
            "--tfperf-update",
            "--tfperf-record-noisy",
        ]
        subprocess.run(record, check=True, capture_output=True)
        walks, compare, reading = Walks(), Walk(), baseline.compare_with_baseline

        def compared(*given):
            with compare:
                return reading(*given)

        baseline.compare_with_baseline = compared
        with redirect_stdout(io.StringIO()):
            pytest.main(common, [walks])
            pytest.main([*common, "--tfperf-baseline"])
    return {**walks.walks, "comparison with the baseline": compare}


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
    path = Path(next((one for one in sys.argv[1:] if one != "--files"), TRACE))
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
    found = {name: walked(call) for name, call in walks.items()} | of_a_test()
    if "--files" in sys.argv:
        for name, walk in found.items():
            print(f"{name}: {', '.join('/'.join(parts) for parts in walk.modules())}", end="\n\n")
    rows = [(name, *walk.row()) for name, walk in found.items()]
    print(tabulate(rows, ("walk", "files", "own", "changes", "functions")), end="\n\n")
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

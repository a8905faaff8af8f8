"""The shape of the package, design §5: who may import whom, where TensorFlow is, what pytest loads, how long things are."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_tfperf

PACKAGE = Path(pytest_tfperf.__file__).parent


def module_name(path):
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )


MODULES = {
    module_name(path): ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))
}
NAMES = sorted(MODULES)
FRAMEWORKS = {"tensorflow", "keras"}

# a room is a module or folder of the package; each may import the rooms on its right, and itself
WORDS = {
    "errors",
    "metrics",
    "op_graph",
    "reach",
    "recording",
    "results",
    "files",
    "tracers",
    "turn",
}
ANALYSIS = WORDS | {"trace", "analysis", "padding"}
BASELINE = ANALYSIS | {"checks", "baseline"}
COMPARISON = WORDS | {"baseline", "comparison", "rounds"}  # of the baseline its statistics alone
CAPTURE = WORDS | {"trace", "comparison", "rounds", "capture", "compiler"}
ROOMS = {
    **dict.fromkeys(WORDS, WORDS),
    "trace": WORDS | {"trace"},
    "analysis": ANALYSIS,
    "padding": ANALYSIS,
    "checks": ANALYSIS,
    "baseline": BASELINE,
    "report": BASELINE | {"report"},
    "export": ANALYSIS | {"export"},
    "paired": BASELINE | {"paired", "child", "child_plugin", "marks"},
    "comparison": COMPARISON,
    "rounds": COMPARISON,
    "capture": CAPTURE,
    "compiler": CAPTURE,
}
TOP = {
    "pytest_tfperf",
    "options",
    "profiles",
    "body",
    "announce",
    "exporting",
    "own_metrics",
    "controller",
    "workers",
    "hooks",
    "own_process",
    "own_process_child",
    "apart",
    "variant_run",
    "child",
    "item",
    "paired_run",
    "paired_sides",
    "child_plugin",
    "fixture",
    "session",
    "plugin",
    "marks",
    "second_run",
    "cli",
    "commands",
    "doctor",
}
LONGEST_MODULE, LONGEST_FUNCTION = 350, 60


def room(module):
    """`pytest_tfperf.trace.xspace` is in `trace`; the package itself is a room too."""
    return module.split(".")[1] if "." in module else module


def imported(node):
    """The dotted names that an import statement may load: of `from a import b` both a and a.b."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        return {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return set()


def imports(tree):
    """Every import anywhere in a module, also in functions and under TYPE_CHECKING."""
    return set().union(*map(imported, ast.walk(tree)))


def at_import(tree):
    """The same without what is in functions: what runs, or is checked, when the module is loaded."""
    found, waiting = set(), [tree]
    while waiting:
        node = waiting.pop()
        found |= imported(node)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)
    return found


GRAPH = {
    name: (imports(tree) & set(MODULES)) - {name, "pytest_tfperf"} for name, tree in MODULES.items()
}


def test_there_is_a_package_to_look_at():
    assert len(MODULES) > 20
    assert "pytest_tfperf.trace.xspace" in GRAPH["pytest_tfperf.analysis.steps.detect"]
    assert (
        "pytest_tfperf.plugin.conclude" in GRAPH["pytest_tfperf.plugin.hooks"]
    )  # within a function
    assert (
        "pytest_tfperf.plugin.fixture" in GRAPH["pytest_tfperf.plugin.hooks"]
    )  # under TYPE_CHECKING too
    assert (
        "pytest_tfperf.analysis.diagnosis" in GRAPH["pytest_tfperf.analysis.steps.shares"]
    )  # from the folder


@pytest.mark.parametrize("name", NAMES)
def test_a_module_imports_from_its_own_layer_and_those_below(name):
    here = room(name)
    assert here in ROOMS or here in TOP, (
        f"{here} has no place in the layers yet: give it one here and in the design"
    )
    if here in ROOMS:
        assert {room(other) for other in GRAPH[name]} <= ROOMS[here]


def test_the_words_stand_in_order():
    assert (
        GRAPH["pytest_tfperf.errors"]
        == GRAPH["pytest_tfperf.metrics"]
        == GRAPH["pytest_tfperf.files"]
        == set()
    )
    assert GRAPH["pytest_tfperf.results"] <= {"pytest_tfperf.errors", "pytest_tfperf.metrics"}


def test_a_comparison_takes_of_the_baseline_its_statistics_alone():
    words = {"pytest_tfperf.errors", "pytest_tfperf.metrics", "pytest_tfperf.results"}
    assert GRAPH["pytest_tfperf.variants.comparison"] <= words | {
        "pytest_tfperf.baseline",
        "pytest_tfperf.stats.signed_rank",
    }
    assert GRAPH["pytest_tfperf.stats.signed_rank"] <= words


@pytest.mark.parametrize("name", NAMES)
def test_no_module_imports_itself_over_others(name):
    reached, waiting = set(), set(GRAPH[name])
    while waiting:
        other = waiting.pop()
        reached.add(other)
        waiting |= GRAPH[other] - reached
    assert name not in reached


@pytest.mark.parametrize("name", NAMES)
def test_tensorflow_is_imported_in_functions_of_capture_and_compiler_only(name):
    tree = MODULES[name]
    assert not FRAMEWORKS & {other.split(".")[0] for other in at_import(tree)}
    if room(name) not in ("capture", "compiler"):
        assert not FRAMEWORKS & {other.split(".")[0] for other in imports(tree)}


def test_the_plugin_loads_pytest_the_standard_library_and_what_is_as_light_alone():
    tree = MODULES["pytest_tfperf.plugin.hooks"]
    tree = ast.Module([node for node in tree.body if not _is_for_type_checkers(node)], [])
    loaded = {other for other in at_import(tree) if other in MODULES}
    assert loaded <= {"pytest_tfperf.errors", "pytest_tfperf.markers", "pytest_tfperf.metrics"}
    others = {other.split(".")[0] for other in at_import(tree)} - {"pytest", "pytest_tfperf"}
    assert others <= sys.stdlib_module_names


def _is_for_type_checkers(node):
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def test_what_pytest_loads_in_every_run_is_light():
    command = [sys.executable, "-X", "importtime", "-c", "import pytest_tfperf.plugin.hooks"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "pytest_tfperf.plugin.hooks" in loaded
    heavy = FRAMEWORKS | {"numpy", "jinja2", "tabulate", "filelock"}
    assert not heavy & {name.split(".")[0] for name in loaded}
    light = {f"pytest_tfperf.{name}" for name in ("errors", "marks", "metrics", "plugin")}
    assert {name for name in loaded if name.startswith("pytest_tfperf.")} <= light


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_a_module_can_be_read_at_one_go(path):
    assert len(path.read_text("utf-8").splitlines()) <= LONGEST_MODULE


@pytest.mark.parametrize("name", NAMES)
def test_a_function_can_be_seen_at_once(name):
    functions = [
        node
        for node in ast.walk(MODULES[name])
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    assert {
        node.name: node.end_lineno - node.lineno + 1
        for node in functions
        if node.end_lineno - node.lineno >= LONGEST_FUNCTION
    } == {}

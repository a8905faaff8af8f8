"""The shape of the package: layers, imports of TensorFlow, clocks, start-up; and what fast tests import."""

import ast
import re
import sys
from functools import cache
from pathlib import Path

from helpers.sources import tree

import pytest_tfperf

PACKAGE = Path(pytest_tfperf.__file__).parent
LAYERS = (
    {
        "alike",
        "errors",
        "files",
        "function_traces",
        "gates",
        "graphs",
        "json_file",
        "markers",
        "metric_evidence",
        "metric_registry",
        "op_types",
        "quantities",
        "replaced",
        "summary",
        "temporary",
        "text",
        "turn",
        "values",
    },
    {"protobuf", "results"},
    {"frameworks", "hlo", "runs", "stats"},
    {"recording"},
    {"compiler", "machine", "trace"},
    {"capture", "remote", "tpu"},
    {"checks", "facts"},
    {"advice"},
    {"metrics"},
    {"differences"},
    {"baseline", "export"},
    {"turns"},
    {"report", "variants"},
    {"remedies", "stores"},
    {"doctor", "plugin"},
    {"cli"},
)
LAYER = {name: number for number, layer in enumerate(LAYERS) for name in layer}
LOOSE_LAYERS = 4
FRAMEWORKS = {"tensorflow", "keras", "jax"}
FRAMEWORK_PACKAGES = {"frameworks", "compiler", "capture"}
LONGEST_FUNCTION = 60
WALL_CLOCKS = {
    "time",
    "time_ns",
    "localtime",
    "gmtime",
    "ctime",
    "clock_gettime",
    "today",
    "utcnow",
}
TIMESTAMPS = {
    ("plugin/conclude.py", "now"),  # the date of a run, from which nothing is computed
    ("capture/sessions.py", "time"),  # watched for jumps, since the profiler dates events by it
    ("temporary.py", "time"),  # compared with the times of files, which come from that clock too
    ("stores/objects.py", "time"),  # the same
    ("capture/blocks.py", "time_ns"),  # compared with the times in TensorFlow's traces
    ("stores/trace_files.py", "time"),  # the date of a look, compared with those of other traces
}


def module_name(path):
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )


PATHS = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
MODULES = [name for name, path in PATHS.items() if path.name != "__init__.py"]


def package(module):
    """The part of the package that a module belongs to: `trace` for `pytest_tfperf.trace.xspace`."""
    return module.split(".")[1] if "." in module else module


def imported(node):
    """The dotted names that one import statement may load."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        return {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return set()


def all_imports(module):
    """Every import of a module, also in functions and under TYPE_CHECKING."""
    return set().union(*map(imported, ast.walk(module)))


def imports_at_load(module):
    """The imports of a module outside functions and TYPE_CHECKING."""
    names, waiting = set(), [module]
    while waiting:
        node = waiting.pop()
        names |= imported(node)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)
    return names


@cache
def graph():
    """The modules that each module imports."""
    return {
        name: (all_imports(tree(path)) & set(PATHS)) - {name, "pytest_tfperf"}
        for name, path in PATHS.items()
    }


def cycles(edges):
    """The nodes of a graph that can be reached from themselves."""
    looped = []
    for start in edges:
        reached, waiting = set(), set(edges[start])
        while waiting:
            node = waiting.pop()
            reached.add(node)
            waiting |= edges.get(node, set()) - reached
        if start in reached:
            looped.append(start)
    return looped


def test_the_import_graph_sees_imports_of_every_kind():
    assert len(MODULES) > 100
    assert "pytest_tfperf.trace.xspace" in graph()["pytest_tfperf.facts.steps"]
    assert (
        "pytest_tfperf.plugin.conclude" in graph()["pytest_tfperf.plugin.controller"]
    )  # in a function
    assert "pytest_tfperf.plugin.fixture" in graph()["pytest_tfperf.plugin.hooks"]  # TYPE_CHECKING
    assert cycles({"a": {"b"}, "b": {"a"}, "c": {"a"}}) == ["a", "b"]


def test_imports_go_to_lower_layers_only():
    assert {package(name) for name in PATHS} - {"pytest_tfperf"} <= set(LAYER)
    upward = [
        f"{name} imports {other}"
        for name, others in graph().items()
        for other in others
        if package(name) != package(other) and name != "pytest_tfperf"
        if LAYER[package(other)] > LAYER[package(name)]
        or (LAYER[package(other)] == LAYER[package(name)] > 0)
    ]
    assert upward == []


def test_no_module_imports_itself_through_others():
    assert cycles(graph()) == []


def test_loose_modules_are_values_and_primitives():
    loose = {package(name) for name in MODULES if name.count(".") == 1}
    assert loose <= set().union(*LAYERS[:LOOSE_LAYERS])


def test_no_function_is_longer_than_a_screen():
    functions = [
        (name, node.name, node.end_lineno - node.lineno + 1)
        for name, path in PATHS.items()
        for node in ast.walk(tree(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    assert [row for row in functions if row[2] > LONGEST_FUNCTION] == []


def test_tensorflow_is_imported_in_functions_of_three_packages():
    for name, path in PATHS.items():
        module = tree(path)
        assert not FRAMEWORKS & {other.split(".")[0] for other in imports_at_load(module)}, name
        if package(name) not in FRAMEWORK_PACKAGES:
            assert not FRAMEWORKS & {other.split(".")[0] for other in all_imports(module)}, name


def test_pytest_loads_little_in_projects_that_do_not_use_the_plugin():
    light = {
        f"pytest_tfperf.{name}"
        for name in (
            *("errors", "markers", "plugin"),
            *("plugin.hooks", "plugin.options", "plugin.registry", "plugin.workers"),
        )
    }
    loaded = imports_at_load(tree(PATHS["pytest_tfperf.plugin.hooks"]))
    assert loaded & set(PATHS) <= light
    outside = {name.split(".")[0] for name in loaded} - {"pytest", "pytest_tfperf"}
    assert outside <= sys.stdlib_module_names


def test_nothing_imports_the_command_line():
    above = [name for name, others in graph().items() if package(name) != "cli" for other in others
             if package(other) == "cli"]  # fmt: skip
    assert above == []


def wall_clocks(module):
    """The wall clocks that a module takes from `time` or `datetime`, by import or by attribute."""
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (alias.name for alias in node.names if alias.name in WALL_CLOCKS)
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in (
            "time",
            "datetime",
            "date",
        ):
            yield from {node.attr} & (WALL_CLOCKS | {"now"})


def test_durations_come_from_clocks_that_cannot_jump():
    lines = "import time\nfrom time import time_ns, perf_counter\ntime.time()\ntime.monotonic()\ndatetime.now()"
    assert sorted(wall_clocks(ast.parse(lines))) == ["now", "time", "time_ns"]
    used = {
        (path.relative_to(PACKAGE).as_posix(), clock)
        for name, path in PATHS.items()
        for clock in wall_clocks(tree(path))
    }
    assert used <= TIMESTAMPS


HEAVY = {
    "jax": re.compile(r"\b(?:import|from) jax\b|SUITES / ['\"]frameworks\b|\brunning_jobs\b"),
    "keras": re.compile(r"\b(?:import|from) (?:tf_)?keras\b|\btf\.keras\b"),
    "browser": re.compile(r"\bfrom helpers\.browser\b"),
}


@cache
def definitions(path):
    """The statements of a test module by the names that they give to it."""
    found = {}
    for node in tree(path).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.asname or alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names = [node.name]
        else:
            names = [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
        for name in names:
            found.setdefault(name, node)
    return found


def heavy_in(text):
    return {one for one, pattern in HEAVY.items() if pattern.search(text)}


@cache
def heavy_in_file(path):
    return heavy_in(path.read_text("utf-8"))


@cache
def names_in(node):
    """The names that a statement uses, fixtures among them."""
    walked = list(ast.walk(node))
    used = {one.id for one in walked if isinstance(one, ast.Name)}
    return used | {one.arg for one in walked if isinstance(one, ast.arg)}


@cache
def heavy_in_statement(node):
    return heavy_in(ast.unparse(node).replace("\\n", "\n"))  # texts, in one line each


@cache
def heavy_imports(name, path):
    """What a test, and all in its module that it uses, imports of JAX and Keras, here or in the text of a process; or a browser."""
    if not heavy_in_file(path):
        return set()
    found, seen, waiting = definitions(path), set(), [name]
    while waiting:
        node = found[waiting.pop()]
        if node not in seen:
            seen.add(node)
            waiting += names_in(node) & found.keys()
    return set().union(*map(heavy_in_statement, seen))


def test_heavy_imports_are_seen_in_a_test_and_in_what_it_uses(tmp_path):
    lines = (
        "IMPORT keras\nFROM helpers.browser IMPORT Browser\nSUITE = '\\nIMPORT jax'\n"
        "def fit(): return keras.Model()\ndef test_a(): fit()\n@pytest.fixture\ndef run(): return SUITE\n"
        "def test_b(run): run()\ndef test_c(): Browser(1)\ndef test_d(): pass\n"
    )  # not in the letters that this looks for
    path = tmp_path / "test_a.py"
    path.write_text(lines.replace("IMPORT", "import").replace("FROM", "from"))
    found = {name: heavy_imports(f"test_{name}", path) for name in "abcd"}
    assert found == {"a": {"keras"}, "b": {"jax"}, "c": {"browser"}, "d": set()}


def test_the_fast_tier_imports_jax_and_keras_and_starts_a_browser_only_where_it_says_so(request):
    """Of the tests that were collected with this one."""
    silent = set()
    for item in request.session.items:
        if not {"full", "nightly"} & {mark.name for mark in item.iter_markers()}:
            said = {name for mark in item.iter_markers("imports") for name in mark.args}
            name = item.nodeid.split("::")[1].partition("[")[0]
            if unsaid := heavy_imports(name, item.path) - said:
                silent.add(f"{item.nodeid.partition('[')[0]}: {', '.join(sorted(unsaid))}")
    assert silent == set()

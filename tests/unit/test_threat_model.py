"""Promises about files of others: each names a test that exists, and what no module of the package does."""

import ast
import re

import pytest
from helpers.paths import ROOT
from helpers.sources import tree

PAGE = (ROOT / "docs" / "explanation" / "threat_model.md").read_text("utf-8")
GUIDE = (ROOT / "docs" / "how_to" / "ci.md").read_text("utf-8")
PACKAGE = ROOT / "pytest_tfperf"
RUNS_CODE = {
    "pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "yaml",
    "code",
    "runpy",
}
EVALUATES = {"eval", "exec", "compile", "__import__"}
CONNECTS = {"socket", "ssl", "http", "urllib.request", "urllib3", "requests", "httpx", "aiohttp"} | {
    "ftplib", "smtplib", "xmlrpc", "telnetlib", "grpc", "websockets", "asyncio",
}  # fmt: skip
LOCAL = {
    "turns/messages.py": "a pair of sockets",
    "turns/pytest_child.py": "makes that pair",
    "turns/child_plugin.py": "has its other end",
    "turns/workers.py": "finds free ports for TensorFlow",
}


def modules():
    """The syntax tree of each module of the package, by its path."""
    return {path.relative_to(PACKAGE).as_posix(): tree(path) for path in PACKAGE.rglob("*.py")}


def promises():
    """The rows of the table of promises: text and the tests that hold it."""
    table = PAGE.partition("## Promises")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+) \| (.+) \|$", table, re.MULTILINE)
    return [(text, re.findall(r"`(tests/[^`]+)`", held)) for text, held in rows[1:]]


def imports(module):
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def is_of(name, packages):
    parts = name.split(".")
    return any(".".join(parts[:n]) in packages for n in range(1, len(parts) + 1))


def test_every_promise_names_tests_that_exist():
    assert len(promises()) > 10
    for text, tests in promises():
        assert tests, text
        for test in tests:
            path, *names = test.split("::")
            assert (ROOT / path).is_file(), f"{test}: {text}"
            body = tree(ROOT / path).body
            for name in names:
                of_that_name = [one for one in body if getattr(one, "name", "") == name]
                assert len(of_that_name) == 1, f"{test}: {text}"
                body = of_that_name[0].body


def test_no_module_runs_what_it_reads():
    found = [
        f"{path}: {name}"
        for path, module in modules().items()
        for name in imports(module)
        if is_of(name, RUNS_CODE)
    ]
    for path, module in modules().items():
        for call in (node for node in ast.walk(module) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Name) and call.func.id in EVALUATES:
                found.append(f"{path}:{call.lineno}: {call.func.id}")
            if any(
                one.arg == "shell" and ast.unparse(one.value) == "True" for one in call.keywords
            ):
                found.append(f"{path}:{call.lineno}: a shell")
            name = getattr(call.func, "attr", "")
            if name == "from_string" or (
                name in ("system", "popen") and ast.unparse(call.func) == f"os.{name}"
            ):
                found.append(f"{path}:{call.lineno}: {ast.unparse(call.func)}")
    assert found == []


def test_only_captures_open_connections():
    found = {
        path
        for path, module in modules().items()
        for name in imports(module)
        if is_of(name, CONNECTS)
    }
    assert {path for path in found if not path.startswith("remote/")} == set(LOCAL)
    for path in LOCAL:
        used = {node.attr for node in ast.walk(modules()[path]) if isinstance(node, ast.Attribute)}
        assert not used & {"connect", "connect_ex", "create_connection", "listen", "accept"}, path


def test_the_search_finds_what_it_looks_for():
    module = ast.parse("import urllib.request\nfrom http import client\nimport urllib.parse")
    names = list(imports(module))
    assert [is_of(name, CONNECTS) for name in names] == [True, True, True, False]


def workflows():
    import yaml

    texts = re.findall(r"^```yaml\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    return [yaml.safe_load(text) for text in texts]


@pytest.mark.full
def test_the_job_that_comments_on_forks_runs_nothing_of_theirs():
    _action, measures, comments, _record = workflows()
    assert measures["permissions"] == {"contents": "read"}
    [job] = comments["jobs"].values()
    assert comments[True] == {  # on
        "workflow_run": {"workflows": [measures["name"]], "types": ["completed"]}
    }
    used = [step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step]
    assert used == ["actions/setup-python", "actions/download-artifact"]
    [artifact] = [step["with"] for step in job["steps"] if "artifact" in step.get("uses", "")]
    scripts = "\n".join(step["run"] for step in job["steps"] if "run" in step)
    assert "${{" not in scripts, "an expression would be part of the script"
    assert re.findall(rf"{artifact['path']}/\S+", scripts) == ["untrusted/run.json"]
    uploaded = measures["jobs"]["measure"]["steps"][-1]["with"]
    assert uploaded == {"name": artifact["name"], "path": "run.json"}

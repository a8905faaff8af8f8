"""Promises about files of others: each names a test that exists, and what no module of the package does."""

import re

import pytest
from helpers.paths import ROOT
from helpers.sources import tree

PAGE = (ROOT / "docs" / "explanation" / "threat_model.md").read_text("utf-8")
GUIDE = (ROOT / "docs" / "how_to" / "fork_runs.md").read_text("utf-8")
PACKAGE = ROOT / "pytest_tfperf"
IMPORT = r"^ *(?:import|from) +(?:{})\b"
RUNS_CODE = (
    IMPORT.format("pickle|marshal|shelve|dill|cloudpickle|joblib|yaml|code|runpy"),
    r"(?<![\w.])(?:eval|exec|compile|__import__)\(",
    r"\bos\.(?:system|popen)\b|\bshell=True|\.from_string\(",
)
CONNECTS = IMPORT.format(
    "socket|ssl|http|urllib3|requests|httpx|aiohttp|ftplib|smtplib|xmlrpc|telnetlib|grpc|websockets"
    "|asyncio|urllib(?:.request| import .*request)"
)
USES_A_CONNECTION = r"\.(?:connect|connect_ex|create_connection|listen|accept)\b"
LOCAL = {
    "child/channel.py": "a pair of sockets",
    "child/process.py": "makes that pair",
    "child/server.py": "has its other end",
    "cluster/worker_calls.py": "finds free ports for TensorFlow",
}


@pytest.fixture(scope="module")
def sources():
    """The text of each module of the package, by its path."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in paths}


def found(patterns, text):
    return [hit[0] for pattern in patterns for hit in re.finditer(pattern, text, re.MULTILINE)]


def promises():
    """The rows of the table of promises: text and the tests that hold it."""
    table = PAGE.partition("## Promises")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+) \| (.+) \|$", table, re.MULTILINE)
    return [(text, re.findall(r"`(tests/[^`]+)`", held)) for text, held in rows[1:]]


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


def test_no_module_runs_what_it_reads(sources):
    assert {path: hits for path, text in sources.items() if (hits := found(RUNS_CODE, text))} == {}


def test_only_captures_open_connections(sources):
    connecting = {path for path, text in sources.items() if found([CONNECTS], text)}
    assert {path for path in connecting if not path.startswith("remote/")} == set(LOCAL)
    for path in LOCAL:
        assert found([USES_A_CONNECTION], sources[path]) == [], path


def test_the_search_finds_what_it_looks_for():
    for text in (
        *("import pickle", "    from yaml import load", "x = eval(text)", "exec(code)"),
        *("os.system(text)", "run(text, shell=True)", "Template.from_string(text)"),
    ):
        assert found(RUNS_CODE, text), text
    for text in ("import urllib.request", "from urllib import request", "from http import client"):
        assert found([CONNECTS], text), text
    assert not found([*RUNS_CODE, CONNECTS], "import urllib.parse\nre.compile(x)\nimport codecs")


def workflows():
    import yaml

    return [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)]


@pytest.mark.full
def test_the_job_that_comments_on_forks_runs_nothing_of_theirs():
    measures, comments = workflows()
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

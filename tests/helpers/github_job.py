"""A job of GitHub Actions that uses this repository's action: its steps run in a shell, against an API server of this process."""

import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from helpers.git_repository import ALONE
from helpers.paths import ROOT, TESTS

EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
REPOSITORY = "team/model"
ARTIFACT = "https://github.example/artifacts/7"


def action():
    import yaml  # for the steps of a job alone

    return yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))


class Api:
    """GitHub's comments of pull requests; `refusal` is the status of its answers to what writes."""

    def __init__(self):
        self.comments, self.requests, self.refusal = [], [], None

    def add(self, body, kind="Bot"):
        number = len(self.comments) + 1
        url = f"https://github.example/comments/{number}"
        self.comments.append({"id": number, "user": {"type": kind}, "body": body, "html_url": url})
        return self.comments[-1]

    def answer(self, method, path, data):
        """Status and content of an answer."""
        self.requests.append((method, path))
        if method != "GET" and self.refusal:
            return self.refusal, {"message": "Resource not accessible by integration"}
        if method == "POST":
            return 201, self.add(data["body"])
        if method == "PATCH":
            comment = self.comments[int(path.rpartition("/")[2]) - 1]
            comment["body"] = data["body"]
            return 200, comment
        size, page = map(int, re.search(r"per_page=(\d+)&page=(\d+)", path).groups())
        return 200, self.comments[size * (page - 1) : size * page]


@contextmanager
def serving(api):
    """The address of a server that answers as the API does."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            length = int(self.headers.get("Content-Length", 0))
            data = json.loads(self.rfile.read(length)) if length else None
            status, content = api.answer(self.command, self.path, data)
            if self.headers["Authorization"] != "Bearer secret":
                status, content = 401, {}
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        do_POST = do_PATCH = do_GET

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Job:
    """
    A job in a clone: `event` is its payload, and `inputs` are what the workflow gives to the action.

    After `run`, `output` is the log, `summary` the job's summary, `steps` the outputs of steps, `artifacts` what was uploaded.
    """

    def __init__(
        self,
        folder,
        clone,
        url,
        *,
        event="pull_request",
        ref="",
        base="",
        token="secret",
        inputs=(),
    ):
        self.clone, self.temporary = clone, folder / "runner"
        self.temporary.mkdir(parents=True, exist_ok=True)
        self._summary = self.temporary / "summary.md"
        self._summary.write_text("")
        payload = {"repository": {"default_branch": "main"}}
        if event == "pull_request":
            payload["pull_request"] = {"number": 5}
        if event == "merge_group":
            payload["merge_group"] = {"base_sha": base}
        (self.temporary / "event.json").write_text(json.dumps(payload))
        defaults = {name: one.get("default", "") for name, one in action()["inputs"].items()}
        unknown = dict(inputs).keys() - defaults.keys()
        assert not unknown, unknown
        self.steps, self.artifacts, self.output, self.status = {}, {}, "", 0
        self._context = {
            "inputs": {**defaults, "python": shlex.quote(sys.executable), **dict(inputs)},
            "github": {"token": token, "event": payload},
            "steps": self.steps,
        }
        kept = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("PYTEST", "GIT_", "COV_"))
        }
        paths = [str(TESTS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        self._environment = {
            **kept,
            **ALONE,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TMPDIR": str(self.temporary),
            "no_proxy": "*",
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_API_URL": url,
            "GITHUB_BASE_REF": base if event == "pull_request" else "",
            "GITHUB_EVENT_NAME": event,
            "GITHUB_EVENT_PATH": str(self.temporary / "event.json"),
            "GITHUB_REF": ref,
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_RUN_ID": "42",
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_STEP_SUMMARY": str(self._summary),
            "GITHUB_WORKSPACE": str(clone),
            "RUNNER_TEMP": str(self.temporary),
        }

    @property
    def summary(self):
        return self._summary.read_text("utf-8")

    def run(self, *names):
        """Run the steps of these names, or all of them; those after one that failed as their conditions say."""
        for step in action()["runs"]["steps"]:
            if (not names or step["name"] in names) and self._is_due(step.get("if", "")):
                self._run(step)
        return self

    def _is_due(self, condition):
        if self.status and "cancelled()" not in condition:
            return False
        return not condition or self._value(EXPRESSION.fullmatch(condition)[1])

    def _run(self, step):
        outputs = self.steps.setdefault(step.get("id", step["name"]), {"outputs": {}})["outputs"]
        if "uses" in step:
            assert step["uses"].startswith("actions/upload-artifact@"), step["uses"]
            folder = Path(self._text(step["with"]["path"]))
            self.artifacts[self._text(step["with"]["name"])] = sorted(
                path.name for path in folder.iterdir()
            )
            outputs["artifact-url"] = ARTIFACT
            return
        written = self.temporary / "output"
        written.write_text("")
        variables = {name: self._text(text) for name, text in step.get("env", {}).items()}
        # as `shell: bash` is run: docs.github.com, "Workflow syntax", jobs.<job_id>.steps[*].shell
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.clone / self._text(step.get("working-directory", ".")),
            env={**self._environment, **variables, "GITHUB_OUTPUT": str(written)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        self.output += done.stdout
        self.status = self.status or done.returncode
        outputs.update(line.split("=", 1) for line in written.read_text().splitlines())

    def _text(self, text):
        return EXPRESSION.sub(lambda found: str(self._value(found[1])), text)

    def _value(self, expression):
        """The value of one of GitHub's expressions: names, texts, comparisons, `&&`, `||` and `!cancelled()`."""
        python = re.sub(
            r"[a-z][\w-]*(\.[\w-]+)+", lambda name: repr(self._known(name[0])), expression
        )
        python = python.replace("!cancelled()", "True").replace("&&", "and").replace("||", "or")
        return eval(python)

    def _known(self, name):
        value = self._context
        for part in name.split("."):
            value = value.get(part, "") if isinstance(value, dict) else ""
        return value

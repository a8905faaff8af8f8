"""The GitHub Action, step by step, in real clones: what it compares with, writes, uploads, comments and pushes."""

import json
import shutil
from pathlib import Path

import pytest
from helpers.git_repository import commit, git, repository, write
from helpers.github_job import ARTIFACT, Api, Job, serving
from helpers.paired_project import INI

pytestmark = [
    pytest.mark.full,  # PyYAML reads action.yml
    pytest.mark.usefixtures("processes"),
    pytest.mark.skipif(shutil.which("git") is None, reason="needs git"),
]

MARKER = "<!-- pytest-tfperf tfperf -->"
ACCEPT = "Push the recorded baselines"
PLAN = "Find the base"
INPUTS = {"options": "-p helpers.fake_profiler", "tests": "'test steps.py'"}
STEPS = """
import model

def test_step(tf_profile):
    tf_profile(model.STEP_S)
"""


def model(step_s):
    return {"src/model.py": f"STEP_S = {step_s}\n"}


def sha(folder, ref):
    """The commit that messages name."""
    return git(folder, "rev-parse", "--short=12", ref).strip()


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """
    A repository with two pull requests, each merged into the main of its time as GitHub does.

    Later main became so much faster that both would look slower than it.
    """
    path = repository(
        tmp_path_factory.mktemp("action") / "origin",
        {"pytest.ini": INI, "test steps.py": STEPS, **model(1.0)},
    )
    git(path, "tag", "v1")
    for name, step_s in (("same", 1.0), ("slower", 1.5)):
        git(path, "switch", "-q", "-c", name, "v1")
        commit(path, name, {"notes.txt": name, **model(step_s)})
        git(path, "switch", "-q", "-c", f"pull-{name}", "v1")
        git(path, "merge", "-q", "--no-ff", "-m", f"merge {name}", name)
    git(path, "switch", "-q", "main")
    commit(path, "faster", model(0.5))
    return path


def clone(origin, folder, branch="pull-same", *options):
    """A clone as actions/checkout makes it: of one commit."""
    options = options or ("--depth=1", "--single-branch")
    git(folder, "clone", "-q", *options, "--branch", branch, origin.as_uri(), "clone")
    return folder / "clone"


class PullRequest:
    """A pull request, and the comments of it after each job."""

    def __init__(self, origin, folder):
        self.api, self.comments, self._origin, self._folder = Api(), [], origin, folder
        self.api.add(MARKER + "\nnot the action's", kind="User")

    def job(self, branch):
        """The job that a push of this branch starts."""
        folder = self._folder / branch
        folder.mkdir()
        inputs = {"tolerance": "2%", **INPUTS}
        with serving(self.api) as url:
            here = clone(self._origin, folder, branch)
            job = Job(folder, here, url, base="main", inputs=inputs).run()
        self.comments.append([comment["body"] for comment in self.api.comments])
        return job


def test_a_pull_request_that_is_as_fast_passes(origin, tmp_path):
    request = PullRequest(origin, tmp_path)
    job = request.job("pull-same")
    assert job.status == 0, job.output
    check_comment(request.comments[0])
    assert "REGRESSION" not in request.comments[0][1]
    # the commit that it started from, and not what main is by now
    assert job.steps["plan"]["outputs"] == {
        "mode": "compare",
        "base": sha(origin, "v1"),
    }
    run = json.loads(Path(job.steps["run"]["outputs"]["run-file"]).read_text())
    [test] = run["tests"]
    assert "step_time" in {check["metric"] for check in test["checks"]}
    assert job.artifacts == {"tfperf": ["run.html", "run.json", "run.md"]}
    assert "tfperf: " in job.summary
    assert git(job.clone, "status", "--porcelain") == ""


def check_comment(comments):
    """Check that the action wrote one comment of its own, with links."""
    others, body = comments
    assert others == MARKER + "\nnot the action's"
    assert body.startswith(f"{MARKER}\n# ")
    assert "[job](https://github.example/team/model/actions/runs/42)" in body
    assert f"[page and run file]({ARTIFACT})" in body


def test_a_slower_pull_request_fails_with_pytest_s_status_and_updates_the_comment(origin, tmp_path):
    request = PullRequest(origin, tmp_path)
    request.api.add(MARKER + "\nof the run before")
    job = request.job("pull-slower")
    check_comment(request.comments[0])
    assert "REGRESSION" in request.comments[0][1]
    assert (job.status, job.steps["run"]["outputs"]["status"]) == (1, "1"), job.output
    assert "REGRESSION" in job.summary
    assert "limit 2 %" in job.output
    assert "::error file=test steps.py" in job.output
    assert job.artifacts == {"tfperf": ["run.html", "run.json", "run.md"]}


class TestBase:
    def planned(self, origin, tmp_path, *options, branch="pull-same", **settings):
        job = Job(tmp_path, clone(origin, tmp_path, branch, *options), "", **settings)
        return job.run(PLAN)

    def test_the_tip_of_the_base_branch_has_its_name(self, origin, tmp_path):
        job = self.planned(origin, tmp_path, "--single-branch", branch="main", base="main")
        assert job.steps["plan"]["outputs"] == {"mode": "compare", "base": "origin/main"}

    def test_a_whole_clone_stays_whole(self, origin, tmp_path):
        job = self.planned(origin, tmp_path, "--no-tags", base="main", inputs={"base": "v1"})
        assert job.steps["plan"]["outputs"]["base"] == sha(origin, "v1")
        assert git(job.clone, "rev-parse", "--is-shallow-repository").strip() == "false"

    def test_a_named_base_is_fetched_into_a_shallow_clone(self, origin, tmp_path):
        job = self.planned(origin, tmp_path, inputs={"base": "origin/main"})
        assert job.steps["plan"]["outputs"]["base"] == sha(origin, "main")
        assert git(job.clone, "rev-list", "--count", "HEAD").strip() == "1"

    def test_a_base_that_nobody_has_ends_the_job(self, origin, tmp_path):
        for number, base in enumerate(
            ["origin/nowhere", "--upload-pack=touch harm", "v1\nmode=record"]
        ):
            (folder := tmp_path / str(number)).mkdir()
            job = self.planned(origin, folder, inputs={"base": base})
            assert job.status == 1, base
            assert "::error title=tfperf::base " in job.output
            assert "its origin has none either" in job.output
            assert job.run().steps.keys() == {"plan"}
            assert not (job.clone / "harm").exists()

    def test_without_a_pull_request_nothing_is_compared(self, origin, tmp_path):
        job = self.planned(origin, tmp_path, event="schedule", ref="refs/heads/main")
        assert job.steps["plan"]["outputs"] == {"mode": "alone", "base": ""}

    def test_a_merge_queue_compares_with_what_it_merges_onto(self, origin, tmp_path):
        base = git(origin, "rev-parse", "v1^{commit}").strip()
        job = self.planned(origin, tmp_path, event="merge_group", base=base)
        assert job.steps["plan"]["outputs"] == {"mode": "compare", "base": base[:12]}

    def test_only_the_default_branch_records(self, origin, tmp_path):
        for number, (accept, ref, mode) in enumerate(
            [
                ("true", "refs/heads/main", "record"),
                ("true", "refs/heads/other", "alone"),
                ("false", "refs/heads/main", "alone"),
            ]
        ):
            (folder := tmp_path / str(number)).mkdir()
            settings = {"event": "push", "ref": ref, "inputs": {"accept": accept}}
            job = self.planned(origin, folder, **settings)
            assert job.steps["plan"]["outputs"]["mode"] == mode, (accept, ref)


def test_inputs_are_never_run(origin, tmp_path):
    options = "--no-such-option \"$(touch harm)\" '; touch harm' `touch harm`"
    inputs = {"options": options, "tests": "; touch harm", "tolerance": "$(touch harm)"}
    api = Api()
    with serving(api) as url:
        job = Job(tmp_path, clone(origin, tmp_path), url, inputs=inputs).run()
    assert (job.status, job.artifacts) == (4, {})
    assert not [*tmp_path.rglob("harm")]
    ended = "pytest ended with exit status 4 before it wrote results."
    assert ended in job.summary
    assert ended in api.comments[0]["body"]


def test_quotes_that_do_not_match_are_an_error(origin, tmp_path):
    job = Job(tmp_path, clone(origin, tmp_path), "", inputs={"options": "-k 'a or b"}).run()
    assert job.status == 1
    assert "::error title=tfperf::quotes do not match in: -k 'a or b" in job.output


def test_the_install_command_runs_first(origin, tmp_path):
    inputs = {"install": "false | true\ntouch harm", "working-directory": "src"}
    job = Job(tmp_path, clone(origin, tmp_path), "", inputs=inputs).run()
    assert job.status == 1
    assert not [*tmp_path.rglob("harm")]
    job = Job(tmp_path, job.clone, "", inputs={"install": "touch made", "working-directory": "src"})
    job.run("Install")
    assert (job.status, (job.clone / "src" / "made").exists()) == (0, True)


class TestRecording:
    @pytest.fixture
    def shared(self, origin, tmp_path):
        """A bare repository, as on GitHub."""
        git(tmp_path, "clone", "-q", "--bare", origin, "shared")
        return tmp_path / "shared"

    def job(self, shared, tmp_path, **inputs):
        here = clone(shared, tmp_path, "main")
        settings = {"event": "push", "ref": "refs/heads/main"}
        return Job(tmp_path, here, "", **settings, inputs={"accept": "true", **INPUTS, **inputs})

    def test_the_baseline_is_pushed_beside_what_others_pushed(self, shared, tmp_path):
        job = self.job(shared, tmp_path).run(PLAN, "Run pytest", "Keep the results")
        assert job.status == 0, job.output
        assert "run.json" in job.artifacts["tfperf"]
        git(tmp_path, "clone", "-q", shared, "other")
        commit(tmp_path / "other", "meanwhile", {"notes.txt": "other"})
        git(tmp_path / "other", "push", "-q", "origin", "main")
        write(job.clone, {"src/model.py": "# changed by the job"})
        job.run(ACCEPT)
        assert job.status == 0, job.output
        subjects = git(shared, "log", "--format=%an: %s", "main").splitlines()
        assert subjects[:2] == [
            "github-actions[bot]: Record performance baselines",
            "Test: meanwhile",
        ]
        changed = git(shared, "show", "-z", "--format=", "--name-only", "main").split("\0")[:-1]
        assert "__tfperf__/test steps.json" in changed
        assert all(name.startswith("__tfperf__/") for name in changed)
        assert "recorded baselines are on main" in job.summary

    def ready(self, job, files):
        """A job whose run recorded these files."""
        write(job.clone, files)
        job.steps["plan"] = {"outputs": {"mode": "record"}}
        job.steps["run"] = {"outputs": {"run-file": "run.json"}}
        return job

    def test_other_values_of_the_same_baselines_are_left_there_and_said(self, shared, tmp_path):
        job = self.ready(self.job(shared, tmp_path), {"__tfperf__/test_x.json": "1"})
        git(tmp_path, "clone", "-q", shared, "other")
        commit(tmp_path / "other", "meanwhile", {"__tfperf__/test_x.json": "2"})
        git(tmp_path / "other", "push", "-q", "origin", "main")
        job.run(ACCEPT)
        assert job.status == 1
        assert "another job has pushed other values of the same baselines" in job.summary
        assert (job.clone / "__tfperf__" / "test_x.json").read_text() == "1"
        assert not [*(job.clone / ".git").glob("rebase-*")]

    def test_a_branch_that_takes_no_push_fails_the_job(self, origin, tmp_path):
        job = self.ready(self.job(origin, tmp_path), {"a/__tfperf__/test_x.json": "{}"})
        job.run(ACCEPT)  # git refuses pushes to the branch that a repository has checked out
        assert job.status == 1
        assert "could not be pushed to main" in job.summary
        assert "::error title=tfperf::" in job.output

    def test_a_run_that_recorded_nothing_pushes_nothing(self, shared, tmp_path):
        before = git(shared, "rev-parse", "main")
        job = self.ready(self.job(shared, tmp_path), {"new.txt": ""}).run(ACCEPT)
        assert (job.status, git(shared, "rev-parse", "main")) == (0, before)
        assert "recorded no baseline" in job.summary

    def test_baselines_may_lie_elsewhere(self, shared, tmp_path):
        job = self.job(shared, tmp_path, baselines="kept 'my kept'")
        self.ready(job, {"my kept/test_x.json": "{}"}).run(ACCEPT)
        assert (
            git(shared, "show", "--format=", "--name-only", "main").strip() == "my kept/test_x.json"
        )

"""The comment that the GitHub Action writes, against an API server of this process."""

import importlib.util
import json
import socket
from threading import Thread

import pytest
from helpers.github_job import REPOSITORY, Api, serving
from helpers.paths import ROOT

SPEC = importlib.util.spec_from_file_location("comment", ROOT / "action" / "comment.py")
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)
MARKER = "<!-- pytest-tfperf tfperf -->"


@pytest.fixture
def api():
    return Api()


@pytest.fixture
def comment(api, tmp_path, monkeypatch, capsys):
    """Comment on a report of this text; returns the job's summary and its output."""
    summary = tmp_path / "summary.md"
    with serving(api) as url:

        def run(text, name="tfperf", token="secret", event=None):
            event = {"pull_request": {"number": 5}} if event is None else event
            (tmp_path / "event.json").write_text(json.dumps(event))
            (tmp_path / "run.md").write_text(text, "utf-8")
            summary.write_text("")
            for variable, value in {
                "GITHUB_API_URL": url,
                "GITHUB_EVENT_PATH": tmp_path / "event.json",
                "GITHUB_REPOSITORY": REPOSITORY,
                "GITHUB_RUN_ID": "42",
                "GITHUB_SERVER_URL": "https://github.example",
                "GITHUB_STEP_SUMMARY": summary,
                "TFPERF_ARTIFACT": "",
                "TFPERF_FOLDER": tmp_path,
                "TFPERF_NAME": name,
                "TFPERF_STATUS": "1",
                "TFPERF_TOKEN": token,
                "no_proxy": "*",
            }.items():
                monkeypatch.setenv(variable, str(value))
            script.main()
            return summary.read_text("utf-8"), capsys.readouterr().out

        yield run


def test_a_token_that_may_not_write_is_a_sentence_in_the_summary(api, comment):
    api.refusal = 403
    for token in ("secret", ""):
        summary, output = comment("# results\n", token=token)
        assert api.comments == []
        assert summary.startswith("The pull request has no comment with these results: ")
        assert "a pull request from a fork" in summary
        assert summary.count(".") == 1
        assert "::notice title=tfperf::no comment: " in output


def test_an_api_that_fails_is_named(api, comment):
    api.refusal = 502
    summary, _ = comment("# results\n")
    assert "502" in summary


def test_a_connection_that_is_cut_fails_nothing(comment, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        request = script.request

        def cut(method, path, data=None):
            monkeypatch.setenv("GITHUB_API_URL", url)
            Thread(target=lambda: server.accept()[0].close()).start()
            return request(method, path, data)

        monkeypatch.setattr(script, "request", cut)
        summary, _ = comment("# results\n")
    assert "has no comment with these results" in summary


def test_the_comment_is_found_on_a_later_page(api, comment):
    for number in range(150):
        api.add(f"comment {number}")
    api.comments[120]["body"] = f"{MARKER}\nold"
    comment("# results\n")
    assert len(api.comments) == 150
    assert "# results" in api.comments[120]["body"]
    assert [path.partition("page=")[2] for method, path in api.requests if method == "GET"] == [
        "100&page=1",
        "100&page=2",
    ]


def test_a_comment_of_a_bot_without_a_text_is_another_s(api, comment):
    api.add(None)
    comment("# results\n")
    assert "# results" in api.comments[1]["body"]


def test_a_comment_of_a_person_is_another_s(api, comment):
    api.add(f"{MARKER}\ncopied", kind="User")
    comment("# results\n")
    assert [one["body"].splitlines()[1] for one in api.comments] == ["copied", "# results"]


def test_jobs_of_other_names_have_comments_of_their_own(api, comment):
    for name in ("cpu", "gpu --> x", "cpu"):
        comment(f"# {name}\n", name=name)
    assert [one["body"].splitlines()[0] for one in api.comments] == [
        "<!-- pytest-tfperf cpu -->",
        "<!-- pytest-tfperf gpu_--__x -->",
    ]


def test_a_long_report_is_cut_at_a_line(api, comment):
    comment("é" * 99 + "\n" + ("x" * 99 + "\n") * 700)
    body = api.comments[0]["body"]
    assert 65_000 < len(body) <= 65_536
    lines = body.splitlines()
    assert set(lines[2:-2]) == {"x" * 99}
    assert lines[-1].startswith("[job](")


def test_other_events_have_no_comment(api, comment):
    comment("# results\n", event={})
    assert api.requests == []

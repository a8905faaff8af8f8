"""`tfperf metrics`: the registry for people and machines."""

import json

import pytest
from helpers.golden import assert_golden

from pytest_tfperf.cli.main import main
from pytest_tfperf.metric_evidence import EVIDENCE
from pytest_tfperf.metric_registry import METRICS


def test_the_list_as_a_whole(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["metrics"]) == 0
    assert_golden("metrics_80.txt", capsys.readouterr().out)


def test_each_metric_is_explained(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for name in METRICS:
        assert main(["metrics", name.replace("_", "-")]) == 0, name
        text = capsys.readouterr().out
        assert text.startswith(f"{name}: {METRICS[name].meaning}"), name
        assert f"--max-{name.replace('_', '-')} " in text or "--min-" in text, name
        assert EVIDENCE[name].known_from.split("`")[0].split()[0] in text, name
    main(["metrics", "step_time"])
    assert capsys.readouterr().out.startswith("step_time: ")


def test_one_metric_as_a_whole(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["metrics", "xla_launches"]) == 0
    assert_golden("metric_80.txt", capsys.readouterr().out)


def test_the_list_as_json(capsys):
    assert main(["metrics", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in content["metrics"]] == list(METRICS)
    assert content["metrics"][0].keys() == {
        *("name", "unit", "better", "scope", "meaning"),
        *("fails", "evidence"),
    }
    assert main(["metrics", "retraces", "--json"]) == 0
    [one] = json.loads(capsys.readouterr().out)["metrics"]
    assert one["fails"]["change"] == "worse"
    main(["metrics", "python_calls"])
    assert "a change for the worse against a baseline of more than 20 % and 50: " in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "input_bund",
            "no metric 'input_bund'; did you mean 'input_bound'?\n  Custom metrics are known",
        ),
        ("tokens", "no metric 'tokens'; valid: batch_padding, "),
    ],
)
def test_an_unknown_metric_is_status_2_with_a_suggestion(name, said, capsys):
    assert main(["metrics", name]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err

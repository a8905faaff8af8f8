"""Completion of commands, options, metrics and limits, as bash itself does it."""

import shutil
import subprocess
import sys

import pytest

from pytest_tfperf.cli.main import main

pytestmark = pytest.mark.full  # shtab writes the scripts


@pytest.fixture(scope="module")
def script(processes, tmp_path_factory):
    pytest.importorskip("shtab", reason="the extra [completion] is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "pytest_tfperf.cli.main", "completion", "bash"],
        capture_output=True,
        text=True,
        check=True,
    )
    path = tmp_path_factory.mktemp("completion") / "tfperf.bash"
    path.write_text(done.stdout, "utf-8")
    return path


def completed(script, *words):
    """The completions of the last word that bash offers."""
    bash = shutil.which("bash")
    assert bash is not None
    quoted = " ".join(f"'{word}'" for word in ("tfperf", *words))
    code = (
        f'. "{script}"; COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; COMP_LINE="${{COMP_WORDS[*]}}"\n'
        'function_of() { echo "$3"; }\n'
        "name=$(complete -p tfperf | sed 's/.*-F \\([^ ]*\\) .*/\\1/')\n"
        '"$name" tfperf "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"\n'
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run([bash, "--norc", "-c", code], capture_output=True, text=True, check=True)
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def test_bash_offers_commands_options_metrics_limits_and_files(script, tmp_path, monkeypatch):
    for words, offered in (
        (("an",), ["analyze"]),
        (("analyze", "--js"), ["--json"]),
        (("show", "--la"), ["--last"]),
        (("metrics", "input_b"), ["input_bound", "input_bound_at_target"]),
        (("check", "--max-input-w"), ["--max-input-wait"]),
        (("check", "--target"), ["--target-step-time"]),
        (("check", "--retr"), ["--retraces"]),
        (("completion", "z"), ["zsh"]),
    ):
        assert sorted(set(completed(script, *words))) == offered, words
    assert {"analyze", "check", "compare", "doctor", "metrics", "show"} <= {*completed(script, "")}
    (tmp_path / "only.xplane.pb").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert completed(script, "analyze", "on") == ["only.xplane.pb"]


def test_other_shells_have_scripts(capsys):
    pytest.importorskip("shtab", reason="the extra [completion] is not installed")
    for shell in ("zsh", "tcsh"):
        assert main(["completion", shell]) == 0
        assert "analyze" in capsys.readouterr().out

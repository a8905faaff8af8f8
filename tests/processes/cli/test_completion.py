"""Completion of commands, options, metrics and limits, as bash itself does it."""

import shutil
import subprocess
import sys

import pytest

from pytest_tfperf.cli.main import main


@pytest.fixture(scope="module")
def script(tmp_path_factory):
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


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("an",), ["analyze"]),
        (("analyze", "--js"), ["--json"]),
        (("show", "--la"), ["--last"]),
        (("metrics", "input_b"), ["input_bound", "input_bound_at_target"]),
        (("check", "--max-input-w"), ["--max-input-wait"]),
        (("check", "--target"), ["--target-step-time"]),
        (("check", "--retr"), ["--retraces"]),
        (("completion", "z"), ["zsh"]),
    ],
)
def test_bash_offers(script, words, offered):
    assert sorted(set(completed(script, *words))) == offered


def test_bash_offers_every_command(script):
    assert {"analyze", "check", "compare", "doctor", "metrics", "show"} <= {*completed(script, "")}


def test_bash_offers_files(script, tmp_path, monkeypatch):
    (tmp_path / "only.xplane.pb").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert completed(script, "analyze", "on") == ["only.xplane.pb"]


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_have_scripts(shell, capsys):
    pytest.importorskip("shtab", reason="the extra [completion] is not installed")
    assert main(["completion", shell]) == 0
    assert "analyze" in capsys.readouterr().out


def test_without_shtab_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "pip install shtab" in capsys.readouterr().err

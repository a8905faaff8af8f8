"""The project that pytest runs in where a flag's value is a path that exists."""

import pytest


@pytest.fixture
def project(pytester, monkeypatch):
    """A project with an ini file, and a folder beside it with a report and a store."""
    project, elsewhere = pytester.mkdir("project"), pytester.mkdir("elsewhere")
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / "tests").mkdir()
    (project / "tests/test_one.py").write_text("def test_one():\n    pass\n")
    (elsewhere / "run.json").write_text("{}")
    (elsewhere / "store").mkdir()
    monkeypatch.chdir(project)
    return project


@pytest.fixture
def run(pytester):
    return lambda *words: pytester.runpytest_inprocess("--collect-only", *words)


VALUES = [
    ("--tfperf-report", "run.json"),
    ("--tfperf-history", "store"),
    ("--tfperf-baseline-dir", "store"),
    ("--tfperf-trace-dir", "store"),
    ("--tfperf-against-python", "store"),
]


def test_a_value_that_exists_outside_of_the_project_is_refused(project, run):
    for flag, name in VALUES:
        value = str(project.parent / "elsewhere" / name)
        result = run(flag, value)
        assert result.ret == pytest.ExitCode.USAGE_ERROR, flag
        assert result.errlines == [
            f"ERROR: pytest would run in {project.parent} with no ini file instead of "
            f"{project}, since it takes {value} for a path of tests. "
            f"Write {flag}={value}, with an equals sign",
            "",
        ]


def test_the_form_that_the_message_names_runs_in_the_project(project, run):
    for flag, name in VALUES[:4]:
        result = run(f"{flag}={project.parent / 'elsewhere' / name}")
        assert result.ret == 0, flag
        result.stdout.fnmatch_lines([f"rootdir: {project}", "configfile: pytest.ini"])


def test_all_values_are_named_at_once(project, run):
    folder = project.parent / "elsewhere"
    result = run("--tfperf-report", f"{folder}/run.json", "--tfperf-history", f"{folder}/store")
    result.stderr.fnmatch_lines(
        [f"*Write --tfperf-report={folder}/run.json --tfperf-history={folder}/store, with*"]
    )


def test_a_value_of_pytest_addopts_counts(project, run, monkeypatch):
    monkeypatch.setenv("PYTEST_ADDOPTS", "--tfperf-report ../elsewhere/run.json", prepend=" ")
    result = run()
    result.stderr.fnmatch_lines(["*Write --tfperf-report=../elsewhere/run.json, with*"])


def test_the_ini_file_of_another_project_is_named(project, run):
    (project.parent / "elsewhere/pytest.ini").write_text("[pytest]\n")
    result = run("--tfperf-report", "../elsewhere/run.json")
    result.stderr.fnmatch_lines(
        [f"ERROR: pytest would run in *elsewhere with pytest.ini instead of {project}, since *"]
    )


def test_a_value_that_changes_nothing_is_taken_in_both_forms(project, run):
    (project / "run.json").write_text("{}")
    for why, words in {
        "inside": ("--tfperf-report", "run.json"),
        "not there": ("--tfperf-report", "../elsewhere/other.json"),
        "beside a path of tests": ("tests", "--tfperf-report", "../elsewhere/run.json"),
        "with its ini file": ("-c", "pytest.ini", "--tfperf-report", "../elsewhere/run.json"),
    }.items():
        result = run(*words)
        assert result.ret == 0, why
        result.stdout.fnmatch_lines([f"rootdir: {project}", "configfile: pytest.ini"])

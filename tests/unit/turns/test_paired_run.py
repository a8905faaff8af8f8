"""The coordinator of a paired run: which tests run in both versions, and what each is asked."""

import signal
import sys
from dataclasses import replace

import pytest
from helpers.builders import profile
from helpers.fake_child import FakeRun

from pytest_tfperf.plugin import progress
from pytest_tfperf.turns import versions
from pytest_tfperf.turns.versions import Interpreter

PROFILED = "import pytest\n\ndef test_{}(tf_profile): raise AssertionError('ran here')\n"
ALL, RETRACES = ("", "against"), ("", "retraces")


@pytest.fixture
def paired(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.mkdir("tests")
    pytester.mkdir("tests/deep")
    (pytester.path / "tests/test_a.py").write_text(
        PROFILED.format("one") + PROFILED.format("two") + "\ndef test_plain(): pass\n"
    )
    (pytester.path / "tests/deep/test_b.py").write_text(
        PROFILED.format("one")
        + """
class TestGroup:
    @pytest.mark.parametrize("n", [1, 2], ids=["slow er", "x::y[z]"])
    def test_inside(self, tf_profile, n): raise AssertionError("ran here")
"""
    )
    run = FakeRun(pytester, monkeypatch)
    run.tree = run.ref = [
        "tests/test_a.py::test_one",
        "tests/test_a.py::test_two",
        "tests/deep/test_b.py::test_one",
        "tests/deep/test_b.py::TestGroup::test_inside[slow er]",
        "tests/deep/test_b.py::TestGroup::test_inside[x::y[z]]",
    ]
    return run


def ran(paired, version="tree"):
    """Return the tests that ran in the processes of a version."""
    return [test for child in paired.children[version] for test, _ in child.ran]


class TestSelection:
    @pytest.mark.parametrize(
        ("arguments", "tests"),
        [
            (("tests/test_a.py", "tests/deep"), range(5)),
            (("-k", "(one or two) and not deep"), (0, 1)),
            pytest.param(("tests/test_a.py::test_two",), (1,), marks=pytest.mark.full),
            pytest.param(
                ("tests/deep/test_b.py::TestGroup::test_inside[x::y[z]]",),
                (4,),
                marks=pytest.mark.full,
            ),
            (("{root}/tests/deep/test_b.py::TestGroup::test_inside[x::y[z]]",), (4,)),
            (("tests/deep", "tests/test_a.py::test_one"), (2, 3, 4, 0)),
            (("--deselect", "tests/deep"), (0, 1)),
        ],
    )
    def test_selected_tests_run_in_both_versions(self, paired, pytester, arguments, tests):
        paired(*(argument.format(root=pytester.path) for argument in arguments))
        wanted = [paired.tree[n] for n in tests]
        assert ran(paired) == wanted
        assert ran(paired, "ref") == wanted
        following = [following for _, following in paired.children["tree"][0].ran]
        assert following == [*wanted[1:], None]

    def test_profiled_tests_run_in_processes_that_collect_their_files_and_others_here(self, paired):
        result = paired("-k", "plain or two")
        result.assert_outcomes(passed=2)
        assert ran(paired) == ["tests/test_a.py::test_two"]
        for version in ("tree", "ref"):
            child, _ahead = paired.children[version]
            assert child.pytest_run.task.files == ["tests/test_a.py"]
        # the header names ref and cores
        [line] = [line for line in result.outlines if line.startswith("tfperf: against")]
        assert line.startswith("tfperf: against main (cccccccccccc); both versions run on ")
        # nothing of the ref is kept after its test, which is not judged
        ref = paired.children["ref"][0]
        assert ref.checks == {paired.tree[1]: None}
        assert ref.has_ended

    def test_versions_run_in_their_own_folders(self, paired, pytester, monkeypatch):
        monkeypatch.chdir(pytester.path / "tests")
        listing = pytester.path / "tracked"
        listing.write_text("tests/test_a.py\0")
        paired.files = replace(paired.files, same=True, listing=listing)
        result = paired(str(pytester.path / "tests/test_a.py"))
        result.stdout.fnmatch_lines(["*main (cccccccccccc, which the working tree's * equal)*"])
        tree, ref = paired.children["tree"][0], paired.children["ref"][0]
        assert tree.pytest_run.folder == paired.files.root / "tests"
        assert ref.pytest_run.folder == paired.files.path / "tests"
        assert ref.pytest_run.folder.is_dir()  # also where the ref does not have it
        assert tree.pytest_run.arguments[-1] == str(paired.files.root / "tests/test_a.py")
        assert ref.pytest_run.arguments[-1] == str(paired.files.path / "tests/test_a.py")

    def test_files_that_the_ref_does_not_have_are_new(self, paired):
        paired.ref = paired.tree[:2]
        paired("tests/deep/test_b.py::test_one").assert_outcomes(passed=1)
        verdict, message = paired.checks(paired.tree[2])[ALL]
        assert (verdict, message) == (
            "NEW",
            "the test is on the working tree alone: main has none of this name",
        )
        assert ran(paired, "ref") == []


@pytest.mark.parametrize(
    ("only", "metrics"), [("structural", {"retraces"}), ("timing", {"step_time"}), (None, None)]
)
def test_only_some_metrics_are_compared(paired, only, metrics):
    test = paired.tree[0]
    paired.profiles["tree"] = [profile(retraces=2, step_time=1.0)]
    paired.profiles["ref"] = [profile(retraces=0, step_time=1.0)]
    paired(*([f"--tfperf-only={only}"] if only else []), "tests/test_a.py::test_one")
    found = {metric for _, metric in paired.checks(test)}
    assert found == (metrics or {"retraces", "step_time"})
    if only != "timing":
        assert paired.checks(test)[RETRACES][0] == "REGRESSION"


def test_a_log_says_what_runs_and_none_with_q_does(paired, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(progress, "_INTERVAL_S", 0)
    line = "tfperf: test_two: starting processes of both versions"
    assert line in paired("tests/test_a.py", "-k", "two").outlines
    assert line not in paired("tests/test_a.py", "-k", "two", "-q").outlines


def test_a_ref_that_cannot_start_makes_its_tests_unknown(paired):
    paired.ref = "the process on main ended with exit status 4\n  its stderr:\n  no way there"
    paired("-k", "two").assert_outcomes(passed=1)
    verdict, message = paired.checks(paired.tree[1])[ALL]
    assert verdict == "UNKNOWN"
    assert "on main no test can run: the process on main ended with exit status 4" in message
    assert "no way there" in message
    assert message.endswith("\n  try: a ref on which it runs, or stored values (--tfperf-baseline)")


def test_a_test_that_the_ref_cannot_collect_is_unknown(paired):
    paired.ref, paired.errors["ref"] = [], "ImportError: no such module"
    paired("-k", "two")
    verdict, message = paired.checks(paired.tree[1])[ALL]
    assert verdict == "UNKNOWN"
    assert "on main the test cannot be collected:\n" in message
    assert "ImportError: no such module" in message


def test_a_working_tree_that_cannot_start_fails_its_tests(paired):
    paired.tree = "the working tree's process ended with exit status 4"
    result = paired("tests/test_a.py")
    result.assert_outcomes(errors=2, passed=1)
    result.stdout.fnmatch_lines(["the working tree's process ended with exit status 4"])


def test_names_that_change_each_time_fail_their_test_alone(paired):
    paired.tree = paired.tree[:1]
    result = paired("tests/test_a.py")
    result.assert_outcomes(errors=1, passed=2)
    result.stdout.fnmatch_lines(
        ["*has no test of this name:", "  collected a second time, the tests have other names; *"]
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), True),
        (("-k", "one"), False),
        pytest.param(("tests/test_a.py::test_one",), False, marks=pytest.mark.full),
    ],
)
def test_tests_on_the_ref_alone_are_named_unless_tests_are_left_out(paired, arguments, named):
    paired.ref = [*paired.tree, "tests/test_a.py::test_gone"]
    result = paired(*arguments)
    line = "tfperf: NEW: on main alone, so not compared: tests/test_a.py::test_gone"
    assert (line in result.outlines) == named
    assert result.ret == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-p", "xdist", "-n2"], "run it without -n"),
        (["--tfperf-update"], "it cannot be given together with --tfperf-against"),
        (["--tfperf-budget", "-1"], "--tfperf-budget"),
    ],
)
def test_options_that_contradict_are_refused(paired, arguments, text):
    result = paired(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert text in "\n".join(result.errlines)
    assert paired.children == {}


def test_a_system_that_cannot_stop_processes_is_refused(paired, monkeypatch):
    monkeypatch.delattr(signal, "SIGSTOP")
    result = paired()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "this system cannot stop processes" in "\n".join(result.errlines)


@pytest.mark.parametrize("option", ["--collect-only", "--setup-plan", "--tfperf-disable"])
def test_no_process_starts_where_no_test_runs(paired, option):
    result = paired(option, "-k", "plain")
    assert result.ret == 0
    assert "tfperf: against" not in "\n".join(result.outlines)
    assert not paired.has_started


class TestOtherPython:
    """`--tfperf-against-python`: the other process is one of an environment with TensorFlow 2.20."""

    @pytest.fixture
    def two(self, paired, monkeypatch):
        ours = Interpreter(
            command=sys.executable,
            prefix="/ours",
            is_venv=True,
            version=(3, 11, 7),
            platform="linux x86_64",
            path=tuple(sys.path),
            packages={"tensorflow": "2.21.0", "keras": "3.15.1", "python": "3.11.7"},
            modules=(),
            protocol=1,
        )
        theirs = replace(
            ours,
            command="/other/bin/python",
            prefix="/other",
            path=("/other/site-packages",),
            packages={**ours.packages, "tensorflow": "2.20.0", "absl-py": "2.0"},
        )
        monkeypatch.setattr(versions, "ask", lambda *_: ours)
        monkeypatch.setattr(versions, "other_python", lambda *_: theirs)
        paired.against = ("--tfperf-against-python=/other",)
        return paired

    def test_with_a_ref_both_are_named(self, two):
        two.against = ("--tfperf-against=main", *two.against)
        result = two("-k", "two")
        result.stdout.fnmatch_lines(
            ["tfperf: against main (cccccccccccc); main with tensorflow 2.20.0 (/other/*"]
        )
        ref = two.children["ref"][0].pytest_run
        assert (ref.task.root, ref.python) == (str(two.files.path), "/other/bin/python")

    def test_alone_it_runs_the_same_files_with_another_path(self, two, monkeypatch):
        monkeypatch.setenv("PATH", "/ours/bin:/usr/bin")
        result = two("-k", "two")
        result.assert_outcomes(passed=1)
        tree, ref = (two.children[version][0].pytest_run for version in ("tree", "ref"))
        assert not two.has_started  # no ref is written
        assert (tree.task.root, tree.folder) == (ref.task.root, ref.folder)
        assert tree.task.files == ref.task.files
        assert (tree.python, ref.python) == (None, "/other/bin/python")
        assert ref.path[-1] == "/other/site-packages"
        assert tree.label == "this environment's process"
        assert ref.label == "the process on tensorflow 2.20.0"
        assert ref.environment["VIRTUAL_ENV"] == "/other"
        assert ref.environment["PATH"].startswith("/other/bin:")
        # the header names packages that differ
        [line] = [line for line in result.outlines if line.startswith("tfperf: against")]
        assert line.startswith(
            "tfperf: against tensorflow 2.20.0 (/other/bin/python): "
            "tensorflow 2.20.0 → 2.21.0, absl-py 2.0 → none; both versions run on "
        )

    def test_messages_name_environments_and_no_ref(self, two):
        two.ref = []
        two("-k", "two").assert_outcomes(passed=1)
        verdict, message = two.checks(two.tree[1])[ALL]
        assert (verdict, message) == (
            "NEW",
            "the test is on this environment alone: tensorflow 2.20.0 has none of this name",
        )

    def test_a_python_whose_process_cannot_start_makes_its_tests_unknown(self, two):
        two.ref = "the process on tensorflow 2.20.0 ended with exit status 4"
        two("-k", "two")
        verdict, message = two.checks(two.tree[1])[ALL]
        assert verdict == "UNKNOWN"
        assert "on tensorflow 2.20.0 no test can run" in message
        assert message.endswith(
            "try: an environment in which it runs, or stored values (--tfperf-baseline)"
        )

    def test_metrics_of_the_platform_are_shown_and_those_of_the_program_decided(self, two):
        two.profiles["tree"] = [profile(retraces=2, graph_ops=12, fusions=1)]
        two.profiles["ref"] = [profile(retraces=0, graph_ops=10)]
        two("-k", "two", "--tfperf-only=structural")
        checks = two.checks(two.tree[1])
        assert checks["", "graph_ops"] == (
            "PASS",
            "graph_ops rose from 10 to 12, which does not gate: "
            "it depends on the packages, which differ; a limit decides it",
        )
        verdict, message = checks[RETRACES]
        assert verdict == "REGRESSION"
        assert message.endswith("if intended: run with --tfperf-only timing")
        assert checks["", "fusions"] == ("NEW", "fusions is 1, and tensorflow 2.20.0 has none")

    def test_an_update_beside_it_is_refused(self, two):
        result = two("--tfperf-update")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        text = "it cannot be given together with --tfperf-against-python"
        assert text in "\n".join(result.errlines)

"""
`--tfperf-against` end to end: a project under git, and real processes that leave nothing behind.

Steps take as long as they say (see fake_profiler), so that no decision is left to chance.
"""

import os

import pytest
from helpers.git_repository import git, write
from helpers.paired_project import INI, Project, picture

MODEL = """
HERE = {here}
SAME, SLOWER, FASTER = 1.0, {slower}, {faster}
RETRACES = {retraces}
WORKLOAD = {{"inputs": ["float32[{rows}, 4]"], "batch": {rows}}}
"""
THERE = MODEL.format(here=False, slower=1.0, faster=1.0, retraces=0, rows=8)
HERE = MODEL.format(here=True, slower=1.2, faster=0.8, retraces=2, rows=16)

STEPS = """
import os, signal, sys, time
import model
import pytest

@pytest.mark.tfperf(max_regression="5%")
def test_same(tf_profile):
    tf_profile(model.SAME)

def test_slower(tf_profile):
    tf_profile(model.SLOWER)

def test_faster(tf_profile):
    tf_profile(model.FASTER)

@pytest.mark.tfperf(max_retraces=1)
def test_structure(tf_profile):
    tf_profile(model.SAME, retraces=model.RETRACES)

def test_workload(tf_profile):
    tf_profile(model.SAME, workload=model.WORKLOAD)

def test_names(tf_profile):
    if not model.HERE:
        tf_profile(model.SAME, "gone")
    tf_profile(model.SAME, "both")
    tf_profile(model.SLOWER, "slower")
    if model.HERE:
        tf_profile(model.SAME, "added")

@pytest.mark.tfperf(max_regression="5%")
def test_no_times(tf_profile):
    tf_profile(model.SAME, times=False, retraces=0)

@pytest.mark.tfperf(max_retraces=1)
def test_marked():
    pass

def test_few_steps(tf_profile):
    tf_profile(model.SAME, most_calls=5000 if model.HERE else None)

def test_no_steps(tf_profile):
    tf_profile(model.SAME, most_calls=1)

def test_by_name(request):
    request.getfixturevalue("tf_profile")(model.SAME)

def test_plain(request):
    assert not hasattr(request.config.option, "tfperf_child") or request.config.option.tfperf_child is None
    assert "site" in sys.modules

@pytest.mark.xfail(strict=True, raises=AssertionError)
def test_expected(tf_profile):
    tf_profile(model.SAME)
    assert 0

@pytest.mark.tfperf(autocluster=True)
def test_clusters(tf_profile):
    assert "auto_jit" in os.environ["TF_XLA_FLAGS"]
    tf_profile(model.SAME)

def test_does_not_cluster(tf_profile):
    assert "auto_jit" not in os.environ.get("TF_XLA_FLAGS", "")
    tf_profile(model.SAME)

class TestGroup:
    pytestmark = pytest.mark.tfperf(max_regression="30%")

    @pytest.mark.parametrize("slower", [True, False], ids=["slow er", "x::y[z]"])
    def test_inside(self, tf_profile, slower, tmp_path):
        (tmp_path / "file").write_text("")
        tf_profile(model.SLOWER if slower else model.SAME)
"""

FIXTURES = """
import os, sys
import model
import pytest

@pytest.fixture(scope="module")
def shared():
    where = "here" if model.HERE else "there"
    yield [where]

def test_one(tf_profile, shared):
    shared.append("one")
    tf_profile(model.SAME)

def test_between():
    pass

def test_two(tf_profile, shared):
    assert shared == ["here" if model.HERE else "there", "one"]
    tf_profile(model.SAME)

def test_third_fails(tf_profile, shared):
    print("to be seen")
    tf_profile(model.SAME)
    assert not model.HERE

@pytest.fixture
def broken():
    yield
    raise ValueError("at teardown")

def test_broken(tf_profile, broken):
    tf_profile(model.SAME)

def test_warns(tf_profile):
    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("mind the gap")
    tf_profile(model.SAME)
"""

TROUBLE = """
import os, signal, time
import model
import pytest

def test_skipped_there(tf_profile):
    if not model.HERE:
        pytest.skip("not on the ref")
    tf_profile(model.SAME)

def test_skipped_here(tf_profile):
    if model.HERE:
        pytest.skip("not today")
    tf_profile(model.SAME)

def test_fails_there(tf_profile):
    tf_profile(model.SAME)
    assert model.HERE, "no such thing"

def test_raises_before(tf_profile):
    assert model.HERE, "no such thing"
    tf_profile(model.SAME)

@pytest.mark.tfperf(max_regression="5%")
def test_nothing_there(tf_profile):
    if model.HERE:
        tf_profile(model.SAME)

def test_hangs_there(tf_profile):
    if not model.HERE:
        print("deep in thought", flush=True)
        time.sleep(600)
    tf_profile(model.SAME)

def test_exits_there(tf_profile):
    if not model.HERE:
        pytest.exit("enough")
    tf_profile(model.SAME)

def test_dies_there(tf_profile):
    if not model.HERE:
        print("last words", flush=True)
        os._exit(7)
    tf_profile(model.SAME)

def test_dies_between_turns(tf_profile):
    def during(n):
        if n == 3 and not model.HERE:
            os.kill(os.getpid(), signal.SIGKILL)
    tf_profile(model.SAME, during=during)

@pytest.fixture
def deadly():
    yield
    if not model.HERE:
        os._exit(9)

def test_dies_at_teardown_there(tf_profile, deadly):
    tf_profile(model.SAME)

def test_dies_here_between_turns(tf_profile):
    def during(n):
        if n == 3 and model.HERE:
            os.kill(os.getpid(), signal.SIGKILL)
    tf_profile(model.SAME, during=during)

def test_last(tf_profile):
    tf_profile(model.SAME)
"""

ONE = "import model\n\ndef test_one(tf_profile):\n    tf_profile(model.SAME)\n"
BARE = "\ndef test_unprofiled():\n    pass\n"
MORE = "".join(
    f"\ndef test_{name}(tf_profile):\n    tf_profile(model.SAME)\n"
    for name in ("added", "unprofiled")
)
COMMITTED = {
    "src/model.py": THERE,
    "tests/test_steps.py": STEPS,
    "tests/test_fixtures.py": FIXTURES,
    "tests/test_trouble.py": TROUBLE,
    "tests/test_added.py": ONE + BARE,
    "tests/test_import.py": "raise ImportError('no such module there')\n",
    "tests/deep/test_deep.py": ONE,
}
CHANGED = {
    "src/model.py": HERE,
    "tests/test_added.py": ONE + MORE,
    "tests/test_import.py": ONE,
    "tests/new/test_new.py": ONE,
    "tests/stored.json": "{}",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Its working tree has changed files, new ones, staged ones, and a stash."""
    one = Project(tmp_path_factory.mktemp("pair"), COMMITTED, CHANGED)
    write(one.path, {"src/extra.py": "a = 1"})
    git(one.path, "add", "src/extra.py")
    git(one.path, "stash", "--include-untracked")
    git(one.path, "stash", "apply", "--index")
    return one


@pytest.fixture
def untouched(project):
    before = picture(project.path)
    yield
    assert picture(project.path) == before


@pytest.fixture(scope="module")
def steps(project):
    before = picture(project.path)
    files = "tests/test_steps.py", "tests/test_added.py", "tests/test_import.py", "tests/new"
    run = project.run("-v", *files, TFPERF_TEST_AHEAD="1")
    assert picture(project.path) == before
    return run


@pytest.fixture(scope="module")
def fixtures(project):
    return project.run("-v", "tests/test_fixtures.py", "-W", "default")


@pytest.fixture(scope="module")
def trouble(project):
    return project.run("-v", "tests/test_trouble.py")


TIME = ("", "step_time")
ALL = ("", "against")


def test_header(steps, project):
    commit = git(project.path, "rev-parse", "HEAD").strip()[:12]
    cores = sorted(os.sched_getaffinity(0))
    where = (
        "run on any core, since there are none" if len(cores) == 1 else "both versions run on core"
    )
    assert f"tfperf: against HEAD ({commit}); both versions run" in steps.text
    assert where in steps.text


@pytest.mark.parametrize(
    ("test", "word", "verdict", "text"),
    [
        ("test_same", "PASSED", "PASS", "step_time is 0 % slower than HEAD"),
        ("test_slower", "PERF", "REGRESSION", "pairs of processes (20 % slower, 20 % slower"),
        ("test_faster", "PASSED", "IMPROVED", "20 % faster than HEAD"),
        ("test_clusters", "PASSED", "PASS", " 0 % slower"),
        ("test_does_not_cluster", "PASSED", "PASS", " 0 % slower"),
        ("test_no_times", "PERF", "UNKNOWN", "this form of profiling gives no times"),
        ("test_marked", "INCONCLUSIVE", "INCONCLUSIVE", "this form of profiling gives no times"),
        ("test_few_steps", "INCONCLUSIVE", "INCONCLUSIVE", "the loop ended after 1 pair"),
        (
            "test_no_steps",
            "PERF",
            "UNKNOWN",
            "too few steps left for a turn: 1 on the working tree, 1 on HEAD;",
        ),
        ("TestGroup::test_inside[slow er]", "PASSED", "PASS", " 20 % slower"),
        ("TestGroup::test_inside[x::y[z]]", "PASSED", "PASS", " 0 % slower"),
        ("test_added.py::test_one", "PASSED", "PASS", " 0 % slower"),
    ],
)
def test_time(steps, test, word, verdict, text):
    found, message = steps.checks(test)[TIME]
    assert found == verdict
    assert text in message
    assert steps.words(test) == [word]


def test_a_fixture_that_a_test_gets_by_its_name_is_not_compared(steps):
    verdict, message = steps.checks("test_by_name")["", "against"]
    assert verdict == "UNKNOWN"
    assert "name tf_profile among the test's arguments" in message
    assert steps.words("test_by_name") == ["PERF"]


def test_words(steps):
    assert steps.words("test_steps.py::test_same") == ["PASSED"]
    assert steps.words("test_steps.py::test_slower") == ["PERF"]
    assert steps.words("test_steps.py::test_plain") == ["PASSED"]
    assert steps.words("test_steps.py::test_expected") == ["XFAIL"]
    assert steps.status == 1


def test_structure_is_compared_and_limits_still_hold(steps):
    assert steps.checks("test_structure")["", "retraces"][0] == "REGRESSION"
    assert steps.checks("test_structure", "limit")["", "retraces"][0] == "FAIL"
    assert steps.checks("test_marked", "limit")["", "retraces"][0] == "PASS"


def test_another_workload(steps):
    verdict, message = steps.checks("test_workload")[ALL]
    assert verdict == "NEW"
    assert "float32[8, 4]" in message
    assert steps.words("test_workload") == ["PASSED"]


def test_profiles_meet_by_name(steps):
    found = {key: verdict for key, (verdict, _) in steps.checks("test_names").items()}
    assert found == {
        ("both", "step_time"): "PASS",
        ("slower", "step_time"): "REGRESSION",
        ("added", "against"): "NEW",
        ("gone", "against"): "NEW",
    }


@pytest.mark.parametrize(
    ("test", "text"),
    [
        ("test_added", "the test is on the working tree alone"),
        ("test_new.py::test_one", "the test is on the working tree alone"),
        ("test_unprofiled", "on HEAD it profiles nothing"),
    ],
)
def test_what_is_here_alone_is_new(steps, test, text):
    verdict, message = steps.checks(test)[ALL]
    assert verdict == "NEW"
    assert text in message
    assert steps.words(test) == ["PASSED"]


def test_what_cannot_be_imported_there_is_unknown(steps):
    verdict, message = steps.checks("test_import.py::test_one")[ALL]
    assert verdict == "UNKNOWN"
    assert "on HEAD the test cannot be collected" in message
    assert "ImportError: no such module there" in message
    assert steps.words("test_import.py::test_one") == ["PERF"]


def test_fixtures_serve_the_tests_of_their_scope_once_in_either_version(fixtures):
    assert [fixtures.words(f"test_{name}") for name in ("one", "two", "third_fails", "warns")] == [
        ["PASSED"],
        ["PASSED"],
        ["FAILED"],
        ["PASSED"],
    ]
    assert {fixtures.checks(f"test_{name}")[TIME][0] for name in ("one", "two", "warns")} == {
        "PASS"
    }


def test_what_a_test_says_is_shown(fixtures):
    assert "to be seen" in fixtures.text
    assert "assert not True" in fixtures.text
    assert "mind the gap" in fixtures.text
    assert fixtures.words("test_broken") == ["PASSED", "ERROR"]
    assert "ValueError: at teardown" in fixtures.text
    assert fixtures.record("test_broken")["outcome"] == "error"
    assert fixtures.checks("test_third_fails") == {}


@pytest.mark.parametrize(
    ("test", "word", "verdict", "text"),
    [
        ("test_skipped_there", "PASSED", "NEW", "on HEAD it is skipped"),
        ("test_fails_there", "PERF", "UNKNOWN", "AssertionError: no such thing"),
        ("test_raises_before", "PERF", "UNKNOWN", "AssertionError: no such thing"),
        ("test_nothing_there", "PASSED", "NEW", "the profile is on the working tree alone"),
        ("test_exits_there", "PERF", "UNKNOWN", "it stopped the run: enough"),
        ("test_dies_there", "PERF", "UNKNOWN", "ended with exit status 7"),
        ("test_dies_between_turns", "PERF", "UNKNOWN", "ended with SIGKILL"),
        ("test_hangs_there", "PERF", "UNKNOWN", "did not answer within 3 s"),
    ],
)
def test_a_ref_in_trouble(trouble, test, word, verdict, text):
    assert trouble.words(test) == [word]
    found, message = trouble.checks(test)[ALL]
    assert found == verdict
    assert text in message


def test_a_ref_that_dies_when_all_is_known_of_it(trouble):
    assert trouble.checks("test_dies_at_teardown_there")[TIME][0] == "PASS"


def test_a_tree_that_dies_fails_its_test(trouble):
    assert trouble.words("test_dies_here_between_turns") == ["FAILED"]
    assert "the working tree's process ended with SIGKILL" in trouble.text
    assert (
        "  try: the test without --tfperf-against, to see whether it comes to its end there"
        in trouble.text
    )


def test_what_comes_after_trouble_is_well(trouble):
    assert trouble.words("test_skipped_here") == ["SKIPPED"]
    assert trouble.words("test_last") == ["PASSED"]
    assert trouble.checks("test_last")[TIME][0] == "PASS"


@pytest.mark.usefixtures("untouched")
def test_paths_start_from_the_working_directory(project):
    run = project.run("-v", "deep", "test_added.py::test_one", cwd="tests")
    assert run.checks("deep/test_deep.py::test_one")[TIME][0] == "PASS"
    assert run.checks("test_added.py::test_one")[TIME][0] == "PASS"
    assert run.status == 0


def test_it_stops_at_the_first_failure(project):
    run = project.run("-x", "-v", "tests/test_steps.py")
    assert run.words("test_slower") == ["PERF"]
    assert run.words("test_faster") == []


def test_with_a_baseline(project):
    run = project.run(
        "--tfperf-baseline",
        f"--tfperf-baseline-dir={project.folder}/stored",
        "tests/test_steps.py::test_same",
    )
    assert {check["verdict"] for check in run.record("test_same")["checks"]} == {"PASS", "MISSING"}
    assert run.status == 1


def test_the_traces_that_are_kept_are_those_of_the_working_tree(project):
    folder = project.folder / "traces"
    project.run(f"--tfperf-trace-dir={folder}", "tests/test_steps.py::test_faster")
    assert [path.read_text() for path in folder.rglob("trace")] == ["0.8"]


def test_a_test_on_the_ref_alone_is_named(tmp_path):
    gone = (
        f"{ONE}\ndef test_gone(tf_profile):\n    tf_profile(model.SAME)\n\n"
        "def test_plain():\n    pass\n"
    )
    committed = {"src/model.py": THERE, "test_one.py": gone}
    run = Project(tmp_path, committed, {"test_one.py": ONE}).run()
    assert "tfperf: NEW: on HEAD alone, so not compared: test_one.py::test_gone\n" in run.text
    assert run.status == 0


HELD = """
from filelock import FileLock, Timeout
from pytest_tfperf.machine.locks import lock_file
import model

def is_held():
    try:
        FileLock(lock_file("cpu")).acquire(timeout=0).lock.release()
    except Timeout:
        return True
    return False

def test_one(tf_profile):
    assert is_held()
    seen = []
    tf_profile(model.SAME, during=lambda n: seen.append(is_held()))
    assert seen and all(seen)
"""


def test_nothing_else_is_measured_while_both_versions_are(tmp_path):
    run = Project(tmp_path, {"src/model.py": THERE, "test_one.py": HELD}, {"notes.txt": ""}).run()
    assert run.checks("test_one")[TIME][0] == "PASS"
    assert run.status == 0


def test_files_that_are_alike_are_said_to_be(tmp_path):
    run = Project(tmp_path, {"src/model.py": THERE, "test_one.py": ONE}, {"notes.txt": ""}).run()
    assert "which the working tree's tracked files equal" in run.text
    assert run.checks("test_one")[TIME][0] == "PASS"
    assert run.status == 0


def test_a_ref_that_cannot_start_makes_its_tests_unknown(tmp_path):
    broken = {"conftest.py": "raise ValueError('no way there')"}
    committed = {"src/model.py": THERE, "test_one.py": ONE, **broken}
    run = Project(tmp_path, committed, {"conftest.py": ""}).run()
    verdict, message = run.checks("test_one.py::test_one")[ALL]
    assert verdict == "UNKNOWN"
    how = "the process on HEAD ended with exit status 4"
    assert f"on HEAD no test can run: {how}" in message
    assert "no way there" in message
    assert message.endswith("\n  try: a ref on which it runs, or stored values (--tfperf-baseline)")


def test_versions_that_load_the_same_code_are_not_compared(tmp_path):
    fixed = f"import sys\nsys.path.insert(0, {str(tmp_path / 'project' / 'src')!r})\n"
    run = Project(
        tmp_path,
        {"src/model.py": THERE, "test_one.py": ONE, "conftest.py": fixed},
        {"pytest.ini": INI.replace("src", ".")},
    ).run()
    verdict, message = run.checks("test_one")[ALL]
    assert verdict == "UNKNOWN"
    assert "the comparison would be void" in message
    assert "both versions would run the same code" in message


@pytest.mark.usefixtures("untouched")
def test_a_ref_that_does_not_exist_is_refused(project):
    run = project.run(against="nowhere")
    assert run.status == pytest.ExitCode.USAGE_ERROR
    assert "no such commit, branch or tag" in run.text


def test_no_process_starts_where_no_test_runs(project):
    run = project.run("--tfperf-disable", "tests/test_steps.py::test_same", against="nowhere")
    assert run.status == 0
    assert "tfperf: against" not in run.text

"""
`--tfperf-against` end to end: a project under git, and real processes that leave nothing behind.

Steps take as long as they say (see fake_profiler), so that no decision is left to chance.
"""

import os
import sys

import pytest
from helpers.git_repository import git, write
from helpers.paired_project import INI, Project, picture

pytestmark = pytest.mark.usefixtures("processes")

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
GONE = "\ndef test_gone(tf_profile):\n    tf_profile(model.SAME)\n"
COMMITTED = {
    "src/model.py": THERE,
    "tests/test_steps.py": STEPS,
    "tests/test_fixtures.py": FIXTURES,
    "tests/test_trouble.py": TROUBLE,
    "tests/test_added.py": ONE + BARE + GONE,
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


TIME = ("", "step_time")
ALL = ("", "against")


@pytest.mark.usefixtures("untouched")
def test_a_regression_is_found_and_the_same_code_passes(project):
    run = project.run("-v", "tests/test_steps.py", "-k", "same or slower or structure")
    commit = git(project.path, "rev-parse", "HEAD").strip()[:12]
    assert f"tfperf: against HEAD ({commit}); both versions run" in run.text
    assert run.status == 1
    for test, word, verdict, said in (
        ("test_same", "PASSED", "PASS", "step_time is 0 % slower than HEAD"),
        ("test_slower", "PERF", "REGRESSION", "pairs of processes (20 % slower, 20 % slower"),
    ):
        found, message = run.checks(test)[TIME]
        assert (run.words(test), found) == ([word], verdict)
        assert said in message
    # structure is compared, and limits still hold
    assert run.checks("test_structure")["", "retraces"][0] == "REGRESSION"
    assert run.checks("test_structure", "limit")["", "retraces"][0] == "FAIL"


# test, its word, verdict and a part of the message
TIMES = [
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
]
NOT_COMPARED = [
    ("test_added", "PASSED", "NEW", "the test is on the working tree alone"),
    ("test_new.py::test_one", "PASSED", "NEW", "the test is on the working tree alone"),
    ("test_unprofiled", "PASSED", "NEW", "on HEAD it profiles nothing"),
    ("test_workload", "INCOMPARABLE", "INCOMPARABLE", "float32[8, 4]"),
    # a fixture that a test gets by its name
    ("test_by_name", "PERF", "UNKNOWN", "name tf_profile among the test's arguments"),
    ("test_import.py::test_one", "PERF", "UNKNOWN", "on HEAD the test cannot be collected"),
    ("test_import.py::test_one", "PERF", "UNKNOWN", "ImportError: no such module there"),
]


@pytest.mark.full
@pytest.mark.usefixtures("untouched")
def test_steps_of_every_kind(project):
    files = "tests/test_steps.py", "tests/test_added.py", "tests/test_import.py", "tests/new"
    run = project.run("-v", *files, TFPERF_TEST_AHEAD="1")
    for key, rows in ((TIME, TIMES), (ALL, NOT_COMPARED)):
        for test, word, verdict, text in rows:
            found, message = run.checks(test)[key]
            assert (run.words(test), found) == ([word], verdict), test
            assert text in message
    # profiles meet by name
    found = {key: verdict for key, (verdict, _) in run.checks("test_names").items()}
    assert found == {
        ("both", "step_time"): "PASS",
        ("slower", "step_time"): "REGRESSION",
        ("added", "against"): "NEW",
        ("gone", "against"): "NEW",
    }
    assert run.checks("test_marked", "limit")["", "retraces"][0] == "PASS"
    assert run.words("test_steps.py::test_plain") == ["PASSED"]
    assert run.words("test_steps.py::test_expected") == ["XFAIL"]
    said = "tfperf: NEW: on HEAD alone, so not compared: tests/test_added.py::test_gone\n"
    assert said in run.text
    cores = sorted(os.sched_getaffinity(0))
    assert (
        "run on any core, since there are none" if len(cores) == 1 else "both versions run on core"
    ) in run.text


@pytest.mark.full
def test_fixtures_serve_the_tests_of_their_scope_once_in_either_version(project):
    run = project.run("-v", "tests/test_fixtures.py", "-W", "default")
    for name, word in (("one", "PASSED"), ("two", "PASSED"), ("warns", "PASSED")):
        assert run.words(f"test_{name}") == [word], name
        assert run.checks(f"test_{name}")[TIME][0] == "PASS", name
    # what a test says is shown
    assert run.words("test_third_fails") == ["FAILED"]
    assert run.checks("test_third_fails") == {}
    for text in ("to be seen", "assert not True", "mind the gap", "ValueError: at teardown"):
        assert text in run.text
    assert run.words("test_broken") == ["PASSED", "ERROR"]
    assert run.record("test_broken")["outcome"] == "error"


REF_IN_TROUBLE = [
    ("test_skipped_there", "PASSED", "NEW", "on HEAD it is skipped"),
    ("test_fails_there", "PERF", "UNKNOWN", "AssertionError: no such thing"),
    ("test_raises_before", "PERF", "UNKNOWN", "AssertionError: no such thing"),
    ("test_nothing_there", "PASSED", "NEW", "the profile is on the working tree alone"),
    ("test_exits_there", "PERF", "UNKNOWN", "it stopped the run: enough"),
    ("test_dies_there", "PERF", "UNKNOWN", "ended with exit status 7"),
    ("test_dies_between_turns", "PERF", "UNKNOWN", "ended with SIGKILL"),
    ("test_hangs_there", "PERF", "UNKNOWN", "did not answer within 3 s"),
]


@pytest.mark.full
def test_a_version_in_trouble(project):
    run = project.run("-v", "tests/test_trouble.py")
    for test, word, verdict, text in REF_IN_TROUBLE:
        found, message = run.checks(test)[ALL]
        assert (run.words(test), found) == ([word], verdict), test
        assert text in message
    # the ref may die when all is known of it; a tree that dies fails its test
    assert run.checks("test_dies_at_teardown_there")[TIME][0] == "PASS"
    assert run.words("test_dies_here_between_turns") == ["FAILED"]
    assert "the working tree's process ended with SIGKILL" in run.text
    assert (
        "  try: the test without --tfperf-against, to see whether it comes to its end there"
        in run.text
    )
    # what comes after is well
    assert run.words("test_skipped_here") == ["SKIPPED"]
    assert run.words("test_last") == ["PASSED"]
    assert run.checks("test_last")[TIME][0] == "PASS"


@pytest.mark.full
@pytest.mark.usefixtures("untouched")
def test_paths_start_from_the_working_directory_also_with_a_baseline(project):
    options = "--tfperf-baseline", f"--tfperf-baseline-dir={project.folder}/stored"
    run = project.run(*options, "-v", "deep", "test_added.py::test_one", cwd="tests")
    for test in ("deep/test_deep.py::test_one", "test_added.py::test_one"):
        assert run.checks(test)[TIME][0] == "PASS", test
        assert {check["verdict"] for check in run.record(test)["checks"]} == {"PASS", "MISSING"}
    assert run.status == 1


@pytest.mark.full
def test_it_stops_at_the_first_failure_and_keeps_traces_of_the_working_tree(project):
    folder = project.folder / "traces"
    run = project.run("-x", "-v", f"--tfperf-trace-dir={folder}", "tests/test_steps.py")
    assert run.words("test_slower") == ["PERF"]
    assert run.words("test_faster") == []
    assert sorted(path.read_text() for path in folder.rglob("trace")) == ["1.0", "1.2"]


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


@pytest.mark.full
def test_files_that_are_alike_are_said_to_be_and_nothing_else_is_measured_meanwhile(tmp_path):
    committed = {"src/model.py": THERE, "test_held.py": HELD, "test_other.py": ONE}
    run = Project(tmp_path, committed, {"notes.txt": ""}).run()
    assert "which the working tree's tracked files equal" in run.text
    assert run.checks("test_held.py::test_one")[TIME][0] == "PASS"
    assert run.checks("test_other.py::test_one")[TIME][0] == "PASS"
    assert run.status == 0


NOTED = """
import os
import model
import pytest

@pytest.mark.parametrize("n", [1, 2])
def test_slower(tf_profile, n):
    with open(os.environ["NOTED"], "a") as file:
        file.write(f"{os.getpid()}\\n")
    tf_profile(model.SLOWER)
"""


@pytest.mark.full
def test_all_pairs_of_processes_serve_later_tests(tmp_path):
    committed = {"src/model.py": THERE, "test_noted.py": NOTED}
    run = Project(tmp_path, committed, {"src/model.py": HERE}).run(NOTED=f"{tmp_path}/pids")
    for n in (1, 2):
        verdict, message = run.checks(f"test_slower[{n}]")[TIME]
        assert verdict == "REGRESSION"
        assert "in 3 pairs of processes" in message
    pids = (tmp_path / "pids").read_text().split()
    assert sorted(map(pids.count, set(pids))) == [2] * 6


@pytest.mark.full
def test_what_the_budget_of_a_run_does_not_reach_is_named_and_not_decided(project):
    """Tests whose marker has max_regression have theirs; the start of processes is more than 3 s of 33."""
    tests = "-v", "tests/test_steps.py", "-k", "faster or inside"
    run = project.run(*tests, "--tfperf-budget-total=33")
    found, message = run.checks("test_faster")[TIME]
    assert (run.words("test_faster"), found) == (["INCONCLUSIVE"], "INCONCLUSIVE")
    left = "--tfperf-budget-total 33 left no time for"
    assert message == f"step_time is not compared: {left} it\n  try: a larger --tfperf-budget-total"
    for name in ("slow er", "x::y[z]"):
        assert run.checks(f"TestGroup::test_inside[{name}]")[TIME][0] == "PASS", name
    named = f"tfperf: {left} 1 test, so not compared: tests/test_steps.py::test_faster\n"
    assert named in run.text
    assert run.status == 0
    run = project.run(*tests, "--tfperf-budget-total=33", "--tfperf-strict")
    assert run.status == 1


TOGETHER = """
import os, sys, time
from pathlib import Path

if any(argument.startswith("--tfperf-child") for argument in sys.argv):
    started = Path(os.environ["STARTED"])
    (started / str(os.getpid())).touch()
    deadline = time.monotonic() + 60
    while len(os.listdir(started)) < 4:
        assert time.monotonic() < deadline, "this process waits for one that does not start"
        time.sleep(0.01)
"""


@pytest.mark.full
def test_all_processes_start_before_any_has_loaded_its_conftest(tmp_path):
    """Also where the paths of the repository are more than a socket holds, or not UTF-8."""
    many = {f"data/{n:0250}": "" for n in range(1000)}
    if sys.platform == "linux":  # no file system of a Mac takes it
        many[os.fsdecode(b"latin-\xe9")] = ""
    (tmp_path / "started").mkdir()
    committed = {"src/model.py": THERE, "test_one.py": ONE, "conftest.py": TOGETHER, **many}
    run = Project(tmp_path, committed, {}).run(STARTED=f"{tmp_path}/started", TFPERF_TEST_AHEAD="1")
    assert run.checks("test_one.py::test_one")[TIME][0] == "PASS"


@pytest.mark.full
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


@pytest.mark.full
def test_a_folder_that_is_a_file_on_the_ref_makes_its_tests_unknown(tmp_path):
    committed = {"src/model.py": THERE, "sub": "a file"}
    project = Project(tmp_path, committed, {})
    (project.path / "sub").unlink()
    write(project.path, {"sub/test_one.py": ONE})
    run = project.run(cwd="sub")
    verdict, message = run.checks("test_one")[ALL]
    assert verdict == "UNKNOWN"
    assert "HEAD cannot be run" in message


@pytest.mark.full
def test_a_test_that_a_link_leads_to_is_compared(tmp_path):
    committed = {"src/model.py": THERE, "test_one.py": ONE}
    project = Project(tmp_path, committed, {"src/model.py": HERE})
    (tmp_path / "link").symlink_to(project.path)
    run = project.run(tmp_path / "link" / "test_one.py")
    [verdict] = {verdict for verdict, _ in run.checks("test_one").values()}
    assert verdict in ("PASS", "REGRESSION"), run.text


@pytest.mark.full
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


@pytest.mark.full
@pytest.mark.usefixtures("untouched")
def test_a_ref_that_does_not_exist_is_refused_where_a_test_runs(project):
    run = project.run(against="nowhere")
    assert run.status == pytest.ExitCode.USAGE_ERROR
    assert "no such commit, branch or tag" in run.text
    run = project.run("--tfperf-disable", "tests/test_steps.py::test_same", against="nowhere")
    assert run.status == 0
    assert "tfperf: against" not in run.text

"""
Each call of the operating system fails once, or with all after it: as SQLite tests itself.

After each: one sentence and a status that is not 0, every old file whole, nothing temporary left, and the same again completes it.
"""

import errno
import shutil
import tempfile

import pytest
from helpers.builders import LAPTOP, SERVER, created, profile, record_of, run_of
from helpers.faults import REMOVING, failing
from helpers.traces import SYNTHETIC

from pytest_tfperf.cli.main import main
from pytest_tfperf.plugin import conclude as conclude_module
from pytest_tfperf.plugin.conclude import conclude
from pytest_tfperf.plugin.options import Options
from pytest_tfperf.report.run_file import write_run

FAULTS = [
    (errno.ENOSPC, True),
    pytest.param(errno.EIO, False, marks=pytest.mark.nightly),
    pytest.param(errno.EACCES, False, marks=pytest.mark.nightly),
]
FILES = {"a/test_x.py": LAPTOP, "b/test_y.py": SERVER}
TRACE = SYNTHETIC / "c1_cpu_basic.xplane.pb"


def records(retraces):
    measured = profile(step_time=0.1 + retraces / 1000, retraces=retraces)
    return [
        record_of(measured, file=file, environment=environment)
        for file, environment in FILES.items()
    ]


def update(folder, second, retraces):
    tests = records(retraces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conclude_module, "_now", lambda: created(second))
        patch.setattr(conclude_module, "commit", lambda _: "c0ffee")
        patch.setattr(conclude_module, "branch", lambda _: "main")
        return conclude(tests, Options(rootdir=folder, update_all=True), whole=False)


def update_again(folder):
    lines, good = update(folder, 2, 1)
    return 0 if good else 1, [text for text, colour in lines if colour == "red"]


def command(*words):
    def run(folder):
        status = main([word.format(folder=folder) for word in words])
        return status, []

    return run


OPERATIONS = {
    "accept": command("accept", "{folder}/run.json", "--rootdir", "{folder}"),
    "update": update_again,
    **{
        ending: command("report", "{folder}/run.json", "-o", "{folder}/new/out" + ending)
        for ending in (".json", ".html", ".md", ".csv")
    },
    "export.json.gz": command("export", str(TRACE), "-o", "{folder}/out.json.gz"),
    "page": command("analyze", str(TRACE), "-o", "{folder}/out.html"),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Two test files with a baseline, a run to accept, and an old file for each that is written."""
    folder = tmp_path_factory.mktemp("faults") / "project"
    for file in FILES:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("")
    update(folder, 1, 0)
    write_run(run_of(*records(1), second=2, commit="c0ffee"), folder / "run.json")
    for name in ("out.html", "out.json.gz"):
        (folder / name).write_text("old")
    return folder


@pytest.fixture
def attempt(project, tmp_path, monkeypatch, capsys):
    """Run an operation on a fresh copy, and give its status, its sentences and the files before and after."""
    folder, temporary = tmp_path / "project", tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    def attempt(operation, *fault, again=False, **options):
        if not again:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(temporary, ignore_errors=True)
            shutil.copytree(project, folder)
            temporary.mkdir()
        with failing(tmp_path, *fault, **options) if fault else failing(tmp_path, 0, 0) as calls:
            status, said = OPERATIONS[operation](folder)
        said += [line for line in capsys.readouterr().err.splitlines() if line]
        return status, said, content(folder), len(calls)

    return attempt


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def temporary_of(files):
    return [name for name in files if "tfperf-" in name]


@pytest.mark.full
@pytest.mark.parametrize(("reason", "lasting"), FAULTS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_call_that_fails_is_said_and_loses_nothing(
    attempt, project, operation, reason, lasting
):
    before = content(project)
    status, said, wanted, n_calls = attempt(operation)
    assert (status, said, temporary_of(wanted)) == (0, [], [])
    assert n_calls > 5
    for n in range(1, n_calls + 1):
        where = f"call {n} of {n_calls}"
        status, said, after, _ = attempt(operation, n, reason, lasting=lasting)
        if status == 0:  # as where a folder that is there cannot be made
            assert (said, after) == ([], wanted), where
            continue
        assert all(line.startswith("tfperf: ") for line in said), (where, said)
        unread = [line for line in said if "cannot be read" in line]
        assert len(said) == max(1, len(unread)), (where, said)  # one for each file
        assert temporary_of(after) == [], where
        for name, old in before.items():
            assert after[name] in (old, wanted[name]), (where, name)
        status, said, after, _ = attempt(operation, again=True)
        assert (status, said, after) == (0, [], wanted), where


@pytest.mark.parametrize("operation", ["accept", "update", ".html", "export.json.gz"])
def test_what_cannot_be_removed_fails_nothing(attempt, operation):
    _, _, wanted, _ = attempt(operation)
    status, said, after, n_calls = attempt(operation, 1, errno.EIO, lasting=True, kinds=REMOVING)
    assert (status, said) == (0, [])
    assert n_calls > 0
    left = temporary_of(after)
    assert left
    assert {name: after[name] for name in after if name not in left} == wanted
    status, _, after, _ = attempt(operation, again=True)
    assert status == 0
    assert {name: after[name] for name in after if name not in left} == wanted

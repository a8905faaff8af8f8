import os

import pytest

from pytest_tfperf.errors import TraceError
from pytest_tfperf.trace.logdir import find_runs, find_traces, host_of


def write(path, age):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    os.utime(path.parent, (1e9 - age, 1e9 - age))
    return path


def test_a_file_is_returned_as_it_is(tmp_path):
    assert find_traces(tmp_path / "any.pb") == [tmp_path / "any.pb"]


def test_a_logdir_gives_all_hosts_of_its_newest_run(tmp_path):
    write(tmp_path / "plugins" / "profile" / "old" / "a.xplane.pb", age=50)
    new = [
        write(tmp_path / "train" / "plugins" / "profile" / "new" / f"{host}.xplane.pb", age=5)
        for host in "ab"
    ]
    assert find_traces(tmp_path) == new


def test_a_folder_of_traces_gives_all_of_them(tmp_path):
    files = [write(tmp_path / f"{host}.xplane.pb", age=1) for host in "ab"]
    assert find_traces(tmp_path) == files


def test_compressed_traces_are_found_and_a_plain_one_beside_them_counts_once(tmp_path):
    run = tmp_path / "plugins" / "profile" / "run"
    names = ("a.xplane.pb.gz", "b.xplane.pb", "b.xplane.pb.gz", "c.pb.gz")
    a, b, *_ = (write(run / name, age=1) for name in names)
    assert find_traces(tmp_path) == [a, b]
    assert find_runs(tmp_path) == [run]
    assert [host_of(path) for path in (a, b)] == ["a", "b"]


def test_a_folder_without_traces_raises(tmp_path):
    with pytest.raises(TraceError, match="is this the logdir of a profile"):
        find_traces(tmp_path)

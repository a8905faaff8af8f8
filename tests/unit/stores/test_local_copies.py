"""Copies of remote objects: fetched once, and removed when they take too much space."""

import os
import stat
import time
from pathlib import Path

import pytest

from pytest_tfperf.stores import objects
from pytest_tfperf.stores.objects import IN_USE_S, LocalCopies

NAMES = ("a", "b", "c", "d")


class Remote:
    """A file system that counts what is fetched."""

    def __init__(self):
        self.objects, self.fetched = {}, []

    def cat(self, paths, recursive, on_error):
        self.fetched += paths
        assert on_error == "return"
        return {path: self.objects.get(path, FileNotFoundError(path)) for path in paths}


@pytest.fixture
def remote():
    files = Remote()
    files.objects = {name: name.encode() * 100 for name in NAMES}
    return files


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(objects, "MOST_BYTES", 350)  # of objects of 100 bytes
    return tmp_path / "pytest-tfperf" / "objects"


def used_before(copies, **hours):
    """Let copies look as if they had been used so many hours ago."""
    for name, number in hours.items():
        path = copies.of([name])[name]
        then = time.time() - number * 3600
        os.utime(path, (then, then))


def kept(cache):
    return sorted(path.name for path in cache.rglob("*") if path.is_file())


def test_an_object_is_fetched_once(remote):
    copies = LocalCopies(remote, "s3://bucket/store")
    for _ in range(2):
        found = copies.of(["a", "b"])
        assert {name: Path(path).read_bytes() for name, path in found.items()} == {
            "a": b"a" * 100,
            "b": b"b" * 100,
        }
    assert remote.fetched == ["a", "b"]


def test_an_object_that_may_have_changed_is_fetched_anew(remote):
    copies = LocalCopies(remote, "s3://bucket/store")
    copies.of(["a"])
    remote.objects["a"] = b"new"
    assert Path(copies.of(["a"])["a"]).read_bytes() == b"a" * 100
    copies.forget(["a", "never fetched"])
    assert Path(copies.of(["a"])["a"]).read_bytes() == b"new"


def test_one_that_is_removed_has_no_copy_and_one_that_is_forbidden_is_an_error(remote, cache):
    copies = LocalCopies(remote, "s3://bucket/store")
    assert list(copies.of(["a", "gone", "b"])) == ["a", "b"]
    assert kept(cache) == ["a", "b"]
    remote.objects["gone"] = b"is back"
    assert list(copies.of(["a", "gone"])) == ["a", "gone"]
    remote.objects["c"] = PermissionError("Forbidden")
    with pytest.raises(PermissionError, match="Forbidden"):
        copies.of(["a", "c"])


def test_the_copies_not_used_for_longest_are_removed_above_the_limit(remote, cache):
    copies = LocalCopies(remote, "s3://bucket/store")
    used_before(copies, a=2, b=4, c=3)
    assert kept(cache) == ["a", "b", "c"]
    copies.of(["d"])
    assert kept(cache) == ["a", "c", "d"]
    assert remote.fetched == [*NAMES]
    copies.of(["b"])  # fetched again
    assert remote.fetched == [*NAMES, "b"]
    assert kept(cache) == ["a", "b", "d"]


def test_a_use_without_a_fetch_keeps_a_copy(remote, cache):
    copies = LocalCopies(remote, "s3://bucket/store")
    used_before(copies, a=4, b=3, c=2)
    copies.of(["a"])
    copies.of(["d"])
    assert kept(cache) == ["a", "c", "d"]


def test_the_copies_of_all_stores_count_together(remote, cache):
    used_before(LocalCopies(remote, "s3://bucket/one"), a=3, b=2)
    LocalCopies(remote, "s3://bucket/other").of(["c", "d"])
    assert kept(cache) == ["b", "c", "d"]


def test_what_is_in_use_stays_above_the_limit(remote, cache):
    copies = LocalCopies(remote, "s3://bucket/store")
    assert len(copies.of(NAMES)) == 4
    assert kept(cache) == [*NAMES]  # all are asked for
    used_before(copies, a=0.9, b=0.9)
    assert IN_USE_S > 0.9 * 3600
    remote.objects["e"] = b"e"
    copies.of(["e"])
    assert kept(cache) == [*NAMES, "e"]  # another process may read them


def test_no_copy_is_removed_at_the_limit(remote, cache):
    remote.objects["d"] = b"d" * 50
    copies = LocalCopies(remote, "s3://bucket/store")
    used_before(copies, a=4, b=3, c=2)
    copies.of(["d"])
    assert kept(cache) == [*NAMES]


def test_only_this_user_can_change_copies(remote, cache):
    LocalCopies(remote, "s3://bucket/store").of(["a"])
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    cache.chmod(0o755)
    LocalCopies(remote, "s3://bucket/store")
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_a_cache_that_is_taken_is_not_used(remote, cache, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    cache.parent.mkdir()
    cache.symlink_to(tmp_path / "elsewhere")
    copies = LocalCopies(remote, "s3://bucket/store")
    path = copies.of(["a"])["a"]
    assert Path(path).read_bytes() == b"a" * 100
    assert list((tmp_path / "elsewhere").iterdir()) == []
    del copies
    assert not Path(path).exists()

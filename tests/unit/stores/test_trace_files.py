"""Traces at addresses, their fingerprints, and shards of them."""

import os
import re

import pytest
from helpers.fleets import different_traces, write_traces
from helpers.refusals import refusal

from pytest_tfperf.errors import StoreError
from pytest_tfperf.stores.trace_files import (
    find_trace_files,
    of_shard,
    parse_shard,
    run_and_host,
)


@pytest.fixture
def folder(tmp_path):
    write_traces(tmp_path / "jobs", {"deep/down/a": b"a", "b": b"bb"})
    (tmp_path / "jobs" / "notes.txt").write_text("no trace")
    return tmp_path / "jobs"


def test_a_folder_and_globs_give_traces_at_any_depth(folder):
    for end in ["", "/**/*.xplane.pb", "/**"]:
        found = find_trace_files([f"{folder}{end}"])
        names = [trace.name for trace in found if trace.name.endswith(".xplane.pb")]
        assert names == [f"{folder}/b.xplane.pb", f"{folder}/deep/down/a.xplane.pb"], end
        assert {trace.size for trace in found} >= {1, 2}, end


def test_a_trace_that_two_addresses_give_counts_once(folder):
    assert len(find_trace_files([str(folder), f"{folder}/b.xplane.pb"])) == 2


def test_fingerprints_change_with_the_content_and_only_then(folder):
    [before] = find_trace_files([f"{folder}/b.xplane.pb"])
    assert find_trace_files([f"{folder}/b.xplane.pb"])[0].fingerprint == before.fingerprint
    assert before.fingerprint
    times = (before.modified, before.modified)
    write_traces(folder, {"b": b"cc"})
    os.utime(folder / "b.xplane.pb", times)  # the time of the change of the inode stays
    assert find_trace_files([f"{folder}/b.xplane.pb"])[0].fingerprint != before.fingerprint


def test_an_address_without_traces_is_refused_in_a_sentence():
    for url, why in [
        ("/none/such", "/none/such cannot be listed: No such file or directory"),
        ("/none/such/*.pb", "no trace at /none/such/\\*.pb; give a trace, a folder, or a glob"),
        ("strange://user:secret@host/x", "strange://host/x cannot be listed: .*strange"),
    ]:
        said = refusal(StoreError, find_trace_files, [url])
        assert re.search(why, said), url
        assert "secret" not in said, url
        assert "\n" not in said, url


def test_shards_have_each_trace_once_and_always_the_same(tmp_path):
    traces = find_trace_files([write_traces(tmp_path, different_traces(40))])
    shards = [of_shard(traces, number, 3) for number in (1, 2, 3)]
    assert sorted(trace.name for shard in shards for trace in shard) == [t.name for t in traces]
    assert all(shards)
    [one] = [n for n, shard in enumerate(shards) if traces[0] in shard]
    assert traces[0] in of_shard(traces[:1], one + 1, 3)  # whatever else there is


def test_other_shards_are_refused():
    for text in ["0/3", "4/3", "3", "1/0", "a/b", "1/2/3", "-1/2", ""]:
        assert "is not of the form 3/64" in refusal(StoreError, parse_shard, text), text


def test_the_run_of_a_trace_is_its_folder_in_the_layout_of_xprof():
    name = "s3://b/job/plugins/profile/2026_11_24/host-1.xplane.pb"
    assert run_and_host(name) == ("s3://b/job/plugins/profile/2026_11_24", "host-1")
    assert run_and_host(f"{name}.gz") == run_and_host(name)
    assert run_and_host("/traces/host-1.xplane.pb") == ("", "")

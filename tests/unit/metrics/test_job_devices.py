"""The devices of several hosts side by side, with clocks that are seconds apart; times in ms."""

import pytest
from helpers.jobs import profiles_of_job
from helpers.pods import gpu_host, pod_host, write_pod

pytestmark = pytest.mark.usefixtures("hosts_in_this_process")


def job(folder):
    profiles, errors = profiles_of_job(sorted(folder.glob("**/*.xplane.pb")))
    assert errors == []
    return profiles


def written(folder, *traces):
    for n, raw in enumerate(traces):
        (folder / f"host_{n}.xplane.pb").write_bytes(raw)
    return job(folder)


def by_device(profiles):
    return {one["device"]: one for one in profiles[0].tables["job_device_parts"].records()}


def in_ms(record, *keys):
    return [None if record[key] is None else round(record[key] * 1e3, 9) for key in keys]


@pytest.fixture
def planted(tmp_path, hosts_in_this_process):
    """Three hosts of two cores: core 1 of host 1 works 2 ms longer, host 2 is 1 ms late."""
    return job(
        write_pod(
            tmp_path,
            3,
            2,
            work=lambda host, core: 10 if (host, core) == (1, 1) else 8,
            late=lambda host: 1 if host == 2 else 0,
            n_steps=4,
            clock_s=lambda host: -3.5 * host,
        )
    )


def test_the_straggler_and_the_late_host_are_found_whatever_the_clocks_say(planted):
    rows = by_device(planted)
    assert in_ms(rows["host_1/TPU:1"], "step", "device_compute", "idle", "waiting") == [
        13,
        11,
        0,
        0,
    ]
    for core in (0, 1):
        late = rows[f"host_2/TPU:{core}"]
        assert in_ms(late, "step", "device_compute", "idle", "waiting") == [13, 9, 1, 1]
        assert in_ms(rows[f"host_0/TPU:{core}"], "idle", "waiting") == [0, 2]
    assert [one["last"] for one in rows.values()] == [1, 0, 0, 0, 0, 0]
    table = planted[0].tables["job_device_parts"]
    assert table.title == (
        "parts of a step by device, 3 hosts: host_1/TPU:1 waits least, host_1/TPU:0 longest"
    )


def test_the_collective_of_a_job_has_one_row(planted):
    [row] = planted[0].tables["job_collectives"].records()
    assert (row["devices"], row["runs"], row["groups"]) == (6, 1, "[1,6]<=[6]")
    # waits: 2 ms of three devices, 1 ms of two, none of the straggler
    assert in_ms(row, "waiting") == [round(8 / 6, 9)]
    assert row["waiting_share"] == pytest.approx(8 / (3 * 4 + 2 * 3 + 2))
    assert (row["last"], row["last_share"], row["remark"]) == ("host_1/TPU:1", 1, None)


def test_the_tables_of_the_job_stand_in_the_first_profile_alone(planted):
    assert list(planted[0].tables)[:2] == ["job_device_parts", "job_collectives"]
    assert all(not key.startswith("job_") for one in planted[1:] for key in one.tables)


def test_only_steps_that_all_hosts_have_count(tmp_path):
    slow_first = pod_host([8, 8], slowest=8, n_steps=3, first_step=0)
    others = pod_host([6, 6], slowest=8, n_steps=3, first_step=1)
    profiles = written(tmp_path, slow_first, others)
    [row] = profiles[0].tables["job_collectives"].records()
    assert row["runs"] == 1
    assert in_ms(row, "duration", "step", "waiting") == [3, 3, 1]


def test_hosts_without_a_step_in_common_have_no_table_of_the_job(tmp_path):
    profiles = written(tmp_path, pod_host([8]), pod_host([8], first_step=9))
    assert not [key for key in profiles[0].tables if key.startswith("job_")]
    assert "no step in common" in profiles[0].value("step_skew").why


def test_groups_of_several_hosts_are_unknown(tmp_path):
    profiles = written(tmp_path, *[pod_host([8, 9], groups="{{0,1},{2,3}}")] * 2)
    [row] = profiles[0].tables["job_collectives"].records()
    assert row["waiting"] is None
    assert "which device is in which of its groups" in row["remark"]
    assert all(one["waiting"] is None for one in by_device(profiles).values())


def test_groups_that_differ_between_hosts_are_unknown(tmp_path):
    hosts = [pod_host([8, 9], groups=groups) for groups in ("{{0,1}}", "{{2,3}}")]
    [row] = written(tmp_path, *hosts)[0].tables["job_collectives"].records()
    assert "differ between the hosts" in row["remark"]


def test_a_missing_host_makes_waits_a_bound(tmp_path):
    hosts = [pod_host([8, work], slowest=9, groups="[1,6]<=[6]") for work in (8, 9)]
    [row] = written(tmp_path, *hosts)[0].tables["job_collectives"].records()
    assert row["remark"] == "waiting: at least, since 4 of its 6 devices are traced"
    assert in_ms(row, "waiting") == [0.75]


def test_gpus_of_several_hosts_are_compared_by_durations(tmp_path):
    kernel = "ncclDevKernel_AllReduce"
    hosts = [gpu_host([[(kernel, begin, 8, "")]] * 2) for begin in (2, 5)]
    rows = written(tmp_path, *hosts)[0].tables["job_collectives"].records()
    assert "names no replica groups" in rows[0]["remark"]

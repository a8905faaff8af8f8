"""Several hosts of one job; times in ms."""

import json

import pytest
from helpers.builders import profile
from helpers.jobs import profiles_of_job
from helpers.xspace import at, line, plane, space

from pytest_tfperf.cli.main import main
from pytest_tfperf.metrics.multi_host import host_skew, work_of
from pytest_tfperf.values import PARTS, Step


def host(name, work_ms, numbers=range(4)):
    """A host whose steps of 10 ms hold so much compute; the rest is in collectives."""
    parts = {
        **dict.fromkeys(PARTS, 0.0),
        "device_compute": work_ms * 1e-3,
        "collective": (10 - work_ms) * 1e-3,
    }
    steps = tuple(Step(name=f"train {number}", period_s=0.01, parts_s=parts) for number in numbers)
    return name, work_of(profile(name, steps=steps))


def test_skew_is_the_slowest_over_the_median_by_work():
    skew = host_skew([host("a", 4), host("b", 6), host("c", 5)])
    assert (skew.number, skew.detail["where"]) == (pytest.approx(0.2), "the slowest host is b")


def test_alike_hosts_have_no_skew():
    assert host_skew([host("a", 4), host("b", 4)]).number == pytest.approx(0)


def test_only_steps_that_all_hosts_have_are_compared():
    skew = host_skew([host("a", 4, range(4)), host("b", 4, range(2, 6))])
    assert (skew.number, skew.detail["n_steps"]) == (pytest.approx(0), 2)


@pytest.mark.parametrize(
    ("hosts", "why"),
    [
        ([host("a", 4, range(2)), host("b", 4, range(5, 7))], "no step in common"),
        ([host("a", 0), host("b", 0)], "no work"),
    ],
)
def test_what_cannot_be_compared_is_unknown(hosts, why):
    assert why in host_skew(hosts).why


@pytest.fixture
def logdir(tmp_path):
    """Three hosts, one with a clock that is an hour ahead; it works twice as long in each step."""
    folder = tmp_path / "plugins" / "profile" / "run"
    folder.mkdir(parents=True)
    for number, shift_s, work in ((0, 0, 2), (1, 3600, 4), (2, -2, 2)):
        steps = [at("train", n * 10, n * 10 + 8, step_num=n, _r=1) for n in range(3)]
        ops = [at("dense/MatMul:MatMul", n * 10 + 1, n * 10 + 1 + work) for n in range(3)]
        clock = 10**18 + shift_s * 10**9
        lines = (
            line("python", *steps, timestamp_ns=clock),
            line("tf_Compute", *ops, at("ExecutorState::Process", 0, 0, id=1), timestamp_ns=clock),
        )
        (folder / f"host_{number}.xplane.pb").write_bytes(space(plane("/host:CPU", *lines)))
    return tmp_path


@pytest.mark.usefixtures("hosts_in_this_process")
def test_the_hosts_of_a_logdir_are_aligned_by_their_steps_whatever_their_clocks_say(logdir, capsys):
    assert main(["analyze", "--json", str(logdir)]) == 0
    profiles = json.loads(capsys.readouterr().out)["profiles"]
    assert [profile["name"].rpartition("/")[2] for profile in profiles] == [
        f"host_{n}.xplane.pb" for n in range(3)
    ]
    assert [profile["metrics"]["step_skew"]["value"] for profile in profiles] == [
        pytest.approx(1)
    ] * 3
    assert "host_1" in profiles[0]["metrics"]["step_skew"]["detail"]["where"]


def test_one_damaged_host_is_named_and_the_others_are_shown(logdir, processes):
    damaged = logdir / "plugins" / "profile" / "run" / "host_1.xplane.pb"
    damaged.write_bytes(damaged.read_bytes()[:-7])
    profiles, errors = profiles_of_job(sorted(damaged.parent.glob("*.pb")))
    assert [profile.name.rpartition("/")[2] for profile in profiles] == [
        "host_0.xplane.pb",
        "host_2.xplane.pb",
    ]
    assert "host_1.xplane.pb" in str(errors[0])
    assert profiles[0].step_skew == pytest.approx(0)


@pytest.mark.usefixtures("hosts_in_this_process")
def test_a_check_of_several_hosts_says_which_failed(logdir, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # long paths stay on the line of their verdict
    assert main(["check", str(logdir), "--max-host-overhead", "1%"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [text.partition(": ")[0].rpartition("/")[2] for text in lines if "FAIL" in text] == [
        f"host_{n}.xplane.pb" for n in range(3)
    ]

"""The share of GPUs of a worker of pytest-xdist."""

import sys
from types import SimpleNamespace

import pytest

from pytest_tfperf.machine.gpu_share import (
    devices_found,
    is_to_share,
    share_of,
    spread_gpus,
    visible_gpus,
)

RUN = "0123abcd"


def worker(number, n_workers, **environment):
    """The environment in which xdist starts a worker."""
    own = {
        "PYTEST_XDIST_WORKER": f"gw{number}",
        "PYTEST_XDIST_WORKER_COUNT": str(n_workers),
        "PYTEST_XDIST_TESTRUNUID": RUN,
    }
    return {**own, **environment}


@pytest.fixture
def devices(tmp_path):
    """Create device files of `n` GPUs, and other files of the driver."""

    def make(n_gpus):
        for name in [
            *(f"nvidia{index}" for index in range(n_gpus)),
            "nvidiactl",
            "nvidia-uvm",
            "nvidia-caps",
            "null",
        ]:
            (tmp_path / name).touch()
        return tmp_path

    return make


@pytest.fixture(autouse=True)
def before_tensorflow(monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow.python.eager.context", raising=False)


def test_each_worker_gets_its_share_of_gpus():
    for n_gpus, n_workers, shares in [
        (1, 1, ["0"]),
        (1, 3, ["0", "0", "0"]),
        (2, 2, ["0", "1"]),
        (4, 2, ["02", "13"]),
        (5, 2, ["024", "13"]),
        (2, 5, ["0", "1", "0", "1", "0"]),
        (3, 4, ["0", "1", "2", "0"]),
    ]:
        gpus = [str(index) for index in range(n_gpus)]
        found = ["".join(share_of(gpus, number, n_workers)) for number in range(n_workers)]
        assert found == shares, (n_gpus, n_workers)
        assert set("".join(found)) == set(gpus), (n_gpus, n_workers)  # none idles


def test_replacement_of_a_dead_worker_gets_a_share():
    assert share_of(["0", "1"], 2, 2) == ["0"]


def test_visible_gpus_are_known_without_tensorflow(devices):
    for given, gpus in [
        (None, ("0", "1", "2")),
        ("2,0", ("2", "0")),
        (" 1 , 2", ("1", "2")),
        ("GPU-8932f937-d72c,MIG-GPU-8932/1/2", ("GPU-8932f937-d72c", "MIG-GPU-8932/1/2")),
        ("", ()),
        ("-1", ()),
        ("0,-1,1", ("0",)),
        ("none", ()),
    ]:
        environment = {} if given is None else {"CUDA_VISIBLE_DEVICES": given}
        assert visible_gpus(environment, devices(3)) == gpus, given


def test_machine_without_a_driver_has_no_gpus(tmp_path):
    assert visible_gpus({}, tmp_path / "dev") == ()


def test_worker_sees_its_own_gpus_and_grows_memory_on_demand(devices):
    environment = worker(1, 2)
    spread_gpus(environment, devices(4))
    assert environment["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert environment["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"


def test_share_is_taken_from_the_visible_gpus(devices):
    environment = worker(1, 2, CUDA_VISIBLE_DEVICES="6,7", TF_FORCE_GPU_ALLOW_GROWTH="false")
    spread_gpus(environment, devices(8))
    assert environment["CUDA_VISIBLE_DEVICES"] == "7"
    assert environment["TF_FORCE_GPU_ALLOW_GROWTH"] == "false"


def test_child_process_of_a_worker_does_not_share_again(devices):
    environment = worker(1, 2)
    assert is_to_share(environment)
    for _ in range(2):
        spread_gpus(environment, devices(4))
        assert environment["CUDA_VISIBLE_DEVICES"] == "1,3"
        assert not is_to_share(environment)


def test_nested_run_shares_the_gpus_of_its_worker(devices):
    environment = worker(1, 2)
    spread_gpus(environment, devices(4))
    inner = {**environment, **worker(0, 2), "PYTEST_XDIST_TESTRUNUID": "another"}
    spread_gpus(inner, devices(4))
    assert inner["CUDA_VISIBLE_DEVICES"] == "1"


@pytest.mark.parametrize("environment", [{}, worker(0, 1)])
def test_single_process_keeps_all_gpus(devices, environment):
    before = dict(environment)
    spread_gpus(environment, devices(4))
    assert environment == before


def test_hidden_gpus_stay_hidden(devices):
    environment = worker(0, 2, CUDA_VISIBLE_DEVICES="-1")
    spread_gpus(environment, devices(2))
    assert environment["CUDA_VISIBLE_DEVICES"] == "-1"
    none = worker(0, 2)
    spread_gpus(none, devices(0) / "no such folder")
    assert "CUDA_VISIBLE_DEVICES" not in none


@pytest.mark.parametrize(
    ("module", "found"),
    [
        (None, False),
        (SimpleNamespace(_context=None), False),
        (SimpleNamespace(_context=SimpleNamespace(_physical_devices=None)), False),
        (SimpleNamespace(_context=SimpleNamespace(_physical_devices=[])), True),
    ],
)
def test_gpus_are_not_shared_after_tensorflow_has_found_its_devices(
    devices, monkeypatch, module, found
):
    if module is not None:
        monkeypatch.setitem(sys.modules, "tensorflow.python.eager.context", module)
    environment = worker(0, 2)
    assert devices_found() is found
    spread_gpus(environment, devices(2))
    assert is_to_share(environment) is found
    assert ("CUDA_VISIBLE_DEVICES" in environment) is not found

"""GPUs of a fake NVML module (NVML API Reference Guide; signatures of nvidia-ml-py)."""

import os
import sys
from types import ModuleType, SimpleNamespace

import pytest

from pytest_tfperf.machine import conditions
from pytest_tfperf.machine.conditions import Gpu, gpu_remarks, read_gpus

QUIET = Gpu(label="GPU 0 (NVIDIA H100)", clock_mhz=1980, reasons=0, others=0)


class NVMLError(Exception):
    """Error of nvidia-ml-py for a return code other than NVML_SUCCESS."""


class Nvml(ModuleType):
    """
    Return a fake `pynvml` for two GPUs.

    Functions in `broken` raise NVMLError, and functions in `missing` do not exist.
    """

    def __init__(self, broken=(), missing=()):
        super().__init__("pynvml")
        self.clocks, self.reasons, self.pids = (
            [1980, 1410],
            [0x4, 0x1],
            [[os.getpid()], [os.getpid(), 4711]],
        )
        functions = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": self.by_index,
            "nvmlDeviceGetHandleByUUID": lambda uuid: {"GPU-1f": 1}[uuid],
            "nvmlDeviceGetName": lambda handle: b"NVIDIA H100",
            "nvmlDeviceGetClockInfo": lambda handle, kind: {1: self.clocks[handle]}[
                kind
            ],  # 1: NVML_CLOCK_SM
            "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: self.reasons[handle],
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [
                SimpleNamespace(pid=pid) for pid in self.pids[handle]
            ],
        }
        for name, function in functions.items():
            if name not in missing:
                setattr(self, name, self.raises if name in broken else function)

    def by_index(self, index):
        if index > 1:
            raise NVMLError("Invalid Argument")
        return index

    def raises(self, *args):
        raise NVMLError("Not Supported")


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """TensorFlow with two GPUs, and an empty cache of NVML."""
    devices = {"GPU": ["GPU:0", "GPU:1"]}
    monkeypatch.setattr(conditions, "n_gpus", lambda: len(devices["GPU"]))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    conditions._nvml.cache_clear()
    yield devices
    conditions._nvml.cache_clear()


def with_nvml(monkeypatch, **kinds):
    conditions._nvml.cache_clear()
    nvml = Nvml(**kinds)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return nvml


def test_every_gpu_is_read(monkeypatch):
    with_nvml(monkeypatch)
    assert read_gpus() == (
        Gpu(label="GPU 0 (NVIDIA H100)", clock_mhz=1980, reasons=0x4, others=0),
        Gpu(label="GPU 1 (NVIDIA H100)", clock_mhz=1410, reasons=0x1, others=1),
    )


def test_only_visible_gpus_are_read(monkeypatch):
    with_nvml(monkeypatch)
    for visible, clocks in {
        "1": [1410],
        "1, 0": [1410, 1980],
        "GPU-1f": [1410],
        "0,-1,1": [1980],
        "": [],
        "MIG-3a": [],
        "7": [],
        "GPU-2": [],
    }.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert [gpu.clock_mhz for gpu in read_gpus()] == clocks, visible


def test_missing_nvml_answers_are_unknown(monkeypatch):
    asked = ("Name", "ClockInfo", "CurrentClocksEventReasons", "ComputeRunningProcesses")
    with_nvml(monkeypatch, broken=[f"nvmlDeviceGet{name}" for name in asked])
    unknown = read_gpus()
    assert unknown[0] == Gpu(label="GPU 0", clock_mhz=None, reasons=None, others=None)
    assert gpu_remarks(unknown, unknown) == ()


def test_older_package_is_asked_by_the_older_name(monkeypatch):
    nvml = with_nvml(monkeypatch, missing=["nvmlDeviceGetCurrentClocksEventReasons"])
    assert read_gpus()[0].reasons is None
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: 0x40
    assert read_gpus()[0].reasons == 0x40


def test_without_nvml_or_its_package_there_are_no_gpus(monkeypatch):
    for kinds in (
        {"broken": ["nvmlInit"]},
        {"missing": ["nvmlInit"]},
        {"broken": ["nvmlDeviceGetCount"]},
    ):
        with_nvml(monkeypatch, **kinds)
        assert read_gpus() == (), kinds
    conditions._nvml.cache_clear()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert read_gpus() == ()


def test_nvml_is_not_asked_if_tensorflow_has_no_gpu(monkeypatch, machine):
    machine["GPU"] = []
    with_nvml(monkeypatch)
    assert read_gpus() == ()
    assert conditions._nvml.cache_info().misses == 0


def test_one_host_id_in_a_container_is_this_process(monkeypatch):
    nvml = with_nvml(monkeypatch)
    nvml.pids = [[], [4711, 4712, 4712]]
    assert [gpu.others for gpu in read_gpus()] == [0, 1]


def changed(**fields):
    return (Gpu(**{"label": QUIET.label, "clock_mhz": 1980, "reasons": 0, "others": 0} | fields),)


def test_reasons_that_hold_a_gpu_down_are_named():
    for reasons, said in {
        0x04: "its power limit (SW power cap)",
        0x08 | 0x40: "the hardware (HW slowdown) and heat (HW thermal slowdown)",
        0x20: "heat (SW thermal slowdown)",
        0x80: "its power supply (HW power brake)",
        # idle, clocks set by a user, sync boost, display clocks
        0x01 | 0x02 | 0x10 | 0x100: None,
        None: None,
    }.items():
        for pair in ((changed(reasons=reasons), (QUIET,)), ((QUIET,), changed(reasons=reasons))):
            expected = (
                f"GPU 0 (NVIDIA H100), at 1980 MHz, was held down by {said}: cool it, or lock its clocks where it can keep them",
            )
            assert gpu_remarks(*pair) == (expected if said else ()), reasons


def test_other_processes_on_a_gpu_are_remarked():
    assert (
        "another process has a context on GPU 0 (NVIDIA H100)"
        in gpu_remarks((QUIET,), changed(others=1))[0]
    )
    assert "2 other processes have a context" in gpu_remarks(changed(others=2), (QUIET,))[0]


def test_gpu_with_one_reading_is_not_compared():
    assert gpu_remarks((), changed(reasons=0x04)) == gpu_remarks(changed(reasons=0x04), ()) == ()

import pytest
from helpers.blow_up_traces import many_steps, on_host
from helpers.fuzz import found
from helpers.xspace import at, field, line, plane

from pytest_tfperf.errors import TraceError
from pytest_tfperf.trace import devices
from pytest_tfperf.trace.file import MOST_DEVICES, MOST_PLANES
from pytest_tfperf.trace.xspace import decode_trace


def device(name):
    return plane(name, line("XLA Ops", at("fusion", 0, 1)))


def test_as_many_planes_as_the_limit_are_read():
    raw = on_host() + field(1, b"") * (MOST_PLANES - 1)
    assert len(decode_trace(raw).planes) == MOST_PLANES
    with pytest.raises(
        TraceError, match=r"^trace t: 10,001 planes, and at most 10,000 are read; .*\w$"
    ):
        decode_trace(raw + field(1, b""), "t")


@pytest.mark.parametrize("kind", ["GPU", "TPU"])
def test_as_many_devices_as_the_limit_are_read(kind):
    others = [device(f"/device:{kind}:{n}") for n in range(MOST_DEVICES)]
    others += [plane(f"/device:{kind}:9999"), device("/device:TPU:0 SparseCore 1")]  # no devices
    assert len(decode_trace(on_host(others=others)).planes) == MOST_DEVICES + 3
    others.append(device(f"/device:{kind}:5000"))
    with pytest.raises(TraceError, match="1,025 GPUs and TPU cores with events, and at most 1,024"):
        decode_trace(on_host(others=others))


def test_steps_of_all_devices_together_have_a_limit(monkeypatch):
    raw = on_host(steps=many_steps(6), others=[device(f"/device:GPU:{n}") for n in range(3)])
    monkeypatch.setattr(devices, "MOST_DEVICE_STEPS", 18)
    assert found(raw) is not None
    monkeypatch.setattr(devices, "MOST_DEVICE_STEPS", 17)
    assert found(raw) is None
    with pytest.raises(TraceError, match="6 steps on 3 devices, and at most 17 steps"):
        devices.refuse_many_steps(decode_trace(raw), 6)

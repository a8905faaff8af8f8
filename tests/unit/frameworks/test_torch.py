"""What is asked of PyTorch, by a stand-in for the module."""

import sys
from types import SimpleNamespace

import pytest

from pytest_tfperf.frameworks.torch import PyTorch
from pytest_tfperf.values import Unknown


@pytest.mark.parametrize(
    ("kinds", "waited", "names", "held"),
    [
        ({"cuda": 0}, [], [], None),
        ({"cuda": 2}, [("cuda", 0), ("cuda", 1)], ["H100", "H100"], 14),
        ({"mps": 1}, [("mps",)], ["mps"], "mps"),
        ({"xpu": 1}, [("xpu", 0)], ["xpu"], "xpu"),
    ],
)
def test_all_kinds_of_gpus_are_waited_for(kinds, waited, names, held, monkeypatch):
    calls = []

    def module(kind):
        return SimpleNamespace(
            device_count=lambda: kinds.get(kind, 0),
            synchronize=lambda *number: calls.append((kind, *number)),
            get_device_name=lambda _: "H100",
            memory_allocated=lambda _: 7,
        )

    modules = {kind: module(kind) for kind in {"cuda", "mps", *kinds}}
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(**modules))
    PyTorch().synchronise()
    assert calls == waited
    assert PyTorch().accelerators() == names
    untold = Unknown(f"the memory that PyTorch holds on {held} is not read")
    assert PyTorch().accelerator_bytes() == (untold if isinstance(held, str) else held)

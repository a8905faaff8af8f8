"""What is asked of PyTorch, by a stand-in for the module."""

import sys
from types import SimpleNamespace

import pytest

from pytest_tfperf.frameworks import torch
from pytest_tfperf.frameworks.torch import PyTorch, torch_traces_reported_to
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


def test_a_cleared_session_of_keras_ends_no_watch_of_retraces(monkeypatch):
    class Handler:  # as that of torch/_dynamo/callback.py
        def __init__(self):
            self.start_callbacks = []

        def run_start_callbacks(self, args):
            for callback in self.start_callbacks:
                callback(args)

        def clear(self):
            self.start_callbacks.clear()

    handler, found, own = Handler(), [], []
    handler.start_callbacks.append(own.append)
    module = SimpleNamespace(callback_handler=handler)
    monkeypatch.setitem(sys.modules, "torch._dynamo.callback", module)
    monkeypatch.setattr(torch, "keras_runs_on_torch", lambda: True)
    with torch_traces_reported_to(lambda name, _: found.append(name)) as watched:
        handler.run_start_callbacks(1)
        handler.clear()  # keras.utils.clear_session() calls torch._dynamo.reset()
        handler.run_start_callbacks(2)
    handler.run_start_callbacks(3)
    assert watched
    assert found == ["torch.compile"] * 2
    assert own == [1]
    del Handler.run_start_callbacks
    with torch_traces_reported_to(lambda *_: None) as watched:
        assert not watched

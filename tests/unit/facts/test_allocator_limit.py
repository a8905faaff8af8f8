from helpers.blow_up_traces import FORMS
from helpers.fuzz import found

from pytest_tfperf.facts import memory


def test_more_allocators_than_are_followed_leave_the_peak_unknown(monkeypatch):
    raw = FORMS["allocators"](12)
    monkeypatch.setattr(memory, "_MOST_ALLOCATORS", 12)
    assert "memory" in found(raw).tables
    monkeypatch.setattr(memory, "_MOST_ALLOCATORS", 11)
    profile = found(raw)
    assert "memory" not in profile.tables
    why = profile.value("peak_memory").why
    assert why.startswith("the trace names 12 allocators, and at most 11 are followed")

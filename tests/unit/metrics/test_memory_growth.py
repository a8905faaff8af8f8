"""Growth of readings made by hand, and the limits that it keeps."""

import pytest
from helpers.builders import profile

from pytest_tfperf.checks.limits import Limit, check_limits
from pytest_tfperf.function_traces import SHAPE, Change, FunctionTrace
from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.memory import analyse
from pytest_tfperf.recording import MemorySamples, Recording
from pytest_tfperf.values import Unknown

N = 51  # samples: before the first of 50 blocks of one step, and after each
ZEROS = (0,) * N


def growth(settled=True, ended=None, memory=None, n=N, traced=(), **readings):
    if memory is None:
        kinds = {"heap": ZEROS[:n], "python": ZEROS[:n], "mapped": ZEROS[:n], **readings}
        memory = MemorySamples(n_steps=tuple(range(n)), **kinds)
    recording = Recording(
        name="",
        trace=None,
        workload={},
        memory=memory,
        settled=settled,
        ended=ended,
        traced=traced,
    )
    return analyse(Evidence(recording)).values["memory_growth"]


def verdict(value, bound):
    limit = Limit(metric=METRICS["memory_growth"], relation="max", bound=bound, argument="")
    return check_limits(profile(memory_growth=value), [limit], None, False)[0].verdict.value


def rising(by, n=N):
    return tuple(by * step for step in range(n))


def test_a_leak_of_any_kind_is_found_to_the_byte():
    for kind in ["heap", "python", "devices"]:
        value = growth(**{kind: rising(4096)})
        assert value.number == 4096, kind
        # a fifth of the window is left out, and 40 of the 50 steps remain
        assert (value.low(), value.high()) == (4096 - 2**16 / 40, 4096), kind
        assert "4 KiB" in value.detail["where"], kind
        assert verdict(value, 1024) == "FAIL", kind
        assert verdict(value, 4096) == "PASS", kind
        assert verdict(value, 4000) == "UNKNOWN", kind


def test_tensors_are_a_lower_bound_where_an_allocator_takes_regions_that_double():
    regions = tuple(2**21 * 2 ** (step // 30) for step in range(N))
    value = growth(heap=regions, tensors=rising(2**16))
    assert value.number == 2**16
    assert value.low() == 2**16 - 2**16 / 40
    assert value.high() >= 2**16
    assert "tensors in regions of the C heap 64 KiB" in value.detail["where"]
    assert verdict(value, 2**14) == "FAIL"
    assert growth(heap=rising(2**16), tensors=rising(2**10)).number == 2**16


def test_mappings_that_keep_growing_are_a_leak():
    for jump in range(0, N, 10):
        single = [2**24 * (step >= jump) for step in range(N)]
        value = growth(mapped=tuple(2**20 * (step // 2) + one for step, one in enumerate(single)))
        # 20 mappings of 1 MiB in 40 steps; three of all are left out below
        assert value.low() == pytest.approx(2**20 * 17 / 40 - 2**16 / 40), jump
        assert verdict(value, 2**18) == "FAIL", jump


def test_steady_memory_does_not_grow():
    value = growth()
    assert (value.number, value.high()) == (0, 0)
    assert verdict(value, 0) == "PASS"


def test_a_single_mapping_and_a_slow_start_are_no_growth():
    jump = (0,) * 30 + (2**24,) * 21
    start = tuple(min(step, 9) * 5000 for step in range(N))
    value = growth(mapped=jump, heap=start)
    assert (value.number, value.high()) == (0, 0)


def test_buffers_that_come_and_go_widen_the_interval():
    value = growth(heap=tuple(100_000 * (step * 7 % 5) for step in range(N)))
    assert value.low() < 0 < value.high()
    assert verdict(value, 1) == "UNKNOWN"


def test_few_blocks_give_no_interval():
    assert growth(n=9).number == 0
    assert "has 7 blocks, and an interval needs 8" in growth(n=8).why


def test_without_readings_it_is_unknown():
    cases = [
        ({"memory": Unknown("no glibc")}, "no glibc"),
        ({"memory": Unknown(""), "ended": "the loop was left"}, "the loop was left"),
        ({"memory": Unknown("")}, "nothing was timed"),
        ({"settled": False}, "still draining"),
    ]
    for given, why in cases:
        value = growth(**given)
        assert value.number is None, why
        assert why in value.why, why
        assert verdict(value, 2**40) == "UNKNOWN", why


def traced_in(*steps):
    change = Change(SHAPE, "x int32[1] → int32[2]", "axis 0 of x")
    return tuple(FunctionTrace("answer", step, (change,)) for step in steps)


def test_retraces_of_the_same_steps_are_the_cause_of_what_grows_with_them():
    """Each fifth step of 50 is traced again, and eight of these are in the last four fifths."""
    memory = tuple(10240 * ((step + 4) // 5) for step in range(N))
    cause = growth(heap=memory, traced=traced_in(*range(0, 50, 5))).detail
    assert cause["where"].startswith("8 retraces in the same steps, 10 KiB each")
    assert "axis 0 of x" in cause["try"]
    for name, traced in (
        ("before the window's last part", traced_in(1, 2, 3)),
        ("in steps without growth", traced_in(*range(2, 50, 5))),
        ("one of many steps that grow", traced_in(30)),
    ):
        readings = rising(2048) if "one" in name else memory
        assert "keeps objects" in growth(heap=readings, traced=traced).detail["try"], name

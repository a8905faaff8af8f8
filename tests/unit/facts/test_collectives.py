"""The collectives of a host and who waits in them: counted by hand; times in ms."""

import numpy as np
import pytest
from helpers.pods import array, gpu_host, hlo_proto, pod_host, replica_groups
from helpers.traces import real
from helpers.xspace import MS, plane, space

from pytest_tfperf.facts.collectives import find_runs, find_waits
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.protobuf import Message, Record
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import decode_trace

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def evidence_of(raw):
    return Evidence(Recording(name="made", trace=None, workload={}, bare=True), decode_trace(raw))


def runs_of(raw):
    evidence = evidence_of(raw)
    return find_runs(evidence.trace, evidence.steps)


def module(groups, assignment=(), opcode="all-reduce"):
    return hlo_proto("jit_step", ("reduce", opcode, array(256), groups), assignment=assignment)


def nccl(*spans):
    """One NCCL kernel for each GPU."""
    return [[(NCCL, begin, end, "reduce")] for begin, end in spans]


def test_a_gpu_waits_from_its_own_start_to_the_last_one():
    [run], n_outside = runs_of(gpu_host(nccl((1, 6), (2, 6), (4, 6)), module(replica_groups())))
    assert (run.key, run.facts.bytes, run.facts.groups) == (("jit_step", "reduce"), 1024, "{}")
    assert n_outside == 0
    waits = find_waits(run)
    assert waits.remark == ""
    assert (waits.wait_ps // MS).ravel().tolist() == [3, 2, 0]
    assert waits.last.ravel().tolist() == [False, False, True]


def test_no_wait_is_longer_than_its_op():
    [run], _ = runs_of(gpu_host(nccl((1, 2), (4, 6)), module(replica_groups())))
    assert (find_waits(run).wait_ps // MS).ravel().tolist() == [1, 0]


def test_devices_that_enter_together_do_not_wait_and_none_is_last():
    [run], _ = runs_of(gpu_host(nccl((1, 3), (1, 3)), module(replica_groups())))
    waits = find_waits(run)
    assert not waits.wait_ps.any()
    assert not waits.last.any()


def test_tpu_cores_are_compared_by_durations_since_each_has_its_own_clock():
    [run], _ = runs_of(pod_host([8, 10, 9], n_steps=2))
    assert run.key == ("jit_step", "all-reduce.3")
    assert (find_waits(run).wait_ps // MS).tolist() == [[2, 2], [0, 0], [1, 1]]


def test_groups_wait_apart_if_the_assignment_names_their_devices():
    spans = ((1, 4), (1, 8), (3, 4), (7, 8))
    crossed = module(replica_groups((0, 1), (2, 3)), assignment=((0, 2, 1, 3),))
    [run], _ = runs_of(gpu_host(nccl(*spans), crossed))
    assert (find_waits(run).wait_ps // MS).ravel().tolist() == [2, 6, 0, 0]


def test_a_wait_that_the_trace_does_not_tell_is_unknown():
    cases = [
        (gpu_host(nccl((1, 4), (2, 4))), "names no replica groups"),
        (gpu_host(nccl((1, 4)), module(replica_groups())), "one device"),
        (
            gpu_host(nccl((1, 4), (2, 4)), module(replica_groups((0,), (1,)))),
            "which device is in which",
        ),
        (
            gpu_host(
                nccl((1, 4), (2, 4)), module(replica_groups((0,), (1,)), assignment=((4, 5),))
            ),
            "which device is in which",
        ),
        (
            gpu_host(
                nccl((1, 4), (2, 4)), module(replica_groups((0,), (0,)), assignment=((0, 1),))
            ),
            "once",
        ),
        (
            gpu_host(
                nccl((1, 4), (2, 4)), module(replica_groups((0, 1)), opcode="collective-permute")
            ),
            "its own partner",
        ),
        (
            gpu_host(
                [[(NCCL, 1, 4, "reduce")], [(NCCL, 1, 2, "reduce"), (NCCL, 2, 4, "reduce")]],
                module(replica_groups()),
            ),
            "unequally often",
        ),
    ]
    for raw, why in cases:
        [run], _ = runs_of(raw)
        waits = find_waits(run)
        assert waits.wait_ps is None, (raw, why)
        assert waits.last is None, (raw, why)
        assert why in waits.remark, (raw, why)


def test_groups_of_untraced_devices_make_waits_a_bound():
    [run], _ = runs_of(gpu_host(nccl((1, 4), (2, 4)), module(replica_groups(range(8)))))
    waits = find_waits(run)
    assert (waits.wait_ps // MS).ravel().tolist() == [1, 0]
    assert waits.remark == "waiting: at least, since 2 of its 8 devices are traced"


def test_runs_are_matched_by_step_and_place():
    kernels = [
        [(NCCL, 1, 3, "reduce"), (NCCL, 5, 9, "reduce")],
        [(NCCL, 2, 3, "reduce"), (NCCL, 8, 9, "reduce")],
    ]
    [run], _ = runs_of(gpu_host(kernels, module(replica_groups()), n_steps=2))
    assert run.step.tolist() == [0, 0, 1, 1]
    assert run.number.tolist() == [0, 1, 0, 1]
    assert (find_waits(run).wait_ps // MS).tolist() == [[1, 3, 1, 3], [0, 0, 0, 0]]


def test_collectives_outside_of_the_steps_are_counted_apart():
    kernels = [[(NCCL, 12, 13, "reduce")], [(NCCL, 12, 13, "reduce")]]
    assert runs_of(gpu_host(kernels, module(replica_groups()))) == ([], 2)


def test_programs_of_one_name_that_differ_tell_nothing():
    raw = gpu_host(nccl((1, 4), (2, 4)), module(replica_groups()))
    other = {"jit_step(5)": {"Hlo Proto": module(replica_groups((0, 1)))}}
    both = {"jit_step(4)": {"Hlo Proto": module(replica_groups())}, **other}
    message = Message(raw, "made")
    spans = Record(message, 0, len(raw), "XSpace").spans(1)
    planes = [message.slice(*span) for span in spans]
    others = [part for part in planes if b"/host:metadata" not in part]
    [run], _ = runs_of(space(plane("/host:metadata", metadata=both), *others))
    assert run.facts.groups == ""
    assert "no replica groups" in find_waits(run).remark


def test_matches_are_those_of_a_brute_force_search():
    rng = np.random.default_rng(20261124)
    kernels = [
        [(NCCL, float(at), float(at) + 0.5, "reduce") for at in np.sort(rng.uniform(0, 9, 3))]
        for _ in range(4)
    ]
    [run], _ = runs_of(gpu_host(kernels, module(replica_groups()), n_steps=3))
    wait = find_waits(run).wait_ps
    for n in range(run.step.size):
        starts = [round((10 * run.step[n] + own[run.number[n]][1]) * MS) for own in kernels]
        wanted = [min(max(starts) - start, round(0.5 * MS)) for start in starts]
        assert wait[:, n] == pytest.approx(wanted, abs=2)


def test_the_collective_of_a_real_tpu_trace():
    trace, whole_trace = real("tpu_v6e_jax_inference")
    [run], n_outside = find_runs(trace, whole_trace)
    assert (run.key[1], run.kind, run.facts.bytes) == ("all-reduce", "all-reduce", 5 * 1024**3)
    assert run.facts.groups == "[4,2]<=[2,4]T(1,0)"
    assert run.count.ravel().tolist() == [3] * 4
    assert run.total_ps.min() > 3 * 121 * MS
    assert n_outside == 0
    assert "which device is in which of its groups" in find_waits(run).remark


def test_real_gpu_traces_show_no_collective():
    cases = ["gpu_mi300_jax_conv", "gpu_mi300_jax_conv_legacy_8gpu", "gpu_v100_tf_bert_multiworker"]
    for name in cases:
        assert find_runs(*real(name)) == ([], 0), name

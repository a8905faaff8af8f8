"""What the doctor says of the traces of two short sessions."""

from helpers.xspace import at, line, plane, space

from pytest_tfperf.doctor.checks import check_traces, reads_admin_only
from pytest_tfperf.trace.xspace import decode_trace

KERNELS = plane("/device:GPU:0", line("Stream #7", at("gemm", 1, 2), id=7))


def trace(n_steps, *planes, **texts):
    marks = [
        at("doctor", 10 * n, 10 * n + 9, step_num=n, _r=1, tfperf=1, epoch=0, batches=1)
        for n in range(n_steps)
    ]
    return decode_trace(space(plane("/host:CPU", line("python", *marks)), *planes, **texts))


def found(traces, n_devices=0, admin_only=None, framework="TensorFlow"):
    checks = check_traces(framework, traces, 5, n_devices, admin_only)
    assert {check.framework for check in checks} == {framework}
    return {check.name: check for check in checks}


def test_a_machine_without_accelerator_is_good():
    checks = found([trace(5), trace(5)])
    assert {name: (check.passed, check.found, check.advice) for name, check in checks.items()} == {
        "markers": (True, "5 steps marked in each of 2 sessions, 5 and 5 found", ""),
        "device plane": (True, "no accelerator: CPU only", ""),
        "whole traces": (True, "no error, no event dropped", ""),
    }


def test_steps_that_are_lost_or_another_sessions_are_a_failure():
    for counts in [(5, 4), (0, 5), (5, 10), (0, 0)]:
        check = found([trace(n) for n in counts])["markers"]
        assert not check.passed, counts
        assert f"{counts[0]} and {counts[1]} found" in check.found, counts
        assert "2.18 to 2.22" in check.advice, counts


def test_steps_of_somebody_else_are_none_of_ours():
    others = decode_trace(
        space(
            plane(
                "/host:CPU",
                line("python", *(at("train", n, n + 1, step_num=n, _r=1) for n in range(5))),
            )
        )
    )
    assert "0 and 5 found" in found([others, trace(5)])["markers"].found


def test_a_gpu_without_a_plane_is_a_failure_that_says_what_to_do():
    check = found([trace(5), trace(5)], n_devices=2)["device plane"]
    assert not check.passed
    assert check.found == "none in the trace; TensorFlow has 2 accelerators, the steps ran on one"
    assert "NVreg_RestrictProfilingToAdminUsers=0" in check.advice
    assert "--cap-add=SYS_ADMIN" in check.advice
    assert "libcupti" in check.advice


def test_advice_is_of_the_framework():
    checks = found([trace(4), trace(5)], n_devices=1, framework="JAX")
    assert "a JAX from 0.6.1 to 0.10" in checks["markers"].advice
    assert "JAX has 1 accelerator" in checks["device plane"].found
    assert "pip install 'jax[cuda12]'" in checks["device plane"].advice


def test_a_gpu_with_a_plane_is_good():
    check = found([trace(5, KERNELS), trace(5, KERNELS)], n_devices=1)["device plane"]
    assert (check.passed, check.found, check.advice) == (
        True,
        "1 in the trace; TensorFlow has 1 accelerator, the steps ran on one",
        "",
    )


REFUSED = {"errors": ["CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"]}


def test_the_permission_to_use_cupti():
    cases = [
        (False, [KERNELS], {}, True, "every user; kernels are traced"),
        (
            True,
            [KERNELS],
            {},
            True,
            "administrators only (RmProfilingAdminOnly 1); kernels are traced",
        ),
        (True, [], {}, False, "administrators only (RmProfilingAdminOnly 1); no kernel is traced"),
        (
            False,
            [],
            {},
            True,
            "every user; no kernel is traced",
        ),  # that is the device plane's failure
        (False, [KERNELS], REFUSED, False, "every user; no kernel is traced"),
    ]
    for admin_only, planes, texts, passed, said in cases:
        check = found([trace(5, *planes, **texts)] * 2, n_devices=1, admin_only=admin_only)[
            "CUPTI permission"
        ]
        assert (check.passed, check.found) == (passed, said), (passed, said)
        assert ("NVreg_RestrictProfilingToAdminUsers=0" in check.advice) is not passed, (
            passed,
            said,
        )


def test_without_nvidias_driver_or_a_gpu_nothing_is_said_of_cupti():
    assert "CUPTI permission" not in found([trace(5)] * 2, n_devices=1)
    assert "CUPTI permission" not in found([trace(5)] * 2, n_devices=0, admin_only=True)


def test_errors_and_dropped_events_are_told_once():
    broken = trace(5, **REFUSED)
    dropped = trace(5, plane("/host:more", line("x"), stats={"dropped_traces": 12}))
    check = found([broken, broken])["whole traces"]
    assert (check.passed, check.found) == (
        False,
        "the profiler reports an error: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
    )
    check = found([broken, dropped])["whole traces"]
    assert check.found.endswith("PRIVILEGES; the profiler dropped 12 events")
    assert "trace_steps=" in check.advice


def test_the_drivers_parameter():
    cases = [
        ('Mobile: 4294967295\nRmProfilingAdminOnly: 1\nRegistryDwords: ""\n', True),
        ("RmProfilingAdminOnly: 0\n", False),
        ("RmProfilingAdminOnly:1", True),
        ("", None),
        ("RmProfilingAdminOnly: maybe\n", None),
        ("no colon here\n", None),
    ]
    for text, says in cases:
        assert reads_admin_only(text) is says, text

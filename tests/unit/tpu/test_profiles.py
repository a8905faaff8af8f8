"""Padding and alignment in the profiles of traces."""

from helpers.hlo import dot, encoded, module, op, parameters
from helpers.tables import cells
from helpers.xspace import at, field, line, plane, space

from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.profile import profile_of
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import decode_trace

STEP = plane("/host:CPU", line("python", at("train", 0, 10, step_num=0, _r=1)))


def dense(rows, columns, depth):
    ops = parameters(f"bf16[{rows},{depth}]", f"bf16[{depth},{columns}]")
    return module(
        main=[
            *ops,
            op(
                "d",
                "dot",
                f"bf16[{rows},{columns}]",
                "p0",
                "p1",
                dot=dot([1], [0]),
                op_name="logits",
            ),
        ]
    )


def test_a_gpu_profile_has_the_alignment_of_its_products():
    gpu = plane(
        "/device:GPU:0",
        line("stream", at("kernel", 1, 2)),
        stats={"compute_cap_major": 9, "core_count": 132},
    )
    lowered = ((dense(4096, 50257, 768), 1.0),)
    recording = Recording(name="step", trace=None, workload={}, lowered=lowered)
    found = profile_of(Evidence(recording, decode_trace(space(STEP, gpu), "t")))
    assert cells(found.tables["alignment"], "not_aligned", "good_size") == [
        ("columns 50257", "50257 → 50304")
    ]
    assert found.advice[-1].what.endswith("columns 50257 → 50304")
    cpu = profile_of(Evidence(recording, decode_trace(space(STEP), "t")))
    assert "alignment" not in cpu.tables
    assert not any("tensor cores" in advice.what for advice in cpu.advice)


def test_a_tpu_profile_with_missing_hlo_is_unknown():
    modules = line("XLA Modules", at("jit_f(1)", 1, 2), at("jit_g(2)", 3, 4))
    tpu = plane(
        "/device:TPU:0",
        line("XLA Ops", at("fusion", 1, 2)),
        modules,
        stats={"device_type_string": "TPU v4"},
    )
    kept = plane(
        "/host:metadata", metadata={"jit_f(1)": {"Hlo Proto": field(1, encoded(dense(8, 8, 8)))}}
    )
    for metadata in ([kept], []):
        found = profile_of(
            Evidence(
                Recording(name="t", trace=None, workload={}, bare=True),
                decode_trace(space(STEP, tpu, *metadata), "t"),
            )
        )
        value = found.value("padding_overhead")
        assert value.number is None
        assert "HLO of 1 of the 2 executables" in value.why if metadata else "HLO" in value.why

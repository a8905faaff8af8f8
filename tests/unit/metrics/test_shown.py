"""Saved traces that cannot tell: what does not show is unknown, whatever framework made the trace."""

import functools

import pytest
from helpers.hlo import encoded, module, op, parameters
from helpers.traces import real_trace
from helpers.xspace import at, field, line, plane, space

from pytest_tfperf.cli.main import main
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.multi_host import analyse_trace
from pytest_tfperf.metrics.profile import profile_of
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import decode_trace, read_trace

STEPS = [at("train", n * 10, n * 10 + 9, step_num=n, _r=1) for n in range(3)]
RUNTIME = [at("FunctionRun", n * 10 + 1, n * 10 + 2) for n in range(3)]
EXECUTED = at("GpuExecutable::ExecuteThunks", 11, 12)
JAX_GPUS = (
    "gpu_mi300_jax_conv",
    "gpu_mi300_jax_conv_legacy_8gpu",
    "gpu_mi300_jax08_attention",
    "gpu_mi300_jax08_elementwise",
    "gpu_mi300_jax08_gemm",
    "gpu_mi355x_jax_te_fused_attn_training",
)
LEGACY, TPU = "gpu_mi300_jax_conv_legacy_8gpu", "tpu_v6e_jax_inference"
OF_XLA = ("xla_clusters", "xla_launches", "fusions", "xla_compiles")
OF_TENSORFLOW = ("eager_ops", "retraces", "input_bound", "input_wait", "input_capacity")


def profiled(*events, others=(), bare=True):
    host = plane("/host:CPU", line("python", *STEPS, *events))
    recording = Recording(name="", trace=None, workload={}, bare=bare, compiled=(), n_steps=3)
    return profile_of(Evidence(recording, decode_trace(space(host, *others))))


def loaded():
    """Metadata of one loaded executable."""
    ops = [*parameters("f32[8]"), op("neg", "negate", "f32[8]", "p0")]
    stat = {"Hlo Proto": field(1, encoded(module(main=ops)))}
    return plane("/host:metadata", metadata={"jit_f(1)": stat})


@functools.cache
def profile_of_real(name):
    recording = Recording(name="", trace=None, workload={}, bare=True)
    return profile_of(Evidence(recording, read_trace(real_trace(name))))


def number_of(name, metric):
    return profile_of_real(name).value(metric)


def test_a_jax_trace_without_executions_tells_nothing_of_xla():
    for metric in OF_XLA:
        assert profiled(at("PjitFunction(f)", 1, 2)).value(metric).number is None, metric


def test_a_tensorflow_trace_without_executables_ran_none():
    for metric in OF_XLA:
        assert profiled(*RUNTIME).value(metric).number == 0, metric


def test_loaded_executables_without_any_execution_may_have_run():
    for metric in OF_XLA:
        value = profiled(*RUNTIME, others=[loaded()]).value(metric)
        assert value.number is None, metric
        assert "TensorFlow before 2.18 marks no execution on a CPU" in value.why, metric


def test_loaded_executables_did_not_run_where_this_process_made_the_trace():
    for metric in OF_XLA:
        assert profiled(*RUNTIME, others=[loaded()], bare=False).value(metric).number == 0, metric


def test_loaded_executables_did_not_run_in_the_steps_where_executions_show_outside():
    for metric in OF_XLA:
        outside = at("CpuExecutable::ExecuteAsyncOnStream", 50, 51)
        assert profiled(*RUNTIME, outside, others=[loaded()]).value(metric).number == 0, metric


@pytest.mark.parametrize("op_name", ["cluster_0_1/xla_run:_XlaRun", "f:XlaLaunch"])
def test_ops_that_run_executables_contradict_a_zero(op_name):
    value = profiled(*RUNTIME, at(op_name, 1, 2)).value("xla_clusters")
    assert value.number is None
    assert "ran" in value.why


def test_collectives_of_the_host_contradict_a_zero_of_the_devices():
    def share(kernel):
        device = plane("/device:GPU:0", line("Stream #1", at(kernel, 1, 2)))
        op_event = at("all/CollectiveReduce:CollectiveReduceV2", 1, 2)
        return profiled(*RUNTIME, op_event, others=[device]).value("collective_time")

    assert share("gemm").number is None
    assert share("ncclDevKernel_AllReduce").number > 0


def test_compilations_of_jax_show_where_its_executions_do():
    assert profiled(at("PjitFunction(f)", 1, 2), EXECUTED).xla_compiles == 0
    late = at("HLO Transforms:jit_f", 12, 13)
    assert profiled(at("PjitFunction(f)", 1, 2), late).xla_compiles == 1


def test_a_compilation_that_shows_counts_although_others_may_not():
    assert profiled(at("HLO Transforms:jit_f", 12, 13)).xla_compiles == 1


def test_eager_ops_show_where_eager_execution_does():
    assert profiled(*RUNTIME).value("eager_ops").number is None
    assert profiled(*RUNTIME, at("EagerExecute", 1, 2, is_func=1)).eager_ops == 0
    assert profiled(*RUNTIME, at("EagerExecute: __inference_f_1", 1, 2)).eager_ops == 0
    ops = [at("EagerExecute: Mul", n * 10 + 3, n * 10 + 4) for n in range(3)]
    assert profiled(*RUNTIME, *ops).eager_ops == 1
    for nameless in ["EagerExecute", "EagerKernelExecute"]:
        assert profiled(*RUNTIME, at(nameless, 1, 2)).value("eager_ops").number is None, nameless


def test_a_trace_of_2021_shows_its_eager_ops():
    trace = read_trace(real_trace("gpu_pascal_laptop_tf25_keras_windows"))
    value = analyse_trace(trace).profile.value("eager_ops")
    assert (value.number, value.detail["where"]) == (38, "eager: DestroyResourceOp ×37, LogicalAnd")


def test_input_shows_where_a_pipeline_does():
    assert "counts as host_overhead" in profiled(*RUNTIME).value("input_bound").why
    assert profiled(*RUNTIME, at("IteratorGetNextOp::DoCompute", 50, 51)).input_bound == 0
    assert profiled(*RUNTIME, bare=False).input_bound == 0


def test_a_pipeline_without_waits_is_no_zero():
    for name in ["tfperf::next", "Iterator::Root"]:
        for bare in [True, False]:
            why = profiled(*RUNTIME, at(name, 50, 51), bare=bare).value("input_bound").why
            assert why == (
                "the trace shows an input pipeline, and no waiting for its elements (IteratorGetNext)"
            ), (name, bare)


def test_a_step_of_this_process_without_an_op_of_tensorflow_has_no_zero():
    profile = profiled(at("PjitFunction(f)", 1, 2), bare=False)
    for metric in (*OF_XLA, "eager_ops", "retraces", "input_bound", "host_overhead"):
        assert profile.value(metric).number is None, metric


def test_overhead_is_unknown_where_no_work_could_show():
    assert profiled(at("PjitFunction(f)", 1, 2)).value("host_overhead").number is None
    assert profiled(*RUNTIME).host_overhead == pytest.approx(1 - 3 / 29)


def test_traces_of_jax_tell_nothing_of_tensorflow():
    for name in [*JAX_GPUS, TPU]:
        for metric in OF_TENSORFLOW:
            assert number_of(name, metric).number is None, (name, metric)


def test_the_oldest_trace_of_jax_tells_nothing_of_xla():
    for metric in OF_XLA:
        assert number_of(LEGACY, metric).number is None, metric


def test_fused_attention_of_a_library_leaves_the_flops_unknown():
    for metric in ["flops", "half_precision", "flops_utilization"]:
        value = number_of("gpu_mi355x_jax_te_fused_attn_training", metric)
        assert value.number is None, metric
        assert metric == "flops_utilization" or "te_fused_attn_forward_ffi" in value.why, metric


def test_no_check_of_a_jax_trace_passes_by_zeros(capsys):
    limits = ["--xla-clusters", "0", "--max-input-bound", "5%"]
    assert main(["check", str(real_trace(LEGACY)), *limits]) == 3
    assert capsys.readouterr().out.count("UNKNOWN") == 2


def test_advice_on_a_jax_trace_speaks_of_jax(capsys):
    assert main(["analyze", str(real_trace("gpu_mi300_jax_conv"))]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "jax.lax.scan" in shown
    assert not any(word in shown for word in ("tf.function", "Keras", "keras", "tf.data stage"))

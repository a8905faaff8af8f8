"""Truths of steps of JAX, counted by hand, in a process that never imports TensorFlow."""

import itertools
import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "1"  # the guard of transfers logs warnings

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import pytest

FEW = {"warmup": 3, "steps": 12, "trace_steps": 6}
FEWER = {"warmup": 1, "steps": 4, "trace_steps": 2}
"""Steps that compile each time."""
BATCH = np.ones((64, 256), "float32")
VERSION = tuple(map(int, jax.__version__.split(".")[:2]))
NAMES_CHANGES, NAMES_STATIC = VERSION >= (0, 9), VERSION < (0, 11)
ON_GPU = jax.default_backend() == "gpu"


@jax.jit
def product(x, w):
    return x @ w


@pytest.fixture(scope="module")
def w():
    return jnp.ones((256, 128))


def test_tensorflow_is_not_imported(tf_profile, w):
    tf_profile(lambda x: product(x, w), [{"x": BATCH}["x"]] * 3, **FEW)
    assert "tensorflow" not in sys.modules
    assert "keras" not in sys.modules


def test_flops_and_launches_are_those_counted_by_hand(tf_profile, w):
    found = tf_profile(lambda: product(BATCH, w), **FEW)
    assert found.flops == 2 * 64 * 256 * 128
    assert found.half_precision == 0
    assert (found.xla_launches, found.xla_clusters, found.eager_ops) == (1, 1, 0)
    assert (found.xla_compiles, found.retraces) == (0, 0)
    arrays = 4 * (64 * 256 + 256 * 128 + 64 * 128)
    assert found.peak_memory > arrays if ON_GPU else found.peak_memory == arrays  # a workspace


@pytest.mark.parametrize("latency", [False, True])
def test_single_steps_have_times_where_calls_wait_for_them(tf_profile, latency):
    """A call takes some 0.1 ms, and the product milliseconds."""
    x = jnp.ones((500, 500))
    found = tf_profile(lambda: product(x, x), latency=latency, steps=30, warmup=3, trace_steps=2)
    single = found.value("step_time_p90")
    assert (single.number is not None) is latency
    assert single.number is None or single.number > 0.9 * found.step_time
    assert latency or "latency=True waits for each" in single.why


def test_flops_of_steps_that_differ_have_the_least_and_the_most(tf_profile):
    """2 · rows² · 8 of each product."""
    data = [np.ones((rows, 8), "float32") for rows in (4, 4, 8)] * 20
    value = tf_profile(jax.jit(lambda x: x @ x.T), data, **FEW).value("flops")
    assert (value.low(), value.high()) == (2 * 4 * 4 * 8, 2 * 8 * 8 * 8)
    assert value.number == value.low()  # the median


@pytest.mark.parametrize("n_before", [10, 16])
def test_a_rare_step_has_the_most_flops_and_memory_in_the_trace_or_before(tf_profile, n_before):
    data = [np.ones((rows, 8), "float32") for rows in (4,) * n_before + (8,) + (4,) * 40]
    found = tf_profile(jax.jit(lambda x: x @ x.T), data, **FEW)
    flops = found.value("flops")
    assert (flops.number, flops.high()) == (2 * 4 * 4 * 8, 2 * 8 * 8 * 8)
    assert found.peak_memory == 4 * (8 * 8 + 8 * 8)


def test_flops_of_many_programs_are_whole_numbers(tf_profile):
    def step():
        for function in functions:
            function(BATCH)

    functions = [jax.jit(lambda x, n=n: x * n + 1.5) for n in range(2, 9)]
    value = tf_profile(step, **FEW).value("flops")
    assert value.number == 7 * 2 * BATCH.size
    assert "high" not in value.detail


def test_bfloat16_is_half_precision(tf_profile):
    x = jnp.ones((64, 64), "bfloat16")
    dot = jax.jit(lambda x: jax.lax.dot(x, x, preferred_element_type="bfloat16"))
    assert tf_profile(lambda: dot(x), **FEW).half_precision == 1


@pytest.mark.tfperf(tpu="v5e", findings="all")
def test_padding_on_a_tpu_is_predicted_from_programs_that_were_compiled_before(tf_profile):
    layer, rows = jax.jit(lambda x, w: jax.nn.relu(x @ w)), np.ones((100, 100), "float32")
    w = jnp.ones((100, 100))
    layer(rows, w)
    found = tf_profile(lambda: layer(rows, w), **FEW)
    assert found.flops == 2 * 100**3 + 100**2
    assert "of_platform" not in found.value("flops").detail
    assert found.padding_overhead == pytest.approx(104 * 128 / 100**2 - 1)  # 8 rows, 128 columns
    assert found.mxu_padding_overhead == pytest.approx(104 * 128 * 128 / 100**3 - 1)
    assert "at metrics.py:" in found.value("padding_overhead").detail["where"]
    assert found.op_guide_findings == 0


@pytest.mark.tfperf(tpu="v5e", findings="all")
def test_the_op_guide_names_the_line_of_a_transpose(tf_profile):
    x = np.ones((64, 32, 256), "float32")
    moved = jax.jit(lambda x: jnp.tanh(jnp.transpose(x, (1, 0, 2))) * 2)
    value = tf_profile(lambda: moved(x), **FEW).value("op_guide_findings")
    assert value.number == 1
    assert "TRANSPOSE at metrics.py" in value.detail["where"]


def test_flops_of_what_jax_lowers_by_platform_hold_there(tf_profile):
    total = jax.jit(lambda x: jnp.cumsum(x @ x.T))
    found = tf_profile(lambda: total(np.ones((8, 8), "float32")), **FEW)
    assert found.value("flops").detail["of_platform"]


@pytest.mark.tfperf(tpu="v5e")
def test_a_program_that_jax_has_freed_is_unknown(tf_profile, tmp_path):
    compiled = jax.jit(lambda x: x @ x).lower(np.ones((64, 64), "float32")).compile()
    found = tf_profile(lambda: compiled(np.ones((64, 64), "float32")), **FEW)
    assert found.flops == 2 * 64**3
    assert found.value("flops").detail["of_platform"]
    assert "keep its jax.jit function alive" in found.value("padding_overhead").why
    with pytest.raises(Exception, match="the step has no HLO: JAX does not hold the program"):
        tf_profile.export(tmp_path / "step.txt", stage="unoptimized")


def test_hlo_before_optimisation_is_exported(tf_profile, w, tmp_path):
    tf_profile(lambda: product(BATCH, w), **FEW)
    tf_profile.export(tmp_path / "step.txt", stage="unoptimized")
    assert "dot(" in (tmp_path / "step.txt").read_text()


def test_every_call_with_a_new_shape_is_traced_and_compiled(tf_profile):
    sizes, total = itertools.count(8), jax.jit(lambda x: x.sum())
    found = tf_profile(lambda: total(np.ones(next(sizes), "float32")), **FEW)
    n_steps = found.value("xla_compiles").detail["n_steps"]
    assert n_steps > 10  # warm-up, timed and traced; not the first call
    assert found.xla_compiles == found.retraces == n_steps
    assert not NAMES_CHANGES or "x f32[8] → f32[9]" in found.value("retraces").detail["where"]
    assert not NAMES_CHANGES or "axis 0 of x" in found.value("retraces").detail["try"]


def test_traces_under_derivatives_count_once(tf_profile):
    sizes = itertools.count(8)
    inner = jax.jit(lambda y: y * 3)
    loss = jax.jit(lambda x: jnp.tanh(inner(x)).sum())
    found = tf_profile(lambda: jax.grad(loss)(np.ones(next(sizes), "float32")), **FEWER)
    assert found.retraces == found.value("retraces").detail["n_steps"]
    assert not NAMES_CHANGES or "x f32[8] → f32[9]" in found.value("retraces").detail["where"]


@pytest.mark.skipif(not NAMES_CHANGES, reason="JAX before 0.9 explains a trace after it")
@pytest.mark.parametrize(
    ("arguments", "change"),
    [
        ([(np.ones(3, "float32"), 2), (np.ones(3, "int32"), 2)], "x f32[3] → i32[3]"),
        (
            [(np.ones(3, "float32"), 2), (np.ones(3, "float32"), 3)],
            "static argument n: 2 → 3" if NAMES_STATIC else "names no static argument",
        ),
        (
            [({"a": np.ones(3)}, 2), ({"a": np.ones(3), "b": np.ones(3)}, 2)],
            "argument x: keys differ by 'b'",
        ),
        (
            [(2.0, 2), (np.float32(2), 2)],
            "x f32[] (weakly typed) → f32[]",
        ),
    ],
)
def test_the_change_that_traces_again_is_named(tf_profile, arguments, change):
    calls = itertools.cycle(arguments)
    scaled = jax.jit(
        lambda x, n: jax.tree_util.tree_map(lambda leaf: leaf * n, x), static_argnums=1
    )
    found = tf_profile(lambda: scaled(*next(calls)), **FEW)
    assert found.retraces == found.xla_compiles == 1
    assert change in found.value("retraces").detail["where"]


def test_a_function_that_is_defined_in_the_step_is_traced_each_time(tf_profile):
    found = tf_profile(lambda: jax.jit(lambda x: x + 1)(BATCH), **FEWER)
    assert found.retraces == found.value("retraces").detail["n_steps"]
    assert found.xla_compiles == found.retraces  # though most of these executables are freed
    assert (
        not NAMES_CHANGES or "a new function of a line" in found.value("retraces").detail["where"]
    )


def test_ops_outside_jit_are_counted(tf_profile, w):
    found = tf_profile(lambda: product(BATCH, w) * 2 + 1, **FEW)
    assert found.eager_ops == 2
    assert "add" in found.value("eager_ops").detail["where"]
    assert "jax.jit" in found.value("eager_ops").detail["try"]
    assert found.xla_launches == 3
    ran = found.value("xla_launches").detail
    assert ran["where"] == "ran in a step: jit_add, jit_multiply, jit_product"
    assert "one jax.jit function" in ran["try"]


ON_DEVICE = jnp.ones((64, 256))
TRANSFERS = {
    "none": (lambda w: product(ON_DEVICE, w), 0, 0, 0),
    "an argument": (lambda w: product(BATCH, w), 1, 0, BATCH.nbytes),
    "two arguments": (
        lambda w: product(BATCH, np.ones((256, 8), "float32")),
        2,
        0,
        BATCH.nbytes + 4 * 256 * 8,
    ),
    "a put": (lambda w: product(jax.device_put(BATCH), w), 1, 0, BATCH.nbytes),
    "a number outside jit": (lambda w: product(ON_DEVICE, w) + 2.0, 1, 0, 4),
    "a put of what is there": (lambda w: product(jax.device_put(ON_DEVICE), w), 0, 0, 0),
    "a copy on the device": (
        lambda w: product(jax.device_put(ON_DEVICE, jax.devices()[0], may_alias=False), w),
        0,
        0,
        0,
    ),
    "a read": (lambda w: float(product(ON_DEVICE, w)[0, 0]), 2, 1, 3 * 4),
    "an item": (lambda w: product(ON_DEVICE, w).item(5), 0, 1, 4 * 64 * 128),
    "an argument and a read": (
        lambda w: jax.device_get(product(BATCH, w)),
        1,
        1,
        BATCH.nbytes + 4 * 64 * 128,
    ),
}


@pytest.mark.parametrize("case", TRANSFERS)
def test_planted_transfers_are_those_of_the_guard(tf_profile, w, capfd, case):
    """
    An index outside jit passes two numbers. A guard of JAX logs no read on a CPU, whose trace does
    not tell the bytes.
    """
    step, n_puts, n_reads, size = TRANSFERS[case]
    found = tf_profile(lambda: step(w), **FEW)
    assert found.host_device_copies == n_puts + n_reads
    assert "low" not in found.value("host_device_copies").detail
    capfd.readouterr()
    with jax.transfer_guard_host_to_device("log_explicit"):
        step(w)
    assert capfd.readouterr().err.count("host-to-device transfer") == n_puts
    assert found.value("host_device_bytes").number == (size if ON_GPU or size == 0 else None)


@pytest.mark.skipif(ON_GPU, reason="NumPy reads an array on a GPU from a copy")
def test_numpy_reads_an_array_on_a_cpu_in_place(tf_profile, w):
    address = np.asarray(ON_DEVICE).__array_interface__["data"][0]
    assert address == ON_DEVICE.unsafe_buffer_pointer()
    found = tf_profile(lambda: np.asarray(product(ON_DEVICE, w)).sum(), **FEW)
    assert found.host_device_copies == 0


def test_a_transfer_over_its_limit_names_the_function(tf_profile, w):
    value = tf_profile(lambda: float(product(BATCH, w)[0, 0]), **FEW).value("host_device_copies")
    assert "arguments of product" in value.detail["where"]
    assert "read by Python" in value.detail["where"]
    assert "device_put" in value.detail["try"]


def test_a_function_of_the_user_with_a_name_of_jax_leaves_it_unknown(tf_profile):
    @jax.jit
    def multiply(x):
        return x * 2

    jnp.multiply(BATCH, BATCH)
    value = tf_profile(lambda: multiply(BATCH), **FEW).value("eager_ops")
    assert "named multiply" in value.why


@pytest.mark.parametrize("name", ["solve", "cond", "stage"])
def test_a_function_of_the_user_may_have_a_name_of_jax(tf_profile, name):
    def step(x):
        return jnp.tanh(x) @ x.T

    step.__name__ = name
    compiled = jax.jit(step)
    found = tf_profile(lambda: compiled(BATCH), **FEW)
    assert found.eager_ops == 0
    assert found.value("flops").number


def test_an_array_of_numpy_is_put_on_a_device_without_an_op(tf_profile, w):
    rows = BATCH.tolist()
    found = tf_profile(lambda: product(jnp.array(np.array(rows, "float32")), w), **FEW)
    assert (found.eager_ops, found.host_device_copies) == (0, 1)
    converts = tf_profile(lambda: product(jnp.array(rows), w), name="lists", **FEW)
    assert "convert_element_type" in converts.value("eager_ops").detail["where"]


def test_a_compiled_program_runs_too(tf_profile, w):
    compiled = product.lower(BATCH, w).compile()
    found = tf_profile(lambda: compiled(BATCH, w), **FEW)
    assert (found.xla_launches, found.xla_compiles, found.eager_ops) == (1, 0, 0)


def test_a_slow_iterator_is_the_input_wait(tf_profile, w):
    waits = []

    def batches():
        while True:
            start = time.perf_counter()
            time.sleep(0.01)
            waits.append(time.perf_counter() - start)  # more on a busy machine
            yield BATCH

    found = tf_profile(lambda x: product(x, w), batches(), **FEW)
    assert min(waits) <= found.input_wait <= max(waits) + 0.001
    assert found.input_bound > 0.5
    assert found.workload["inputs"] == ["float32[64,256]"]
    assert found.value("throughput").detail["examples_per_step"] == 64


def test_donated_buffers_are_given_back(tf_profile):
    state = [jnp.ones(1000)]
    update = jax.jit(lambda x: x * 0.5, donate_argnums=0)

    def step():
        state[0] = update(state[0])
        return state[0]

    found = tf_profile(step, **FEW)
    assert found.step_time > 0
    assert found.value("xla_compiles").number == 0


def test_an_error_that_arrives_at_the_synchronisation_is_the_user_s(tf_profile):
    def fails(x):
        raise RuntimeError("planted")

    @jax.jit
    def step(x):
        return jax.pure_callback(fails, jax.ShapeDtypeStruct((3,), "float32"), x)

    with pytest.raises(Exception, match="planted"):
        tf_profile(lambda: step(jnp.ones(3)).block_until_ready(), **FEW)


def test_latency_fetches_the_output_and_counts_no_program_of_ours(tf_profile, w):
    found = tf_profile(lambda: product(BATCH, w), latency=True, **FEW)
    without = tf_profile(lambda: product(BATCH, w), name="without", **FEW)
    assert found.step_time > 0
    for metric in ("xla_clusters", "xla_launches", "fusions", "flops", "eager_ops"):
        assert found.value(metric).number == without.value(metric).number, metric
    assert found.xla_launches == 1


def tangents(x):
    return jnp.tan(x) * 2


@pytest.mark.parametrize(
    ("body", "n_ops"),
    [
        (lambda x: jax.lax.scan(lambda y, row: (y + jnp.sum(row) * 2, None), 0.0, x), 1),
        (lambda x: (jax.eval_shape(tangents, x), product(x, x)), 0),
    ],
    ids=["scan", "eval_shape"],
)
def test_ops_that_are_traced_only_are_not_run(tf_profile, body, n_ops):
    x = jnp.ones((8, 8))
    assert tf_profile(lambda: body(x), **FEWER).eager_ops == n_ops


def test_what_the_step_makes_jax_forget_is_compiled_again(tf_profile):
    def step():
        jax.clear_caches()
        return double(BATCH)

    double = jax.jit(lambda x: x * 2)
    found = tf_profile(step, **FEWER)
    n_steps = found.value("retraces").detail["n_steps"]
    assert (found.retraces, found.xla_compiles) == (n_steps, n_steps)
    if NAMES_CHANGES:
        assert "as after jax.clear_caches()" in found.value("retraces").detail["where"]


def test_64_bits_are_a_setting_of_their_own(tf_profile):
    wide = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    with wide(True):
        found = tf_profile(lambda: product(np.ones((8, 8)), np.ones((8, 8))), **FEW)
        assert tf_profile._test.environment()["setting"]["precision"] == "x64"
    assert tf_profile._test.environment()["setting"]["precision"] == ""
    assert found.flops == 2 * 8**3
    assert found.peak_memory == 3 * 8 * 8**2


def test_the_environment_names_jax(tf_profile, w):
    tf_profile(lambda: product(BATCH, w), **FEW)
    environment = tf_profile._test.environment()
    assert environment["machine"]["jax"] == ".".join(jax.__version__.split(".")[:2])
    assert "JAX" in environment["platform"]
    assert "TensorFlow" not in environment["platform"]


@pytest.mark.parametrize("sorting", [jnp.sort, jnp.argsort, lambda x: jnp.sort(jnp.sort(-x))])
def test_a_sort_is_one_launch_though_its_op_has_two_events(tf_profile, sorting):
    step, x = jax.jit(sorting), jnp.arange(64.0)
    assert tf_profile(lambda: step(x), **FEWER).xla_launches == 1

"""Checks that a framework's profiler works here, by short sessions over marked sample steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_tfperf.capture.sessions import Session, StepMark, read_sessions
from pytest_tfperf.errors import CaptureError, TraceError
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.frameworks.framework import JAX, TENSORFLOW, Framework
from pytest_tfperf.frameworks.in_use import start_devices, synchronise
from pytest_tfperf.frameworks.jax import load_jax
from pytest_tfperf.frameworks.tensorflow import load_tensorflow
from pytest_tfperf.metrics.validity import faults
from pytest_tfperf.text import plural
from pytest_tfperf.trace.devices import accelerators
from pytest_tfperf.trace.xspace import Trace

_N_STEPS = 5  # of a session
_DRIVER = Path("/proc/driver/nvidia/params")
_EXCLUSIVE = "exclusive profiler session"
_PERMISSION = (
    "let users profile: 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' in /etc/modprobe.d "
    "and a reboot; a container needs --cap-add=SYS_ADMIN"
)  # developer.nvidia.com, ERR_NVGPUCTRPERM
_NO_PLANE = (
    "{}'s messages on stderr say why it traces no device; on an NVIDIA GPU it needs libcupti "
    f"(pip install '{{}}') and the permission to use it: {_PERMISSION}"
)
_WITH_CUDA = {TENSORFLOW: "tensorflow[and-cuda]", JAX: "jax[cuda12]"}
_UNMARKED = "profiles would miss steps: is this {}, and is the disk of the temporary folder full?"
_VERSIONS = {TENSORFLOW: "a TensorFlow from 2.18 to 2.22", JAX: "a JAX from 0.6.1 to 0.10"}
_INCOMPLETE = (
    "metrics of incomplete traces are unknown; fewer traced steps (trace_steps=) drop fewer events"
)


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """The result of one check of a framework's profiler."""

    framework: str
    name: str
    """What must work."""
    passed: bool
    found: str
    advice: str = ""


def profiler_checks(framework: Framework, folder: Path) -> list[SelfCheck]:
    """Return the checks of two short sessions of a framework's profiler."""
    name = framework.name
    try:
        step = convolution_step(name)
        step()
        traces = [_recorded(name, step, folder) for _ in range(2)]
        refuses = _refuses_second(folder)
    except (CaptureError, TraceError) as error:
        advice = "a profiler session must start and write its trace"
        return [SelfCheck(name, "session", False, str(error), advice)]
    try:
        admin_only = reads_admin_only(_DRIVER.read_text("utf-8", errors="replace"))
    except OSError:
        admin_only = None
    found = check_traces(name, traces, _N_STEPS, len(framework.accelerators()), admin_only)
    if refuses:
        return [*found, SelfCheck(name, _EXCLUSIVE, True, "a second one is refused")]
    advice = (
        f"stop profilers of your own before a step is profiled; this {name} does not report them"
    )
    second = SelfCheck(name, _EXCLUSIVE, False, "a second one starts while another runs", advice)
    return [*found, second]


def check_traces(
    framework: str,
    traces: Sequence[Trace],
    n_steps: int,
    n_devices: int,
    admin_only: bool | None,
) -> list[SelfCheck]:
    """Return the checks of sessions, a trace each; `admin_only` is None without NVIDIA's driver."""

    def check(name: str, passed: bool, found: str, advice: str = "") -> SelfCheck:
        return SelfCheck(framework, name, passed, found, "" if passed else advice)

    counts = [_n_steps(trace) for trace in traces]
    marked = f"{n_steps} steps marked in each of {len(traces)} sessions"
    steps = check(
        "markers",
        all(count == n_steps for count in counts),
        f"{marked}, {' and '.join(map(str, counts))} found",
        _UNMARKED.format(_VERSIONS[framework]),
    )
    lost = list(dict.fromkeys(fault for trace in traces for fault in faults(trace)))
    whole = check(
        "whole traces", not lost, "; ".join(lost) or "no error, no event dropped", _INCOMPLETE
    )
    if not n_devices:
        return [steps, check("device plane", True, "no accelerator: CPU only"), whole]
    n_planes = len(accelerators(traces[-1]))
    devices = check(
        "device plane",
        n_planes > 0,
        f"{n_planes or 'none'} in the trace; {framework} has "
        f"{plural(n_devices, 'accelerator')}, the steps ran on one",
        _NO_PLANE.format(framework, _WITH_CUDA[framework]),
    )
    if admin_only is None:
        return [steps, devices, whole]
    # some systems allow tracing of kernels where they refuse counters (CUPTI since CUDA 10.2)
    refused = any("PRIVILEGES" in error.upper() for trace in traces for error in trace.errors)
    who = "administrators only (RmProfilingAdminOnly 1)" if admin_only else "every user"
    what = "kernels are traced" if n_planes and not refused else "no kernel is traced"
    may = not refused and (n_planes > 0 or not admin_only)
    permission = check("CUPTI permission", may, f"{who}; {what}", _PERMISSION)
    return [steps, devices, permission, whole]


def _n_steps(trace: Trace) -> int:
    try:
        steps = find_steps(trace)
    except TraceError:
        return 0
    return len(steps) if steps.source == "tfperf" else 0


def reads_admin_only(parameters: str) -> bool | None:
    """
    Return whether only administrators may use the counters of GPUs; None if it is not stated.

    Source: `RmProfilingAdminOnly: 1` in /proc/driver/nvidia/params, which is the driver's parameter
    NVreg_RestrictProfilingToAdminUsers.
    """
    values = dict(
        line.replace(" ", "").split(":", 1) for line in parameters.splitlines() if ":" in line
    )
    return {"0": False, "1": True}.get(values.get("RmProfilingAdminOnly", ""))


def convolution_step(framework: str) -> Callable[[], Any]:
    """Return a training step of a small convolutional network: some milliseconds on a few cores."""
    return _STEPS[framework]()


def _step_of_tensorflow() -> Callable[[], Any]:
    tf = load_tensorflow()
    kernels = [tf.Variable(tf.random.stateless_normal(shape, (3, 4)) * 0.05) for shape in _KERNELS]
    images = tf.random.stateless_normal(_IMAGES, (5, 6))

    def step() -> Any:
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(tf.nn.conv2d(images, kernels[0], 2, "SAME"))
            loss = tf.reduce_mean(tf.nn.conv2d(hidden, kernels[1], 1, "SAME") ** 2)
        for kernel, gradient in zip(kernels, tape.gradient(loss, kernels), strict=True):
            kernel.assign_sub(0.01 * gradient)
        return loss

    compiled: Callable[[], Any] = tf.function(step, autograph=False)
    return compiled


def _step_of_jax() -> Callable[[], Any]:
    jax = load_jax()
    state = [[jax.random.normal(jax.random.key(3), shape) * 0.05 for shape in _KERNELS]]
    images = jax.random.normal(jax.random.key(5), _IMAGES)

    def convolved(images: Any, kernel: Any, stride: int) -> Any:
        layout = ("NHWC", "HWIO", "NHWC")
        strides = (stride, stride)
        return jax.lax.conv_general_dilated(
            images, kernel, strides, "SAME", dimension_numbers=layout
        )

    def loss(kernels: Any) -> Any:
        hidden = jax.nn.relu(convolved(images, kernels[0], 2))
        return (convolved(hidden, kernels[1], 1) ** 2).mean()

    def update(kernels: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(kernels)
        return value, [k - 0.01 * g for k, g in zip(kernels, gradients, strict=True)]

    compiled = jax.jit(update)

    def step() -> Any:
        value, state[0] = compiled(state[0])
        return value

    return step


_IMAGES = (32, 32, 32, 3)
_KERNELS = ((3, 3, 3, 32), (3, 3, 32, 32))
_STEPS = {TENSORFLOW: _step_of_tensorflow, JAX: _step_of_jax}


def _recorded(framework: str, step: Callable[[], Any], folder: Path) -> Trace:
    """Return the trace of a session over marked steps."""
    start_devices()
    session = Session(folder)
    try:
        for n in range(_N_STEPS):
            mark = StepMark("doctor", n)
            step()
            mark.end()
        synchronise()
        return read_sessions(session.stop())[framework]
    finally:
        session.discard()


def _refuses_second(folder: Path) -> bool:
    """Return whether a session is refused while another runs; else one would lose events."""
    first = Session(folder)
    try:
        Session(folder).discard()
    except CaptureError:
        return True
    finally:
        first.discard()
    return False

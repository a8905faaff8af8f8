"""Name the cause of a metric and a remedy, in a sentence each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pytest_tfperf import op_types
from pytest_tfperf.analysis.host.shown import JAX, PYTORCH, TENSORFLOW
from pytest_tfperf.analysis.xla.executions import short_module
from pytest_tfperf.text import and_more

_SHOWN = 5
_INTO_XLA = {
    op_types.TEXT: "turn text into numbers before the step, in the input pipeline",
    op_types.PYTHON: (
        "write it with TensorFlow's ops, or call it outside the function that is compiled"
    ),
    op_types.NO_KERNEL: (
        "replace it by ops that XLA compiles, or keep it outside the function that is compiled"
    ),
    op_types.DYNAMIC: (
        "jit_compile=True on its tf.function takes it; or keep the size constant: tf.where(mask, "
        "x, 0)"
    ),
    op_types.RANDOM: "tf.random.stateless_uniform and its siblings can be clustered",
    op_types.EAGER: "move it into the tf.function that the step calls",
    op_types.FELL_BACK: (
        "give every batch the same shape, or set jit_compile=True on the tf.function"
    ),
    op_types.LEFT_OUT: "jit_compile=True on its tf.function compiles it whole",
    op_types.UNASKED: (
        "jit_compile=True on its tf.function or in model.compile, or autocluster=True on the marker"
    ),
}


def compile_cause(
    modules: Sequence[str], changes: Sequence[str] = (), framework: str = TENSORFLOW
) -> dict[str, str]:
    """
    Return `where` and `try` for executables compiled after the first step.

    Args:
        modules: Names of the executables.
        changes: Differences of the first ones from their predecessors.
        framework: The framework that ran the steps.
    """
    left = len(modules) - len(changes)
    described = and_more(changes, len(changes), "; ", left)
    return {
        "where": f"compiled: {described if changes else _tally(map(short_module, modules))}",
        "try": (
            "call the jax.jit function with the same shapes, types and static arguments every time"
            if framework == JAX
            else "give every batch the same shape (batch(..., drop_remainder=True), or pad the "
            "last one)"
        ),
    }


def retrace_cause(
    traced: Iterable[tuple[str, int, str]], framework: str = TENSORFLOW
) -> dict[str, str]:
    """
    Return `where` and `try` for functions traced after the first step.

    Args:
        traced: (function, step, change) of each trace.
        framework: The framework that ran the steps.
    """
    traced = list(traced)
    steps = sorted({step for _, step, _ in traced})
    shown = and_more(list(map(str, steps)), 5)
    return {
        "where": (
            f"traced again: {_tally(_with_change(name, change) for name, _, change in traced)}, "
            f"in step {shown}"
        ),
        "try": _TRACE_ONCE[framework],
    }


_OVERHEAD = (
    "Python code in the step or its loop, with neither TensorFlow nor input active",
    "Python code or JAX's dispatch, with no device active",
)
"""The place of host_overhead, of TensorFlow and of JAX."""
_LESS_OVERHEAD = {
    (False, False): (
        "move the step's Python code into a tf.function, run it less often, or loop over "
        "several steps inside one (steps_per_execution in Keras)"
    ),
    (False, True): (
        "do more in each call of the tf.function (larger batches, or a loop over several steps: "
        "steps_per_execution in Keras), and run less Python between the calls"
    ),
    (True, False): (
        "move the step's Python code into one jax.jit function, loop over several steps "
        "inside it (jax.lax.scan), or load the input ahead (Grain)"
    ),
    (True, True): (
        "do more in each call of the jax.jit function (larger batches, or several steps in a "
        "jax.lax.scan), or load the input ahead (Grain)"
    ),
}
"""Remedies by framework, true for JAX, and true if each step is one call of a function."""
_TRACE_ONCE = {
    TENSORFLOW: "pass tensors instead of Python numbers, keep shapes constant or set "
    "reduce_retracing=True, and create the tf.function once, outside the step",
    JAX: "keep shapes, dtypes and shardings constant (pad the last batch), pass numbers that "
    "change as arrays and not as static arguments, and call jax.jit once, outside the step",
    PYTORCH: "keep shapes and types constant, and numbers that change in tensors; TORCH_LOGS="
    "recompiles names what changed",
}


def _with_change(name: str, change: str) -> str:
    return f"{name} ({change})" if change else name


def dispatch_cause(names: Counter[str], in_keras: bool = False) -> dict[str, str]:
    """
    Return `where` and `try` for functions of JAX's own that a step calls one by one.

    Args:
        names: The functions.
        in_keras: True if the step is a batch of a loop of Keras.
    """
    remedy = "move them into the jax.jit function that the step calls"
    if in_keras:
        remedy = "compile the model with jit_compile=True, and run_eagerly=False"
    return {"where": f"outside jax.jit: {_tally(names.elements())}", "try": remedy}


def transfer_cause(puts: Counter[str], n_reads: int) -> dict[str, str]:
    """
    Return `where` and `try` for arrays that steps of JAX pass to devices and read back.

    Args:
        puts: Arrays by the function whose argument they are, "" for all others.
        n_reads: Number of arrays that Python read.
    """
    named = {name: f"arguments of {name}" if name else "other arrays put" for name in puts}
    found = Counter({named[name]: number for name, number in puts.items()})
    found["read by Python"] += n_reads
    remedy = {
        "jax.device_put the arrays before the step": bool(puts),
        "read results after the loop, or once in many steps": bool(n_reads),
    }
    return {
        "where": f"to and from devices: {_tally(found.elements())}",
        "try": "; ".join(text for text, is_apt in remedy.items() if is_apt),
    }


def eager_cause(types: Counter[str], seen: Iterable[tuple[str, str | None, int]]) -> dict[str, str]:
    """
    Return `where` and `try` for ops that run eagerly.

    Args:
        types: Number of ops by type.
        seen: The user's lines that ran them in one step.
    """
    lines: dict[str, list[str]] = {}
    for op_type, line, _ in seen:
        lines.setdefault(op_type, []).extend([line] if line else [])
    named = {op: f"{op} at {and_more(lines[op], 3)}" for op in types if lines.get(op)}
    return {
        "where": "eager: " + _tally(named.get(op, op) for op in types.elements()),
        "try": "move them into the tf.function that the step calls",
    }


def outside_cause(outside: Sequence[tuple[str, str | None, str, int]]) -> dict[str, str]:
    """
    Return `where` and `try` for ops outside XLA: (type, user's line, reason, number).

    Ops that XLA cannot compile come first.
    """
    shown = [
        op_type
        + (f" ×{count}" if count > 1 else "")
        + f" ({why})"
        + (f" at {line}" if line else "")
        for op_type, line, why, count in outside[:_SHOWN]
    ]
    left = sum(count for *_, count in outside[_SHOWN:])
    return {
        "where": f"outside XLA: {and_more(shown, _SHOWN, '; ', left)}",
        "try": _INTO_XLA[outside[0][2]],
    }


def overhead_cause(framework: str, is_function: bool) -> dict[str, str]:
    """
    Return `where` and `try` for steps whose time goes to Python.

    Args:
        framework: The framework that ran the steps.
        is_function: True if each step is one call of a tf.function or jax.jit function.
    """
    of_jax = framework == JAX
    return {"where": _OVERHEAD[of_jax], "try": _LESS_OVERHEAD[of_jax, is_function]}


def _tally(names: Iterable[str]) -> str:
    counts = Counter(names)
    shown = [name if count == 1 else f"{name} ×{count}" for name, count in counts.most_common()]
    return and_more(shown, 5)

"""Name ops and arrays of Python outside of functions, counted for one step, and their remedies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from pytest_tfperf.quantities import COUNT, format_quantity
from pytest_tfperf.text import and_more

_SHOWN = 5
_PARTS = frozenset(
    {"dynamic_slice", "slice", "squeeze", "_squeeze", "gather", "unstack", "divmod"}
    | {"StridedSlice", "Unpack", "GatherV2"}
)
"""Ops of JAX and TensorFlow that take parts of an array, as `x[i]` and `for row in x` do."""
_CONVERTS = frozenset({"convert_element_type", "broadcast_in_dim"})
"""Functions of JAX with which it makes an array of Python's objects."""
_READ, _LEAST = 0.3, 0.1
"""Least share of ops whose results Python reads, and of those whose remedy is told."""
_INDEX_ON_HOST = "copy the whole array once, rows = np.asarray(x), and take its parts with NumPy"
ARRAY_FIRST = "make one NumPy array first: jnp.asarray(np.asarray(rows))"


def dispatch_cause(
    names: Counter[str], n_steps: int, remedy: str, called: str = ""
) -> dict[str, str]:
    """
    Return `where` and `try` for functions of JAX's own that a step calls one by one.

    Args:
        names: The functions, in all steps together.
        n_steps: The number of steps.
        remedy: The remedy.
        called: What calls them, as far as it is known.
    """
    return {"where": f"outside jax.jit: {_tally(names, n_steps)}{called}", "try": remedy}


def eager_remedies(
    names: Counter[str], n_steps: int, remedy: str, n_reads: float, makes_arrays: bool = False
) -> str:
    """
    Return the remedies of ops that run eagerly, by what they are for.

    Args:
        names: The ops, in all steps together.
        n_steps: The number of steps.
        remedy: The remedy of those that have none of their own.
        n_reads: Arrays that Python reads in a step.
        makes_arrays: True if the step's Python makes arrays of lists above all.
    """
    remedies = Counter[str]()
    for name, number in names.items():
        if name in _PARTS and n_reads >= _READ * names.total() / n_steps:
            remedies[_INDEX_ON_HOST] += number
        elif name in _CONVERTS and makes_arrays:
            remedies[ARRAY_FIRST] += number
        else:
            remedies[remedy] += number
    return "; ".join(text for text, n in remedies.most_common() if n >= _LEAST * names.total())


def transfer_cause(
    puts: Counter[str],
    n_reads: int,
    n_steps: int = 1,
    lines: str = "",
    own: Collection[str] = (),
) -> dict[str, str]:
    """
    Return `where` and `try` for arrays that steps of JAX pass to devices and read back.

    Args:
        puts: Arrays by the function whose argument they are, "" for all others.
        n_reads: Number of arrays that Python read.
        n_steps: The number of steps of both.
        lines: Where Python read them, as far as it is known.
        own: Functions that JAX itself compiles.
    """
    n_own = sum(number for name, number in puts.items() if name in own)
    named = {name: f"arguments of {name}" if name else "other arrays put" for name in puts}
    found = Counter({named[name]: number for name, number in puts.items()})
    found[f"read by Python{lines}"] += n_reads
    remedies = Counter({"jax.device_put the arrays before the step": puts.total() - n_own})
    remedies["move the ops outside jax.jit into it, with the numbers that they take"] = n_own
    remedies["read results after the loop, or once in many steps"] = n_reads
    return {
        "where": f"to and from devices: {_tally(found, n_steps)}",
        "try": "; ".join(text for text, number in remedies.most_common() if number),
    }


def eager_cause(
    types: Counter[str],
    seen: Iterable[tuple[str, str | None, int]],
    callbacks: Mapping[str, str],
    remedy: str,
    n_steps: int = 1,
) -> dict[str, str]:
    """
    Return `where` and `try` for ops that run eagerly.

    Args:
        types: Number of ops by type, in all steps together.
        seen: The user's lines that ran them in one step.
        callbacks: The method of a Keras callback in which a line is, by line.
        remedy: The remedy of ops that are in no callback.
        n_steps: The number of steps.
    """
    lines: dict[str, dict[str, None]] = {}
    n_in = Counter[str]()
    for op_type, line, count in seen:
        lines.setdefault(op_type, {}).update({line: None} if line else {})
        n_in[callbacks.get(line or "", "")] += count if line else 0
    n_out = n_in.pop("", 0)
    named = {op: f"{op} at {and_more(list(lines[op]), 3)}" for op in types if lines.get(op)}
    tally = _tally({named.get(op, op): number for op, number in types.items()}, n_steps)
    where = f"eager: {tally}"
    methods = and_more([name for name, _ in n_in.most_common()], 3)
    every_n = f"do it every n batches in {methods}, or at the end of the epoch"
    remedies = [(n_out, remedy)] if n_out or not n_in else []
    if n_in:
        where += f"; in the callback {methods}"
        remedies.append((n_in.total(), every_n))
    remedies.sort(key=lambda one: -one[0])
    return {"where": where, "try": "; ".join(text for _, text in remedies)}


def _tally(counts: Mapping[str, int], n_steps: int) -> str:
    """Return names with how often each is there in a step, the most frequent first."""
    each = {name: number / n_steps for name, number in Counter(counts).most_common() if number}
    shown = [
        name if number == 1 else f"{name} ×{format_quantity(number, COUNT)}"
        for name, number in each.items()
    ]
    return and_more(shown, _SHOWN)

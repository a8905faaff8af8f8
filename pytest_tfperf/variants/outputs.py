"""Compare the outputs of variants, leaf by leaf within a tolerance."""

from __future__ import annotations

import base64
import importlib
import math
import numbers
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_tfperf.frameworks.jax import loaded_jax
from pytest_tfperf.frameworks.tensorflow import loaded_tensorflow
from pytest_tfperf.text import and_more
from pytest_tfperf.values import Json

__tracebackhide__ = True


def leaves_to_json(leaves: Leaves) -> Json:
    """Return tensors and arrays as bits, plain values, and for other objects their type."""
    return {path: _to_json(leaf) for path, leaf in leaves.items()}


def leaves_from_json(data: Json) -> Leaves:
    """Return the inverse; an object of another type becomes an empty one of a type of that name."""
    return {path: _from_json(leaf) for path, leaf in data.items()}


def _to_json(leaf: Any) -> Json:
    if leaf is None or isinstance(leaf, (bool, int, float, str)):
        return {"plain": leaf}
    array = _array(leaf)
    if array is None or array.dtype.names:
        return {"type": type(leaf).__name__}
    if array.dtype.kind in "OSU":
        encoded = [base64.b64encode(_as_bytes(text)).decode() for text in array.ravel().tolist()]
        return {"texts": encoded, "shape": list(array.shape)}
    bits = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": array.dtype.name, "bits": bits, "shape": list(array.shape)}


def _from_json(data: Json) -> Any:
    if "plain" in data:
        return data["plain"]
    if "texts" in data:
        texts = np.array([base64.b64decode(text) for text in data["texts"]], object)
        return texts.reshape(data["shape"])
    if "bits" in data:
        bits = base64.b64decode(data["bits"])
        return np.frombuffer(bits, _dtype(data["dtype"])).reshape(data["shape"])
    return type(data["type"], (), {})()


def _as_bytes(text: Any) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode()


def _dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype of a name; those of narrow floats come from a package of their own."""
    try:
        found: np.dtype[Any] = np.dtype(name)
    except TypeError:
        found = np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    return found


Leaves = Mapping[str, Any]
"""The output of a step: each leaf by its path, as it was at the time."""

_BY_DTYPE = {
    "float64": (1e-7, 1e-9),
    "complex128": (1e-7, 1e-9),
    "float32": (1e-4, 1e-5),
    "complex64": (1e-4, 1e-5),
    "float16": (1e-2, 1e-2),
    "bfloat16": (1e-2, 1e-2),
}
"""rtol and atol: some thousand times the rounding of one operation; XLA and oneDNN reorder sums."""
_NARROWEST = (1e-1, 1e-1)  # float8 and the like: three bits of mantissa or fewer
_EXACT = (0.0, 0.0)
_FEW = 3
_TRY = (
    "\n  try: a looser rtol= or atol=, if that is rounding; check_outputs=False, "
    "if they are meant to differ, or are random in each call as with dropout or shuffling"
)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Values may differ by atol + rtol × the value of the first variant."""

    rtol: float | None = None
    """Relative tolerance; None for that of the narrower dtype."""
    atol: float | None = None
    """Absolute tolerance; None for that of the narrower dtype."""

    def __post_init__(self) -> None:
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, numbers.Real)
            ):
                raise TypeError(f"{name} is a number, not {value!r}")
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} is at least 0 and finite, not {value!r}")

    def between(self, first: Any, second: Any) -> tuple[float, float]:
        """Return rtol and atol for two leaves."""
        rtol, atol = max(_default(first), _default(second))
        return rtol if self.rtol is None else self.rtol, atol if self.atol is None else self.atol


def leaves_of(output: Any) -> Leaves:
    """Return the leaves of an output by path, with the present values of variables and arrays."""
    return dict(_leaves(output, "output"))


def check_outputs(outputs: Mapping[str, Leaves], tolerance: Tolerance) -> tuple[str, ...]:
    """
    Compare the outputs of all variants with the first, and return what could not be compared.

    A leaf that is missing, has another shape or differs by too much raises AssertionError.
    """
    (first, expected), *others = outputs.items()
    for name, found in others:
        differences = [_missing(first, path, found, name) for path in expected if path not in found]
        differences += [
            _missing(name, path, expected, first) for path in found if path not in expected
        ]
        differences += [
            text
            for path in expected
            if path in found
            if (text := _difference(path, expected[path], found[path], tolerance))
        ]
        if differences:
            shown = and_more(differences, _FEW, "\n  ")
            raise AssertionError(
                f"variants {first!r} and {name!r} return different outputs in their first step:"
                f"\n  {shown}{_TRY}"
            )
    kinds = sorted(
        {
            type(leaf).__name__
            for leaf in expected.values()
            if leaf is not None and _array(leaf) is None
        }
    )
    notes = [f"outputs of type {', '.join(kinds)} were not compared"] if kinds else []
    nothing = all(leaf is None or _array(leaf) is None for leaf in expected.values())
    return (
        (*notes, "the variants return no values, so it is not known whether they compute the same")
        if nothing
        else tuple(notes)
    )


def distance(first: Any, second: Any) -> float:
    """Return the root of the summed squares of differences, infinite where there are none."""
    left, right = _array(first), _array(second)
    if left is None or right is None or left.shape != right.shape or _is_text(left):
        return math.inf
    _, by = _beyond(left, right, 0.0, 0.0)
    return float(np.linalg.norm(by))


def _leaves(output: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(output, Mapping):
        children = [(f"{path}[{key!r}]", child) for key, child in output.items()]
    elif isinstance(output, tuple) and hasattr(output, "_fields"):
        children = [(f"{path}.{name}", getattr(output, name)) for name in output._fields]
    elif isinstance(output, (tuple, list)):
        children = [(f"{path}[{index}]", child) for index, child in enumerate(output)]
    else:
        yield from _parts(output, path)
        return
    for child_path, child in children:
        yield from _leaves(child, child_path)


def _parts(leaf: Any, path: str) -> Iterator[tuple[str, Any]]:
    """
    Yield a leaf, with its present values.

    The tensors of a sparse or ragged one, and the leaves of a pytree that JAX knows, come alone.
    """
    tf, jax = loaded_tensorflow(), loaded_jax()
    if tf is not None and isinstance(leaf, (tf.SparseTensor, tf.RaggedTensor, tf.IndexedSlices)):
        for index, part in enumerate(tf.nest.flatten(leaf, expand_composites=True)):
            yield f"{path} ({type(leaf).__name__}, part {index})", part
        return
    if leaf is not None and jax is not None and _array(leaf) is None:
        for key, part in jax.tree_util.tree_flatten_with_path(leaf)[0]:
            yield f"{path}{jax.tree_util.keystr(key)}", _kept(part)
        return
    yield path, _kept(leaf)


def _kept(leaf: Any) -> Any:
    """Return a leaf, or a copy of its values if a later step may change or donate them."""
    jax = loaded_jax()
    is_of_jax = jax is not None and isinstance(leaf, jax.Array)
    changes = is_of_jax or hasattr(leaf, "assign") or isinstance(leaf, np.ndarray)
    array = _array(leaf) if changes else None
    return leaf if array is None else np.array(array)


def _array(leaf: Any) -> Any:
    """Return a leaf as a numpy array; None if it is not one."""
    if hasattr(leaf, "numpy") and getattr(leaf.dtype, "name", "") not in ("resource", "variant"):
        detached = leaf.detach().cpu() if hasattr(leaf, "detach") else leaf  # of PyTorch
        return np.asarray(detached.numpy())
    plain = (bool, int, float, complex, str, bytes, np.ndarray, np.generic)
    if isinstance(leaf, plain) or (hasattr(leaf, "assign") and hasattr(leaf, "__array__")):
        return np.asarray(leaf)
    return _array_of_jax(leaf)


def _array_of_jax(leaf: Any) -> Any:
    """Return an array of JAX as one of NumPy; None for others, random keys and donated buffers."""
    jax = loaded_jax()
    if jax is None or not isinstance(leaf, jax.Array) or leaf.is_deleted():
        return None
    return None if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else np.asarray(leaf)


def _default(leaf: Any) -> tuple[float, float]:
    """Return rtol and atol for a leaf; a Python float was most likely computed as a float32."""
    dtype = np.dtype(np.float32) if type(leaf) is float else np.asarray(_array(leaf)).dtype
    if np.issubdtype(dtype, np.integer) or dtype == np.bool_ or "int" in dtype.name:
        return _EXACT
    return _BY_DTYPE.get(dtype.name, _NARROWEST)


def _missing(variant: str, path: str, others: Leaves, other: str) -> str:
    returned = ", ".join(list(others)[:_FEW]) or "nothing"
    return f"{path} of {variant!r} is not there in {other!r}, which gives {returned}"


def _difference(path: str, first: Any, second: Any, tolerance: Tolerance) -> str | None:
    """Return how two leaves differ; None if they agree, or cannot be compared."""
    left, right = _array(first), _array(second)
    if left is None or right is None:
        # a value of another process has a class of the same name
        if left is right is None and type(first).__name__ == type(second).__name__:
            return None
        return f"{path} is {_described(first, left)} against {_described(second, right)}"
    if left.shape != right.shape or _is_text(left) != _is_text(right):
        return f"{path} is {_described(first, left)} against {_described(second, right)}"
    bounds = _EXACT if _is_text(left) else tolerance.between(first, second)
    bad, by = _beyond(left, right, *bounds)
    if not bad.any():
        return None
    worst = np.unravel_index(int(np.argmax(np.where(bad, by, -1.0))), bad.shape)
    size = "" if _is_text(left) else f"by up to {by[worst]:.3g} "
    within = "" if _is_text(left) else f", with rtol={bounds[0]:g} and atol={bounds[1]:g}"
    where = f"at [{', '.join(map(str, worst))}] " if worst else ""
    many = f", in {int(bad.sum())} of {bad.size} values" if bad.size > 1 else ""
    values = f"({left[worst]} against {right[worst]})"
    return f"{path}, {_described(first, left)}, differs {size}{where}{values}{many}{within}"


def _beyond(left: Any, right: Any, rtol: float, atol: float) -> tuple[Any, Any]:
    """Return where two arrays differ by more than is allowed, and by how much; NaNs are alike."""
    if _is_text(left):
        return np.asarray(left != right), np.zeros(left.shape)
    alike = np.asarray(left == right)
    wide = np.complex128 if np.iscomplexobj(left) or np.iscomplexobj(right) else np.float64
    left, right = left.astype(wide), right.astype(wide)
    finite = np.isfinite(left) & np.isfinite(right)
    with np.errstate(invalid="ignore"):
        by = np.where(finite, np.abs(left - right), np.inf)
        close = finite & (by <= atol + rtol * np.abs(left)) & (by > 0)
    return ~(alike | close | (np.isnan(left) & np.isnan(right))), by


def _is_text(array: Any) -> bool:
    return array.dtype.kind in "OSU"


def _described(leaf: Any, array: Any) -> str:
    if array is None:
        return "None" if leaf is None else f"a value of type {type(leaf).__name__}"
    return f"{'text' if _is_text(array) else array.dtype.name}[{','.join(map(str, array.shape))}]"

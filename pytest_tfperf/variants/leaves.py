"""What a step returned, as JSON: how the outputs of two processes meet."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from pytest_tfperf.results import Json
from pytest_tfperf.tf_runtime import load_tensorflow
from pytest_tfperf.variants.outputs import Leaves


def leaves_to_json(leaves: Leaves) -> Json:
    """Tensors and arrays with their bits, plain values as they are, of anything else the name of its type."""
    return {path: _to_json(leaf) for path, leaf in leaves.items()}


def leaves_from_json(data: Json) -> Leaves:
    """The inverse; what was of another type is an empty object of a type with that name."""
    return {path: _from_json(leaf) for path, leaf in data.items()}


def _to_json(leaf: Any) -> Json:
    if leaf is None or isinstance(leaf, (bool, int, float, str)):
        return {"plain": leaf}
    tf = load_tensorflow()
    if isinstance(leaf, (bytes, complex, tf.Tensor, np.ndarray, np.generic)) and _dtype_name(leaf) not in (
        "resource",
        "variant",
        "object",
    ):
        tensor = tf.convert_to_tensor(leaf)
        return {"dtype": tensor.dtype.name, "tensor": base64.b64encode(tf.io.serialize_tensor(tensor).numpy()).decode()}
    return {"type": type(leaf).__name__}


def _from_json(data: Json) -> Any:
    if "plain" in data:
        return data["plain"]
    if "tensor" in data:
        tf = load_tensorflow()
        return tf.io.parse_tensor(base64.b64decode(data["tensor"]), data["dtype"])
    return type(data["type"], (), {})()


def _dtype_name(leaf: Any) -> str:
    return str(getattr(getattr(leaf, "dtype", None), "name", ""))

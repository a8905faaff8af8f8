"""The stages of a step's input data: of a tf.data.Dataset, of arrays, or of Python code."""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType
from typing import Any

from pytest_tfperf.compiler.datasets import pipeline_stages
from pytest_tfperf.compiler.functions import Unsupported
from pytest_tfperf.compiler.source_lines import line_of_code
from pytest_tfperf.frameworks.tensorflow import loaded_tensorflow
from pytest_tfperf.recording import UNSEEN, PipelineStage
from pytest_tfperf.values import Unknown

_PY_DATASET = "PyDataset"
_HOLDERS = ("_original_dataset", "_dataset", "_iterator")
"""Attributes in which TensorFlow's iterators and distributed datasets hold a dataset."""
_DEEPEST = 5  # an iterator of an iterator of a dataset, and some more
_ITERATES = ("__next__", "__getitem__", "__iter__")
"""Methods that make the elements; the first one that is written in Python tells its line."""
_HIDDEN = (
    "the data are {}, and the stages behind it are not visible; pass the tf.data.Dataset itself"
)


def stages_of(data: Any, by_keras: bool = False) -> tuple[PipelineStage, ...] | Unknown:
    """
    Return the stages of input data, from the source to the step, or a reason why not.

    Args:
        data: The data.
        by_keras: True if Keras makes a pipeline of arrays.
    """
    if data is None:
        return UNSEEN
    try:
        return _stages_of(_dataset_in(data), by_keras)
    except Unsupported as error:
        return Unknown(str(error))
    except Exception as error:  # the user's data may be anything
        return Unknown(
            f"the input pipeline could not be read: {type(error).__name__}: {error!s:.80}"
        )


def _dataset_in(data: Any) -> Any:
    """Return the dataset that an iterator or a distributed dataset of TensorFlow holds."""
    tf = loaded_tensorflow()
    for _ in range(_DEEPEST):
        if tf is None or isinstance(data, tf.data.Dataset) or not _is_of_tensorflow(data):
            break
        # private: 2.18 to 2.22
        held = (getattr(data, name, None) for name in _HOLDERS)
        data = next((one for one in held if one is not None), data)
    return data


def _stages_of(data: Any, by_keras: bool) -> tuple[PipelineStage, ...] | Unknown:
    kind, tf = type(data).__name__, loaded_tensorflow()
    if tf is not None and isinstance(data, tf.data.Dataset):
        return pipeline_stages(data)
    if _is_of_tensorflow(data) and not hasattr(data, "shape"):
        return Unknown(_HIDDEN.format(kind))
    if hasattr(data, "shape") or isinstance(data, (list, tuple, Mapping)):
        return (PipelineStage(stage=kind, by_keras=by_keras),)
    code = getattr(data, "gi_code", None)
    codes = [code] if code else [_code(data, name) for name in _ITERATES]
    codes = [code for code in codes if code is not None]
    if not codes:
        return Unknown(_HIDDEN.format(kind))
    line = next((line for code in codes if (line := line_of_code(code))), None)
    python = "generator" if kind == "generator" else _python_kind(data)
    is_py_dataset = python == _PY_DATASET
    return (PipelineStage(stage=kind, python=python, line=line, by_keras=is_py_dataset),)


def _python_kind(data: Any) -> str:
    keras = [base for base in type(data).__mro__ if "keras" in base.__module__]
    names = {base.__name__ for base in keras}
    return _PY_DATASET if names & {"PyDataset", "Sequence"} else "Python iterable"


def _code(data: Any, name: str) -> CodeType | None:
    return getattr(getattr(type(data), name, None), "__code__", None)


def _is_of_tensorflow(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "tensorflow"

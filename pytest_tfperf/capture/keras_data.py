"""The call of a Keras loop: its library, arguments, workload, and a sample of its batches."""

from __future__ import annotations

import importlib
import inspect
import itertools
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from pytest_tfperf.capture.input_data import (
    MOST_ELEMENTS,
    NOTHING_TO_PAD,
    Elements,
    could_be_padded,
    elements_to_keep,
)
from pytest_tfperf.capture.loop import workload_of
from pytest_tfperf.compiler.datasets import batch_size
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.in_use import is_installed, leaves, mapped
from pytest_tfperf.frameworks.tensorflow import loaded_tensorflow, unseen

__tracebackhide__ = True

_MOST_S = 1.0
_BATCH = 32  # the default of Keras
_SEEN_BATCHES = 5
_ONCE = (
    "the data are a generator or another iterator, and a sample would use it up; pass a "
    "tf.data.Dataset, arrays or a PyDataset"
)
_UNKNOWN = "tfperf does not know how to sample the loop's data again: {}"
_LIBRARIES = ("keras", "tf_keras")
_BACKENDS = ("tensorflow", "jax", "torch")
_OTHER_BACKEND = (
    "{} runs on Keras' {} backend, and tfperf profiles TensorFlow, JAX and PyTorch only: set "
    "KERAS_BACKEND to one of these for this test"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KerasCall:
    """One call of `fit`, `evaluate` or `predict`."""

    bound: Callable[..., Any]
    model: Any
    method: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    examples: float | None = None
    """Examples in a batch, if the user says it."""

    @classmethod
    def of(
        cls,
        model: Any,
        method: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        examples: float | None = None,
    ) -> KerasCall:
        """Return the call of a method. Raises: TypeError for no model, or for wrong arguments."""
        bound = getattr(model, method, None)
        if bound is None or library_of(model) is None:
            raise TypeError(
                f"tf_profile.{method} takes a Keras model and then the arguments of its "
                f"{method}, but got {type(model).__name__}"
            )
        try:
            inspect.signature(bound).bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"tf_profile.{method}: {error}") from None
        return cls(
            bound=bound, model=model, method=method, args=args, kwargs=kwargs, examples=examples
        )

    @property
    def library(self) -> Any:
        """The module keras or tf_keras."""
        return library_of(self.model)

    def run(self) -> Any:
        """Run the loop; return its result."""
        return self.bound(*self.args, **self.kwargs)

    def argument(self, name: str) -> Any:
        """Return the argument of a parameter, None if it was not passed."""
        bound = inspect.signature(self.bound).bind(*self.args, **self.kwargs).arguments
        return bound.get(name, self.kwargs.get(name))

    def data(self) -> Any:
        """Return the input data: `x`, or the first argument of a method without that parameter."""
        data = self.argument("x")
        return self.args[0] if data is None and self.args else data


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """The shape and type of batches of an array; a leaf of a nest."""

    shape: tuple[int | None, ...]
    """Their shape; the number of examples is open."""
    dtype: Any
    """Their type."""


def _replicas(model: Any) -> int:
    """Return the number of replicas; only Keras on TensorFlow has a strategy."""
    strategy = getattr(model, "distribute_strategy", None)
    return 1 if strategy is None else int(strategy.num_replicas_in_sync)


def steps_per_execution(model: Any) -> int:
    """Return the batches of one execution; Keras 2 has none for a model that is not compiled."""
    per_execution = model.steps_per_execution
    if hasattr(per_execution, "numpy"):  # a variable in Keras 2, of all replicas under a strategy
        per_execution = per_execution.numpy()
    return 1 if per_execution is None else int(per_execution)


def keras_workload(call: KerasCall) -> Mapping[str, Any]:
    """
    Return the signature of a loop's input. Raises: CaptureError on another backend than TensorFlow.

    It holds `dtype[shape]` of each array or dataset component, the batch size if known, the steps
    per execution, and the number of replicas.
    """
    check_backend(call.library, call.method)
    data = call.data()
    execution = {
        "steps_per_execution": steps_per_execution(call.model),
        "replicas": _replicas(call.model),
    }
    if _is_py_dataset(data):
        return {**workload_of(data[0]), **execution}
    spec = getattr(data, "element_spec", None)
    if spec is None:
        arrays = [
            item
            for item in leaves([data, call.argument("y")])
            if hasattr(item, "shape") and hasattr(item, "dtype")
        ]
        spec = [ArraySpec((None, *array.shape[1:]), array.dtype) for array in arrays]
        batch = call.argument("batch_size") or _BATCH if arrays else None
    else:
        batch = workload_of(spec)["batch"] or batch_size(data)
    inputs = workload_of(spec)["inputs"] or [type(data).__name__]
    return {"inputs": inputs, "batch": batch, **execution}


def examples_per_step(call: KerasCall, workload: Mapping[str, Any]) -> float | None:
    """
    Return what the user says, else the mean batch size of arrays, whose last batch may be smaller.

    Rows of `validation_split` are in no batch. It is None if unknown.
    """
    if call.examples is not None:
        return call.examples
    arrays = leaves(call.data())
    batch: int | None = workload["batch"]
    if not batch or not arrays or not all(map(_is_array, arrays)):
        return None
    n_rows = len(arrays[0])
    if (split := call.argument("validation_split")) and call.argument("validation_data") is None:
        n_rows = math.floor(n_rows * (1 - split))
    n_epochs = (call.argument("epochs") or 1) - (call.argument("initial_epoch") or 0)
    steps = call.argument("steps_per_epoch" if call.method == "fit" else "steps")
    if steps and steps * n_epochs <= n_rows // batch:  # which end before the smaller batch
        return float(batch)
    return n_rows / math.ceil(n_rows / batch)


def _is_array(one: Any) -> bool:
    return hasattr(one, "shape") and hasattr(one, "__len__")


def noting_first_batch(call: KerasCall) -> tuple[KerasCall, list[Any]]:
    """Return the call, and a list that receives the first batch of a generator, drawn only once."""
    first: list[Any] = []
    data = call.data()
    if not inspect.isgenerator(data):
        return call, first

    def noting() -> Iterator[Any]:  # a generator too, since Keras 3 takes no other iterator
        for batch in data:
            if not first:
                first.append(batch)
            yield batch

    watched = noting()
    args = tuple(watched if value is data else value for value in call.args)
    kwargs = {key: watched if value is data else value for key, value in call.kwargs.items()}
    return replace(call, args=args, kwargs=kwargs), first


def with_seen_batch(workload: Mapping[str, Any], elements: Elements) -> Mapping[str, Any]:
    """
    Return the workload with a batch size that the data's signature hides, if batches agree on it.
    """
    if workload["batch"] is not None or not elements.kept:
        return workload
    # The last one may be the smaller batch at the end of the data.
    full = [workload_of(batch) for batch in elements.kept[:-1] or elements.kept]
    seen = full[0]
    if any(one["batch"] != seen["batch"] for one in full):
        return workload
    return {**workload, **(seen if elements.why == _ONCE else {"batch": seen["batch"]})}


@unseen()
def sample_again(call: KerasCall, hidden: bool = False, first: Sequence[Any] = ()) -> Elements:
    """
    Return the first batches of a loop's data, drawn again after the loop: Keras shows none.

    Draws at most 20 batches and stops after a second. Only data that can be iterated again are
    sampled; of a generator, `first` is kept. Of a pipeline that could not pad it draws a few
    batches, if its signature hides the batch size. A pipeline that shuffles gives other batches
    than the steps had, and its sequence of random numbers moves on.
    """
    data = call.data()
    try:
        if hasattr(data, "__next__"):
            return Elements(data=data, kept=list(first), why=_ONCE)
        if hasattr(data, "element_spec") and not could_be_padded(data.element_spec, data):
            kept = list(itertools.islice(data, _SEEN_BATCHES)) if hidden else []
            return Elements(data=data, kept=kept, why=NOTHING_TO_PAD)
        batches = _batches(data, call.argument("y"), call.argument("batch_size") or _BATCH)
        if batches is None:
            return Elements(data=data, why=_UNKNOWN.format(type(data).__qualname__))
        return Elements(data=data, kept=_first(batches), why=None, sampled=True)
    except Exception as error:  # the user's data may fail when they are iterated once more
        return Elements(
            why=f"the data could not be sampled again: {type(error).__name__}: {error!s:.80}"
        )


def _is_py_dataset(data: Any) -> bool:
    """Return whether it is a PyDataset of Keras 3, with `num_batches`, or a Sequence of Keras 2."""
    return (
        hasattr(data, "__getitem__")
        and (hasattr(type(data), "num_batches") or hasattr(data, "__len__"))
        and not hasattr(data, "shape")
        and not isinstance(data, (list, tuple, dict))
    )


def _batches(data: Any, labels: Any, batch: int) -> Iterable[Any] | None:
    if hasattr(data, "element_spec"):
        return data  # type: ignore[no-any-return]
    if _is_py_dataset(data):
        n_batches = getattr(data, "num_batches", None)  # None: without an end
        if n_batches is None and hasattr(data, "__len__"):
            n_batches = len(data)
        indices = itertools.count() if n_batches is None else range(n_batches)
        return (data[index] for index in indices)
    arrays = {key: value for key, value in (("x", data), ("y", labels)) if value is not None}
    found = leaves(arrays)
    if not found or not all(
        hasattr(leaf, "shape") and hasattr(leaf, "__getitem__") for leaf in found
    ):
        return None
    return _slices(arrays, found[0].shape[0], batch)


def _slices(arrays: Any, n_rows: int, batch: int) -> Iterator[Any]:
    return (
        mapped(lambda leaf, at=start: leaf[at : at + batch], arrays)  # type: ignore[misc]
        for start in range(0, n_rows, batch)
    )


def _first(batches: Iterable[Any]) -> list[Any]:
    """Return the first batches: at most 20, and no more after a second."""
    deadline, most, kept = perf_counter() + _MOST_S, MOST_ELEMENTS, list[Any]()
    for element in batches:
        kept.append(element)
        if len(kept) == 1:
            most = elements_to_keep(element)
        if len(kept) >= most or perf_counter() > deadline:
            break
    return kept


def library_of(thing: Any) -> Any:
    """Return the module keras or tf_keras that a model or optimizer is from, None for others."""
    packages = {base.__module__.partition(".")[0] for base in type(thing).__mro__}
    name = next((name for name in _LIBRARIES if name in packages), None)
    return None if name is None else importlib.import_module(name)


def libraries_in_use() -> list[Any]:
    """
    Return the libraries that a test may call: those loaded, and the one that is `tf.keras`.

    The latter would import TensorFlow, so it counts only where TensorFlow is loaded or the
    environment names a backend.
    """
    legacy = os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")
    may_import = loaded_tensorflow() is not None or "KERAS_BACKEND" in os.environ
    chosen = ("tf_keras" if legacy else "keras") if may_import else ""
    return [
        importlib.import_module(name)
        for name in _LIBRARIES
        if name in sys.modules or (name == chosen and is_installed(name))
    ]


def epoch_iterators() -> list[Any]:
    """Return the classes whose iterators Keras fetches elements from, where TensorFlow does not."""
    # private: `_get_iterator` of Keras 3's epoch iterators (3.5 to 3.15)
    trainer = sys.modules.get("keras.src.backend.jax.trainer")
    found = getattr(trainer, "JAXEpochIterator", None)
    return [found] if found is not None and "_get_iterator" in vars(found) else []


def check_backend(library: Any, method: str) -> None:
    """Refuse a loop on a backend that cannot be profiled; Keras 2 always runs on TensorFlow."""
    backend = library.config.backend() if hasattr(library, "config") else "tensorflow"
    if backend not in _BACKENDS:
        raise CaptureError(_OTHER_BACKEND.format(method, backend))

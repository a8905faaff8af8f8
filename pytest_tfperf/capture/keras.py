"""
Windows in Keras loops: one call of `fit`, `evaluate` or `predict` with the user's own arguments.

Keras 3 marks no steps, so its `CallbackList` is wrapped while the loop runs: a step lasts from before the user's
`on_*_batch_begin` to after their `on_*_batch_end`. Everything is put back afterwards.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from pytest_tfperf.capture.loop import workload_of
from pytest_tfperf.capture.windows import Windows
from pytest_tfperf.compiler.datasets import batch_size
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.tf_runtime import load_tensorflow

__tracebackhide__ = True

KINDS = {"fit": "train", "evaluate": "test", "predict": "predict"}
_STOP = {"fit": "stop_training", "evaluate": "stop_evaluating", "predict": "stop_predicting"}

Open = Callable[[int | None, int], Windows]
"""Opens the windows, given how many executions the loop has (None where unknown) and the steps of one."""


def run_keras(
    call: Callable[..., Any],
    model: Any,
    method: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    open_windows: Open,
    stop: bool,
) -> tuple[Any, Windows]:
    """
    Run `call(*args, **kwargs)`, which is `method` of the model, with windows in its loop; what it returned, and the windows.

    With `stop` the loop is ended, by Keras' own flag, when the windows are full.

    Raises:
        CaptureError: If a callback runs the profiler itself, or the loop ran no batch.
    """
    _refuse_profiling_callbacks(method, kwargs.get("callbacks"))
    loop = _Loop(model, method, open_windows, stop, kwargs.get("initial_epoch", 0))
    try:
        with loop.hooked():
            result = call(*args, **kwargs)
    except BaseException:
        if loop.windows is not None:
            loop.windows.close()
        raise
    if loop.windows is None or not loop.windows.n_steps:
        raise CaptureError(f"{method} ran no batch, so there was no step to profile")
    if stop:
        setattr(model, _STOP[method], False)
    if not loop.windows.done:
        loop.windows.close(
            f"{method} ended after {loop.windows.n_steps} executions, before all windows were full; give it more data or epochs"
        )
    return result, loop.windows


@contextmanager
def loops_replaced(profiled: Callable[..., Any]) -> Iterator[None]:
    """
    Within the context, every outermost `fit`, `evaluate` and `predict` of Keras models goes through `profiled`.

    It is called as `profiled(call, model, method, args, kwargs)` and gives what the loop returns.
    """
    import keras

    running = False

    def replacing(method: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def replacement(model: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal running
            call = original.__get__(model)
            if running:
                return call(*args, **kwargs)
            running = True
            try:
                return profiled(call, model, method, args, kwargs)
            finally:
                running = False

        return replacement

    with ExitStack() as stack:
        for method in KINDS:
            owner = next(base for base in keras.Model.__mro__ if method in vars(base))
            stack.enter_context(_replaced(owner, method, replacing(method, vars(owner)[method])))
        yield


def run_one_batch(
    call: Callable[..., Any],
    model: Any,
    method: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> None:
    """Run the loop, unprofiled, and end it after its first batch."""
    import keras

    owner, name = keras.callbacks.CallbackList, f"on_{KINDS[method]}_batch_end"
    original = getattr(owner, name)

    def ending(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        setattr(model, _STOP[method], True)

    with _replaced(owner, name, ending):
        call(*args, **kwargs)


def keras_workload(
    call: Callable[..., Any], model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Mapping[str, Any]:
    """
    The signature of a Keras loop's input: `dtype[shape]` of each array or dataset component, batch size where it is
    known, steps per execution, replicas.
    """
    given = inspect.signature(call).bind(*args, **kwargs).arguments
    data = given.get("x", kwargs.get("x", args[0] if args else None))
    if (
        hasattr(data, "__getitem__")
        and hasattr(data, "__len__")
        and not hasattr(data, "shape")
        and not isinstance(data, (list, tuple, dict))
    ):
        return {**workload_of(data[0]), **_execution(model)}  # a PyDataset: its first batch
    spec = getattr(data, "element_spec", None)
    if spec is None:
        tf = load_tensorflow()
        arrays = [
            item
            for item in tf.nest.flatten([data, given.get("y")])
            if hasattr(item, "shape") and hasattr(item, "dtype")
        ]
        spec = [tf.TensorSpec((None, *array.shape[1:]), array.dtype) for array in arrays]
        batch = given.get("batch_size") or 32 if arrays else None
    else:
        batch = workload_of(spec)["batch"] or batch_size(data)
    return {
        "inputs": workload_of(spec)["inputs"] or [type(data).__name__],
        "batch": batch,
        **_execution(model),
    }


def examples_per_step(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], workload: Mapping[str, Any]
) -> float | None:
    """The mean number of examples in a batch of arrays, whose last one may be smaller; None where that is not known."""
    data: Any = kwargs.get("x", args[0] if args else None)
    batch: int | None = workload["batch"]
    if not batch or not hasattr(data, "shape") or not hasattr(data, "__len__"):
        return None
    return len(data) / math.ceil(len(data) / batch)


def _execution(model: Any) -> dict[str, int]:
    return {
        "steps_per_execution": int(model.steps_per_execution),
        "replicas": int(model.distribute_strategy.num_replicas_in_sync),
    }


class _Loop:
    """The hooks of one Keras loop, and the windows they drive."""

    def __init__(
        self, model: Any, method: str, open_windows: Open, stop: bool, first_epoch: int
    ) -> None:
        self.windows: Windows | None = None
        self._first_epoch = first_epoch
        self._n_batches = 0
        self._model, self._method, self._open, self._stop = model, method, open_windows, stop
        self._in_batch = self._in_end = False

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Wrap the callbacks of this loop."""
        import keras

        kind = KINDS[self._method]
        hooks: dict[str, tuple[Callable[..., None], bool]] = {
            f"on_{kind}_begin": (self._begin_loop, False),
            f"on_{kind}_batch_begin": (self._begin_batch, True),
            f"on_{kind}_batch_end": (self._end_batch, False),
            f"on_{kind}_batch_end ": (self._batch_ends, True),
        }
        if kind == "train":
            hooks["on_test_begin"] = (self._leave_steps, True)
        with ExitStack() as stack:
            for title, (hook, before) in hooks.items():
                name = title.strip()  # the end of a batch has two hooks
                wrapped = self._wrap(getattr(keras.callbacks.CallbackList, name), hook, before)
                stack.enter_context(_replaced(keras.callbacks.CallbackList, name, wrapped))
            yield

    def _wrap(
        self, original: Callable[..., Any], hook: Callable[..., None], before: bool
    ) -> Callable[..., Any]:
        def wrapper(callbacks: Any, *args: Any, **kwargs: Any) -> Any:
            mine = getattr(callbacks, "model", None) in (self._model, None)
            if mine and before:
                hook(callbacks, *args)
            result = original(callbacks, *args, **kwargs)
            if mine and not before:
                hook(callbacks, *args)
            return result

        return wrapper

    def _begin_loop(self, callbacks: Any, *_: Any) -> None:
        if self.windows is None:
            per_execution = int(self._model.steps_per_execution)
            self._n_batches = int((getattr(callbacks, "params", None) or {}).get("steps") or 0)
            n_executions = _executions(callbacks, self._method, per_execution, self._first_epoch)
            self.windows = self._open(n_executions, per_execution)

    def _begin_batch(self, _: Any, batch: int, *__: Any) -> None:
        windows = self._open_windows()
        if windows is None:
            return
        if self._in_batch:
            windows.abort()  # the data ended inside the step: Keras only then knows that the epoch is over
        elif batch == 0 and windows.n_steps:
            windows.turn_over()
        self._in_batch = True
        windows.begin(self._batches_from(batch))

    def _end_batch(self, *_: Any) -> None:
        windows = self._open_windows()
        if windows is None:
            return
        self._in_batch = self._in_end = False
        windows.end()
        if windows.done and self._stop:
            setattr(self._model, _STOP[self._method], True)

    def _batch_ends(self, *_: Any) -> None:
        self._in_end = True

    def _batches_from(self, batch: int) -> int:
        """How many batches the execution has that begins with this one: the last of an epoch may have fewer."""
        per_execution = int(self._model.steps_per_execution)
        return (
            per_execution
            if not self._n_batches
            else max(1, min(per_execution, self._n_batches - batch))
        )

    def _leave_steps(self, *_: Any) -> None:
        windows = self._open_windows()
        if (
            windows is None or self._in_end
        ):  # what a callback does at the end of a batch is part of the step
            return
        if self._in_batch:
            self._in_batch = False
            windows.abort()
        windows.leave_steps()

    def _open_windows(self) -> Windows | None:
        return self.windows if self.windows is not None and not self.windows.done else None


def _executions(callbacks: Any, method: str, per_execution: int, first_epoch: int) -> int | None:
    params: dict[str, Any] = getattr(callbacks, "params", None) or {}
    steps = int(params.get("steps") or 0)
    if steps <= 0:
        return None
    n_epochs = int(params.get("epochs", 1)) - first_epoch if method == "fit" else 1
    return math.ceil(steps / per_execution) * n_epochs


def _refuse_profiling_callbacks(method: str, callbacks: Any) -> None:
    import keras

    items = getattr(callbacks, "callbacks", callbacks)
    for callback in load_tensorflow().nest.flatten(items):
        if (
            isinstance(callback, keras.callbacks.TensorBoard)
            and getattr(callback, "_start_batch", 0) > 0
        ):
            raise CaptureError(
                f"{method} was given the callback TensorBoard(profile_batch=…), which runs the profiler itself; two "
                "sessions cannot run at once: set profile_batch=0 in this test"
            )


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    original = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)

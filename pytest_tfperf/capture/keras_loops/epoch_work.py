"""Time what Keras runs between two epochs: each callback's methods, and the validation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import Any

from pytest_tfperf.capture.observations import EpochWork
from pytest_tfperf.compiler.source_lines import line_of_code
from pytest_tfperf.recording import BetweenEpochs
from pytest_tfperf.replaced import replaced

__tracebackhide__ = True

_METHODS = ("on_epoch_begin", "on_epoch_end", "on_test_begin", "on_test_end")
_VALIDATION = BetweenEpochs()


class EpochWorkTimer:
    """
    Times the callbacks and the validation of a `fit`, each without the other.

    A validation that a callback runs is part of the callback.

    Args:
        model: The model.
        library: The library of the model, Keras 3 or 2.
    """

    def __init__(self, model: Any, library: Any) -> None:
        self._model, self._callbacks = model, library.callbacks
        self._seconds: dict[BetweenEpochs, float] = {}  # of the running epoch
        self._in_callback = False
        self._in_callbacks_s = 0.0  # all of the running epoch

    def end_epoch(self, work: EpochWork) -> None:
        """Add the seconds since the last epoch."""
        work.add(self._seconds)
        self._seconds, self._in_callbacks_s = {}, 0.0

    @contextmanager
    def watching(self, in_step: Callable[[], bool]) -> Iterator[None]:
        """Time what runs within the context, unless a step is running."""

        def of_list(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
            def wrapper(callbacks: Any, *args: Any, **kwargs: Any) -> Any:
                if self._in_callback or callbacks.model is not self._model or in_step():
                    return original(callbacks, *args, **kwargs)
                kept = callbacks.callbacks
                callbacks.callbacks = [_Timed(self, one, name) for one in kept]
                try:
                    return original(callbacks, *args, **kwargs)
                finally:
                    callbacks.callbacks = kept

            return wrapper

        def of_model(original: Callable[..., Any]) -> Callable[..., Any]:
            def evaluate(model: Any, *args: Any, **kwargs: Any) -> Any:
                if self._in_callback or model is not self._model or in_step():
                    return original(model, *args, **kwargs)
                before, began = self._in_callbacks_s, perf_counter()
                try:
                    return original(model, *args, **kwargs)
                finally:
                    in_callbacks_s = self._in_callbacks_s - before
                    self._add(_VALIDATION, perf_counter() - began - in_callbacks_s)

            return evaluate

        owner = self._callbacks.CallbackList
        trained = next(one for one in type(self._model).__mro__ if "evaluate" in vars(one))
        with ExitStack() as stack:
            for name in _METHODS:
                wrapped = of_list(name, vars(owner)[name])
                stack.enter_context(replaced(owner, name, wrapped))
            stack.enter_context(replaced(trained, "evaluate", of_model(vars(trained)["evaluate"])))
            yield

    def call(self, callback: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of a callback, and time it."""
        method, began, self._in_callback = getattr(callback, name), perf_counter(), True
        try:
            return method(*args, **kwargs)
        finally:
            self._in_callback, seconds = False, perf_counter() - began
            self._in_callbacks_s += seconds
            line = line_of_code(getattr(method, "__code__", None)) or ""
            own = (one for one in type(callback).__mro__ if hasattr(self._callbacks, one.__name__))
            kind = "" if line else next(own, type(callback)).__name__
            self._add(BetweenEpochs(f"{type(callback).__name__}.{name}", line, kind), seconds)

    def _add(self, what: BetweenEpochs, seconds: float) -> None:
        self._seconds[what] = self._seconds.get(what, 0.0) + seconds


class _Timed:
    """A callback in Keras' list, one method of which is timed."""

    def __init__(self, timer: EpochWorkTimer, callback: Any, name: str) -> None:
        self._timer, self._callback, self._name = timer, callback, name

    def __getattr__(self, name: str) -> Any:
        if name != self._name:
            return getattr(self._callback, name)
        return lambda *args, **kwargs: self._timer.call(self._callback, name, *args, **kwargs)

"""
Drive the windows from Keras loops: one call of `fit`, `evaluate` or `predict`.

Keras 3 marks no steps, and Keras 2 (`tf_keras`) only some, so the library's `CallbackList` is
wrapped while the loop runs. A step lasts from before the user's `on_*_batch_begin` to after their
`on_*_batch_end`. Everything is restored afterwards.
"""

from __future__ import annotations

import inspect
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

from pytest_tfperf.capture.keras_data import (
    KerasCall,
    epoch_iterators,
    libraries_in_use,
    steps_per_execution,
)
from pytest_tfperf.capture.observations import EpochWork
from pytest_tfperf.capture.state import restored
from pytest_tfperf.capture.windows import Windows
from pytest_tfperf.compiler.source_lines import line_of_code
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.in_use import leaves
from pytest_tfperf.recording import BetweenEpochs
from pytest_tfperf.replaced import replaced

__tracebackhide__ = True

KINDS = {"fit": "train", "evaluate": "test", "predict": "predict"}
_STOP = {"fit": "stop_training", "evaluate": "stop_evaluating", "predict": "stop_predicting"}
"""Flags that end a loop; Keras 2 reads the first alone, and runs the others to their end."""
_MANY = 10**9  # epochs: more than any windows need
Open = Callable[[int | None, int], Windows]
"""Opens the windows, given the executions of the loop (None: unknown) and the steps of one."""
_BETWEEN_EPOCHS = ("on_epoch_begin", "on_epoch_end", "on_test_begin", "on_test_end")
_VALIDATION = BetweenEpochs()


def run_keras(
    call: KerasCall, open_windows: Open, stop: bool, goes_on: bool = False
) -> tuple[Any, Windows]:
    """
    Run a Keras loop with windows in it; return its result, and the windows. Raises: CaptureError.

    When they are full, `stop` ends the loop by Keras' own flag; `goes_on` repeats it until then.
    """
    method = call.method
    _refuse_profiling_callbacks(call)
    loop = _Loop(call, open_windows, stop)
    try:
        with loop.hooked():
            result = _run_again(call, loop) if goes_on else call.run()
    except BaseException:
        if loop.windows is not None:
            loop.windows.close()
        raise
    if loop.windows is None or not loop.windows.n_steps:
        raise CaptureError(f"{method} ran no batch, so there was no step to profile")
    if stop:
        setattr(call.model, _STOP[method], False)
    if not loop.windows.done:
        loop.windows.close(
            f"{method} ended after {loop.windows.n_steps} executions, before all windows were "
            "full; give it more data or epochs"
        )
    return result, loop.windows


def _run_again(call: KerasCall, loop: _Loop) -> Any:
    """
    Run a call, and once more while the windows are not full, a `fit` for many epochs.

    Of what runs again, callbacks see batches, which are part of the steps, and nothing else. They
    see the end of the loop behind it. No validation runs, and a trained model gets its state back.
    The result is that of the first run.
    """
    model, kind, owner = call.model, KINDS[call.method], call.library.callbacks.CallbackList
    begin, end = f"on_{kind}_begin", f"on_{kind}_end"
    at_end: list[Callable[[], Any]] = []
    params: Any = None

    def deferred(original: Any, callbacks: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal params
        params = getattr(callbacks, "params", None)
        at_end.append(lambda: original(callbacks, *args, **kwargs))

    def silent(original: Any, callbacks: Any, *args: Any, **kwargs: Any) -> None:
        kept, callbacks.callbacks = callbacks.callbacks, []
        original(callbacks, *args, **kwargs)
        callbacks.callbacks = kept

    def as_before(original: Any, callbacks: Any, _: Any) -> None:
        original(callbacks, params)

    def hooked(name: str, hook: Callable[..., None]) -> AbstractContextManager[None]:
        original = vars(owner)[name]

        def replacement(callbacks: Any, *args: Any, **kwargs: Any) -> None:
            its = partial(hook, original) if callbacks.model is model else original
            its(callbacks, *args, **kwargs)

        return replaced(owner, name, replacement)

    with hooked(end, deferred):
        result = call.run()
    again, n_before = _for_many_epochs(call), 0
    with ExitStack() as stack:
        if again is not None and loop.wants_steps():
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # the first run has shown them
            stack.enter_context(hooked("set_params", as_before))
            for name in (begin, "on_epoch_begin", "on_epoch_end", end):
                stack.enter_context(hooked(name, silent))
            if call.method == "fit":
                stack.callback(setattr, model, "history", model.history)
                stack.enter_context(restored(model))
            while loop.wants_steps() and loop.n_steps() > n_before:
                n_before = loop.n_steps()
                again.run()
    for run in at_end:
        run()
    return result


def _for_many_epochs(call: KerasCall) -> KerasCall | None:
    """Return a `fit` for many epochs without validation, None if it is the user's own without."""
    if call.method != "fit":
        return call
    signature = inspect.signature(call.bound)
    bound = signature.bind(*call.args, **call.kwargs)
    others = [name for name, one in signature.parameters.items() if one.kind is one.VAR_KEYWORD]
    for name in ("epochs", "validation_freq"):
        if name in signature.parameters:
            bound.arguments[name] = _MANY
        elif others:
            bound.arguments.setdefault(others[0], {})[name] = _MANY
        else:
            return None
    return replace(call, args=bound.args, kwargs=bound.kwargs)


@contextmanager
def loops_replaced(profiled: Callable[[KerasCall], Any]) -> Iterator[None]:
    """
    Send every outermost `fit`, `evaluate` and `predict` within the context through a function.
    """
    running = False

    def replacing(method: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def replacement(model: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal running
            bound = original.__get__(model)
            if running:
                return bound(*args, **kwargs)
            running = True
            try:
                return profiled(
                    KerasCall(bound=bound, model=model, method=method, args=args, kwargs=kwargs)
                )
            finally:
                running = False

        return replacement

    with ExitStack() as stack:
        for library, method in itertools.product(libraries_in_use(), KINDS):
            owner = next(base for base in library.Model.__mro__ if method in vars(base))
            stack.enter_context(replaced(owner, method, replacing(method, vars(owner)[method])))
        yield


def run_one_batch(call: KerasCall) -> None:
    """Run the loop unprofiled, and end it after its first batch."""
    owner, name = call.library.callbacks.CallbackList, f"on_{KINDS[call.method]}_batch_end"
    original = getattr(owner, name)

    def ending(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        setattr(call.model, _STOP[call.method], True)

    with replaced(owner, name, ending):
        call.run()


class _Loop:
    """The hooks of one Keras loop, and the windows that they drive."""

    def __init__(self, call: KerasCall, open_windows: Open, stop: bool) -> None:
        self.windows: Windows | None = None
        self._model, self._method = call.model, call.method
        self._callback_list = call.library.callbacks.CallbackList
        self._first_epoch = call.argument("initial_epoch") or 0
        self._open, self._stop = open_windows, stop
        self._n_batches = 0
        self._has_own_iterators = bool(epoch_iterators())
        self._per_execution = 1
        self._in_batch = self._in_end = False
        self._first = 0  # step of an execution; at its end, Keras 3.10 names it, and 3.15 the last
        self._epoch_work = EpochWorkTimer(call.model, call.library)

    def n_steps(self) -> int:
        """Return the number of steps so far."""
        return 0 if self.windows is None else self.windows.n_steps

    def wants_steps(self) -> bool:
        """Return whether the windows are open and not full."""
        return self._open_windows() is not None

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Wrap the callbacks of this loop."""
        kind = KINDS[self._method]
        hooks: list[tuple[str, Callable[..., None], bool]] = [
            (f"on_{kind}_begin", self._begin_loop, False),
            (f"on_{kind}_batch_begin", self._begin_batch, True),
            (f"on_{kind}_batch_end", self._end_batch, False),
            (f"on_{kind}_batch_end", self._begin_batch_end, True),
        ]
        if kind == "train":
            hooks.append(("on_test_begin", self._leave_steps, True))
        owner = self._callback_list
        with ExitStack() as stack:
            for iterators in epoch_iterators():
                get = vars(iterators)["_get_iterator"]
                stack.enter_context(
                    replaced(iterators, "_get_iterator", self._marking_elements(get))
                )
            for name, hook, before in hooks:
                wrapped = self._wrap(getattr(owner, name), hook, before)
                stack.enter_context(replaced(owner, name, wrapped))
            if kind == "train":
                stack.enter_context(self._epoch_work.watching(lambda: self._in_end))
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

    def _marking_elements(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def get_iterator(epochs: Any) -> Iterator[Any]:
            iterator = iter(original(epochs))
            while True:
                windows = self._open_windows()
                try:
                    with nullcontext() if windows is None else windows.fetching(from_python=True):
                        element = next(iterator)
                except StopIteration:
                    return
                yield element

        return get_iterator

    def _begin_loop(self, callbacks: Any, *_: Any) -> None:
        if self.windows is None:
            self._per_execution = per_execution = steps_per_execution(self._model)
            self._n_batches = int((getattr(callbacks, "params", None) or {}).get("steps") or 0)
            n_executions = _executions(callbacks, self._method, per_execution, self._first_epoch)
            self.windows = self._open(n_executions, per_execution)
            self.windows.epochs.length = math.ceil(self._n_batches / per_execution)

    def _begin_batch(self, _: Any, batch: int, *__: Any) -> None:
        windows = self._open_windows()
        if windows is None:
            return
        if self._in_batch:
            # The data ended inside the step: only now Keras knows that the epoch is over.
            windows.abort()
        elif batch == 0 and windows.n_steps:
            windows.end_epoch()
        if batch == 0:
            self._epoch_work.end_epoch(windows.observations.epoch_work)
        self._in_batch, self._first = True, batch
        windows.begin(self._batches_from(batch))

    def _end_batch(self, *_: Any) -> None:
        windows = self._open_windows()
        if windows is None:
            return
        self._in_batch = self._in_end = False
        windows.end()
        if self._compiles_behind(windows):
            windows.leave_steps()
        if windows.done and self._stop:
            setattr(self._model, _STOP[self._method], True)

    def _compiles_behind(self, windows: Windows) -> bool:
        """
        Return whether Keras may compile now for the end of its first epoch.

        On JAX it computes the metrics of an epoch by small functions of their own.
        """
        is_last = self._first + self._batches_from(self._first) >= self._n_batches > 0
        return self._has_own_iterators and is_last and not windows.epochs.n_ended

    def _begin_batch_end(self, *_: Any) -> None:
        self._in_end = True

    def _batches_from(self, batch: int) -> int:
        """Return the batches of an execution; the last one of an epoch may have fewer."""
        if not self._n_batches:
            return self._per_execution
        return max(1, min(self._per_execution, self._n_batches - batch))

    def _leave_steps(self, *_: Any) -> None:
        windows = self._open_windows()
        if windows is None or self._in_end:  # a callback at the end of a batch is part of the step
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


def _refuse_profiling_callbacks(call: KerasCall) -> None:
    callbacks = call.argument("callbacks")
    items = getattr(callbacks, "callbacks", callbacks)
    for callback in leaves(items):
        if (
            isinstance(callback, call.library.callbacks.TensorBoard)
            and getattr(callback, "_start_batch", 0) > 0
        ):
            raise CaptureError(
                f"{call.method} received the callback TensorBoard(profile_batch=…), which runs the "
                "profiler itself; two sessions cannot run at once: set profile_batch=0 in this test"
            )


class EpochWorkTimer:
    """
    Times the callbacks and the validation of a `fit`, each without the other.

    A validation that a callback runs is part of the callback.
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
            for name in _BETWEEN_EPOCHS:
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

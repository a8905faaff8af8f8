"""
Let a Keras loop go on beyond the epochs that a call asks for, as long as turns need steps.

The further epochs are hidden from the call's history, and callbacks see batches of them only. The
variables of a trained model are restored, and no validation runs. So the result of the call is that
of the epochs it asked for.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from pytest_tfperf.capture.keras_loops.keras_data import KerasCall
from pytest_tfperf.capture.state import restored
from pytest_tfperf.replaced import replaced

__tracebackhide__ = True

_MANY = 10**9  # epochs: more than any turns need
_OUT_OF_DATA = "Your input ran out of data"  # the warning of Keras, as of 3.15 (epoch_iterator.py)
_SHOULD_EVAL = "_should_eval"  # private, as of 3.15 (keras/src/trainers/trainer.py)


class FurtherEpochs:
    """
    Runs a call with as many further epochs as are wanted.

    Args:
        call: The call of `fit`, `evaluate` or `predict`.
        n_steps: Returns the number of steps so far.
        wanted: Returns whether more steps are wanted.
    """

    def __init__(
        self, call: KerasCall, n_steps: Callable[[], int], wanted: Callable[[], bool]
    ) -> None:
        self._call, self._n_steps, self._wanted = call, n_steps, wanted
        self._callback_list = call.library.callbacks.CallbackList
        self._n_asked = _asked_epochs(call)
        self._is_further = False
        self._n_before = 0  # steps before the running epoch
        # Keras feeds the first two batches of a used generator again (3.15, peek_and_restore)
        self._begins_again = not hasattr(call.data(), "__next__")
        self._n_of_epoch = 1  # steps that an epoch has at least, unless the data have ended
        self._n_short = 0  # further epochs with fewer, the last ones
        self._state = ExitStack()

    def run(self) -> Any:
        """Run the call; return the result of the epochs that it asks for."""
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            stack.enter_context(self._state)
            if self._call.method != "fit":
                return self._passes(stack)
            if self._n_asked is None:
                return self._call.run()
            stack.enter_context(self._epochs_hidden(self._n_asked))
            return _with_epochs(self._call, _MANY).run()

    def _passes(self, stack: ExitStack) -> Any:
        """Repeat `evaluate` or `predict`; return the first result."""
        result = self._call.run()
        kind = {"evaluate": "test", "predict": "predict"}[self._call.method]
        for name in (f"on_{kind}_begin", f"on_{kind}_end"):
            stack.enter_context(_wrapped(self._callback_list, name, _without_callbacks))
        self._ignore_end_of_data()
        n_before = -1
        while self._wanted() and self._n_steps() > n_before:
            n_before = self._n_steps()
            self._call.run()
        return result

    @contextmanager
    def _epochs_hidden(self, n_asked: int) -> Iterator[None]:
        """Hide epochs beyond those asked for, within the context."""

        def set_params(original: Any, callbacks: Any, params: Any) -> Any:
            if params and params.get("epochs") == _MANY:
                params = {**params, "epochs": n_asked}
            return original(callbacks, params)

        def on_epoch_begin(original: Any, callbacks: Any, *args: Any, **kwargs: Any) -> Any:
            if callbacks.model is self._call.model:
                self._n_before = self._n_steps()
            return None if self._concerns(callbacks) else original(callbacks, *args, **kwargs)

        def on_epoch_end(original: Any, callbacks: Any, epoch: int, *args: Any, **kw: Any) -> Any:
            if self._concerns(callbacks):
                self._end_if_short()
                return None
            result = original(callbacks, epoch, *args, **kw)
            if callbacks.model is self._call.model:
                self._end_asked_epoch(epoch + 1 >= n_asked)
            return result

        def on_train_end(original: Any, callbacks: Any, *args: Any, **kwargs: Any) -> Any:
            if callbacks.model is self._call.model:
                self._state.close()
            return original(callbacks, *args, **kwargs)

        def should_eval(original: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
            is_hidden = self._is_further and model is self._call.model
            return False if is_hidden else original(model, *args, **kwargs)

        with ExitStack() as stack:
            for hook in (set_params, on_epoch_begin, on_epoch_end, on_train_end):
                stack.enter_context(_wrapped(self._callback_list, hook.__name__, hook))
            for owner in type(self._call.model).__mro__:
                if _SHOULD_EVAL in vars(owner):
                    stack.enter_context(_wrapped(owner, _SHOULD_EVAL, should_eval))
                    break
            yield

    def _concerns(self, callbacks: Any) -> bool:
        return self._is_further and callbacks.model is self._call.model

    def _end_asked_epoch(self, is_last: bool) -> None:
        """Go on after the last asked epoch, or one at which a callback stops the training."""
        model = self._call.model
        if not self._begins_again:
            self._n_of_epoch = max(self._n_of_epoch, self._n_steps() - self._n_before)
        if not is_last and not model.stop_training:
            return
        model.stop_training = not self._wanted()
        if not model.stop_training:
            self._is_further = True
            self._state.enter_context(restored(model))
            self._ignore_end_of_data()

    def _end_if_short(self) -> None:
        """
        End the training after two further epochs of too few steps: the data have ended.

        Keras 3.5 has one without any step before it begins the data again.
        """
        is_short = self._n_steps() - self._n_before < self._n_of_epoch
        self._n_short = self._n_short + 1 if is_short else 0
        if self._n_short > 1 or not self._wanted():
            self._call.model.stop_training = True

    def _ignore_end_of_data(self) -> None:
        warnings.filterwarnings("ignore", message=_OUT_OF_DATA)


def _asked_epochs(call: KerasCall) -> int | None:
    """Return the epochs that a `fit` asks for; None if their number cannot be changed."""
    parameters = inspect.signature(call.bound).parameters
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    if call.method != "fit" or not ("epochs" in parameters or takes_any):
        return None
    config = getattr(call.library, "config", None)  # Keras 2 has none
    if getattr(config, "max_epochs", lambda: None)():
        return None
    default = parameters["epochs"].default if "epochs" in parameters else 1
    given = call.argument("epochs")
    n_asked = int(default if given is None else given)
    return n_asked if n_asked > int(call.argument("initial_epoch") or 0) else None


def _with_epochs(call: KerasCall, n_epochs: int) -> KerasCall:
    names = list(inspect.signature(call.bound).parameters)
    place = names.index("epochs") if "epochs" in names else len(call.args)
    if place < len(call.args):
        args = (*call.args[:place], n_epochs, *call.args[place + 1 :])
        return replace(call, args=args)
    return replace(call, kwargs={**call.kwargs, "epochs": n_epochs})


def _without_callbacks(original: Any, callbacks: Any, *args: Any, **kwargs: Any) -> Any:
    kept, callbacks.callbacks = callbacks.callbacks, []
    try:
        return original(callbacks, *args, **kwargs)
    finally:
        callbacks.callbacks = kept


def _wrapped(owner: Any, name: str, wrapper: Callable[..., Any]) -> AbstractContextManager[None]:
    """Call a wrapper with the original method before its arguments, within the context."""
    original = vars(owner)[name]

    def replacement(self: Any, *args: Any, **kwargs: Any) -> Any:
        return wrapper(original, self, *args, **kwargs)

    return replaced(owner, name, replacement)

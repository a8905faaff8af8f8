"""Remedies of `fit`, `evaluate` and `predict` of Keras 3 with TensorFlow, and their turns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from typing import Any

from pytest_tfperf.capture.keras_data import KerasCall
from pytest_tfperf.frameworks.framework import TENSORFLOW
from pytest_tfperf.frameworks.in_use import synchronise
from pytest_tfperf.remedies.input import is_dataset
from pytest_tfperf.remedies.remedy import Call, Remedy
from pytest_tfperf.remedies.turns import Turns

_STEPS = {"fit": "steps_per_epoch", "evaluate": "steps", "predict": "steps"}
_HOOKS = {"fit": "train", "evaluate": "test", "predict": "predict"}
_OF_LOOP = ("history", "stop_training")
_TOGETHER = 8  # steps: enough that Keras' loop, of some 0.1 ms a step, takes a tenth of that


def can_be_tried(call: KerasCall) -> bool:
    """Return whether a loop of Keras can run on changed data: Keras 3, and a tf.data.Dataset."""
    library = call.library
    is_new = getattr(library, "__version__", "").startswith("3.")
    return is_new and library.config.backend() == TENSORFLOW.lower() and is_dataset(call.data())


class KerasTurns(Turns):
    """Turns of a loop of Keras, without the user's callbacks and validation."""

    _function: Any = None  # that Keras made of the step under these settings

    @property
    def input_share(self) -> float | None:
        """None: Keras fetches elements within its own function."""
        return None

    def first_outputs(self, n: int) -> list[Any]:
        """Run the first steps, and return what Keras returns of them."""
        returned = self._loop(n, [])
        return [getattr(returned, "history", returned)]

    def turn(self) -> float:
        """Run a turn, and return the seconds of a step in it."""
        size = int(self._call.settings.get("steps_per_execution", 1))
        untimed = self.untimed + self._chance.randrange(self.untimed)
        untimed, timed = (size * math.ceil(n / size) for n in (untimed, self.timed))
        times: list[float] = []

        def ended(_: Any, batch: int, logs: Any = None) -> None:  # noqa: ARG001 - Keras names it
            if (batch + 1 >= untimed and not times) or batch + 1 >= untimed + timed:
                synchronise()
                times.append(perf_counter())

        keras = self._keras.library
        hook = f"on_{_HOOKS[self._keras.method]}_batch_end"
        timer = type("Timer", (keras.callbacks.Callback,), {hook: ended})
        self._loop(untimed + timed, [timer()])
        return (times[-1] - times[0]) / timed

    @property
    def _keras(self) -> KerasCall:
        assert self._call.keras is not None
        return self._call.keras

    def _loop(self, n: int, callbacks: list[Any]) -> Any:
        data: Any = self._call.data
        method = self._keras.method
        given = {"callbacks": callbacks, "verbose": 0, _STEPS[method]: n}
        if method == "fit":
            given["shuffle"] = False  # of arrays; Keras warns of it with a dataset
        if class_weight := self._keras.argument("class_weight"):
            given["class_weight"] = class_weight
        with self._settings():
            return self._keras.bound(data.repeat(), **given)

    @contextmanager
    def _settings(self) -> Iterator[None]:
        """Set what the remedy sets, with a function of its own, and put the user's back."""
        model = self._keras.model
        function = f"{_HOOKS[self._keras.method]}_function"
        names = (*self._call.settings, function, *_OF_LOOP)
        before = {name: getattr(model, name) for name in names if hasattr(model, name)}
        for name, value in self._call.settings.items():
            setattr(model, name, value)
        setattr(model, function, self._function)
        try:
            with self._call.during():
                yield
        finally:
            self._function = getattr(model, function)
            for name, value in before.items():
                setattr(model, name, value)


class _OfKeras(Remedy):
    """A setting of `model.compile`."""

    kind = "step"
    settings: Mapping[str, Any]

    def applies(self, call: Call) -> bool:
        """Return whether Keras runs the step, and the model has another setting."""
        model = call.keras and call.keras.model
        return model is not None and any(
            getattr(model, name) != value for name, value in self.settings.items()
        )

    def apply(self, call: Call) -> Call:
        """Return the call with the settings."""
        return replace(call, settings=self.settings)


class KerasJit(_OfKeras):
    """XLA for Keras' step."""

    name, code = "compile(jit_compile=True)", "model.compile(…, jit_compile=True)"
    settings: Mapping[str, Any] = {"jit_compile": True}


class Together(_OfKeras):
    """Several steps in each call of Keras' function."""

    name = f"compile(steps_per_execution={_TOGETHER})"
    code = f"model.compile(…, steps_per_execution={_TOGETHER})"
    settings: Mapping[str, Any] = {"steps_per_execution": _TOGETHER}


REMEDIES: tuple[Remedy, ...] = (KerasJit(), Together())

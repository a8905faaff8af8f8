"""Remedies of `fit`, `evaluate` and `predict` of Keras 3 with TensorFlow, and their turns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from pytest_tfperf.capture.keras_data import KerasCall, steps_per_execution
from pytest_tfperf.frameworks.framework import TENSORFLOW
from pytest_tfperf.frameworks.in_use import synchronise
from pytest_tfperf.frameworks.tensorflow import loaded_tensorflow
from pytest_tfperf.remedies.input import is_dataset
from pytest_tfperf.remedies.python_work import work_of
from pytest_tfperf.remedies.remedy import Call, NotTried, Remedy
from pytest_tfperf.remedies.state import is_of_library
from pytest_tfperf.remedies.turns import WATCHED, Turns

_STEPS = {"fit": "steps_per_epoch", "evaluate": "steps", "predict": "steps"}
_HOOKS = {"fit": "train", "evaluate": "test", "predict": "predict"}
_OF_LOOP = ("history", "stop_training")
_WIDE, _NARROW = "float32", "mixed_bfloat16"
_AMPERE = (8, 0)  # the first compute capability with bfloat16 (CUDA C++ guide, "Arithmetic")
_OF_CPU = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Flags of CPUs that multiply in bfloat16 (arch/x86/include/asm/cpufeatures.h; arm64 hwcaps)."""
_CPU = Path("/proc/cpuinfo")
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
        """Run the first steps, as many as remedies run together, and return what Keras does."""
        size = math.lcm(_TOGETHER, steps_per_execution(self._keras.model))
        returned = self._loop(size * math.ceil(n / size), [])
        return [getattr(returned, "history", returned)]

    def python_work(self) -> frozenset[str]:
        """Return what Python of the model does in some steps."""
        n = self._together * math.ceil(WATCHED / self._together)
        return work_of(self._keras.model, lambda: self._loop(n, []))

    def turn(self) -> float:
        """Run a turn, and return the seconds of a step in it."""
        together = self._together
        steps = self.untimed + self._chance.randrange(self.untimed), self.timed
        untimed, timed = (math.ceil(n / together) for n in steps)
        ended, times = itertools.count(1), list[float]()

        def end(_: Any, batch: int, logs: Any = None) -> None:  # noqa: ARG001 - Keras names them
            # `batch` is the first of the steps in Keras 3.5 and 3.10, and the last one in 3.15
            if next(ended) in (untimed, untimed + timed):
                synchronise()
                times.append(perf_counter())

        keras = self._keras.library
        hook = f"on_{_HOOKS[self._keras.method]}_batch_end"
        timer = type("Timer", (keras.callbacks.Callback,), {hook: end})
        self._loop(together * (untimed + timed), [timer()])
        return (times[1] - times[0]) / (together * timed)

    @property
    def _together(self) -> int:
        """Steps in each call of Keras' function, and of the callback."""
        own = steps_per_execution(self._keras.model)
        return int(self._call.settings.get("steps_per_execution", own))

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


class Bfloat16(Remedy):
    """Layers that compute in bfloat16, with weights in float32."""

    name, kind = f"dtype policy {_NARROW!r}", "step"
    code = (
        f'keras.config.set_dtype_policy("{_NARROW}") before the model is made, and '
        'dtype="float32" in its last layer'
    )
    computes_differently = "different: it computes in bfloat16"

    def applies(self, call: Call) -> bool:
        """Return whether Keras runs layers in float32 on a device that computes in bfloat16."""
        if call.keras is None or not _has_bfloat16():
            return False
        layers = getattr(call.keras.model, "layers", ())
        return any(getattr(one.dtype_policy, "name", "") == _WIDE for one in layers)

    def apply(self, call: Call) -> Call:
        """Return the call of a model made anew from its config, with its weights and optimizer."""
        assert call.keras is not None
        keras, model = call.keras.library, call.keras.model
        if not is_of_library(type(model)):
            raise NotTried("a subclassed model is not made anew from its config")
        own = {type(one).__name__: type(one) for one in model.layers}
        if function := getattr(getattr(model, "loss", None), "__name__", ""):
            own[function] = model.loss
        with keras.saving.custom_object_scope(own):
            changed = type(model).from_config(_narrowed(model.get_config()))
            if model.compiled:
                changed.compile_from_config(model.get_compile_config())
        _copy_variables(model, changed)
        if model.compiled and model.optimizer is not None and model.optimizer.built:
            changed.optimizer.build(changed.trainable_variables)
            _copy_variables(model.optimizer, changed.optimizer)
        bound = getattr(changed, call.keras.method)
        return replace(call, step=bound, keras=replace(call.keras, model=changed, bound=bound))


REMEDIES: tuple[Remedy, ...] = (KerasJit(), Together(), Bfloat16())


def _has_bfloat16() -> bool:
    """Return whether the GPU, or without one the CPU, has products of bfloat16."""
    tf: Any = loaded_tensorflow()
    if gpus := tf.config.get_visible_devices("GPU"):
        details = tf.config.experimental.get_device_details(gpus[0])
        capability = details.get("compute_capability")
        return capability is not None and capability >= _AMPERE
    try:
        text = _CPU.read_text(encoding="utf-8")
    except OSError:  # no Linux: it is not known
        return False
    return bool(_OF_CPU & set(text.split()))


def _narrowed(config: Any) -> Any:
    """Return a config of Keras 3 whose dtype policies of float32 compute in bfloat16."""
    if isinstance(config, Mapping):
        is_policy = config.get("class_name") == "DTypePolicy"
        if is_policy and config.get("config") == {"name": _WIDE}:
            return {**config, "config": {"name": _NARROW}}
        return {name: _narrowed(value) for name, value in config.items()}
    if isinstance(config, (list, tuple)):
        return type(config)(_narrowed(one) for one in config)
    return config


def _copy_variables(source: Any, target: Any) -> None:
    """Copy the values of all variables, which two models of one config have in one order."""
    for one, other in zip(source.variables, target.variables, strict=True):
        other.assign(one)

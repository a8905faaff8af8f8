"""
Programs of JAX before XLA optimises them, as JAX keeps them beside the executables they became.

JAX caches the lowered program of each compiled function (StableHLO), also of those compiled before
the profile. So nothing is hooked, traced, lowered or compiled again.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator
from typing import Any

from pytest_tfperf.frameworks.jax_framework import loaded_jax
from pytest_tfperf.protobuf import Message
from pytest_tfperf.values import Unknown

_OLDEST = (0, 7)
"""The oldest JAX that caches the lowered programs of functions (`_pjit_lower` in pjit.py)."""
_MODULE_ID = 5
"""HloModuleProto.id, the number behind an executable's name in traces (xla/service/hlo.proto)."""
_OLD = "JAX {} drops the programs of functions before XLA optimises them: pip install 'jax>={}.{}'"
_NOT_HERE = "this version of JAX does not show its programs as they were before XLA optimised them"
_FREED = (
    "JAX does not hold the program of {} as it was before XLA optimised it: keep its jax.jit "
    "function alive, and clear no cache of JAX in the test"
)
_PARTED = (
    "{} runs on {} devices, and XLA alone decides how it divides the arrays of the program among "
    "them"
)
_UNREAD = "the program of {} could not be read as HLO: {}: {}"


class JaxPrograms:
    """
    The compiled programs of JAX that are alive now.

    They stay alive with this object, and are turned to HLO when they are asked for.
    """

    def __init__(self) -> None:
        self._alive, self._why = _alive()
        self._known: dict[str, bytes | Unknown] = {}

    def unoptimised(self, executable: str) -> bytes | Unknown:
        """
        Return the serialised HloModuleProto that XLA made an executable of.

        Args:
            executable: Its name in traces, `module(program id)`.

        Returns:
            The reason why there is none, for programs of several devices among others.
        """
        if executable not in self._known:
            self._known[executable] = self._found(executable)
        return self._known[executable]

    def _found(self, executable: str) -> bytes | Unknown:
        if self._why:
            return Unknown(self._why)
        module, number = _parts(executable)
        try:
            lowered = next(
                (one for one in self._of(module) if _program_id(one._executable) == number), None
            )
            if lowered is None:
                return Unknown(_FREED.format(module))
            if (n_devices := _n_devices(lowered)) > 1:
                return Unknown(_PARTED.format(module, n_devices))
            return bytes(lowered.hlo().as_serialized_hlo_module_proto())
        except Exception as error:  # private parts of JAX may change, and must not end the test
            return Unknown(_UNREAD.format(module, type(error).__name__, error))

    def _of(self, module: str) -> Iterator[Any]:
        """Yield the programs whose executables have the name of a module."""
        wanted = _letters(module)
        return (one for one in self._alive if _letters(one._name) == wanted)


def _alive() -> tuple[list[Any], str]:
    """Return the compiled programs that JAX holds, or the reason why they do not show."""
    jax = loaded_jax()
    # private: a lowered program and its executable (JAX 0.4 to 0.10)
    pxla = sys.modules.get("jax._src.interpreters.pxla")
    kind = getattr(pxla, "MeshComputation", None)
    if jax is None or kind is None:
        return [], _NOT_HERE
    numbers = re.match(r"(\d+)\.(\d+)", str(jax.__version__))
    if numbers is not None and tuple(map(int, numbers.groups())) < _OLDEST:
        return [], _OLD.format(jax.__version__, *_OLDEST)
    found = [one for one in gc.get_objects() if type(one) is kind]
    if any(not hasattr(one, name) for one in found for name in ("_name", "_executable", "_hlo")):
        return [], _NOT_HERE
    return [one for one in found if one._executable is not None], ""


def _parts(executable: str) -> tuple[str, int]:
    """Split the name of an executable: `jit_step(12)` → `jit_step`, 12."""
    module, _, number = executable.rpartition("(")
    return module or executable, int(re.sub(r"[^-\d]", "", number) or -1)


def _letters(name: str) -> str:
    """Return the letters of a name, alike for `jit(<lambda>)` and its module `jit__lambda`."""
    return re.sub(r"[\W_]", "", name)


def _program_id(executable: Any) -> int:
    """Return the number of an executable's module, by which traces call it."""
    module = executable.xla_executable.hlo_modules()[0]
    message = Message(module.as_serialized_hlo_module_proto(), "an executable of JAX")
    fields = message.fields(0, message.size, "HloModuleProto")
    ids = (message.signed(value) for number, _, value, _ in fields if number == _MODULE_ID)
    return next(ids, 0)


def _n_devices(lowered: Any) -> int:
    """Return the number of devices that share a program, which its module states."""
    attributes = lowered.stablehlo().operation.attributes
    return int(attributes["mhlo.num_partitions"]) * int(attributes["mhlo.num_replicas"])

"""
Programs of JAX before XLA optimises them, as JAX keeps them beside the executables they became.

JAX caches the lowered program of each compiled function (StableHLO), also of those compiled before
the profile. So nothing is hooked, traced, lowered or compiled again.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import prod
from typing import Any

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.jax_framework import loaded_jax
from pytest_tfperf.protobuf import Message, Record
from pytest_tfperf.values import Unknown

_OLDEST = (0, 7)
"""The oldest JAX that caches the lowered programs of functions (`_pjit_lower` in pjit.py)."""
_MODULE_ID = 5
"""HloModuleProto.id, the number behind an executable's name in traces (xla/service/hlo.proto)."""
_OLD = "JAX {} drops the programs of functions before XLA optimises them: pip install 'jax>={}.{}'"
_NOT_HERE = "this version of JAX does not show its programs as they were before XLA optimised them"
_PARTED = (
    "{} runs on {} devices, and XLA alone decides how it divides the arrays of the program among "
    "them"
)
_UNREAD = "the program of {} could not be read as HLO: {}: {}"


class JaxProgram:
    """A compiled program that JAX holds, before and after optimisation."""

    def __init__(self, lowered: Any) -> None:
        self._lowered = lowered
        self.name = str(lowered._name)

    @cached_property
    def number(self) -> int:
        """The number behind its executable's name in traces, where the process itself compiles."""
        message = Message(self.optimised, self.name)
        return Record(message, 0, message.size, "HloModuleProto").integer(_MODULE_ID)

    @cached_property
    def optimised(self) -> bytes:
        """The HloModuleProto of its executable. Raises: as `unoptimised`."""
        with self._errors_named():
            module = self._lowered._executable.xla_executable.hlo_modules()[0]
            return bytes(module.as_serialized_hlo_module_proto())

    @cached_property
    def unoptimised(self) -> bytes | Unknown:
        """
        The HloModuleProto that XLA made the executable of; unknown for several devices.

        Raises:
            CaptureError: If this version of JAX does not show it.
        """
        with self._errors_named():
            attributes = self._lowered.stablehlo().operation.attributes
            shared = [int(attributes[f"mhlo.num_{kind}"]) for kind in ("partitions", "replicas")]
            if (n_devices := prod(shared)) > 1:
                return Unknown(_PARTED.format(self.name, n_devices))
            return bytes(self._lowered.hlo().as_serialized_hlo_module_proto())

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # private parts of JAX may change, and must not end the test
            why = _UNREAD.format(self.name, type(error).__name__, error)
            raise CaptureError(why) from error


class JaxPrograms:
    """
    Compiled programs of JAX.

    They stay alive with this object, and are turned to HLO when they are asked for.

    Args:
        alive: All objects of `program_type`.
    """

    def __init__(self, alive: Sequence[Any]) -> None:
        self._why = _why_unknown(alive)
        compiled = () if self._why else [one for one in alive if one._executable is not None]
        self._alive = [JaxProgram(one) for one in compiled]

    def named(self, module: str) -> tuple[JaxProgram, ...] | Unknown:
        """Return the programs whose executables have the name of a module, as `jit_step`."""
        if self._why:
            return Unknown(self._why)
        wanted = _letters(module)
        return tuple(one for one in self._alive if _letters(one.name) == wanted)


def program_type() -> type | None:
    """Return the type of the programs that JAX holds beside their executables, if it shows."""
    # private (JAX 0.4 to 0.11)
    pxla = sys.modules.get("jax._src.interpreters.pxla")
    return getattr(pxla, "MeshComputation", None)


def _why_unknown(alive: Sequence[Any]) -> str:
    """Return the reason why the programs that JAX holds do not show; empty if they do."""
    jax = loaded_jax()
    if jax is None or program_type() is None:
        return _NOT_HERE
    numbers = re.match(r"(\d+)\.(\d+)", str(jax.__version__))
    if numbers is not None and tuple(map(int, numbers.groups())) < _OLDEST:
        return _OLD.format(jax.__version__, *_OLDEST)
    parts = ("_name", "_executable", "_hlo")
    return _NOT_HERE if any(not hasattr(one, part) for one in alive for part in parts) else ""


def _letters(name: str) -> str:
    """Return the letters of a name, alike for `jit(<lambda>)` and its module `jit__lambda`."""
    return re.sub(r"[\W_]", "", name)

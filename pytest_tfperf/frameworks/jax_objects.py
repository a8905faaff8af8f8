"""
The functions and programs that JAX holds in this process, found in one pass over its objects.

Programs are those before XLA optimises them, which JAX caches beside the executables that they
became (StableHLO), also those compiled before the profile. So nothing is hooked, traced, lowered or
compiled again.
"""

from __future__ import annotations

import gc
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import CodeType
from typing import Any

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.framework import JAX, at_least
from pytest_tfperf.frameworks.jax import function_type, loaded_jax
from pytest_tfperf.frameworks.jax_traces import users_traced
from pytest_tfperf.protobuf import Message, Record
from pytest_tfperf.values import Unknown

_WRAPS_USERS = "jax._src.pmap"
"""The module of JAX whose compiled functions are those that users pass to `jax.pmap`."""
_OF_TREES = ("tree_flatten", "tree_flatten_with_keys", "tree_unflatten", "__init__")
"""Methods of a class that is registered as a pytree."""
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

        Raises CaptureError if this version of JAX does not show it.
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
    Compiled programs of JAX, from all objects of `program_type` that are alive.

    They stay alive with this object, and are turned to HLO when they are asked for.
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


@dataclass(frozen=True, slots=True)
class JaxObjects:
    """The functions and programs that JAX held at one time; None without JAX."""

    own_functions: Mapping[str, bool] | None = None
    """Functions that JAX itself compiles; see `own_functions`."""
    programs: JaxPrograms | None = None
    """Compiled programs, which stay alive with them."""


def jax_objects(frameworks: Collection[str]) -> JaxObjects:
    """Return the functions and programs that JAX holds now, if it is one of the frameworks."""
    if JAX not in frameworks:
        return JaxObjects()
    functions, programs = instances(function_type(), program_type())
    return JaxObjects(own_functions(functions), JaxPrograms(programs))


def instances(*kinds: type | None) -> list[list[Any]]:
    """Return the objects of each class that are alive; there is none of None."""
    # an object refers to its class; reading all objects takes three times as long
    found = gc.get_referrers(*(kind for kind in kinds if kind is not None))
    return [[one for one in found if type(one) is kind] for kind in kinds]


def own_functions(alive: Iterable[Any]) -> dict[str, bool]:
    """
    Return the functions that JAX itself compiles and Python may have called, as `jax.numpy.add`.

    Each says whether the user compiles one of the same name, which a trace does not tell apart. JAX
    keeps in each function how its calls with such arguments go on. So the name is the user's if
    only functions of the user were ever called.
    """
    own, users = defaultdict[str, bool](bool), defaultdict[str, bool](bool)  # called, by name
    users.update(dict.fromkeys(users_traced(), False))  # nothing tells of those that are gone
    for function in alive:
        is_own = _is_own(function)
        found = own if is_own else users
        found[str(getattr(function, "__name__", ""))] |= _was_called(function, if_unknown=is_own)
    return {name: name in users for name in own if own[name] or not users.get(name)}


def tree_code() -> Collection[CodeType]:
    """Return the Python code with which JAX takes registered pytrees apart, and makes them."""
    # private: the registry that `jax.tree_util.register_pytree_node` fills (0.4 to 0.11)
    registry = getattr(sys.modules.get("jax._src.tree_util"), "_registry", {})
    functions = [
        function
        for kind, entry in list(registry.items())
        for function in (*entry, *(vars(kind).get(name) for name in _OF_TREES))
    ]
    inner = (getattr(function, "__func__", function) for function in functions)
    return {one.__code__ for one in inner if isinstance(getattr(one, "__code__", None), CodeType)}


def _is_own(function: Any) -> bool:
    """
    Return whether JAX itself compiles a function, and not the user, who may compile one of JAX's.

    None of its own has another compiled function in it, as `jax.jit(jax.grad(jnp.sum))` has (0.10).
    """
    module = str(getattr(function, "__module__", ""))
    inner = getattr(function, "__wrapped__", None)
    while inner is not None and not isinstance(inner, type(function)):
        inner = getattr(inner, "__wrapped__", None)
    return module.partition(".")[0] == "jax" and module != _WRAPS_USERS and inner is None


def _was_called(function: Any, *, if_unknown: bool) -> bool:
    """Return whether Python has called a compiled function, outside of the traces of others."""
    # private: the number of entries of its cache of calls (jaxlib 0.4 to 0.11)
    n_entries = getattr(function, "_cache_size", None)
    return if_unknown if n_entries is None else n_entries() > 0


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
    if not at_least(str(jax.__version__), _OLDEST):
        return _OLD.format(jax.__version__, *_OLDEST)
    parts = ("_name", "_executable", "_hlo")
    return _NOT_HERE if any(not hasattr(one, part) for one in alive for part in parts) else ""


def _letters(name: str) -> str:
    """Return the letters of a name, alike for `jit(<lambda>)` and its module `jit__lambda`."""
    return re.sub(r"[\W_]", "", name)

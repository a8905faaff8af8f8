"""TF_XLA_FLAGS that let TensorFlow cluster a test's operations automatically."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from pytest_tfperf.errors import CaptureError

# without the second nothing clusters on a CPU (TensorFlow, tensorflow/compiler/jit/flags.cc)
_AUTOCLUSTERING = ("--tf_xla_auto_jit=2", "--tf_xla_cpu_global_jit")
_VARIABLE = "TF_XLA_FLAGS"


def autoclustering_environment(environment: dict[str, str]) -> dict[str, str]:
    """
    Return an environment whose flags cluster all that can be. Raises: as `autoclustering_flags`.
    """
    return {**environment, _VARIABLE: autoclustering_flags(environment.get(_VARIABLE, ""))}


def autoclustering_flags(flags: str) -> str:
    """
    Return flags that cluster all that can be; a flag that is set already keeps its value.

    TensorFlow takes a value without a leading dash for the name of a file that holds flags
    (openxla/xla, parse_flags_from_env.cc).

    Raises:
        OSError: If the file cannot be read.
    """
    flags = flags.strip()
    if flags and not flags.startswith("-"):
        flags = Path(flags).read_text("utf-8").strip()
    names = {_name(flag) for flag in _split(flags)}
    added = [flag for flag in _AUTOCLUSTERING if _name(flag) not in names]
    return " ".join([*added, *([flags] if flags else [])])


def differing_flags() -> tuple[str, ...]:
    """
    Return a note on each autoclustering flag of this process that has another value than ours.

    Raises:
        CaptureError: If a flag that was set is gone.
    """
    flags = {
        _name(flag): flag.removesuffix("=true") for flag in _split(os.environ.get(_VARIABLE, ""))
    }
    dropped = [flag for flag in _AUTOCLUSTERING if _name(flag) not in flags]
    if dropped:
        raise CaptureError(
            f"autocluster=True had set {' '.join(dropped)} in {_VARIABLE}, and it was overwritten: "
            "a conftest must add to it"
        )
    return tuple(
        f"{_VARIABLE} had {flags[_name(own)]}, which autocluster=True left ({own} is its own)"
        for own in _AUTOCLUSTERING
        if flags[_name(own)] != own
    )


def _split(flags: str) -> list[str]:
    try:
        return shlex.split(flags)
    except ValueError:
        return flags.split()


def _name(flag: str) -> str:
    return flag.partition("=")[0]

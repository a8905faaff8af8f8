"""Coverage-guided fuzzing of a target of tests/helpers/fuzz_targets.py by atheris."""

import importlib
import os
import pkgutil
import sys
import tempfile
from pathlib import Path

import atheris

# in a checkout; in a program that PyInstaller made they are beside this module
sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

_READERS = ("facts", "metrics", "baseline", "cli", "export", "report", "tpu")
"""Packages that read or show files. Some import others in functions, where it is too late."""

with atheris.instrument_imports(include=["pytest_tfperf"]):
    for _name in _READERS:
        _package = importlib.import_module(f"pytest_tfperf.{_name}")
        for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
            importlib.import_module(_module.name)
    from helpers.fuzz_targets import TARGETS


def fuzz(name: str, kind: str) -> None:
    """
    Give inputs that reach new code to a target, for as long as the options of libFuzzer say.

    Args:
        name: Key of the target in `TARGETS`.
        kind: Folder of its corpus.
    """
    os.environ["COLUMNS"] = "100"
    with tempfile.TemporaryDirectory() as folder:
        target = TARGETS[name](folder)
        seed_name = next(one for one in target.seeds if one.startswith(f"{kind}/"))

        def damaged(raw: bytes, most_bytes: int, seed: int) -> bytes:
            """Half of all damage knows the format, as far as the input still has it."""
            try:
                made = target.damage(raw, seed) if seed % 2 else b""
            except (ValueError, LookupError, TypeError):
                made = b""
            return made[:most_bytes] or atheris.Mutate(raw, most_bytes)

        atheris.Setup(sys.argv, lambda raw: target.take(seed_name, raw), custom_mutator=damaged)
        atheris.Fuzz()

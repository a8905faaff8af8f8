"""
Reading of JSON files that may come from another person or program.

A file is read only if it is a regular file of at most 50 MB. Its content has unique keys, finite
numbers of a bounded size, and a bounded depth.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from pytest_tfperf.errors import TfperfError
from pytest_tfperf.text import plain

MOST_BYTES = 50_000_000
"""Size of the largest file that is read."""
MOST_DEEP = 64
"""Depth of the deepest content; run files need 12."""
_LARGEST, _SMALLEST = 1e100, 1e-100
"""Magnitudes of numbers, so that a ratio of two and its square are finite too."""
LARGEST_INTEGER = 10**18
"""Largest whole number that is read for certain; larger ones have an exponent."""


class JsonFileError(TfperfError):
    """A file is no JSON that this program reads; the message has no path."""


def read_json(path: Path) -> Any:
    """Read a JSON file; FileNotFoundError if there is none, JsonFileError if it is no sound one."""
    return parse_json(read_text(path))


def read_text(path: Path) -> str:
    """
    Read a regular file of bounded size as text.

    Raises FileNotFoundError if there is none, JsonFileError if it is no such file or no UTF-8.
    """
    try:
        return _bytes_of(path).decode("utf-8")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise JsonFileError(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise JsonFileError(f"not UTF-8 text: {error}") from error


def parse_json(text: str) -> Any:
    """Parse JSON text; JsonFileError if it is not sound."""
    try:
        content = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_bounded,
            object_pairs_hook=_unique,
        )
    except JsonFileError:
        raise
    except RecursionError as error:
        raise JsonFileError(f"nested deeper than {MOST_DEEP} levels") from error
    except ValueError as error:
        raise JsonFileError(f"not JSON: {error}") from error
    _check_depth(content)
    return content


def indented_json(content: Any) -> str:
    """Return JSON content as indented text of ASCII; ValueError if a number is not finite."""
    _refuse_non_finite(content)
    try:
        encoded = msgspec.json.encode(content, enc_hook=_of_a_subclass)
    except UnicodeEncodeError:  # halves of surrogate pairs
        return json.dumps(content, indent=1)
    text = msgspec.json.format(encoded, indent=1).decode()
    if text.isascii():
        return text
    return re.sub(r"[^\x00-\x7f]", lambda found: json.dumps(found[0])[1:-1], text)


def _of_a_subclass(value: Any) -> float:
    """Return a float of NumPy as one of Python."""
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"JSON has no {type(value).__name__}")


def plain_strings(content: Any) -> Any:
    """Return JSON content with `text.plain` applied to each string and key."""
    if isinstance(content, str):
        return plain(content)
    if isinstance(content, dict):
        return {plain(key): plain_strings(item) for key, item in content.items()}
    if isinstance(content, (list, tuple)):
        return [plain_strings(item) for item in content]
    return content


def _bytes_of(path: Path) -> bytes:
    """Read a regular file; opening does not wait for the other end of a FIFO."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise JsonFileError("not a regular file")
        if status.st_size > MOST_BYTES:
            size_mb = status.st_size / 1e6
            raise JsonFileError(f"{size_mb:,.0f} MB, and at most {MOST_BYTES / 1e6:.0f} are read")
        return file.read(MOST_BYTES + 1)


def _refuse_constant(name: str) -> float:
    raise JsonFileError(f"not JSON: {name} is no number")


def _refuse_non_finite(content: Any) -> None:
    """Refuse numbers that msgspec would write as null."""
    waiting: list[Iterable[Any]] = [[content]]
    for items in waiting:
        for item in items:
            if isinstance(item, float):
                if not math.isfinite(item):
                    raise ValueError(f"{item} is no number of JSON")
            elif isinstance(item, dict):
                waiting.append(item.values())
            elif isinstance(item, (list, tuple)):
                waiting.append(item)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number) or abs(number) > _LARGEST:
        raise JsonFileError(f"a number out of range: {text[:20]}")
    return number if abs(number) >= _SMALLEST else 0.0


def _bounded(text: str) -> int:
    if len(text) > len(str(LARGEST_INTEGER)) + 1:
        raise JsonFileError(f"a number out of range: {text[:20]}")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise JsonFileError(f"the key {twice[:60]!r} stands twice in one object")
    return content


def _check_depth(content: Any) -> None:
    level: list[Any] = [content] if isinstance(content, (dict, list)) else []
    for _ in range(MOST_DEEP):
        items = (one.values() if isinstance(one, dict) else one for one in level)
        level = [item for some in items for item in some if isinstance(item, (dict, list))]
        if not level:
            return
    raise JsonFileError(f"nested deeper than {MOST_DEEP} levels")

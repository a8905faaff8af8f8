"""Replace functions of frameworks for a while; they look as before to whoever reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from typing import Any

__tracebackhide__ = True


@contextmanager
def replaced(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Let an attribute be this function within the context, with the signature of the original."""
    original = vars(owner)[name]
    setattr(owner, name, update_wrapper(function, original))
    try:
        yield
    finally:
        setattr(owner, name, original)

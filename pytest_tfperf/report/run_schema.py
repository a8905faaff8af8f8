"""Check run files against their published schema, which `run.schema.json` beside this module is."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from pytest_tfperf.errors import TfperfError
from pytest_tfperf.text import elide

SCHEMA = Path(__file__).with_name("run.schema.json")
"""The schema; docs/run.schema.json is a copy of it."""
_WIDTH = 160
"""Characters of a reason: some name every allowed value."""


class SchemaError(TfperfError):
    """A run file that breaks its schema; the message has the place in the file and the reason."""


def check_run(content: Any) -> None:
    """
    Check the content of a run file.

    Raises:
        SchemaError: If it breaks the schema.
    """
    from fastjsonschema import JsonSchemaValueException

    try:
        _validator()(content)
    except JsonSchemaValueException as error:
        place = str(error.name).removeprefix("data").lstrip(".") or "the file"
        reason = str(error.message).partition(" ")[2]
        parts = (elide(" ".join(part.split()), _WIDTH) for part in (place, reason))
        raise SchemaError(" ".join(parts)) from error


@cache
def _validator() -> Callable[[Any], Any]:
    """
    Compile the schema to Python code, once.

    fastjsonschema knows draft 7, in which `prefixItems` of later drafts is called `items`.
    """
    import fastjsonschema  # the commands for run files need it, pytest does not

    schema = json.loads(SCHEMA.read_text(encoding="utf-8"), object_hook=_in_draft_7)
    schema["$schema"] = "http://json-schema.org/draft-07/schema#"
    validator: Callable[[Any], Any] = fastjsonschema.compile(schema, use_formats=False)
    return validator


def _in_draft_7(part: dict[str, Any]) -> dict[str, Any]:
    if "prefixItems" in part:
        part["items"] = part.pop("prefixItems")
    return part

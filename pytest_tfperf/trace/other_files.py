"""Tell the files that a profiler writes beside its trace, by their first bytes."""

from __future__ import annotations

_FIRST_FIELD = b"\x0a"
"""The tag of a message's or a text's field 1."""
_CONTINUED = bytes(range(0x80, 0x100))
"""The bytes of a varint but its last."""


def other_kind(head: bytes) -> str:
    """
    Say what a file is that a profiler writes beside its trace; empty for all others.

    A trace begins with a plane, whose first field is a number or its name, as `/host:CPU`. An
    executable's HLO begins with its name, in a message (HloModuleProto) or in two (HloProto,
    xla/service/hlo.proto).

    Args:
        head: The first bytes of the file.
    """
    if head[:1] in (b"{", b"["):
        return (
            "is JSON, such as the timeline that a profiler writes for browsers, and no trace that "
            "tfperf reads: give it the .xplane.pb of the same folder"
        )
    if head[:1] == _FIRST_FIELD:
        length, inside = head[1:].lstrip(_CONTINUED)[:1], head[1:].lstrip(_CONTINUED)[1:2]
        if length != b"\0" and (inside == _FIRST_FIELD or inside.isalpha()):
            return (
                "is the HLO of an executable, and no trace: the .xplane.pb of the same profile "
                "holds it, and tfperf padding takes HLO as text too (.hlo, .txt)"
            )
    return ""

"""The changes of baselines by an update, and the reason of each that was not made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryChange:
    """A change of one entry of a file, or why there is none."""

    path: Path
    """File of the baseline."""
    key: str
    """Key of the entry."""
    what: str
    """The change, for people."""
    run: str = ""
    """Date of the run, where it matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The changes of a recording."""

    entries: tuple[EntryChange, ...] = ()
    """Entries whose structure changed."""
    added: tuple[EntryChange, ...] = ()
    """Histories that runs were added to."""
    anew: tuple[EntryChange, ...] = ()
    """Histories that start anew."""
    left_out: tuple[EntryChange, ...] = ()
    """Profiles that were not recorded."""
    unread: tuple[str, ...] = ()
    """Messages on baselines that cannot be read."""

    def __add__(self, other: Recorded) -> Recorded:
        return Recorded(
            entries=self.entries + other.entries,
            added=self.added + other.added,
            anew=self.anew + other.anew,
            left_out=self.left_out + other.left_out,
            unread=tuple(dict.fromkeys(self.unread + other.unread)),
        )

"""Amount that a page shows of each profile: ten take 200 kB, and a hundred less than 1 MB."""

from __future__ import annotations

from dataclasses import dataclass

MOST_IN_FULL = 7
"""Profiles that are shown in full."""


@dataclass(frozen=True, slots=True)
class Detail:
    """The amount that a page shows of one profile."""

    n_rows: int
    """Largest number of rows of a table."""
    n_boxes: int
    """Largest number of boxes in a lane of the waterfall, and a quarter of a level of ops."""
    all_pictures: bool
    """True for the pictures besides the waterfall and the charts, too."""


IN_SHORT = Detail(0, 0, False)
"""Of profiles that are not shown in full: neither metrics, tables, advice nor a waterfall."""
_OF_FEW = ((3, Detail(50, 24, True)), (10, Detail(5, 4, False)))
_OF_MANY = Detail(4, 4, False)


def detail_of(n_profiles: int) -> Detail:
    """Return the detail on a page of this many profiles, of those that are shown in full."""
    return next((detail for most, detail in _OF_FEW if n_profiles <= most), _OF_MANY)

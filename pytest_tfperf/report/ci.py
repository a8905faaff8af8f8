"""What a test measured as properties of its JUnit report."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_tfperf.results import Profile

PREFIX = "tfperf."


def properties(profiles: Iterable[Profile]) -> list[tuple[str, float]]:
    """`tfperf.step_time` and its number in base units, of each metric that is known; of a profile with a name `tfperf.eval.step_time`."""
    return [
        (f"{PREFIX}{f'{_plain(profile.name)}.' if profile.name else ''}{name}", value.number)
        for profile in profiles
        for name, value in profile.metrics.items()
        if value.number is not None
    ]


def _plain(name: str) -> str:
    """A name that XML can hold: pytest escapes what a property's value may not have, and not what its name may not."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)

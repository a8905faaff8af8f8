"""Compare variants of a step, in this process or each in its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.capture.state import restored
from pytest_tfperf.plugin.profiles import Profiles
from pytest_tfperf.results import Profile
from pytest_tfperf.values import COMPARISON
from pytest_tfperf.variants.comparison import Comparison, ComparisonCall
from pytest_tfperf.variants.in_process import compare_steps
from pytest_tfperf.variants.outputs import Leaves, Tolerance
from pytest_tfperf.variants.steps import FirstOutput, Variant, profile_names

__tracebackhide__ = True


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantsWithData:
    """Arguments of `tf_profile.compare` with data."""

    steps: Mapping[str, Callable[..., Any]]
    """The variants by name."""
    data: Mapping[str, Iterable[Any]]
    """The data of each variant."""
    name: str | None
    """Name of the comparison."""
    tolerance: Tolerance | None
    """Largest difference of the outputs; None if they are not compared."""
    restore: Any
    """Keras models, optimizers or variables whose state is put back."""
    unpack: bool | str
    """How a step takes an element of the data."""


def compare_in_this_process(
    profiles: Profiles,
    profile_step: Callable[..., Profile],
    variants: Sequence[Variant],
    names: Mapping[str, str],
    tolerance: Tolerance | None,
    options: Mapping[str, Any],
) -> Comparison:
    """
    Profile variants without data, and measure them alternately.

    Args:
        profiles: Profiles of the test.
        profile_step: Profiles a step, as `tf_profile` does.
        variants: The variants.
        names: Name of each variant's profile.
        tolerance: Largest difference of the outputs; None if they are not compared.
        options: Limits and numbers of steps of each profile.
    """
    measured = {
        variant.name: profile_step(variant, name=names[variant.name], **options)
        for variant in variants
    }
    comparison = compare_steps(
        variants,
        measured,
        tolerance,
        profiles.max_seconds,
        profiles.test.announce,
        profiles.test.exclusive,
    )
    profiles.add_table(names[variants[0].name], COMPARISON, comparison.table())
    return comparison


def compare_in_processes(
    profiles: Profiles,
    profile_step: Callable[..., Profile],
    variants: VariantsWithData,
    options: Mapping[str, Any],
) -> Comparison:
    """
    Compare variants in child processes, or profile one variant in such a child.

    Args:
        profiles: Profiles of the test.
        profile_step: Profiles a step, as `tf_profile` does.
        variants: The variants.
        options: Limits and numbers of steps of each profile.

    Raises:
        CaptureError: If this platform cannot stop processes, or a variant fails.
    """
    names = profile_names(variants.steps, variants.name)
    wanted = profiles.wanted(**options)
    for name in names.values():
        profiles.check_name(name)

    def measure(variant: str) -> tuple[Profile, Leaves]:
        step = variants.steps[variant]
        if variants.tolerance is not None:
            step = FirstOutput(step)
        with restored(variants.restore):
            profile = profile_step(
                step,
                variants.data[variant],
                name=names[variant],
                unpack=variants.unpack,
                **options,
            )
        return profile, getattr(step, "leaves", None) or {}

    comparison = profiles.test.compare(
        ComparisonCall(
            profiles=names,
            max_seconds=profiles.max_seconds,
            tolerance=variants.tolerance,
            measure=measure,
        )
    )
    for profile in comparison.profiles.values():
        profiles.add(profile, wanted)
    profiles.add_table(names[next(iter(variants.steps))], COMPARISON, comparison.table())
    return comparison

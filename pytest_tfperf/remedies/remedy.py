"""What a remedy is: when it applies, what it changes, and the code to type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pytest_tfperf.capture.keras_data import KerasCall
from pytest_tfperf.errors import TfperfError, UnknownMetric
from pytest_tfperf.results import Profile

__tracebackhide__ = True

Kind = Literal["input", "step", "process"]


class NotTried(TfperfError):
    """A remedy could not be tried; the message says why."""


class DoesNotApply(TfperfError):
    """A first look at the step or its data has shown that a remedy has nothing to change there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of `tf_profile` whose step or data a remedy changes."""

    step: Callable[..., Any]
    """The step."""
    data: Iterable[Any] | None = None
    """Its data, None for a step without input."""
    unpack: bool | str = "auto"
    """How the step takes an element of the data."""
    restore: Any = None
    """What the user named for its state to be put back."""
    profile: Profile = field(default_factory=lambda: Profile(name="", metrics={}))
    """The profile of the unchanged step."""
    framework: str = ""
    """The framework that ran the step."""
    keras: KerasCall | None = None
    """The loop of Keras that runs the step, None for a step that is called."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the model of Keras that a remedy sets."""
    during: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Changes for the time of a turn what the step refers to, and puts it back."""
    seen: dict[str, Any] = field(default_factory=dict)
    """What remedies have found out by running the step, for one another."""

    def is_of(self, step: Any, data: Any) -> bool:
        """Return whether it is the call of this step with these data."""
        return self.step is step and self.data is data

    def number(self, metric: str) -> float | None:
        """Return a number of the profile, None if it is unknown."""
        try:
            return self.profile.value(metric).number
        except UnknownMetric:
            return None

    @property
    def waits_s(self) -> float | None:
        """Seconds of a step that it waits for input, None if they are unknown."""
        share, step_s = self.number("input_bound"), self.number("step_time")
        return None if share is None or step_s is None else share * step_s

    @property
    def works_s(self) -> float | None:
        """Seconds of a step besides, None if they are unknown."""
        step_s = self.number("step_time")
        return None if step_s is None else step_s - (self.waits_s or 0.0)


class Remedy:
    """A change of a step or of its data."""

    name: ClassVar[str]
    """The change, as users type it."""
    kind: ClassVar[Kind]
    """What it changes."""
    code: ClassVar[str] = ""
    """The code to type, if it is the same for each call."""
    is_bound: ClassVar[bool] = False
    """True if nobody can type it: it tells what remedies of its kind give at most."""
    computes_differently: ClassVar[str] = ""
    """What makes its results others than before, as "computes in bfloat16"; empty if nothing."""

    def applies(self, call: Call) -> bool:
        """Return whether the profile or the data have what the remedy is of."""
        raise NotImplementedError

    def saving_s(self, call: Call) -> float | None:
        """Return the seconds of a step that it saves at most; None if they are unknown."""
        return call.waits_s if self.kind == "input" else call.works_s

    def apply(self, call: Call) -> Call:
        """
        Return the call with the change; nothing of the user's is changed.

        Raises:
            DoesNotApply: If there is nothing to change, which only running the step could show.
            Exception: Of any type, if the change is not possible here.
        """
        raise NotImplementedError

    def write(self, call: Call) -> str:  # noqa: ARG002 - others find the user's line by it
        """Return the code to type, with the user's line where it is known; empty for a bound."""
        return "" if self.is_bound else self.code or self.name

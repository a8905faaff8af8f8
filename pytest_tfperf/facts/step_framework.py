"""The frameworks whose ops the traced steps ran, from the traces that each of them wrote."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pytest_tfperf.errors import TraceError
from pytest_tfperf.facts.host_activity import computes, runs_jax
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.trace.xspace import Trace

_TENSORFLOW, _JAX = "TensorFlow", "JAX"
_COMPUTES = {_TENSORFLOW: computes, _JAX: runs_jax}


def only_own(own_functions: Mapping[str, bool] | None) -> frozenset[str]:
    """Return the names that JAX's own compiled functions have and no function of the user."""
    found = (own_functions or {}).items()
    return frozenset(name for name, is_users_too in found if not is_users_too)


def frameworks_of(
    traces: Mapping[str, Trace],
    untraced: tuple[str, ...] = (),
    own: Mapping[str, bool] | None = None,
) -> tuple[str, ...]:
    """
    Return the frameworks that computed in the steps, the one whose trace tells most first.

    Fetching an element is no computation: JAX may train on the elements of a tf.data.Dataset. If
    none computed, it is the one without traces, else the first of all.

    Args:
        traces: The trace of each framework over the same steps.
        untraced: Frameworks that may have run the steps and write no traces.
        own: Functions that JAX itself compiles, and whether the user has one of the same name.
    """
    if len(traces) == 1 and not untraced:
        return tuple(traces)
    ran = tuple(name for name, trace in traces.items() if _ran(name, trace, only_own(own)))
    return ran or untraced[:1] or tuple(traces)[:1]


def _ran(name: str, trace: Trace, own: Collection[str]) -> bool:
    try:
        return _COMPUTES[name](trace, find_steps(trace, own))
    except TraceError:  # it has no step
        return False

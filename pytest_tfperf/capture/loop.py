"""Driving the windows: by calling a step on data, or from within the user's own loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pytest_tfperf.capture.windows import Windows
from pytest_tfperf.compiler.step_calls import Calls
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.tf_runtime import load_tensorflow

__tracebackhide__ = True

Call = Callable[[Any], Any]


def run_calls(
    windows: Windows, step: Callable[..., Any], data: Iterable[Any] | None, unpack: bool | str
) -> Any:
    """
    Call the step until the windows are full; what the last call returned.

    Raises:
        CaptureError: If the data are empty, or cannot be started again and ended before the windows were full.
        TypeError: If the step cannot take the elements.
    """
    output = None
    if data is None:
        while not windows.done:
            windows.begin()
            output = step()
            windows.end(output)
        return output
    call: Call | None = None
    for element in each_step(windows, data):
        if call is None:
            call = _calling(step, element, unpack)
        output = call(element)
        windows.last_output = output
    return output


def each_step(windows: Windows, data: Iterable[Any]) -> Iterator[Any]:
    """
    The elements of the data, epoch after epoch, until the windows are full; a step lasts from `next()` to the next turn.

    Raises:
        CaptureError: As `run_calls`.
    """
    if not hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
        raise TypeError(
            f"the data must be something to iterate over, such as a tf.data.Dataset, but are {type(data).__name__}: {data!r:.80}"
        )
    windows.observations.elements.data, windows.observations.elements.why = data, None
    iterator = iter(data)
    one_shot = iterator is data
    tf = load_tensorflow()
    from_python = not isinstance(iterator, (tf.data.Iterator, tf.distribute.DistributedIterator))
    seen = 0
    while True:
        windows.begin()
        try:
            with windows.fetching(from_python):
                element = next(iterator)
        except StopIteration:
            windows.abort()
            if one_shot and windows.enough:
                return
            if not seen or one_shot:
                raise CaptureError(_too_short(windows, seen)) from None
            iterator, seen = iter(data), 0
            continue
        if not windows.n_steps:
            windows.inputs = workload_of(element, getattr(data, "element_spec", None))
        windows.consumed(element)
        seen += 1
        yield element
        windows.end(windows.last_output)
        if windows.done:
            return


class Bracketed:
    """Steps that the user brackets, and the functions called in them."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    @contextmanager
    def step(self) -> Iterator[None]:
        """One step."""
        trace = load_tensorflow().profiler.experimental.Trace
        self.calls.abort_step()
        with trace("step", step_num=self.calls.n_steps, _r=1, tfperf=1):
            yield
        self.calls.end_step()


def run_once(step: Callable[..., Any], data: Iterable[Any] | None, unpack: bool | str) -> None:
    """Call the step one time, unprofiled."""
    if data is None:
        step()
        return
    for element in data:
        _calling(step, element, unpack)(element)
        return


def check_step(step: object) -> None:
    """
    Raises:
        TypeError: If the step is not callable, or a coroutine function.
    """
    if not callable(step):
        raise TypeError(
            f"tf_profile takes the step itself, a callable, but got {type(step).__name__}: {step!r:.80}"
        )
    if inspect.iscoroutinefunction(step):
        raise TypeError(
            f"{_name(step)} is a coroutine function; pass a plain function that runs one step, e.g. with asyncio.run"
        )


def workload_of(element: object, spec: object = None) -> Mapping[str, Any]:
    """
    The signature of a step's input: `dtype[shape]` of each tensor, and the batch where all agree on their first size.

    Sizes beyond the first that the data's own specification leaves open differ from element to element, and are `?`.
    """
    tf = load_tensorflow()
    leaves, specs = tf.nest.flatten(element), tf.nest.flatten(spec)
    specs = specs if len(specs) == len(leaves) else leaves
    batches = {
        leaf.shape[0]
        for leaf in leaves
        if getattr(leaf, "shape", None) is not None and len(leaf.shape)
    }
    batch = batches.pop() if len(batches) == 1 else None
    return {
        "inputs": [_describe(leaf, each) for leaf, each in zip(leaves, specs, strict=True)],
        "batch": batch,
    }


def _calling(step: Callable[..., Any], element: Any, unpack: bool | str) -> Call:
    """How the step takes an element: whole, or unpacked."""
    if unpack is True:
        if not isinstance(element, (tuple, list)):
            raise TypeError(
                f"unpack=True, but the data give {type(element).__name__} elements, which cannot be unpacked"
            )
        return lambda batch: step(*batch)
    if unpack is False:
        return step
    required = required_parameters(step)
    if not isinstance(element, tuple):
        if required in (0, 1, None):
            return step
        raise TypeError(
            f"{_name(step)} has {required} required positional parameters, and the data give single elements ({type(element).__name__})"
        )
    if required == 1:
        return step
    if required == len(element):
        return lambda batch: step(*batch)
    raise TypeError(
        f"{_name(step)} has {required if required is not None else 'no fixed number of'} required positional parameters, and "
        f"the data give tuples of {len(element)}: called with the element whole it would need 1, called with the element "
        f"unpacked {len(element)}; pass unpack=True or unpack=False to say which is meant"
    )


def required_parameters(step: Callable[..., Any]) -> int | None:
    """How many positional parameters must be given; None if any number may be."""
    target = getattr(step, "python_function", None) or getattr(step, "call", None) or step
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return sum(parameter.default is parameter.empty for parameter in positional)


def _too_short(windows: Windows, seen: int) -> str:
    plan = windows.plan
    if not seen and not windows.n_steps:
        return "the data are empty: not one step could be run"
    return (
        f"the data ended after {windows.n_steps} steps and cannot be started again; the windows need {plan.total - 1} (1 cold, "
        f"{plan.warmup} warm-up, {plan.timed_steps} or more timed, {plan.trace_steps} traced). Pass something that can be "
        "iterated again (a tf.data.Dataset, a list), or lower warmup=, steps= and trace_steps="
    )


def _describe(leaf: Any, spec: Any) -> str:
    shape = getattr(leaf, "shape", None)
    if shape is None:
        return type(leaf).__name__
    declared = getattr(spec, "shape", None)
    if declared is not None and len(shape) > 1 and getattr(declared, "rank", None) == len(shape):
        shape = [
            shape[0],
            *(
                None if open_ is None else size
                for size, open_ in zip(shape[1:], declared[1:], strict=True)
            ),
        ]
    dtype = getattr(leaf.dtype, "name", leaf.dtype)
    return f"{dtype}[{','.join('?' if size is None else str(size) for size in shape)}]"


def _name(step: object) -> str:
    return str(getattr(step, "__name__", type(step).__name__))

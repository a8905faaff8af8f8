"""Drive the windows: call a step on data, or follow the user's own loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from pytest_tfperf.capture.sessions import StepMark
from pytest_tfperf.capture.windows import Windows
from pytest_tfperf.compiler.step_calls import Calls
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.in_use import leaves
from pytest_tfperf.frameworks.tensorflow import loaded_tensorflow

__tracebackhide__ = True

Call = Callable[[Any], Any]


def run_calls(
    windows: Windows, step: Callable[..., Any], data: Iterable[Any] | None, unpack: bool | str
) -> Any:
    """Call the step until the windows are full; return the last result. Raises: as `each_step`."""
    output = None
    if data is None:
        while not windows.done:
            windows.begin()
            windows.last_output = output = step()
            if not windows.n_steps:
                _refuse_unfinished(output)
            windows.end(output)
        return output
    call: Call | None = None
    for element in each_step(windows, data):
        if call is None:
            call = calling(step, element, unpack)
        output = call(element)
        if not windows.n_steps:
            _refuse_unfinished(output)
        windows.last_output = output
    return output


def each_step(windows: Windows, data: Iterable[Any]) -> Iterator[Any]:
    """
    Yield the elements of the data, epoch after epoch, until the windows are full.

    A step lasts from one `next()` to the following one. Raises: CaptureError, TypeError.
    """
    if not hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
        raise TypeError(
            "the data must be iterable, such as a tf.data.Dataset, but are "
            f"{type(data).__name__}: {data!r:.80}"
        )
    windows.observations.elements.data, windows.observations.elements.why = data, None
    iterator = iter(data)
    one_shot = iterator is data
    from_python = not _is_of_tensorflow(iterator)
    n_elements = 0  # of the running epoch
    windows.epochs.length = _length(data)
    while True:
        windows.begin()
        try:
            with windows.fetching(from_python):
                element = next(iterator)
            ended = False
        except StopIteration:
            windows.abort()
            ended = True
        if ended:  # outside of the handler, whose traceback keeps the iterator
            if one_shot and windows.enough:
                return
            if not n_elements or one_shot:
                raise CaptureError(_too_short(windows, n_elements))
            began = perf_counter()
            del iterator  # before the next one is made, as between two for loops
            iterator, n_elements = iter(data), 0
            windows.observations.iterations.append(perf_counter() - began)
            continue
        if not windows.n_steps:
            windows.inputs = workload_of(element, getattr(data, "element_spec", None))
        windows.consumed(element)
        n_elements += 1
        yield element
        windows.end(windows.last_output)
        if windows.done:
            return


def _is_of_tensorflow(iterator: Any) -> bool:
    tf = loaded_tensorflow()
    return tf is not None and isinstance(
        iterator, (tf.data.Iterator, tf.data.NumpyIterator, tf.distribute.DistributedIterator)
    )


def _length(data: Iterable[Any]) -> int | None:
    """Return the number of elements, None if the data do not tell it."""
    try:
        return len(data)  # type: ignore[arg-type]
    except Exception:  # TypeError without a length (tf.data.Dataset.__len__), or what users raise
        return None


class Bracketed:
    """Steps that the user marks in a trace, and the functions called in them."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    @contextmanager
    def step(self) -> Iterator[None]:
        """Mark the code in the context as one step."""
        self.calls.abort_step()
        mark = StepMark("step", self.calls.n_steps)
        try:
            yield
        finally:
            mark.end()
        self.calls.end_step()


def run_once(step: Callable[..., Any], data: Iterable[Any] | None, unpack: bool | str) -> None:
    """Call the step once, unprofiled."""
    if data is None:
        step()
        return
    for element in data:
        calling(step, element, unpack)(element)
        return


def check_step(step: object) -> None:
    """Refuse a step that is not callable, or a coroutine function. Raises: TypeError."""
    if not callable(step):
        raise TypeError(
            "tf_profile takes the step itself, a callable, but got "
            f"{type(step).__name__}: {step!r:.80}"
        )
    if inspect.iscoroutinefunction(step):
        raise TypeError(
            f"{_name(step)} is a coroutine function; pass a plain function that runs one step, "
            "e.g. with asyncio.run"
        )


def workload_of(element: object, spec: object = None) -> Mapping[str, Any]:
    """
    Return the signature of a step's input.

    It holds `dtype[shape]` of each tensor, and the batch size if all tensors have the same first
    size. Later sizes that `spec`, of the data's elements, leaves open vary, and are shown as `?`.

    A strategy's element holds a tensor for each replica. The signature has the tensors of the first
    one, the number of replicas, and the batch of all together.
    """
    found, specs = leaves(element), [_of_one(each) for each in leaves(spec)]
    parts = [_of_replicas(leaf) for leaf in found]
    specs = specs if len(specs) == len(found) else [own[0] for own in parts]
    batches = {
        _batch_of([tensor.shape[0] if _rank(tensor) else None for tensor in tensors])
        for tensors in parts
        if _rank(tensors[0]) != 0
    }
    batch = batches.pop() if len(batches) == 1 else None
    replicas = max(map(len, parts), default=1)
    return {
        "inputs": [_describe(own[0], each) for own, each in zip(parts, specs, strict=True)],
        "batch": batch,
        **({"replicas": replicas} if replicas > 1 else {}),
    }


def mean_batch(elements: Sequence[Any], epoch: int | None) -> float | None:
    """Return the mean batch over whole epochs, whose last may be smaller; None without one."""
    n_whole = len(elements) // epoch * epoch if epoch else 0
    sizes = [workload_of(element)["batch"] for element in elements[len(elements) - n_whole :]]
    return None if not sizes or None in sizes else sum(sizes) / len(sizes)


def _batch_of(sizes: Sequence[int | None]) -> int | None:
    """Return the batch of all replicas together; None if a specification leaves a size open."""
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _rank(leaf: Any) -> int | None:
    """Return the rank of a leaf, None if a specification leaves it open; that of no tensor is 0."""
    shape: Any = getattr(leaf, "shape", None)
    return shape.rank if hasattr(shape, "rank") else len(shape or ())


def _of_replicas(leaf: Any) -> Sequence[Any]:
    """Return the tensors of a strategy's replicas, or the leaf alone if it is for one."""
    tf = loaded_tensorflow()
    is_distributed = tf is not None and isinstance(leaf, tf.distribute.DistributedValues)
    return leaf.values if is_distributed else (leaf,)


def _of_one(spec: Any) -> Any:
    """Return the specification of the first replica's tensor, or the specification itself."""
    if hasattr(spec, "shape"):
        return spec
    tf = loaded_tensorflow()
    return spec if tf is None else next(iter(tf.nest.flatten(spec, expand_composites=True)), spec)


def calling(step: Callable[..., Any], element: Any, unpack: bool | str) -> Call:
    """Return a function that passes an element to the step, whole or unpacked."""
    if unpack is True:
        if not isinstance(element, (tuple, list)):
            raise TypeError(
                f"unpack=True, but the data give {type(element).__name__} elements, which cannot "
                "be unpacked"
            )
        return lambda batch: step(*batch)
    if unpack is False:
        return step
    required = required_parameters(step)
    if required == 0 and _takes_none(step):
        raise TypeError(
            f"{_name(step)} takes no parameter, and the data give elements: let it take one, or "
            "call tf_profile(step) without data"
        )
    if not isinstance(element, tuple):
        if required in (0, 1, None):
            return step
        raise TypeError(
            f"{_name(step)} has {required} required positional parameters, and the data give "
            f"single elements ({type(element).__name__}): let the step take one parameter, or the "
            "data give tuples"
        )
    if required == 1:
        return step
    if required == len(element):
        return lambda batch: step(*batch)
    n_required = required if required is not None else "no fixed number of"
    raise TypeError(
        f"{_name(step)} has {n_required} required positional parameters, and the data give tuples "
        f"of {len(element)}: with the whole element it would need 1, with the unpacked element "
        f"{len(element)}; pass unpack=True or unpack=False to choose"
    )


def required_parameters(step: Callable[..., Any]) -> int | None:
    """Return the number of required positional parameters, None if any number is allowed."""
    target = getattr(step, "python_function", None) or getattr(step, "call", None) or step
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return sum(parameter.default is parameter.empty for parameter in positional)


def _takes_none(step: Callable[..., Any]) -> bool:
    """Return whether a step takes no positional parameter, neither required nor by default."""
    parameters = inspect.signature(getattr(step, "python_function", step)).parameters.values()
    return not any(parameter.kind is not parameter.KEYWORD_ONLY for parameter in parameters)


def _too_short(windows: Windows, n_elements: int) -> str:
    plan = windows.plan
    if not n_elements and not windows.n_steps:
        return "the data are empty: no step could run"
    needed, more = plan.total - plan.last_steps, ""
    if windows.n_steps >= needed:
        more = f"Ten blocks of 20 ms hold more steps; steps={plan.timed_steps} times no more. "
    return (
        f"the data ended after {windows.n_steps} steps and cannot be iterated again; the windows "
        f"need {needed} (1 first step, {plan.warmup} warm-up, "
        f"{plan.timed_steps} or more timed, {plan.traced_steps} traced). {more}"
        "Pass data that can be iterated again (a tf.data.Dataset, a list), or lower warmup=, "
        "steps= and trace_steps="
    )


def _describe(leaf: Any, spec: Any) -> str:
    shape = getattr(leaf, "shape", None)
    if shape is None:
        return type(leaf).__name__
    dtype = getattr(leaf, "dtype", type(leaf).__name__)  # a table has a shape alone
    dtype = getattr(dtype, "name", dtype)
    if _rank(leaf) is None:
        return f"{dtype}[...]"
    declared = getattr(spec, "shape", None)
    if declared is not None and len(shape) > 1 and getattr(declared, "rank", None) == len(shape):
        later = zip(shape[1:], declared[1:], strict=True)
        shape = [shape[0], *(None if size is None else known for known, size in later)]
    return f"{dtype}[{','.join('?' if size is None else str(size) for size in shape)}]"


def _refuse_unfinished(output: Any) -> None:
    """Refuse the output of a step whose functions a ClusterCoordinator still has to run."""
    tf = loaded_tensorflow()
    if tf is None:
        return
    values = (
        leaf
        for leaf in tf.nest.flatten(output)
        if isinstance(leaf, tf.distribute.experimental.coordinator.RemoteValue)
    )
    # private: nothing public tells it without waiting for the value
    if any(getattr(getattr(value, "_status", None), "name", "") == "NOT_READY" for value in values):
        raise CaptureError(
            "the step returned before the functions that it schedules had run, so its time would "
            "be that of scheduling: call coordinator.join() in the step, or fetch() the value that "
            "schedule() returns"
        )


def _name(step: object) -> str:
    return str(getattr(step, "__name__", type(step).__name__))

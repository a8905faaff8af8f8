"""Remedies of the input: of a tf.data.Dataset, and of Python iterables."""

from __future__ import annotations

import inspect
import itertools
import queue
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from pytest_tfperf.advice.changes import PARALLEL, PREFETCH
from pytest_tfperf.compiler.dataset_graph import (
    IN_PARALLEL,
    bytes_of_batches,
    elements_in,
    from_end,
    has_fixed_shuffle,
    line_of_stage,
    may_wait,
    moved_before_maps,
    parallel,
    stage_names,
    stage_of,
    stages_to_move,
    stages_to_parallelise,
    with_parallel_batches,
    with_source,
)
from pytest_tfperf.compiler.datasets import pipeline_stages
from pytest_tfperf.compiler.functions import Unsupported
from pytest_tfperf.frameworks.tensorflow import loaded_tensorflow
from pytest_tfperf.machine.cores import usable_cores
from pytest_tfperf.quantities import BYTES, format_quantity
from pytest_tfperf.recording import ENDLESS, PipelineStage
from pytest_tfperf.remedies.remedy import Call, NotTried, Remedy

_LEAST_WAIT = 0.01  # share of a step below which no remedy of the input can be seen
_KEPT = 16  # elements that are made ready: the steps of a turn, and few enough to wait for
_KEPT_BYTES = 2**28  # that they may take
_AHEAD = 2  # elements of a queue: one is taken while the next is made
CALLS = max(16, 2 * len(usable_cores()))
"""Calls at a time of what waits: several on each core, and few enough for disks and memory."""
_COPIED = 2**20  # bytes of a batch; copying less takes some 0.1 ms, at 10 GB/s
_WORKS = re.compile("Map|Interleave|Filter")
"""Stages whose work a cache saves."""
_LOADS_AHEAD = {
    "torch": "DataLoader(…, num_workers=2, persistent_workers=True), with prefetch_factor=2",
    "grain": "grain.DataLoader(…, worker_count=2), or .to_iter_dataset(grain.ReadOptions(…)) and "
    ".mp_prefetch(grain.MultiprocessingOptions(num_workers=2))",
}
"""How libraries load the next elements beside the step (PyTorch 2.13; Grain 0.2.18)."""
_FROM_PYTHON = (
    "load the next elements in a thread or process, as "
    "tf.data.Dataset.from_generator(…).prefetch(2) does"
)
_PREFETCH = f".{PREFETCH}"


def _options(setting: str) -> str:
    return f"options = tf.data.Options(); {setting}; .with_options(options)"


def is_dataset(data: Any) -> bool:
    """Return whether data are a tf.data.Dataset."""
    tf = loaded_tensorflow()
    return tf is not None and isinstance(data, tf.data.Dataset)


class _OfInput(Remedy):
    """A remedy of data that the step waits for, or may wait for."""

    kind = "input"

    def applies(self, call: Call) -> bool:
        """Return whether the step waits for such data, or it is not known."""
        share = call.number("input_bound")
        waits = share is None or share >= _LEAST_WAIT
        return call.data is not None and waits and self.is_of(call.data)

    def is_of(self, data: Any) -> bool:
        """Return whether the remedy changes such data."""
        return is_dataset(data)


class Parallel(_OfInput):
    """Sequential maps and interleaves in parallel."""

    name = PARALLEL

    def is_of(self, data: Any) -> bool:
        """Return whether a stage is sequential."""
        return is_dataset(data) and bool(stages_to_parallelise(data))

    def apply(self, call: Call) -> Call:
        """Return the call with parallel stages, by the graph of the dataset."""
        try:
            return replace(call, data=parallel(call.data))
        except Unsupported as error:
            raise NotTried(str(error)) from error

    def write(self, call: Call) -> str:
        """Return the parallel form of each sequential stage."""
        return _lines(call, stages_to_parallelise(call.data), IN_PARALLEL)


class ManyCalls(_OfInput):
    """More calls at a time than there are cores, of stages that wait for Python or files."""

    name = f"num_parallel_calls={CALLS} in a thread pool of its own"

    def is_of(self, data: Any) -> bool:
        """Return whether a stage may wait, and has not that many threads."""
        if not is_dataset(data) or not may_wait(data):
            return False
        own = data.options().threading.private_threadpool_size
        return own is None or own < CALLS

    def apply(self, call: Call) -> Call:
        """Return the call with as many calls, and threads for them."""
        tf: Any = loaded_tensorflow()
        options = tf.data.Options()
        options.threading.private_threadpool_size = CALLS
        try:
            data = parallel(call.data, CALLS)
        except Unsupported as error:
            raise NotTried(str(error)) from error
        return replace(call, data=data.with_options(options))

    def write(self, call: Call) -> str:
        """Return each stage with its calls, and the option."""
        calls = f", num_parallel_calls={CALLS}"
        found = stages_to_parallelise(call.data)
        stages = [_lines(call, [one], calls if one[0] == "map" else IN_PARALLEL) for one in found]
        option = f"options.threading.private_threadpool_size = {CALLS}"
        return "; ".join([*(dict.fromkeys(stages) or [calls[2:]]), _options(option)])


class ParallelFilter(_OfInput):
    """Filters that test several elements at a time."""

    name = "filter_parallelization=True"
    code = _options("options.experimental_optimization.filter_parallelization = True")

    def is_of(self, data: Any) -> bool:
        """Return whether a filter runs without Python and state, as the option wants it."""
        return is_dataset(data) and any(
            stage.stage == "Filter" and not stage.python and not stage.random
            for stage in _stages(data)
        )

    def apply(self, call: Call) -> Call:
        """Return the call with the option."""
        tf: Any = loaded_tensorflow()
        data: Any = call.data
        options = tf.data.Options()
        options.experimental_optimization.filter_parallelization = True
        return replace(call, data=data.with_options(options))


class ParallelBatch(_OfInput):
    """Batches whose elements are copied in parallel."""

    name = f".batch(…{IN_PARALLEL})"

    def is_of(self, data: Any) -> bool:
        """Return whether copies of a batch may take time: it is large, or of unknown size."""
        return is_dataset(data) and any(
            size is None or size >= _COPIED for size in bytes_of_batches(data)
        )

    def apply(self, call: Call) -> Call:
        """Return the call with parallel batches, by the graph of the dataset."""
        try:
            return replace(call, data=with_parallel_batches(call.data))
        except Unsupported as error:
            raise NotTried(str(error)) from error


class Order(_OfInput):
    """Stages that take fewer or larger elements before maps that work on each."""

    name = "what throws away or batches before map"

    def is_of(self, data: Any) -> bool:
        """Return whether a stage gives the same before the map in front of it."""
        return is_dataset(data) and bool(stages_to_move(data))

    def apply(self, call: Call) -> Call:
        """Return the call with the stages in another order, by the graph of the dataset."""
        try:
            return replace(call, data=moved_before_maps(call.data))
        except Unsupported as error:
            raise NotTried(str(error)) from error

    def write(self, call: Call) -> str:
        """Return which stage goes before which."""
        moves = stages_to_move(call.data)
        return "; ".join(
            f".{method}(…) before {_lines(call, [('map', code)], '')}" for method, code in moves
        )


class Prefetch(_OfInput):
    """A prefetch at the end."""

    name = _PREFETCH
    code = f"{_PREFETCH} at the end of the pipeline"

    def is_of(self, data: Any) -> bool:
        """Return whether the last stage is another one."""
        return is_dataset(data) and "Prefetch" not in stage_names(data)[0]

    def apply(self, call: Call) -> Call:
        """Return the call with a last stage that works while the step does."""
        data: Any = call.data
        return replace(call, data=data.prefetch(-1))  # tf.data.AUTOTUNE


class ParallelAhead(Parallel):
    """Both of them."""

    name = f"{Parallel.name} and {_PREFETCH}"

    def is_of(self, data: Any) -> bool:
        """Return whether both have something to change."""
        return super().is_of(data) and Prefetch().is_of(data)

    def apply(self, call: Call) -> Call:
        """Return the call with both."""
        return Prefetch().apply(super().apply(call))

    def write(self, call: Call) -> str:
        """Return the code of both."""
        return f"{super().write(call)}; {Prefetch.code}"


class AnyOrder(_OfInput):
    """Elements in the order in which parallel calls end."""

    name = "deterministic=False"
    code = _options("options.deterministic = False")

    def is_of(self, data: Any) -> bool:
        """Return whether a stage is parallel."""
        return is_dataset(data) and any("Parallel" in name for name in stage_names(data))

    def apply(self, call: Call) -> Call:
        """Return the call with the option."""
        tf: Any = loaded_tensorflow()
        data: Any = call.data
        options = tf.data.Options()
        options.deterministic = False
        return replace(call, data=data.with_options(options))


class Ready(_OfInput):
    """The first elements ready: what data that are prepared before the training give at most."""

    name = "data that are ready"
    is_bound = True

    def is_of(self, data: Any) -> bool:
        """Return whether a cache is no remedy."""
        return is_dataset(data) and not _may_be_cached(data)

    def apply(self, call: Call) -> Call:
        """Return the call with all elements if they are few, else the first again and again."""
        return replace(call, data=_full_cache(call.data, _KEPT))


class Cache(Ready):
    """A cache at the end, full: what it gives from the second epoch on."""

    name = ".cache()"
    is_bound = False

    def is_of(self, data: Any) -> bool:
        """Return whether the data may be cached as they are: they end, and are not random."""
        return _may_be_cached(data)

    def write(self, call: Call) -> str:
        """Return where it stands, and what it takes."""
        return f".cache() at the end of the pipeline, if {_epoch_of(call.data)} fits in memory"


class CacheBefore(_OfInput):
    """A full cache in front of what is random or has no end."""

    name = ".cache() before what is random or has no end"

    def is_of(self, data: Any) -> bool:
        """Return whether a part of the pipeline may be cached, and not all of it."""
        return is_dataset(data) and _part_to_cache(data) not in (None, data)

    def apply(self, call: Call) -> Call:
        """Return the call with the stages behind it on elements that are ready."""
        data: Any = call.data
        part = _part_to_cache(data)
        kept = _full_cache(part, _KEPT * elements_in(data, part))
        try:
            return replace(call, data=with_source(data, part, kept))
        except Unsupported as error:
            raise NotTried(str(error)) from error

    def write(self, call: Call) -> str:
        """Return the stage that it stands behind."""
        part = _part_to_cache(call.data)
        line = _lines(call, [stage_of(part)], "")
        return f".cache() behind {line}, if {_epoch_of(part)} of it fits in memory"


class Ahead(_OfInput):
    """A thread that makes the next elements of a Python iterable."""

    name = "a thread that loads ahead"

    def is_of(self, data: Any) -> bool:
        """Return whether Python makes the data."""
        return not is_dataset(data) and not isinstance(data, (list, tuple))

    def apply(self, call: Call) -> Call:
        """Return the call with data from a thread."""
        assert call.data is not None
        return replace(call, data=_Ahead(call.data))

    def write(self, call: Call) -> str:
        """Return how the library of the data loads ahead."""
        return _LOADS_AHEAD.get(type(call.data).__module__.partition(".")[0], _FROM_PYTHON)


class NoInput(_OfInput):
    """One element again and again."""

    name = "no input at all"
    is_bound = True

    def is_of(self, data: Any) -> bool:
        """Return whether it can be taken from the data: it is of any."""
        return data is not None

    def apply(self, call: Call) -> Call:
        """Return the call with the first element for ever."""
        assert call.data is not None
        first = next(iter(call.data))
        if call.keras is not None:  # which takes no iterable of tuples
            tf: Any = loaded_tensorflow()
            return replace(call, data=tf.data.Dataset.from_tensors(first).repeat())
        return replace(call, data=_Same(first))


REMEDIES: tuple[Remedy, ...] = (
    ParallelAhead(),
    Parallel(),
    ManyCalls(),
    Order(),
    Prefetch(),
    ParallelFilter(),
    ParallelBatch(),
    Cache(),
    CacheBefore(),
    Ready(),
    AnyOrder(),
    Ahead(),
    NoInput(),
)


class _Same:
    """One element, as often as it is asked for."""

    def __init__(self, element: Any) -> None:
        self._element = element

    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat(self._element)


class _Ahead:
    """Elements that a thread takes from an iterable ahead of the loop."""

    def __init__(self, data: Iterable[Any]) -> None:
        self._data = data

    def __iter__(self) -> Iterator[Any]:
        made: queue.Queue[tuple[bool, Any]] = queue.Queue(_AHEAD)
        stopped = threading.Event()

        def put(item: tuple[bool, Any]) -> None:
            while not stopped.is_set():
                try:
                    made.put(item, timeout=0.05)
                except queue.Full:
                    continue
                return

        def run() -> None:
            try:
                for element in self._data:
                    put((True, element))
                    if stopped.is_set():
                        return
                put((False, None))
            except BaseException as error:  # it belongs to the loop
                put((False, error))

        threading.Thread(target=run, name="tfperf: ahead", daemon=True).start()
        try:
            while True:
                is_element, item = made.get()
                if not is_element:
                    if item is not None:
                        raise item
                    return
                yield item
        finally:
            stopped.set()


def _lines(call: Call, stages: Iterable[tuple[str, Any]], more: str) -> str:
    """Return the lines of stages with further arguments, each once."""
    code = getattr(inspect.unwrap(call.step), "__code__", None)
    files = [code.co_filename] if code else []
    return "; ".join(
        dict.fromkeys(line_of_stage(method, function, files, more) for method, function in stages)
    )


def _stages(data: Any) -> tuple[PipelineStage, ...]:
    """Return the stages of a dataset, none where they are not visible."""
    try:
        return pipeline_stages(data)
    except Unsupported:
        return ()


def _may_be_cached(data: Any) -> bool:
    """Return whether a dataset ends, has no cache, and nothing random or unknown in it."""
    if not is_dataset(data) or any("Cache" in name for name in stage_names(data)):
        return False
    stages = _stages(data)
    if not stages or any(stage.elements == ENDLESS for stage in stages):
        return False
    return not any(stage.random or stage.python for stage in stages)


def _part_to_cache(data: Any) -> Any:
    """Return the longest part of a pipeline that may be cached and works, None without one."""
    if any("Cache" in name for name in stage_names(data)) or has_fixed_shuffle(data):
        return None
    part = next((one for one in from_end(data) if _may_be_cached(one)), None)
    works = part is not None and any(_WORKS.search(stage.stage) for stage in _stages(part))
    return part if works else None


def _epoch_of(dataset: Any) -> str:
    """Write an epoch of a dataset with its size, as far as it is known."""
    last = _stages(dataset)[-1]
    if last.elements is None or last.element_bytes is None:
        return "an epoch"
    return f"an epoch ({format_quantity(last.elements * last.element_bytes, BYTES)})"


def _full_cache(dataset: Any, n: int) -> Any:
    """Return `n` cached elements or fewer for memory, again and again if those are not all."""
    tf: Any = loaded_tensorflow()
    first = next(iter(dataset))
    leaves = tf.nest.flatten(first, expand_composites=True)
    size = sum(leaf.shape.num_elements() * (leaf.dtype.size or 1) for leaf in leaves)
    most = max(min(n, _KEPT_BYTES // max(size, 1)), 1)
    kept = dataset.take(most).cache()
    is_all = sum(1 for _ in kept) < most
    return kept if is_all else kept.repeat()

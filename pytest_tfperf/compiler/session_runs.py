"""Runs of a `tf.compat.v1.Session`: the ops that each needed, and the graphs that the runtime ran for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.graphs import reached


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRun:
    """The ops of a Graph that one run needed, without those whose results it was fed, and the GraphDefs that ran, one a device."""

    graph: Any
    ops: tuple[Any, ...]
    partitions: tuple[Any, ...]


@contextmanager
def session_runs_recorded(in_step: Callable[[], bool]) -> Iterator[list[SessionRun]]:
    """Within the context, note each run of a Session while `in_step` says so, but those for which the user wants metadata too."""
    import tensorflow as tf
    from tensorflow.python.client import session  # private: the base of all kinds of sessions

    runs: list[SessionRun] = []
    original = session.BaseSession.run

    def running(
        self: Any,
        fetches: Any,
        feed_dict: Any = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        if options is not None or run_metadata is not None or not in_step():
            return original(self, fetches, feed_dict, options, run_metadata)
        seen = tf.compat.v1.RunMetadata()
        result = original(
            self, fetches, feed_dict, tf.compat.v1.RunOptions(output_partition_graphs=True), seen
        )
        runs.append(
            SessionRun(
                graph=self.graph,
                ops=_needed(self.graph, fetches, feed_dict),
                partitions=tuple(seen.partition_graphs),
            )
        )
        return result

    session.BaseSession.run = running
    try:
        yield runs
    finally:
        session.BaseSession.run = original


def _needed(graph: Any, fetches: Any, feed_dict: Any) -> tuple[Any, ...]:
    """In the order of the graph."""
    import tensorflow as tf

    fed = {_element(graph, key).ref() for key in tf.nest.flatten(list(feed_dict or ()))}
    fetched = [_element(graph, fetch) for fetch in tf.nest.flatten(fetches)]
    found = reached(
        [getattr(one, "op", one) for one in fetched],
        lambda op: [
            *(tensor.op for tensor in op.inputs if tensor.ref() not in fed),
            *op.control_inputs,
        ],
    )
    return tuple(op for op in graph.get_operations() if op in found)


def _element(graph: Any, name: Any) -> Any:
    """The op or dense tensor that a fetch or feed stands for; of a sparse tensor its values."""
    return graph.as_graph_element(
        getattr(name, "values", name) if not isinstance(name, str) else name
    )

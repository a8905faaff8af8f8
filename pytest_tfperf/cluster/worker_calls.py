"""A call of `tf_profile.workers`, and the environment of its processes."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from pytest_tfperf.results import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersCall:
    """One call of `tf_profile.workers`."""

    names: Sequence[str]
    """Names of the profiles, one a worker, the chief's first."""
    measure: Callable[[], Profile]
    """Makes the profile of the worker that this process is."""


RunWorkers = Callable[[WorkersCall], tuple[Profile, ...]]
"""Runs the workers of a call in processes of their own."""


def who(index: int) -> str:
    """Return the name of a worker in messages and profiles."""
    return f"worker {index}"


def cluster_environments(n_workers: int) -> list[dict[str, str]]:
    """
    Return environment variables of each worker, by which TensorFlow finds the others.

    `TF_CONFIG` is what `tf.distribute.cluster_resolver.TFConfigClusterResolver` reads. The workers
    listen on ports of the loopback interface that are free now.
    """
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(n_workers)]
    return [
        {
            "TF_CONFIG": json.dumps(
                {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            )
        }
        for index in range(n_workers)
    ]


def _free_ports(n: int) -> list[int]:
    """Return different ports that nobody listens on; they are all held until each is known."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(n)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]

"""
Assign nodes to auto-clusters: the runtime shows the shells of clusters, not their contents.

A function's graph is compared with the same graph without clusters. Nodes missing from it are
inside a cluster. The inputs and results of the shells show which one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import TopologicalSorter
from typing import Any

from pytest_tfperf.op_types import FUNCTION_ARGUMENTS

_NEW = re.compile(r"/_\d+(?=/|$)")  # numbers added by the lowering of loops and branches
_MOVED = "/declustered"  # copied back out of a cluster (partially_decluster_pass.cc)

Sources = Mapping[str, list[str]]


def cluster_of(unclustered: Any, clustered: Any) -> dict[str, str]:
    """Return the cluster of each node of the unclustered GraphDef that is inside one, by name."""
    shells = {
        _shell(node.name): node.attr["function"].func.name
        for node in clustered.node
        if node.op == "_XlaCompile"
    }
    outside = {
        _plain(node.name): node for node in clustered.node if _shell(node.name) not in shells
    }
    inside = {
        node.name
        for node in unclustered.node
        if _plain(node.name) not in outside and node.op not in FUNCTION_ARGUMENTS
    }
    rank = _rank(clustered, shells)
    known = _takers(unclustered, clustered, shells, inside) | _givers(unclustered, outside, shells)
    return _assigned(_data_sources(unclustered), inside, known, rank)


def _plain(name: str) -> str:
    return _NEW.sub("", name.removesuffix(_MOVED))


def _shell(name: str) -> str:
    """Return the common prefix of the nodes of a cluster's shell."""
    return name.rpartition("/")[0]


def _source(ref: str) -> str:
    """Return the name of the node that an input comes from."""
    return ref.removeprefix("^").partition(":")[0]


def _data_sources(graph: Any) -> Sources:
    """Return the nodes whose results each node takes, without the back edges of loops."""
    back = {node.name for node in graph.node if "NextIteration" in node.op}
    return {
        node.name: [source for source in map(_source, _data(node)) if source not in back]
        for node in graph.node
    }


def _data(node: Any) -> list[str]:
    return [ref for ref in node.input if not ref.startswith("^")]


def _rank(clustered: Any, shells: Mapping[str, str]) -> dict[str, int]:
    """Return the position of each cluster in a possible order of execution."""
    back = {node.name for node in clustered.node if "NextIteration" in node.op}
    sources = {
        node.name: [source for source in map(_source, node.input) if source not in back]
        for node in clustered.node
    }
    runs = [
        name
        for name in TopologicalSorter(sources).static_order()
        if name.endswith("/xla_run") and _shell(name) in shells
    ]
    return {shells[_shell(name)]: index for index, name in enumerate(runs)}


def _givers(
    unclustered: Any, outside: Mapping[str, Any], shells: Mapping[str, str]
) -> dict[str, set[str]]:
    """Return the cluster of each node whose result a node outside takes from a shell."""
    clusters: dict[str, set[str]] = {}
    for node in unclustered.node:
        same = outside.get(_plain(node.name))
        if same is None:
            continue
        for before, after in zip(_data(node), _data(same), strict=False):
            shell = _shell(_source(after))
            if shell in shells:
                clusters[_source(before)] = {shells[shell]}
    return clusters


def _takers(
    unclustered: Any, clustered: Any, shells: Mapping[str, str], inside: set[str]
) -> dict[str, set[str]]:
    """Return, for each node inside, the clusters that take all its inputs from outside."""
    takers: dict[str, set[str]] = {}
    for node in clustered.node:
        if node.op in ("_XlaCompile", "_XlaRun"):
            for source in map(_source, _data(node)):
                takers.setdefault(_plain(source), set()).add(shells[_shell(node.name)])
    clusters = {}
    for node in unclustered.node:
        possible = [
            takers[_plain(source)]
            for source in map(_source, _data(node))
            if source not in inside and _plain(source) in takers
        ]
        if node.name in inside and possible and (common := set.intersection(*possible)):
            clusters[node.name] = common
    return clusters


def _assigned(
    sources: Sources, inside: set[str], known: Mapping[str, set[str]], rank: Mapping[str, int]
) -> dict[str, str]:
    """
    Return the cluster of each node inside.

    A node is in the cluster of its users, and in the first one if these are in several. A node
    without users in a cluster, such as a write to a variable, is in the cluster of its sources.

    Args:
        sources: Sources of each node.
        inside: Names of the nodes inside clusters.
        known: Possible clusters of a node, where known.
        rank: Position of each cluster in the order of execution.
    """
    order = list(TopologicalSorter(sources).static_order())
    cluster = {
        name: next(iter(possible))
        for name, possible in known.items()
        if len(possible) == 1 and name in inside
    }
    users: dict[str, list[str]] = {}
    for name in order:
        for source in sources[name]:
            users.setdefault(source, []).append(name)
    backwards, forwards = (users, min, order[::-1]), (sources, max, order)
    for neighbours, choose, names in (backwards, forwards, backwards):
        for name in names:
            near = {cluster[other] for other in neighbours.get(name, ()) if other in cluster}
            near &= known.get(name, set(rank))
            if name in inside and name not in cluster and near:
                cluster[name] = choose(near, key=rank.__getitem__)
    return {
        name: cluster.get(name) or min(known.get(name, rank), key=rank.__getitem__)
        for name in order
        if name in inside
    }

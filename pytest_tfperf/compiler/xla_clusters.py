"""
Which nodes auto-clustering put into which cluster: the runtime shows the shells of clusters, not what is in them.

So a function's graph is compared with the same graph in which nothing is clustered. What is missing is inside; which cluster a
node is in follows from what the shells take and give.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import TopologicalSorter
from typing import Any

from pytest_tfperf.op_types import FUNCTION_ARGUMENTS

_NEW = re.compile(r"/_\d+(?=/|$)")  # numbers that the lowering of loops and branches gives
_MOVED = "/declustered"  # copied out of a cluster again (partially_decluster_pass.cc)

Sources = Mapping[str, list[str]]


def cluster_of(unclustered: Any, clustered: Any) -> dict[str, str]:
    """The cluster of each node of the unclustered GraphDef that is inside one, by name."""
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
    """The name that all nodes of a cluster's shell begin with."""
    return name.rpartition("/")[0]


def _source(ref: str) -> str:
    """The node that an input is from."""
    return ref.removeprefix("^").partition(":")[0]


def _data_sources(graph: Any) -> Sources:
    """The nodes whose results each node takes; loops are cut where they begin anew."""
    again = {node.name for node in graph.node if "NextIteration" in node.op}
    return {
        node.name: [one for one in map(_source, _data(node)) if one not in again]
        for node in graph.node
    }


def _data(node: Any) -> list[str]:
    return [ref for ref in node.input if not ref.startswith("^")]


def _rank(clustered: Any, shells: Mapping[str, str]) -> dict[str, int]:
    """The place of each cluster in an order in which they may run."""
    again = {node.name for node in clustered.node if "NextIteration" in node.op}
    sources = {
        node.name: [one for one in map(_source, node.input) if one not in again]
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
    """The cluster of each node whose result is used by one outside, which after clustering takes it from a shell."""
    found: dict[str, set[str]] = {}
    for node in unclustered.node:
        same = outside.get(_plain(node.name))
        for ours, theirs in zip(_data(node), _data(same) if same is not None else (), strict=False):
            shell = _shell(_source(theirs))
            if shell in shells:
                found[_source(ours)] = {shells[shell]}
    return found


def _takers(
    unclustered: Any, clustered: Any, shells: Mapping[str, str], inside: set[str]
) -> dict[str, set[str]]:
    """The clusters that take all that a node inside takes from outside; none is listed if that is not known."""
    takers: dict[str, set[str]] = {}
    for node in clustered.node:
        for one in map(_source, _data(node)) if node.op in ("_XlaCompile", "_XlaRun") else ():
            takers.setdefault(_plain(one), set()).add(shells[_shell(node.name)])
    found = {}
    for node in unclustered.node:
        taking = [
            takers[_plain(one)]
            for one in map(_source, _data(node))
            if one not in inside and _plain(one) in takers
        ]
        if node.name in inside and taking and (common := set.intersection(*taking)):
            found[node.name] = common
    return found


def _assigned(
    sources: Sources, inside: set[str], known: Mapping[str, set[str]], rank: Mapping[str, int]
) -> dict[str, str]:
    """
    The cluster of each node inside, one of those that are `known` to be possible for it.

    What something in a cluster is computed from is in that cluster too, and if it is for several clusters, in the first of them;
    what nobody in a cluster uses, as it writes a variable, is in that of what it is computed from.
    """
    order = list(TopologicalSorter(sources).static_order())
    found = {
        name: next(iter(possible))
        for name, possible in known.items()
        if len(possible) == 1 and name in inside
    }
    users: dict[str, list[str]] = {}
    for name in order:
        for one in sources[name]:
            users.setdefault(one, []).append(name)
    backwards, forwards = (users, min, order[::-1]), (sources, max, order)
    for near, choose, nodes in (backwards, forwards, backwards):
        for name in nodes:
            close = {found[one] for one in near.get(name, ()) if one in found} & known.get(
                name, set(rank)
            )
            if name in inside and name not in found and close:
                found[name] = choose(close, key=rank.__getitem__)
    return {
        name: found.get(name) or min(known.get(name, rank), key=rank.__getitem__)
        for name in order
        if name in inside
    }

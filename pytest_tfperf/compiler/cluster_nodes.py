"""
Which nodes auto-clustering put into which cluster: the runtime shows the shells of clusters, not what is in them.

So a function's graph is compared with the same graph in which nothing is clustered. What is missing is inside; which cluster a
node is in follows from where its results go, and from that clusters do not wait for themselves.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from graphlib import TopologicalSorter
from typing import Any

_NEW = re.compile(r"/_\d+(?=/|$)")  # numbers that the lowering of loops and branches gives
_MOVED = "/declustered"  # copied out of a cluster again (partially_decluster_pass.cc)
_ARGUMENTS = frozenset({"_Arg", "_Retval", "_DeviceArg", "_DeviceRetval"})

Sources = Mapping[str, list[str]]


def cluster_of(unclustered: Any, clustered: Any) -> dict[str, str]:
    """The cluster of each node of the unclustered GraphDef that is inside one, by name."""
    shells = {_shell(node.name): node.attr["function"].func.name for node in clustered.node if node.op == "_XlaCompile"}
    outside = {_plain(node.name): node for node in clustered.node if _shell(node.name) not in shells}
    inside = {node.name for node in unclustered.node if _plain(node.name) not in outside and node.op not in _ARGUMENTS}
    results = _results(unclustered, outside, shells)
    seeds = {_source(ref): cluster for ref, cluster in results.items() if _source(ref) in inside}
    n_results = Counter(shells[_shell(node.name)] for node in clustered.node if node.op == "_XlaMerge")
    hidden = {cluster for cluster, n in n_results.items() if n > list(results.values()).count(cluster)}
    return _Nodes(unclustered, inside, seeds, list(shells.values())).assigned(hidden)


def _plain(name: str) -> str:
    return _NEW.sub("", name.removesuffix(_MOVED))


def _shell(name: str) -> str:
    """The name that all nodes of a cluster's shell begin with."""
    return name.rpartition("/")[0]


def _source(ref: str) -> str:
    """The node that an input is from."""
    return ref.removeprefix("^").partition(":")[0]


def _sources(graph: Any) -> dict[str, list[str]]:
    """The nodes that each node waits for; loops are cut where they begin anew."""
    again = {node.name for node in graph.node if "NextIteration" in node.op}
    return {node.name: [one for one in map(_source, node.input) if one not in again] for node in graph.node}


def _results(graph: Any, outside: Mapping[str, Any], shells: Mapping[str, str]) -> dict[str, str]:
    """The clusters of those results that nodes outside use, which name a shell as their source after clustering."""
    found: dict[str, str] = {}
    for node in graph.node:
        same = outside.get(_plain(node.name))
        for ours, theirs in zip(node.input, same.input if same is not None else (), strict=False):
            shell = _shell(_source(theirs))
            if shell in shells and not ours.startswith("^"):
                found[ours] = shells[shell]
    return found


class _Nodes:
    """The nodes of a graph in the order in which they may run, and the clusters of those inside that are known."""

    def __init__(self, graph: Any, inside: set[str], seeds: Mapping[str, str], clusters: list[str]) -> None:
        self.sources = _sources(graph)
        self.order = list(TopologicalSorter(self.sources).static_order())
        self.inside = inside
        self.seeds = seeds
        self.found = dict(seeds)
        ranked = dict.fromkeys([seeds[name] for name in self.order if name in seeds] + clusters)
        self.rank = {cluster: rank for rank, cluster in enumerate(ranked)}

    def assigned(self, hidden: set[str]) -> dict[str, str]:
        """The cluster of each node inside; `hidden` are the clusters with results that only other clusters use."""
        self._by_what_they_are_for()
        self._by_what_they_are_from(hidden)
        for name in self.order:
            if name in self.inside and name not in self.found:  # nobody uses what it gives: it writes a variable
                given = {self.found[one] for one in self.sources[name] if one in self.found}
                self.found[name] = max(given or self.rank, key=self.rank.__getitem__)
        return self.found

    def _by_what_they_are_for(self) -> None:
        """What a result is computed from is in its cluster; if it is for results of several clusters, in the first of them."""
        for name in reversed(self.order):
            for one in self.sources[name] if name in self.found else ():
                if one in self.inside and one not in self.seeds:
                    self.found[one] = min(self.found.get(one, self.found[name]), self.found[name], key=self.rank.__getitem__)

    def _by_what_they_are_from(self, hidden: set[str]) -> None:
        """
        What is computed from a cluster with hidden results is in that cluster, as far as its own results are not.

        Not if it also waits for a node outside that waits for the same cluster, since then the cluster would wait for itself.
        """
        waits: dict[str, set[str]] = {}
        for name in self.order:
            given = {self.found[one] for one in self.sources[name] if one in self.found}
            waits[name] = set().union(*(waits.get(one, set()) for one in self.sources[name]), given if name not in self.inside else ())
            possible = (given & hidden) - waits[name]
            if name in self.inside and name not in self.seeds and possible:
                self.found[name] = max(possible, key=self.rank.__getitem__)

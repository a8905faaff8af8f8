"""Containers that grew, by what they hold."""

import weakref

from pytest_tfperf.capture.kept_objects import Containers


def test_a_kept_object_may_have_a_proxy_of_a_dead_one():
    class Node:
        pass

    history, before = [], Containers(0)
    for _ in range(8):
        owner, node = Node(), Node()
        node.parent, node.rows = weakref.proxy(owner), bytes(4096)
        history.append(node)
        del owner
    (found,) = before.kept(8, 4096)
    assert found.place.startswith("history of test_a_kept_object_may_have_a_proxy_of_a_dead_one")

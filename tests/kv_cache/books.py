"""The radix tree's books, counted again from its nodes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from covey.engine.kv_cache.node import RadixNode
from covey.engine.kv_cache.radix_tree import RadixTree


def bare_node(number: int) -> RadixNode:
    """A node of no tree."""
    return RadixNode(number, None, np.empty(0, dtype=np.int32), references=0)


def nodes_of(tree: RadixTree) -> list[RadixNode]:
    """The resident nodes below the root, parents first."""
    found = [tree.root]
    for node in found:  # grows while it is read
        found += node.children.values()
    return found[1:]


def check_books(tree: RadixTree, reserved: int = 0) -> None:
    """Compare every number that a tree keeps with what its nodes say.

    Args:
        reserved: slots that were reserved and not given back; at least so many.
    """
    nodes = [tree.root, *nodes_of(tree)]
    owned = Counter(
        slot for node in nodes for start, n in node.segments for slot in range(start, start + n)
    )
    assert not owned or max(owned.values()) == 1
    assert all(0 <= slot < tree.capacity for slot in owned)
    locked = sum(node.length for node in nodes if node.references)
    out = tree.capacity - tree.free - len(owned)  # slots that are reserved
    assert out >= reserved and tree.locked == locked + out
    assert tree.capacity - tree.free <= tree.peak
    assert {n for n in nodes if not n.references and not n.children} == tree._queue._values.keys()
    for node in nodes:
        assert node.resident and sum(n for _, n in node.segments) == node.length
        assert node.references >= sum(child.references > 0 for child in node.children.values())
        if node.parent is not None:
            assert node.length and node.start == node.parent.end
            assert node.parent.children[tree._key(node.tokens)] is node
            # Nothing stays for no reason.
            assert node.references or node.children or node.wanted
        if node in tree._queue:
            reads = max(node.reads, float(node.unfinished))
            worth = reads * tree._cost.seconds(node.start, node.length) / node.length
            assert tree._queue[node] == pytest.approx(worth)
        for document in node.documents:
            assert node in tree._nodes_of[document] and tree.keeps(document)
            assert node.reads >= max(tree._reads[each] for each in node.documents)
    for document, kept in tree._nodes_of.items():
        assert kept and all(node.resident and document in node.documents for node in kept)

"""Give up shares that are worth less than the node that holds them."""

from __future__ import annotations

import numpy as np

from covey.arrays import Bool, Int64
from covey.prompts.forest.trie import Trie, trie_from_paths


def flatten(trie: Trie, node_tokens: int) -> Trie:
    """Merge into its children every node whose share saves no more than a node costs.

    A node of n tokens under which c copies would otherwise run (its children, and the
    prompts that end at it as one) saves n · (c - 1) tokens. It is kept when that is more
    than `node_tokens`; otherwise each child starts with its tokens, and a prompt that
    ended at it becomes a leaf. Nodes are judged from the root down, n counting what came
    down from merged ancestors and c the children before any merging.

    Args:
        trie: not changed.
        node_tokens: what a node costs the engine (one more span to allocate, to pass
            to the kernel and to release), in tokens of model work; 0 merges nothing.

    Returns:
        A trie of the same runs with `given_up` raised by exactly the tokens added.
    """
    lowered = _merged_depth(trie, node_tokens)
    if not (lowered >= 0).any():
        return trie
    shared = trie.shared.copy()
    # Paths that fork off at a merged node share only what lies above it.
    forks = np.flatnonzero(shared)
    fork_node = _fork_nodes(trie, forks)
    depth = lowered[fork_node]
    shared[forks[depth >= 0]] = depth[depth >= 0]
    given_up = trie.given_up + int((trie.shared - shared).sum())
    return trie_from_paths(trie.column, trie.row_path, trie.rows, shared, given_up)


def _merged_depth(trie: Trie, node_tokens: int) -> Int64:
    """(nodes,) int64: the depth to which a merged node's children reach up, else -1."""
    copies = np.bincount(trie.parent[1:], minlength=len(trie)) + (trie.prompts > 0)
    end_depth = trie.depth + trie.end - trie.start
    forks = copies > 1
    forks[0] = False

    def worthless(nodes: Int64, top: Int64) -> Bool:
        worth = (end_depth[nodes] - top) * (copies[nodes] - 1)
        return np.asarray(worth <= node_tokens, dtype=np.bool_)

    lowered = np.full(len(trie), -1, dtype=np.int64)
    waiting = np.flatnonzero(forks)
    waiting = waiting[worthless(waiting, trie.depth[waiting])]
    undecided = np.zeros(len(trie), dtype=np.bool_)
    undecided[waiting] = True
    # Each round decides the nodes whose parent is decided. A chain of k such nodes holds
    # k tokens or more, so the rounds together cost no more than the tokens.
    while len(waiting):
        ready = ~undecided[trie.parent[waiting]]
        nodes = waiting[ready]
        above = lowered[trie.parent[nodes]]
        top = np.where(above >= 0, above, trie.depth[nodes])
        merge = worthless(nodes, top)
        lowered[nodes[merge]] = top[merge]
        undecided[nodes] = False
        waiting = waiting[~ready]
    return lowered


def _fork_nodes(trie: Trie, paths: Int64) -> Int64:
    """The node at which each of some paths leaves the path before it."""
    first = np.searchsorted(trie.node_first, trie.path_first[paths], side="left")
    return trie.parent[first]

"""A trie over token runs as columns, from a sort and the overlap of neighbours.

Sorted lexicographically, the distinct runs ("paths") come in depth-first order, and
path i adds exactly the tokens [shared[i], lengths[i]) to the trie, where shared[i] is
the longest common prefix of paths i - 1 and i (Kasai et al. 2001 give the tree of such
an array; here it is built with range minima instead of a stack, so no loop runs per
path). Everything else follows from `shared` and `lengths`.

The sort compares the runs' little-endian bytes in place. That is not the order of the
token numbers, but it is *a* fixed order of symbols, prefixes first, and a trie asks for
no more; it saves a second copy of every token.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from covey.arrays import Bool, Int32, Int64, distinct, offsets_of, ranges
from covey.prompts.forest.minima import Minima
from covey.prompts.tokens import Tokens

_PAIRS = 1 << 16  # neighbours compared at a time
_WINDOW_TOKENS = 1 << 21  # tokens gathered at a time while comparing


@dataclass(frozen=True)
class Trie:
    """Paths and nodes, both in depth-first order. Node 0 is the root and has no tokens.

    Attributes:
        column: the runs the trie was built from; nodes point into column.flat.
        row_path: (runs,) int64, the path of each run; equal runs have one path.
        rows: (paths,) int64, a run that holds the path's tokens.
        shared: (paths,) int64, tokens that a path shares with the one before it.
        lengths: (paths,) int64.
        path_node: (paths,) int64, where a path ends.
        parent: (nodes,) int64, always smaller than the node; -1 for the root.
        start, end: (nodes,) int64, the node's tokens are column.flat[start:end].
        depth: (nodes,) int64, tokens above the node: the RoPE position of its first.
        subtree_end: (nodes,) int64, one past the node's subtree.
        prompts: (nodes,) int64, runs that end at the node.
    """

    column: Tokens
    row_path: Int64
    rows: Int64
    shared: Int64
    lengths: Int64
    path_node: Int64
    parent: Int64
    start: Int64
    end: Int64
    depth: Int64
    subtree_end: Int64
    prompts: Int64

    def __len__(self) -> int:
        """Number of nodes, the root included."""
        return len(self.parent)

    @property
    def paths(self) -> int:
        """Number of distinct runs."""
        return len(self.rows)

    @property
    def row_node(self) -> Int64:
        """(runs,) int64, the node at which each run ends."""
        return self.path_node[self.row_path]

    def end_depth(self, nodes: Int64 | int) -> Int64:
        """Tokens from the root to the end of each of some nodes."""
        found: Int64 = self.depth[nodes] + self.end[nodes] - self.start[nodes]
        return found

    @property
    def size(self) -> int:
        """Tokens in the trie: what has to be computed if nothing is computed twice."""
        return int((self.lengths - self.shared).sum())

    @property
    def requested_tokens(self) -> int:
        """Tokens of all runs, each counted in full."""
        return int(self.lengths[self.row_path].sum())

    @cached_property
    def node_first(self) -> Int64:
        """(nodes + 1,) int64, where each node begins in the depth-first token stream."""
        return offsets_of(self.end - self.start)

    @cached_property
    def path_first(self) -> Int64:
        """(paths + 1,) int64, where each path's new tokens begin in that stream."""
        return offsets_of(self.lengths - self.shared)


@dataclass(frozen=True, slots=True)
class Stream:
    """The tokens of a trie in depth-first order.

    Attributes:
        tokens: (size,) int32.
        depth: (size,) int32, tokens above each.
        subtree_end: (size,) int32, one past each: i sees k exactly when k <= i < subtree_end[k].
    """

    tokens: Int32
    depth: Int32
    subtree_end: Int32


def build_trie(tokens: Tokens) -> Trie:
    """The trie of at least one run. Runs may be empty, equal, or prefixes of each other.

    Memory beside the tokens is about 150 bytes a run; time is a sort plus one look at
    every shared token.
    """
    order = _sorted(tokens)
    overlap = _overlaps(tokens, order)
    lengths = tokens.lengths[order]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = overlap[1:] < lengths[1:]  # prefixes come first, so the rest repeat
    row_path = np.empty(len(order), dtype=np.int64)
    row_path[order] = np.cumsum(new) - 1
    return _trie_from_paths(tokens, row_path, order[new], overlap[new])


def _trie_from_paths(column: Tokens, row_path: Int64, rows: Int64, shared: Int64) -> Trie:
    """Nodes from the paths. `shared` may be less than the true overlap (see `flatten`)."""
    lengths, minima = column.lengths[rows], Minima(shared)
    stride = int(lengths.max()) + 1
    # A node is named by the first path through it and the depth of its end. Sorted, those
    # names are the depth-first order: a path's own chain, then the next path's.
    forks = np.flatnonzero(shared)
    fork_name = minima.last_below(forks, shared[forks]) * stride + shared[forks]
    ends = np.arange(len(rows), dtype=np.int64) * stride + lengths
    names = distinct(np.concatenate([np.zeros(1, dtype=np.int64), fork_name, ends]))
    path, end_depth = names // stride, names % stride
    first = np.empty(len(names), dtype=np.bool_)
    first[0] = True
    first[1:] = path[1:] > path[:-1]
    # The root is named (0, 0), so what follows on path 0 hangs on it like a chain.
    parent = np.arange(-1, len(names) - 1, dtype=np.int64)
    depth = np.zeros(len(names), dtype=np.int64)
    depth[1:] = end_depth[:-1]
    heads = np.flatnonzero(first)[1:]
    fork_of = np.zeros(len(rows), dtype=np.int64)
    fork_of[forks] = np.searchsorted(names, fork_name)
    parent[heads], depth[heads] = fork_of[path[heads]], shared[path[heads]]
    path_node = np.searchsorted(names, ends)
    path_begin = np.searchsorted(path, np.arange(len(rows) + 1))
    subtree_ends = path_begin[minima.first_below(path + 1, end_depth)]
    origin = column.offsets[rows][path]
    start, end = origin + depth, origin + end_depth
    prompts = np.bincount(path_node[row_path], minlength=len(names)).astype(np.int64)
    return Trie(
        column, row_path, rows, shared, lengths, path_node,
        parent, start, end, depth, subtree_ends, prompts,
    )  # fmt: skip


def flatten(trie: Trie, node_tokens: int) -> Trie:
    """Merge into its children every node whose share saves no more than a node costs.

    A node of n tokens under which c copies would otherwise run (its children, and the
    prompts that end at it as one) saves n · (c - 1) tokens. It is kept when that is more
    than `node_tokens`; otherwise each child starts with its tokens, and a prompt that
    ended at it becomes a leaf. Nodes are judged from the root down, n counting what came
    down from merged ancestors and c the children before any merging.

    Args:
        node_tokens: what a node costs the engine (one more segment to allocate, to pass
            to the kernel and to release), in tokens of model work; 0 merges nothing.
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
    return _trie_from_paths(trie.column, trie.row_path, trie.rows, shared)


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


def ends_last(trie: Trie) -> Trie:
    """The same trie, in which a run that others go on from ends behind them.

    Such a run's end becomes a node without tokens, the last child of the node at which it
    ended. What hangs on it then comes after the longer runs in the stream, so that a chain
    of runs, each the beginning of the next, is one unbroken stretch of tokens.
    """
    ends = distinct(trie.path_node)
    inner = ends[trie.subtree_end[ends] > ends + 1]
    if not len(inner):
        return trie
    # Before each place of the old order go the ends of the subtrees that close there,
    # inner ones first: they have larger numbers.
    inner = inner[np.lexsort((-inner, trie.subtree_end[inner]))]
    closes = trie.subtree_end[inner]
    moved = np.arange(len(trie)) + np.searchsorted(closes, np.arange(len(trie)), side="right")
    added = closes + np.arange(len(inner))
    count = len(trie) + len(inner)

    def spread(old: Int64, new: Int64) -> Int64:
        out = np.empty(count, dtype=np.int64)
        out[moved], out[added] = old, new
        return out

    end_depth = trie.depth + trie.end - trie.start
    is_inner = np.zeros(len(trie), dtype=np.int64)
    is_inner[inner] = 1
    # A subtree gains the ends that close within it; of those at its very end, its own and
    # its descendants', whose numbers are not smaller.
    keys = closes * count - inner
    gained = np.searchsorted(keys, trie.subtree_end * count - np.arange(len(trie)), side="right")
    target = moved.copy()
    target[inner] = added
    return replace(
        trie,
        path_node=target[trie.path_node],
        parent=spread(np.where(trie.parent < 0, -1, moved[trie.parent]), moved[inner]),
        start=spread(trie.start, trie.end[inner]),
        end=spread(trie.end, trie.end[inner]),
        depth=spread(trie.depth, end_depth[inner]),
        subtree_end=spread(trie.subtree_end + gained, added + 1),
        prompts=spread(np.where(is_inner, 0, trie.prompts), trie.prompts[inner]),
    )


def stream_of(trie: Trie) -> Stream:
    """Every token of a trie in depth-first order; 12 bytes a token, 40 while building."""
    fresh = trie.lengths - trie.shared
    source = ranges(trie.column.offsets[trie.rows] + trie.shared, fresh)
    return Stream(
        trie.column.flat[source],
        ranges(trie.shared, fresh).astype(np.int32),
        subtree_ends_of(trie.shared, trie.shared, fresh).astype(np.int32),
    )


def subtree_ends_of(shared: Int64, depth: Int64, lengths: Int64) -> Int64:
    """The subtree end of every token of some paths laid end to end.

    Args:
        shared: (n,) tokens each path shares with the one before; 0 starts a new tree.
        depth: (n,) depth of each path's first token here.
        lengths: (n,) tokens of each path here.

    Returns:
        (lengths.sum(),) int64, an index into these tokens for each.
    """
    begin = offsets_of(lengths)
    subtree_ends = np.repeat(begin[1:], lengths)
    # A token stays open past its own path only above the next path's fork: few do.
    reach = np.zeros(len(shared), dtype=np.int64)
    reach[:-1] = np.minimum(shared[1:] - depth[:-1], lengths[:-1])
    open_paths = np.flatnonzero(reach > 0)
    if len(open_paths):
        count = reach[open_paths]
        path = np.repeat(open_paths, count)
        level = ranges(depth[open_paths], count)
        subtree_ends[ranges(begin[open_paths], count)] = begin[
            Minima(shared).first_below(path + 2, level + 1)
        ]
    return subtree_ends


def _sorted(tokens: Tokens) -> Int64:
    flat = np.ascontiguousarray(tokens.flat, dtype=np.int32)
    offsets = pa.py_buffer(np.ascontiguousarray(tokens.offsets * 4))
    buffers = [None, offsets, pa.py_buffer(flat)]
    runs = pa.Array.from_buffers(pa.large_binary(), len(tokens), buffers)
    order: Int64 = pc.sort_indices(runs).to_numpy().astype(np.int64)
    return order


def _overlaps(tokens: Tokens, order: Int64) -> Int64:
    """(n,) int64: the longest common prefix of each run in `order` and the one before."""
    out = np.zeros(len(order), dtype=np.int64)
    starts, lengths = tokens.offsets[:-1], tokens.lengths
    for at in range(1, len(order), _PAIRS):
        after = order[at : at + _PAIRS]
        before = order[at - 1 : at - 1 + len(after)]
        limit = np.minimum(lengths[before], lengths[after])
        out[at : at + len(after)] = overlap(
            (tokens.flat, starts[before]), (tokens.flat, starts[after]), limit
        )
    return out


def overlap(left: tuple[Int32, Int64], right: tuple[Int32, Int64], limit: Int64) -> Int64:
    """Equal tokens from two lists of places on, at most `limit`, pair by pair.

    Args:
        left, right: a flat array and (n,) starts in it.
        limit: (n,) tokens that both sides hold at least.
    """
    done = np.zeros(len(limit), dtype=np.int64)
    going = np.flatnonzero(limit > 0)
    width = 8
    while len(going):
        width = max(8, min(2 * width, _WINDOW_TOKENS // len(going)))
        ahead = done[going]
        differ = _windows(left[0], left[1][going] + ahead, width) != _windows(
            right[0], right[1][going] + ahead, width
        )
        step = differ.argmax(axis=1)
        step[~differ.any(axis=1)] = width
        ahead += step
        done[going] = np.minimum(ahead, limit[going])
        going = going[(step == width) & (ahead < limit[going])]
    return done


def _windows(flat: Int32, starts: Int64, width: int) -> Int32:
    """(n, width): the tokens from each start; past the end of `flat`, its last token."""
    if len(flat) < width or starts.max() > len(flat) - width:
        windows: Int32 = flat[np.minimum(starts[:, None] + np.arange(width), len(flat) - 1)]
    else:
        windows = np.lib.stride_tricks.sliding_window_view(flat, width)[starts]
    return windows

"""Where to cut a forest's stream into chunks, and what stands above each piece."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey.arrays import Int64, offsets_of
from covey.prompts.forest.forest import Forest
from covey.prompts.forest.minima import Minima
from covey.prompts.forest.pack import check_ranges, stations_at


@dataclass(frozen=True, slots=True)
class Above:
    """What the tokens of some pieces see outside their piece, root first.

    It was computed in an earlier chunk, or in an earlier piece of the same one.

    Attributes:
        offsets: (pieces + 1,) int64 into the three arrays that follow.
        nodes: (m,) int64, document nodes.
        tokens: (m,) int64, how many of the node's tokens, from its start: all of them
            but for a node in whose middle the piece begins.
        subtree_ends: (m,) int64; token i of the packed pieces sees the node when i < subtree_ends.
        suffix_path: (pieces,) int64, a suffix path whose first tokens are open where the
            piece begins inside an instance; -1 where none are.
        suffix_offsets: (pieces + 1,) int64 into `suffix_subtree_ends`, one a token of that path.
        suffix_subtree_ends: (s,) int64, as `subtree_ends`.
    """

    offsets: Int64
    nodes: Int64
    tokens: Int64
    subtree_ends: Int64
    suffix_path: Int64
    suffix_offsets: Int64
    suffix_subtree_ends: Int64


def cut(begin: Int64, end: Int64, budget: int, filled: int = 0) -> tuple[Int64, Int64, Int64]:
    """Cut pieces so that consecutive chunks are full to the last token.

    Args:
        begin, end: (n,) int64 stream ranges, none empty, in the order they shall run.
        budget: tokens of a chunk, at least 1.
        filled: tokens, less than `budget`, that the first chunk already holds.

    Returns:
        (m,) begin and (m,) end of the cut pieces, and (chunks + 1,) offsets: chunk c is
        pieces offsets[c]:offsets[c + 1].
    """
    laid = offsets_of(end - begin)
    edges = np.arange(budget - filled, laid[-1], budget, dtype=np.int64)
    places = np.union1d(laid, edges)
    piece = np.searchsorted(laid, places[:-1], side="right") - 1
    shift = begin[piece] - laid[piece]
    chunks = np.concatenate([[0], np.searchsorted(places, edges), [len(places) - 1]])
    return places[:-1] + shift, places[1:] + shift, chunks


def floor_cut(forest: Forest, place: int, deepest: int) -> int:
    """The last place <= `place` at which at most `deepest` suffix tokens are open.

    With the length of a join's frame and heading for `deepest`, a cut never falls inside
    a partner; with 0 it falls between instances or inside documents only.
    """
    if not 0 < place < forest.size:
        return place
    node = forest.stations[stations_at(forest, np.array([place]))]
    instance = int(forest.document_ranges(node)[1][0])
    if place <= instance:
        return place
    _, shared, first = forest.runs(int(np.searchsorted(forest.hosts, node)[0]))
    inside = place - instance
    run = int(np.searchsorted(first, inside, side="right")) - 1
    if shared[run] + inside - first[run] <= deepest:
        return place
    last = int(np.flatnonzero(shared[: run + 1] <= deepest)[-1])
    # From its fork that path runs on to the depth allowed, or a later fork were allowed.
    return instance + int(first[last]) + deepest - int(shared[last])


def above(forest: Forest, begin: Int64, end: Int64) -> Above:
    """The context of pieces: whose keys and values they read besides their own.

    Args:
        begin, end: as for `pack`, whose packed indices the subtree_ends refer to.

    Raises:
        InputError: a range is empty or not within the stream.
    """
    check_ranges(forest, begin, end)
    packed = offsets_of(end - begin)[:-1]
    node = forest.stations[stations_at(forest, begin)]
    first, border = forest.document_ranges(node)
    entered = np.minimum(begin, border) - first
    piece, nodes = _chains(forest, node)
    whole = forest.documents.end[nodes] - forest.documents.start[nodes]
    tokens = np.where(nodes == node[piece], entered[piece], whole)
    piece, nodes, tokens = (column[tokens > 0] for column in (piece, nodes, tokens))
    stop = np.minimum(forest.node_first[forest.documents.exit[nodes]], end[piece])
    paths = np.full(len(begin), -1, dtype=np.int64)
    stops = [np.empty(0, dtype=np.int64)] * len(begin)
    # One piece of a chunk, its first, begins inside an instance when `cut` made it.
    for i in np.flatnonzero(begin > border).tolist():
        paths[i], seen = _open_suffix(forest, int(node[i]), int(begin[i] - border[i]))
        stops[i] = np.minimum(seen + border[i], end[i]) - begin[i] + packed[i]
    return Above(
        offsets_of(np.bincount(piece, minlength=len(begin))),
        nodes,
        tokens,
        stop - begin[piece] + packed[piece],
        paths,
        offsets_of(np.array([len(s) for s in stops], dtype=np.int64)),
        np.concatenate(stops) if stops else np.empty(0, dtype=np.int64),
    )


def _chains(forest: Forest, node: Int64) -> tuple[Int64, Int64]:
    """(piece, node) for every node on the way from the root to each piece's node."""
    pieces, nodes = [node[:0]], [node[:0]]
    piece = np.arange(len(node))
    while len(node):
        pieces.append(piece)
        nodes.append(node)
        up = forest.documents.parent[node]
        piece, node = piece[up >= 0], up[up >= 0]
    all_pieces, all_nodes = np.concatenate(pieces), np.concatenate(nodes)
    order = np.lexsort((all_nodes, all_pieces))  # an ancestor's number is always smaller
    return all_pieces[order], all_nodes[order]


def _open_suffix(forest: Forest, node: int, inside: int) -> tuple[int, Int64]:
    """The suffix path at a place inside an instance, and where its open tokens end.

    Returns:
        The path and, for each of its tokens above the place, the end of its subtree,
        counted from the instance's start.
    """
    paths, shared, first = forest.runs(int(np.searchsorted(forest.hosts, node)))
    run = int(np.searchsorted(first, inside, side="right")) - 1
    depth = np.arange(shared[run] + inside - first[run], dtype=np.int64)
    after = np.full(len(depth), run + 1, dtype=np.int64)
    return int(paths[run]), first[Minima(shared).first_below(after, depth + 1)]

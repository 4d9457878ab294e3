"""Pieces of a forest's stream: their arrays for a forward pass, and what stands above them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey.arrays import Int32, Int64, offsets_of, ranges
from covey.errors import InputError
from covey.prompts.forest.forest import Forest
from covey.prompts.forest.minima import Minima
from covey.prompts.forest.trie import subtree_ends_of


@dataclass(frozen=True, slots=True)
class Packed:
    """The tokens of some pieces (ranges of a forest's stream), laid end to end.

    Attributes:
        offsets: (pieces + 1,) int64, where each piece begins.
        tokens: (n,) int32.
        positions: (n,) int32, tokens above each in its prompt: the RoPE position.
        subtree_ends: (n,) int32: within a piece, i sees k exactly when k <= i < subtree_ends[k].
            Never beyond the end of the piece.
        open: (m,) int64, ascending: tokens whose subtree goes on after their piece. Their
            keys and values must outlive the batch; those of all others need not.
        logits_indices: (a,) int64, ascending: tokens at which a prompt ends.
        prompts: (a,) int64, the number of that prompt in the forest.
    """

    offsets: Int64
    tokens: Int32
    positions: Int32
    subtree_ends: Int32
    open: Int64
    logits_indices: Int64
    prompts: Int64


@dataclass(frozen=True, slots=True)
class Above:
    """What the tokens of some pieces see outside their piece, root first.

    It was computed in an earlier batch, or in an earlier piece of the same one.

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


@dataclass(frozen=True, slots=True)
class _Segments:
    """Stretches of the stream, each in one document node or in one instance of suffixes.

    Attributes:
        node: (n,) int64, the document node, or the host's node.
        skip: (n,) int64, tokens of the node or instance before the stretch.
        length: (n,) int64, tokens of the stretch, at least 1.
        packed: (n,) int64, packed index of its first token, ascending.
        stop: (n,) int64, packed index one past its piece.
    """

    node: Int64
    skip: Int64
    length: Int64
    packed: Int64
    stop: Int64

    def some(self) -> _Segments:
        """Those that hold tokens."""
        if self.length.all():
            return self
        kept = np.flatnonzero(self.length)
        columns = (self.node, self.skip, self.length, self.packed, self.stop)
        return _Segments(*(column[kept] for column in columns))


@dataclass(frozen=True, slots=True)
class _Gathered:
    """Gathered segments, end to end; `logits_indices` and `subtree_ends` are packed indices."""

    segments: _Segments
    tokens: Int32
    positions: Int32
    subtree_ends: Int32
    logits_indices: Int64
    prompts: Int64


_NONE = np.empty(0, dtype=np.int64)


def pack(forest: Forest, begin: Int64, end: Int64) -> Packed:
    """Gather pieces of the stream. Work and memory go with their tokens only.

    Args:
        begin, end: (pieces,) int64 stream ranges, none empty, in any order.

    Raises:
        InputError: a range is empty or not within the stream.
    """
    _check_ranges(forest, begin, end)
    lengths = end - begin
    offsets = offsets_of(lengths)
    own, suffix = _segments(forest, begin, end, offsets)
    parts = []
    if len(own.length):
        parts.append(_documents(forest, own))
    if len(suffix.length):
        gather = _instances if forest.chosen is None else _chosen_instances
        parts.append(gather(forest, suffix))
    if len(parts) == 1:
        tokens, positions, subtree_ends = parts[0].tokens, parts[0].positions, parts[0].subtree_ends
    else:
        tokens, positions, subtree_ends = (np.empty(offsets[-1], dtype=np.int32) for _ in range(3))
        for part in parts:
            at = ranges(part.segments.packed, part.segments.length)
            tokens[at], positions[at] = part.tokens, part.positions
            subtree_ends[at] = part.subtree_ends
    # Those that see a piece's last token are one path, of which the part above the token that
    # follows the piece goes on.
    above_next = np.repeat(_positions_at(forest, end).astype(np.int32), lengths)
    last = subtree_ends == np.repeat(offsets[1:].astype(np.int32), lengths)
    still_open = np.flatnonzero(last & (positions < above_next))
    ended = (parts[-1].logits_indices, parts[-1].prompts) if parts else (_NONE, _NONE)
    return Packed(offsets, tokens, positions, subtree_ends, still_open, *ended)


def above(forest: Forest, begin: Int64, end: Int64) -> Above:
    """The context of pieces: whose keys and values they read besides their own.

    Args:
        begin, end: as for `pack`, whose packed indices the subtree_ends refer to.

    Raises:
        InputError: a range is empty or not within the stream.
    """
    _check_ranges(forest, begin, end)
    packed = offsets_of(end - begin)[:-1]
    node = forest.stations[forest.station_of(begin)]
    first, border = forest.document_ranges(node)
    entered = np.minimum(begin, border) - first
    piece, nodes = _chains(forest, node)
    whole = forest.documents.end[nodes] - forest.documents.start[nodes]
    tokens = np.where(nodes == node[piece], entered[piece], whole)
    piece, nodes, tokens = (column[tokens > 0] for column in (piece, nodes, tokens))
    stop = np.minimum(forest.node_first[forest.documents.subtree_end[nodes]], end[piece])
    paths = np.full(len(begin), -1, dtype=np.int64)
    stops = [np.empty(0, dtype=np.int64)] * len(begin)
    # One piece of a batch, its first, begins inside an instance when `cut` made it.
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


def _check_ranges(forest: Forest, begin: Int64, end: Int64) -> None:
    """InputError for ranges that are empty or not within the stream; it names the first."""
    wrong = np.flatnonzero((begin < 0) | (end <= begin) | (end > forest.size))
    if len(wrong):
        i = int(wrong[0])
        raise InputError(
            f"piece {i} is [{int(begin[i])}, {int(end[i])}), but pieces hold at least one "
            f"token and lie within [0, {forest.size})"
        )


def _segments(
    forest: Forest, begin: Int64, end: Int64, offsets: Int64
) -> tuple[_Segments, _Segments]:
    """Split pieces at the borders of document nodes and instances."""
    low = forest.station_of(begin)
    count = forest.station_of(end - 1) + 1 - low
    node = forest.stations[ranges(low, count)]
    piece = np.repeat(np.arange(len(begin)), count)
    lower, upper, shift = begin[piece], end[piece], (offsets[:-1] - begin)[piece]
    first, border = forest.document_ranges(node)
    last = forest.node_first[node + 1]

    def between(start: Int64, stop: Int64) -> _Segments:
        left, right = np.maximum(start, lower), np.minimum(stop, upper)
        length = np.maximum(right - left, 0)
        return _Segments(node, left - start, length, left + shift, upper + shift).some()

    return between(first, border), between(border, last)


def _documents(forest: Forest, part: _Segments) -> _Gathered:
    trie = forest.documents
    dense = offsets_of(part.length)[:-1]
    inside = np.arange(part.length.sum(), dtype=np.int64)
    source = inside + np.repeat(trie.start[part.node] + part.skip - dense, part.length)
    inside += np.repeat(trie.depth[part.node] + part.skip - dense, part.length)
    # Packed index of the subtree's end, were the piece to go on for ever.
    begin = forest.node_first[part.node] + part.skip
    subtree_ends = forest.node_first[trie.subtree_end[part.node]] - begin + part.packed
    return _Gathered(
        part,
        trie.column.flat[source],
        inside.astype(np.int32),
        np.repeat(np.minimum(subtree_ends, part.stop).astype(np.int32), part.length),
        _NONE,
        _NONE,
    )


def _instances(forest: Forest, part: _Segments) -> _Gathered:
    stream, suffixes = forest.suffix_stream, forest.suffixes
    source = ranges(part.skip, part.length)
    trie = forest.documents
    base = trie.end_depth(part.node)
    positions = stream.depth[source]
    positions += np.repeat(base.astype(np.int32), part.length)
    subtree_ends = stream.subtree_end[source]
    subtree_ends += np.repeat((part.packed - part.skip).astype(np.int32), part.length)
    stop = np.repeat(part.stop.astype(np.int32), part.length)
    np.minimum(subtree_ends, stop, out=subtree_ends)
    ends = suffixes.path_first[1:] - 1
    low = np.searchsorted(ends, part.skip)
    count = np.searchsorted(ends, part.skip + part.length) - low
    path = ranges(low, count)
    host = np.searchsorted(forest.hosts, part.node)
    return _Gathered(
        part,
        stream.tokens[source],
        positions,
        subtree_ends,
        ends[path] + np.repeat(part.packed - part.skip, count),
        path + np.repeat(host * suffixes.paths, count),
    )


def _chosen_instances(forest: Forest, part: _Segments) -> _Gathered:
    chosen, suffixes, trie = forest.chosen, forest.suffixes, forest.documents
    if chosen is None:  # `pack` asks only where pairs are chosen
        raise InputError("the forest asks every suffix of every host")
    host = np.searchsorted(forest.hosts, part.node)
    begin = chosen.first[chosen.offsets[host]] + part.skip
    end = begin + part.length
    low = np.searchsorted(chosen.first, begin, side="right") - 1
    count = np.searchsorted(chosen.first, end) - low
    pair = ranges(low, count)
    left = np.maximum(chosen.first[pair], np.repeat(begin, count))
    right = np.minimum(chosen.first[pair + 1], np.repeat(end, count))
    length = right - left
    depth = chosen.shared[pair] + left - chosen.first[pair]
    shared = chosen.shared[pair].astype(np.int64)
    shared[offsets_of(count)[:-1]] = 0  # nothing before a segment belongs to its tree
    dense = offsets_of(part.length)[:-1]
    subtree_ends = subtree_ends_of(shared, depth, length)
    subtree_ends += np.repeat(part.packed - dense, part.length)
    base = trie.end_depth(part.node)
    positions = ranges(depth + np.repeat(base, count), length).astype(np.int32)
    source = suffixes.column.offsets[suffixes.rows[chosen.path[pair]]] + depth
    finished = np.flatnonzero(right == chosen.first[pair + 1])
    return _Gathered(
        part,
        suffixes.column.flat[ranges(source, length)],
        positions,
        subtree_ends.astype(np.int32),
        (right + np.repeat(part.packed - begin, count))[finished] - 1,
        pair[finished],
    )


def _positions_at(forest: Forest, places: Int64) -> Int64:
    """(n,) int64: tokens above the one at each place of the stream, 0 at its end."""
    positions = np.zeros(len(places), dtype=np.int64)
    inside = np.flatnonzero(places < forest.size)
    place = places[inside]
    node = forest.stations[forest.station_of(place)]
    first, border = forest.document_ranges(node)
    positions[inside] = forest.documents.depth[node] + np.minimum(place, border) - first
    below = np.flatnonzero(place >= border)
    place = (place - border)[below]
    chosen = forest.chosen
    if chosen is None:
        positions[inside[below]] += forest.suffix_stream.depth[place]
    else:
        place += chosen.first[chosen.offsets[np.searchsorted(forest.hosts, node[below])]]
        pair = np.searchsorted(chosen.first[1:-1], place, side="right")
        positions[inside[below]] += chosen.shared[pair] + place - chosen.first[pair]
    return positions


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

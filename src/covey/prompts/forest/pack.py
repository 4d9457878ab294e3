"""Chunks out of a forest: the arrays of any ranges of its token stream."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey.arrays import Int32, Int64, offsets_of, ranges
from covey.errors import InputError
from covey.prompts.forest.forest import Chosen, Forest
from covey.prompts.forest.trie import run_exits


@dataclass(frozen=True, slots=True)
class Segments:
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

    def some(self) -> Segments:
        """Those that hold tokens."""
        if self.length.all():
            return self
        kept = np.flatnonzero(self.length)
        columns = (self.node, self.skip, self.length, self.packed, self.stop)
        return Segments(*(column[kept] for column in columns))


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
            keys and values must outlive the chunk; those of all others need not.
        logits_indices: (a,) int64, ascending: tokens at which a prompt ends.
        prompts: (a,) int64, the number of that prompt in the forest.
        documents: the document nodes, or parts of them, among these tokens.
        instances: the instances of suffixes, or parts of them; together all the tokens.
    """

    offsets: Int64
    tokens: Int32
    positions: Int32
    subtree_ends: Int32
    open: Int64
    logits_indices: Int64
    prompts: Int64
    documents: Segments
    instances: Segments


@dataclass(frozen=True, slots=True)
class _Part:
    """Gathered segments, end to end; `open`, `logits_indices` are packed indices."""

    segments: Segments
    tokens: Int32
    positions: Int32
    subtree_ends: Int32
    open: Int64
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
    check_ranges(forest, begin, end)
    offsets = offsets_of(end - begin)
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
            tokens[at], positions[at], subtree_ends[at] = (
                part.tokens,
                part.positions,
                part.subtree_ends,
            )
    still_open = np.sort(np.concatenate([part.open for part in parts] or [_NONE]))
    logits_indices, prompts = (
        (parts[-1].logits_indices, parts[-1].prompts) if parts else (_NONE, _NONE)
    )
    return Packed(
        offsets, tokens, positions, subtree_ends, still_open, logits_indices, prompts, own, suffix
    )


def check_ranges(forest: Forest, begin: Int64, end: Int64) -> None:
    """Refuse ranges that are empty or not within the stream.

    Raises:
        InputError: names the first such range and the stream's size.
    """
    wrong = np.flatnonzero((begin < 0) | (end <= begin) | (end > forest.size))
    if len(wrong):
        i = int(wrong[0])
        raise InputError(
            f"piece {i} is [{int(begin[i])}, {int(end[i])}), but pieces hold at least one "
            f"token and lie within [0, {forest.size})"
        )


def stations_at(forest: Forest, places: Int64) -> Int64:
    """(n,) int64: position in `forest.stations` of the node that owns each place."""
    starts = forest.node_first[forest.stations]
    return np.searchsorted(starts, places, side="right") - 1


def _segments(
    forest: Forest, begin: Int64, end: Int64, offsets: Int64
) -> tuple[Segments, Segments]:
    """Split pieces at the borders of document nodes and instances."""
    low = stations_at(forest, begin)
    count = stations_at(forest, end - 1) + 1 - low
    node = forest.stations[ranges(low, count)]
    piece = np.repeat(np.arange(len(begin)), count)
    lower, upper, shift = begin[piece], end[piece], (offsets[:-1] - begin)[piece]
    first, border = forest.document_ranges(node)
    last = forest.node_first[node + 1]

    def between(start: Int64, stop: Int64) -> Segments:
        left, right = np.maximum(start, lower), np.minimum(stop, upper)
        length = np.maximum(right - left, 0)
        return Segments(node, left - start, length, left + shift, upper + shift).some()

    return between(first, border), between(border, last)


def _documents(forest: Forest, part: Segments) -> _Part:
    trie = forest.documents
    dense = offsets_of(part.length)[:-1]
    inside = np.arange(part.length.sum(), dtype=np.int64)
    source = inside + np.repeat(trie.start[part.node] + part.skip - dense, part.length)
    inside += np.repeat(trie.depth[part.node] + part.skip - dense, part.length)
    # Packed index of the subtree's end, were the piece to go on for ever.
    begin = forest.node_first[part.node] + part.skip
    subtree_ends = forest.node_first[trie.exit[part.node]] - begin + part.packed
    beyond = np.flatnonzero(subtree_ends > part.stop)
    return _Part(
        part,
        trie.column.flat[source],
        inside.astype(np.int32),
        np.repeat(np.minimum(subtree_ends, part.stop).astype(np.int32), part.length),
        ranges(part.packed[beyond], part.length[beyond]),
        _NONE,
        _NONE,
    )


def _instances(forest: Forest, part: Segments) -> _Part:
    stream, suffixes = forest.suffix_stream, forest.suffixes
    dense = offsets_of(part.length)[:-1]
    source = ranges(part.skip, part.length)
    trie = forest.documents
    base = trie.depth[part.node] + trie.end[part.node] - trie.start[part.node]
    positions = stream.depth[source]
    positions += np.repeat(base.astype(np.int32), part.length)
    subtree_ends = stream.exit[source]
    subtree_ends += np.repeat((part.packed - part.skip).astype(np.int32), part.length)
    cut_short = np.flatnonzero(part.skip + part.length < suffixes.size)
    still_open = _clip(subtree_ends, part, dense, cut_short)
    ends = suffixes.path_first[1:] - 1
    low = np.searchsorted(ends, part.skip)
    count = np.searchsorted(ends, part.skip + part.length) - low
    path = ranges(low, count)
    host = np.searchsorted(forest.hosts, part.node)
    return _Part(
        part,
        stream.tokens[source],
        positions,
        subtree_ends,
        still_open,
        ends[path] + np.repeat(part.packed - part.skip, count),
        path + np.repeat(host * suffixes.paths, count),
    )


def _clip(subtree_ends: Int32, part: Segments, dense: Int64, which: Int64) -> Int64:
    """End the subtree_ends of some segments at their piece; the packed indices of those cut."""
    at = ranges(dense[which], part.length[which])
    stop = np.repeat(part.stop[which], part.length[which])
    beyond = subtree_ends[at] > stop
    subtree_ends[at[beyond]] = stop[beyond]
    shift = np.repeat(part.packed[which] - dense[which], part.length[which])
    return (at + shift)[beyond]


def _chosen_instances(forest: Forest, part: Segments) -> _Part:
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
    subtree_ends = run_exits(shared, depth, length)
    subtree_ends += np.repeat(part.packed - dense, part.length)
    base = trie.depth[part.node] + trie.end[part.node] - trie.start[part.node]
    positions = ranges(depth + np.repeat(base, count), length).astype(np.int32)
    source = suffixes.column.offsets[suffixes.rows[chosen.path[pair]]] + depth
    finished = np.flatnonzero(right == chosen.first[pair + 1])
    cut_short = np.flatnonzero(end < chosen.first[chosen.offsets[host + 1]])
    return _Part(
        part,
        suffixes.column.flat[ranges(source, length)],
        positions,
        subtree_ends.astype(np.int32),
        _open_tokens(
            part, dense, cut_short, positions, subtree_ends, base + _open_depth(chosen, end)
        ),
        (right + np.repeat(part.packed - begin, count))[finished] - 1,
        pair[finished],
    )


def _open_depth(chosen: Chosen, place: Int64) -> Int64:
    """Suffix tokens above the token at each place of the instances laid end to end."""
    pair = np.searchsorted(chosen.first[1:-1], place, side="right")
    return chosen.shared[pair] + place - chosen.first[pair]


def _open_tokens(
    part: Segments, dense: Int64, which: Int64, positions: Int32, subtree_ends: Int64, limit: Int64
) -> Int64:
    """Packed indices of tokens above the token that follows each of some segments.

    Those that see the segment's end are one path; its part above `limit` goes on.
    """
    length = part.length[which]
    at = ranges(dense[which], length)
    last = subtree_ends[at] == np.repeat((part.packed + part.length)[which], length)
    going = last & (positions[at] < np.repeat(limit[which], length))
    shift = np.repeat((part.packed - dense)[which], length)
    open_tokens: Int64 = (at + shift)[going]
    return open_tokens

"""Who computes which part of a batch's attention; numpy only.

Depth-first order falls into runs, in each of which a row is the child of the row before
it. A run hangs on a row of an earlier run, its attachment, or on none in the batch. What
all rows behind a run see of it ends at an attachment, which cuts the run into pieces.
Where many rows hang on each of several attachments, as under a chain of snapshots, every
subtree takes what it sees of the run in one stretch instead.

Three kinds of work are large enough for a dense call, whose outputs and log-sum-exps the
packed kernel starts from: a long run over itself (causal); a long piece under the rows
that hang on it; a long KV cache span under its rows. Calls over the same rows, or of
different kinds, are different parts. All other keys are segments of a tile: stretches of
batch rows or of KV cache slots that the packed kernel walks for a few rows at a time. The
ancestors of a tile's rows that lie before the tile are ancestors of its first row,
because subtrees are intervals.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from covey.arrays import Int32, Int64, ranges
from covey.kernels.base import ForwardBatch

_GAP = 64  # asking rows farther apart than this do not share a tile


@dataclass(frozen=True, slots=True)
class DenseLimits:
    """From which size on a dense call is worth its own pass over the outputs.

    Attributes:
        tile_rows: most rows of a tile, a power of two.
        dense_keys, dense_rows: keys of a span or piece, and rows that see it.
        hanging_rows: rows that hang on each attachment of a run for its pieces to be joined.
        causal_rows: length of a run.
        parts: most calls a layer.
    """

    tile_rows: int = 16
    dense_keys: int = 512
    dense_rows: int = 64
    hanging_rows: int = 32
    causal_rows: int = 600
    parts: int = 3


@dataclass(frozen=True, slots=True)
class DenseCall:
    """Several dense attentions of one kind, over disjoint asking rows.

    Attributes:
        prefix: whether the keys lie in the KV cache, or in the batch.
        causal: each sequence's rows are its keys, lower-triangular.
        queries: (b, 2) ranges of asking rows.
        keys: (b, 2) ranges of slots or of batch rows.
    """

    prefix: bool
    causal: bool
    queries: Int64
    keys: Int64


@dataclass(frozen=True, slots=True)
class AttentionSplit:
    """The attention of some rows of a batch; every seen key is in one place exactly.

    Attributes:
        asked: (q,) int32 batch rows.
        parts: dense calls, at most three.
        has: (q,) int32, bit p set where part p holds something of the row.
        tiles: (t, 2) int32 ranges of asking rows.
        own_offsets: (t + 1,) int32 into `own`.
        own: (s, 2) int32 ranges of batch rows; row i sees key k where k <= i < subtree_ends[k].
        prefix_offsets: (t + 1,) int32 into `prefix`.
        prefix: (p, 4) int32, a range of slots and the range of batch rows that see it.
    """

    asked: Int32
    parts: tuple[DenseCall, ...]
    has: Int32
    tiles: Int32
    own_offsets: Int32
    own: Int32
    prefix_offsets: Int32
    prefix: Int32


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs in order: where they start and stop, and the row that each hangs on or -1."""

    starts: Int64
    stops: Int64
    attached: Int64

    def of(self, rows: Int64) -> Int64:
        """Which run each row is in."""
        return np.searchsorted(self.starts, rows, side="right") - 1


def split_attention(batch: ForwardBatch, rows: Int64 | None, limits: DenseLimits) -> AttentionSplit:
    """Split the attention of some rows, all of them where None.

    Args:
        batch: the tokens and what they see.
        rows: (q,) increasing.
        limits: what becomes a dense call.
    """
    asked = np.arange(len(batch), dtype=np.int64) if rows is None else rows
    runs = _find_runs(batch)
    causal = np.zeros(len(runs.starts), dtype=bool)
    if rows is None:
        causal = runs.stops - runs.starts >= limits.causal_rows
    spans = _single(np.searchsorted(asked, batch.prefix_rows), batch.prefix_slots)
    pieces = _pieces(batch, runs, asked, limits)
    parts, taken_spans, taken = _parts((spans, pieces), (runs, causal), limits)
    taken_pieces = pieces.gone[taken]
    has = np.zeros(len(asked), dtype=np.int32)
    for number, call in enumerate(parts):
        for first, last in call.queries.tolist():
            has[first:last] |= 1 << number
    holding = np.unique(runs.of(taken_pieces[:, 0]))
    special = np.union1d(np.flatnonzero(causal), holding)
    borders = np.concatenate([runs.starts[special], runs.stops[special]])
    tiles = _tiles(asked, borders, limits.tile_rows)
    own_offsets, own = _own_segments(asked, tiles, runs, causal, taken_pieces)
    prefix_offsets, prefix = _prefix_segments(batch, asked, tiles, ~taken_spans)
    return AttentionSplit(
        asked.astype(np.int32), parts, has, tiles, own_offsets, own, prefix_offsets, prefix
    )


def _find_runs(batch: ForwardBatch) -> _Runs:
    count = len(batch)
    rows = np.arange(count, dtype=np.int64)
    begins = np.ones(count, dtype=bool)
    begins[1:] = batch.subtree_ends[:-1] <= rows[1:]
    starts = np.flatnonzero(begins)
    stops = np.append(starts[1:], count) if count else starts
    # A parent is the last row before its child that is one less deep, if it still spans it.
    positions = batch.positions.astype(np.int64)
    keys = np.sort((positions + 1) * count + rows)
    place = np.searchsorted(keys, positions[starts] * count + starts) - 1
    found = keys[np.maximum(place, 0)] if count else place
    parents = found % max(count, 1)
    hangs = (place >= 0) & (found // max(count, 1) == positions[starts])
    hangs &= (parents < starts) & (batch.subtree_ends[parents] > starts)
    return _Runs(starts, stops.astype(np.int64), np.where(hangs, parents, -1))


@dataclass(frozen=True, slots=True)
class _Groups:
    """Dense attentions that are made together or not at all.

    Attributes:
        seen_by: (g, 2) asking rows that a group's attentions lie within.
        gone: (g, 2) what no tile need walk for those rows once the group is made.
        offsets: (g + 1,) into the two that follow.
        queries: (e, 2) asking rows of each attention, disjoint in a group.
        keys: (e, 2).
    """

    seen_by: Int64
    gone: Int64
    offsets: Int64
    queries: Int64
    keys: Int64

    def pairs(self, groups: list[int]) -> int:
        """Queries times keys of some groups."""
        entries = self.entries(groups)
        sizes = np.diff(self.queries[entries])[:, 0] * np.diff(self.keys[entries])[:, 0]
        return int(sizes.sum())

    def entries(self, groups: list[int]) -> Int64:
        """The attentions of some groups, by their queries."""
        found = np.concatenate([np.arange(*self.offsets[g : g + 2]) for g in groups])
        return found[np.argsort(self.queries[found, 0], kind="stable")]


def _single(queries: Int64, keys: Int64) -> _Groups:
    """Groups of one attention each."""
    return _Groups(queries, keys, np.arange(len(keys) + 1), queries, keys)


def _pieces(batch: ForwardBatch, runs: _Runs, asked: Int64, limits: DenseLimits) -> _Groups:
    """What rows behind a run see of it: piece by piece, or subtree by subtree."""
    ends = np.unique(runs.attached[runs.attached >= 0]) + 1
    if not len(ends):
        return _single(*np.empty((2, 0, 2), dtype=np.int64))
    run = runs.of(ends - 1)
    starts, stops = runs.starts[run], runs.stops[run]
    again = np.append(False, run[1:] == run[:-1])  # not the run's first attachment
    begins = np.where(again, np.roll(ends, 1), starts)
    leave = batch.subtree_ends[ends - 1].astype(np.int64)
    # Subtrees that hang deeper come first; those of an attachment end where it is left.
    enter = np.where(np.append(again[1:], False), np.roll(leave, -1), stops)
    hanging = np.searchsorted(asked, np.stack([enter, leave], axis=1))
    least = np.full(len(runs.starts), np.iinfo(np.int64).max)
    np.minimum.at(least, run, hanging[:, 1] - hanging[:, 0])
    joined = (np.bincount(run, minlength=len(least)) > 1) & (least >= limits.hanging_rows)
    whole = joined[run]
    heads = np.flatnonzero(~(whole & again))
    offsets = np.append(heads, len(ends))
    behind = np.searchsorted(asked, np.stack([stops, leave], axis=1))
    return _Groups(
        behind[heads],
        np.stack([begins[heads], ends[offsets[1:] - 1]], axis=1),
        offsets,
        np.where(whole[:, None], hanging, behind),
        np.stack([np.where(whole, starts, begins), ends], axis=1),
    )


def _parts(
    sources: tuple[_Groups, _Groups], causal_runs: tuple[_Runs, Int64], limits: DenseLimits
) -> tuple[tuple[DenseCall, ...], Int64, Int64]:
    """The dense calls, the most work first, and which spans and pieces are in one (masks)."""
    runs, causal = causal_runs
    parts: list[DenseCall] = []
    if causal.any():
        own = np.stack([runs.starts[causal], runs.stops[causal]], axis=1)
        parts.append(DenseCall(False, True, own, own))
    taken = [np.zeros(len(groups.gone), dtype=bool) for groups in sources]
    offered = []
    for number, groups in enumerate(sources):
        large = groups.gone[:, 1] - groups.gone[:, 0] >= limits.dense_keys
        large &= groups.seen_by[:, 1] - groups.seen_by[:, 0] >= limits.dense_rows
        for level in _levels(groups.seen_by, np.flatnonzero(large)):
            offered.append((groups.pairs(level), number, level))
    offered.sort(key=lambda offer: -offer[0])
    for _, number, level in offered[: max(limits.parts - len(parts), 0)]:
        entries = sources[number].entries(level)
        queries, keys = sources[number].queries[entries], sources[number].keys[entries]
        parts.append(DenseCall(number == 0, False, queries, keys))
        taken[number][level] = True
    return tuple(parts), taken[0], taken[1]


def _levels(intervals: Int64, members: Int64) -> list[list[int]]:
    """Deal intervals out to levels in each of which they are disjoint, outer ones first."""
    levels: list[list[int]] = []
    ends: list[int] = []
    order = members[np.lexsort((-intervals[members, 1], intervals[members, 0]))]
    for member in order.tolist():
        first, last = intervals[member].tolist()
        free = next((i for i, end in enumerate(ends) if end <= first), len(ends))
        if free == len(ends):
            levels.append([])
            ends.append(0)
        levels[free].append(member)
        ends[free] = last
    return levels


def _tiles(asked: Int64, borders: Int64, tile_rows: int) -> Int32:
    """Cut the asking rows at borders and wide gaps, then into tiles."""
    count = len(asked)
    if not count:
        return np.empty((0, 2), dtype=np.int32)
    gaps = np.flatnonzero(np.diff(asked) > _GAP) + 1
    cuts = np.unique(np.concatenate([[0], gaps, np.searchsorted(asked, borders)]))
    cuts = cuts[cuts < count]
    lengths = np.diff(np.append(cuts, count))
    counts = -(-lengths // tile_rows)
    firsts = np.repeat(cuts, counts) + ranges(np.zeros_like(counts), counts) * tile_rows
    lasts = np.minimum(firsts + tile_rows, np.repeat(cuts + lengths, counts))
    return np.stack([firsts, lasts], axis=1).astype(np.int32)


def _own_segments(
    asked: Int64, tiles: Int32, runs: _Runs, causal: Int64, taken: Int64
) -> tuple[Int32, Int32]:
    """For each tile the batch rows that no dense call covers: its path, then itself."""
    first, last = asked[tiles[:, 0]], asked[tiles[:, 1] - 1]
    run = runs.of(first)
    offsets, kept = _kept(runs, taken)
    tile = np.arange(len(tiles), dtype=np.int64)
    found = []
    row, who = runs.attached[run], tile
    while (hanging := row >= 0).any():
        row, who = row[hanging], who[hanging]
        above = runs.of(row)
        counts = offsets[above + 1] - offsets[above]
        some = kept[ranges(offsets[above], counts)]
        stops = np.minimum(some[:, 1], np.repeat(row + 1, counts))
        segments = np.stack([np.repeat(who, counts), some[:, 0], stops], axis=1)
        found.append(segments[segments[:, 1] < stops])
        row = runs.attached[above]
    alone = ~causal[run]
    found.append(np.stack([tile, runs.starts[run], last + 1], axis=1)[alone])
    return _by_tile(np.concatenate(found), len(tiles))


def _kept(runs: _Runs, taken: Int64) -> tuple[Int64, Int64]:
    """The stretches of each run outside the taken pieces: offsets by run, and ranges."""
    edges: dict[int, list[int]] = {}
    for begin, end in taken[np.argsort(taken[:, 0])].tolist():
        edges.setdefault(int(runs.of(np.array([begin]))[0]), []).extend((begin, end))
    plain = np.ones(len(runs.starts), dtype=bool)
    stretches: list[tuple[int, int, int]] = []
    for run, inner in edges.items():
        plain[run] = False
        bounds = [int(runs.starts[run]), *inner, int(runs.stops[run])]
        stretches.extend((run, a, b) for a, b in list(pairwise(bounds))[::2] if a < b)
    whole = np.stack([np.arange(len(plain)), runs.starts, runs.stops], axis=1)[plain]
    kept = np.concatenate([whole, np.array(stretches, dtype=np.int64).reshape(-1, 3)])
    kept = kept[np.lexsort((kept[:, 1], kept[:, 0]))]
    offsets = np.searchsorted(kept[:, 0], np.arange(len(plain) + 1))
    return offsets, kept[:, 1:]


def _prefix_segments(
    batch: ForwardBatch, asked: Int64, tiles: Int32, left: Int64
) -> tuple[Int32, Int32]:
    """For each tile the KV cache spans over its rows that no dense call covers."""
    rows, slots = batch.prefix_rows[left], batch.prefix_slots[left]
    begin = np.searchsorted(asked[tiles[:, 1] - 1], rows[:, 0])
    end = np.searchsorted(asked[tiles[:, 0]], rows[:, 1])
    counts = np.maximum(end - begin, 0)
    which = np.repeat(np.arange(len(rows)), counts)
    tile = ranges(begin, counts)
    return _by_tile(np.column_stack([tile, slots[which], rows[which]]), len(tiles))


def _by_tile(segments: Int64, tiles: int) -> tuple[Int32, Int32]:
    """Segments ordered by their first column, the tile: offsets and the other columns."""
    segments = segments[np.argsort(segments[:, 0], kind="stable")]
    offsets = np.searchsorted(segments[:, 0], np.arange(tiles + 1))
    return offsets.astype(np.int32), segments[:, 1:].astype(np.int32)

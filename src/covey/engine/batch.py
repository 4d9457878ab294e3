"""Packs one forward batch out of ranges of several jobs' forests."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from covey.arrays import Int32, Int64
from covey.engine.jobs import Job
from covey.engine.kv_cache.node import PrefixSegment, RadixNode, Segment, clip
from covey.engine.kv_cache.radix_tree import RadixTree
from covey.kernels.base import ForwardBatch
from covey.prompts.forest import Above, Packed, above, pack


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """Answers of one job in a batch: their range there, and their prompts."""

    job: Job
    first: int
    stop: int
    prompts: Int64


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """A forward batch, and whose answers it gives.

    Attributes:
        minimum_tokens: of the hosts whose last prompt it answers; see `engine.minimum`.
    """

    batch: ForwardBatch
    parts: tuple[AnswerPart, ...]
    minimum_tokens: int


class OpenSuffix:
    """Slots for the tokens of a suffix on which the end of a batch falls.

    Every suffix token has two slots in turn: a batch may read the token that was open when it
    began, and write the one at the same position that is open when it ends.

    Args:
        segments: two slots a suffix token.
    """

    def __init__(self, segments: tuple[Segment, ...]) -> None:
        self.segments = segments
        slots = [np.arange(start, start + length) for start, length in segments]
        self._slots = np.concatenate(slots).reshape(2, -1)
        self._side = np.zeros(self._slots.shape[1], dtype=np.int64)

    def reading(self, count: int) -> Int64:
        """The slots of the first `count` suffix tokens."""
        slots: Int64 = self._slots[self._side[:count], np.arange(count)]
        return slots

    def writing(self, places: Int64) -> Int64:
        """Slots for the tokens at some places, which `reading` gives from now on."""
        self._side[places] ^= 1
        slots: Int64 = self._slots[self._side[places], places]
        return slots


@dataclass(slots=True)
class JobRange:
    """A range of a job's stream, and the node whose end or middle it continues."""

    job: Job
    begin: int
    end: int
    row: int
    node: RadixNode
    suffix: OpenSuffix | None


class BatchBuilder:
    """Collects ranges; `build` packs them.

    Args:
        tree: where the keys and values above them are.
        max_batched_tokens: most new tokens.

    Attributes:
        rows: tokens so far.
        minimum_tokens: see `PackedBatch`.
    """

    def __init__(self, tree: RadixTree, max_batched_tokens: int) -> None:
        self._tree = tree
        self._most = max_batched_tokens
        self._ranges: list[JobRange] = []
        self._filled: list[tuple[int, list[PrefixSegment]]] = []
        self._cut: tuple[OpenSuffix, int, int] | None = None
        self._preamble = 0
        self._read: set[RadixNode] = set()
        self._locks: list[tuple[RadixNode, OpenSuffix | None]] = []
        self._closed = False
        self.rows = 0
        self.minimum_tokens = 0

    @property
    def room(self) -> int:
        """Tokens that still fit."""
        return 0 if self._closed else max(self._most - self.rows, 0)

    def close(self) -> None:
        """Let nothing more in."""
        self._closed = True

    def lock(self, node: RadixNode) -> None:
        """Keep a resident node where it is until the batch is built."""
        if node not in self._read:
            self._read.add(node)
            self._tree.lock(node)
            self._locks.append((node, None))

    def unlock_later(self, node: RadixNode, suffix: OpenSuffix | None) -> None:
        """Once the batch is built, unlock a node and give back the slots of an open suffix."""
        self._locks.append((node, None))
        if suffix is not None:
            self._locks.append((node, suffix))

    def unlock(self) -> bool:
        """Take all locks back; says whether there were any."""
        locks, self._locks = self._locks, []
        self._read.clear()
        for node, suffix in locks:
            if suffix is None:
                self._tree.unlock(node)
            else:
                self._tree.give_back(node, suffix.segments)
        return bool(locks)

    def add_preamble(self) -> None:
        """Begin with the tokens before every document."""
        root = self._tree.root
        self._preamble = self.rows = root.length
        self.fill(0, root, root.length)

    def add(
        self, job: Job, begin: int, end: int, node: RadixNode, suffix: OpenSuffix | None = None
    ) -> int:
        """Add a range of a job's stream; returns the row of its first token.

        Args:
            node: the resident node above it, perhaps filled in part only.
            suffix: the open tokens above it, where it begins inside a suffix.
        """
        row = self.rows
        self.rows += end - begin
        last = self._ranges[-1] if self._ranges else None
        if last is not None and last.job is job and last.end == begin:
            last.end = end
        else:
            self._ranges.append(JobRange(job, begin, end, row, node, suffix))
        return row

    def fill(self, row: int, node: RadixNode, count: int) -> None:
        """The keys and values of `count` rows fill a node further."""
        self._filled.append((row, self._tree.fill(node, count)))

    def cut_suffix(self, suffix: OpenSuffix, prefix_length: int) -> None:
        """The last range ends inside a suffix; `prefix_length` tokens stand above the suffix."""
        self._cut = (suffix, prefix_length, self._ranges[-1].row)

    def build(self) -> PackedBatch:
        """Pack the ranges."""
        columns = _Columns(self._tree.root.tokens[: self._preamble])
        for _, group in groupby(self._ranges, key=lambda each: each.job):
            columns.add(list(group))
        slot_mapping = np.full(self.rows, -1, dtype=np.int32)
        for row, segments in self._filled:
            for _, slot, length in segments:
                slot_mapping[row : row + length] = np.arange(slot, slot + length)
                row += length
        if self._cut is not None:
            suffix, prefix_length, first = self._cut
            rows, places = columns.open_suffix(first, prefix_length)
            slot_mapping[rows] = suffix.writing(places)
        return PackedBatch(columns.batch(slot_mapping), tuple(columns.parts), self.minimum_tokens)


class _Columns:
    """The columns of a batch, job after job."""

    def __init__(self, preamble: Int32) -> None:
        count = len(preamble)
        self._rows = count
        self._tokens = [preamble]
        self._positions = [np.arange(count, dtype=np.int32)]
        self._subtree_ends = [np.full(count, count, dtype=np.int32)]
        self._logits_indices: list[Int64] = [np.empty(0, dtype=np.int64)]
        self._open: list[Int64] = [np.empty(0, dtype=np.int64)]
        self._prefix: list[tuple[int, int, int, int]] = []
        self.parts: list[AnswerPart] = []
        self._answers = 0

    def add(self, pieces: list[JobRange]) -> None:
        """Pack consecutive ranges of one job."""
        job = pieces[0].job
        begin = np.array([piece.begin for piece in pieces], dtype=np.int64)
        end = np.array([piece.end for piece in pieces], dtype=np.int64)
        packed = pack(job.forest, begin, end)
        if not job.whole:
            seen = above(job.forest, begin, end)
            for number, piece in enumerate(pieces):
                self._add_prefix(piece, number, packed, seen)
        self._tokens.append(packed.tokens)
        self._positions.append(packed.positions + np.int32(job.base))
        self._subtree_ends.append(packed.subtree_ends + np.int32(self._rows))
        self._logits_indices.append(packed.logits_indices + self._rows)
        self._open.append(packed.open + self._rows)
        stop = self._answers + len(packed.prompts)
        if len(packed.prompts):
            self.parts.append(AnswerPart(job, self._answers, stop, packed.prompts))
        self._answers = stop
        self._rows += len(packed.tokens)

    def _add_prefix(self, piece: JobRange, number: int, packed: Packed, seen: Above) -> None:
        """What the rows of a range see in the KV cache."""
        first, last = (int(o) + self._rows for o in packed.offsets[number : number + 2])
        low, high = seen.offsets[number : number + 2].tolist()
        trie, base = piece.job.forest.documents, piece.job.base
        # Ancestors with one end are one range of positions: first the preamble, seen by all.
        groups = [(0, base, last)]
        for node, tokens, stop in zip(
            seen.nodes[low:high].tolist(),
            seen.tokens[low:high].tolist(),
            seen.subtree_ends[low:high].tolist(),
            strict=True,
        ):
            top = base + int(trie.depth[node])
            begin, _, before = groups[-1]
            if before == stop + self._rows:
                groups[-1] = (begin, top + tokens, before)
            else:
                groups.append((top, top + tokens, stop + self._rows))
        segments = piece.node.prefix_segments()
        for begin, end, stop in groups:
            for _, slot, length in clip(segments, begin, end):
                self._prefix.append((first, stop, slot, slot + length))
        low, high = seen.suffix_offsets[number : number + 2].tolist()
        if piece.suffix is not None and low < high:
            stops = seen.suffix_subtree_ends[low:high] + self._rows
            slots = piece.suffix.reading(high - low)
            edges = np.flatnonzero((np.diff(slots) != 1) | (np.diff(stops) != 0)) + 1
            for left, right in pairwise([0, *edges.tolist(), high - low]):
                slot = int(slots[left])
                self._prefix.append((first, int(stops[left]), slot, slot + right - left))

    def open_suffix(self, first: int, prefix_length: int) -> tuple[Int64, Int64]:
        """Rows of the last job, from `first` on, of a suffix that goes on after the batch.

        Returns:
            the rows, and their places in the suffix, which follows `prefix_length` tokens.
        """
        rows = self._open[-1]
        rows = rows[rows >= first]
        offset = self._rows - len(self._positions[-1])
        places = self._positions[-1][rows - offset].astype(np.int64) - prefix_length
        return rows[places >= 0], places[places >= 0]

    def batch(self, slot_mapping: Int32) -> ForwardBatch:
        """The batch, its tokens' keys and values stored as given."""
        prefix = np.array(self._prefix, dtype=np.int64).reshape(-1, 4)
        return ForwardBatch(
            tokens=np.concatenate(self._tokens),
            positions=np.concatenate(self._positions),
            subtree_ends=np.concatenate(self._subtree_ends),
            logits_indices=np.concatenate(self._logits_indices),
            prefix_rows=prefix[:, :2],
            prefix_slots=prefix[:, 2:],
            slot_mapping=slot_mapping,
        )

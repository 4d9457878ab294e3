"""Builds one chunk out of pieces of several jobs' forests."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from covey.arrays import Int64
from covey.engine.grove import Grove, GroveNode
from covey.engine.jobs import Job
from covey.engine.residents import Admission, Span
from covey.kernels.base import ForwardBatch
from covey.prompts.forest import Above, Packed, above, pack

Stretch = tuple[int, int, int]  # depth, slot, length


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """Answers of one job in a chunk: their range there, and their prompts."""

    job: Job
    first: int
    stop: int
    prompts: Int64


@dataclass(frozen=True, slots=True)
class BuiltChunk:
    """A chunk and whose answers it gives."""

    chunk: ForwardBatch
    parts: tuple[AnswerPart, ...]


class OpenSuffix:
    """Slots for the tokens of a suffix on which the end of a chunk falls.

    Every depth has two slots in turn: a chunk may read the token that was open when it
    began, and write the one at the same depth that is open when it ends.

    Args:
        span: two slots a suffix token.
    """

    def __init__(self, span: Span) -> None:
        slots = [np.arange(start, start + length) for start, length in span.extents]
        self._slots = np.concatenate(slots).reshape(2, -1)
        self._side = np.zeros(self._slots.shape[1], dtype=np.int64)

    def reading(self, count: int) -> Int64:
        """The slots of the first `count` suffix tokens."""
        slots: Int64 = self._slots[self._side[:count], np.arange(count)]
        return slots

    def writing(self, depths: Int64) -> Int64:
        """Slots for the tokens at some depths, which `reading` gives from now on."""
        self._side[depths] ^= 1
        slots: Int64 = self._slots[self._side[depths], depths]
        return slots


@dataclass(slots=True)
class Piece:
    """A range of a job's stream, and the node whose end or middle it continues."""

    job: Job
    begin: int
    end: int
    row: int
    node: GroveNode
    open: OpenSuffix | None


class ChunkBuilder:
    """Collects pieces; `build` packs them.

    Args:
        grove: where the keys and values above them are.
        budget: most new tokens.
    """

    def __init__(self, grove: Grove, budget: int) -> None:
        self._grove = grove
        self._budget = budget
        self._pieces: list[Piece] = []
        self._kept: list[tuple[int, list[Stretch]]] = []
        self._cut: tuple[OpenSuffix, int, int] | None = None
        self._opening = 0
        self._held: set[GroveNode] = set()
        self._holds: list[Admission] = []
        self._closed = False
        self.rows = 0

    @property
    def room(self) -> int:
        """Tokens that still fit."""
        return 0 if self._closed else max(self._budget - self.rows, 0)

    def close(self) -> None:
        """Let nothing more in."""
        self._closed = True

    def hold(self, node: GroveNode) -> None:
        """Keep a resident node where it is until the chunk is built."""
        if node not in self._held and node.span is not None:
            self._held.add(node)
            self._holds.append(self._grove.hold(node))

    def finish(self, *admissions: Admission) -> None:
        """Let go of admissions once the chunk is built."""
        self._holds.extend(admissions)

    def let_go(self) -> bool:
        """End all holds; says whether there were any."""
        holds, self._holds = self._holds, []
        self._held.clear()
        for admission in holds:
            self._grove.pool.finish(admission)
        return bool(holds)

    def add_opening(self) -> None:
        """Begin with the tokens before every document."""
        root = self._grove.root
        self._opening = self.rows = len(root.tokens)
        self._kept.append((0, self._grove.extents(root)))
        root.filled = self.rows

    def add(
        self, job: Job, begin: int, end: int, node: GroveNode, suffix: OpenSuffix | None = None
    ) -> int:
        """Add a range of a job's stream; returns the row of its first token.

        Args:
            node: the resident node above it, perhaps filled in part only.
            suffix: the open tokens above it, where it begins inside a suffix.
        """
        row = self.rows
        self.rows += end - begin
        last = self._pieces[-1] if self._pieces else None
        if last is not None and last.job is job and last.end == begin:
            last.end = end
        else:
            self._pieces.append(Piece(job, begin, end, row, node, suffix))
        return row

    def keep(self, row: int, node: GroveNode, count: int) -> None:
        """The keys and values of `count` rows fill a node further."""
        first = node.start + node.filled
        self._kept.append((row, clip(self._grove.extents(node), first, first + count)))
        node.filled += count

    def cut_suffix(self, suffix: OpenSuffix, prefix_length: int) -> None:
        """The last piece ends inside a suffix; `prefix_length` tokens stand above the suffix."""
        self._cut = (suffix, prefix_length, self._pieces[-1].row)

    def build(self) -> BuiltChunk:
        """Pack the pieces."""
        arrays = _Arrays(self._opening, self._grove)
        at = 0
        while at < len(self._pieces):
            stop = at + 1
            while stop < len(self._pieces) and self._pieces[stop].job is self._pieces[at].job:
                stop += 1
            arrays.add(self._pieces[at:stop])
            at = stop
        for row, stretches in self._kept:
            for _, slot, length in stretches:
                arrays.keep(np.arange(row, row + length), np.arange(slot, slot + length))
                row += length
        if self._cut is not None:
            suffix, prefix_length, first = self._cut
            rows = arrays.open_rows(first, prefix_length)
            arrays.keep(rows, suffix.writing(arrays.positions(rows) - prefix_length))
        return arrays.chunk()


class _Arrays:
    """The columns of a chunk, job after job."""

    def __init__(self, preamble: int, grove: Grove) -> None:
        self._grove = grove
        self._rows = preamble
        self._tokens = [grove.root.tokens[:preamble]]
        self._positions = [np.arange(preamble, dtype=np.int32)]
        self._subtree_ends = [np.full(preamble, preamble, dtype=np.int32)]
        self._answers: list[Int64] = [np.empty(0, dtype=np.int64)]
        self._open: list[Int64] = [np.empty(0, dtype=np.int64)]
        self._prefix: list[tuple[int, int, int, int]] = []
        self._kept: list[tuple[Int64, Int64]] = []
        self._parts: list[AnswerPart] = []
        self._count = 0

    def add(self, pieces: list[Piece]) -> None:
        """Pack consecutive pieces of one job."""
        job = pieces[0].job
        begin = np.array([piece.begin for piece in pieces], dtype=np.int64)
        end = np.array([piece.end for piece in pieces], dtype=np.int64)
        packed = pack(job.forest, begin, end)
        if not job.whole:
            seen = above(job.forest, begin, end)
            for number, piece in enumerate(pieces):
                self._context(piece, number, packed, seen)
        self._tokens.append(packed.tokens)
        self._positions.append(packed.positions + np.int32(job.base))
        self._subtree_ends.append(packed.subtree_ends + np.int32(self._rows))
        self._answers.append(packed.logits_indices + self._rows)
        self._open.append(packed.open + self._rows)
        stop = self._count + len(packed.logits_indices)
        if len(packed.logits_indices):
            self._parts.append(AnswerPart(job, self._count, stop, packed.prompts))
        self._count = stop
        self._rows += len(packed.tokens)

    def _context(self, piece: Piece, number: int, packed: Packed, seen: Above) -> None:
        """What the rows of a piece see in the arena."""
        first, last = (int(o) + self._rows for o in packed.offsets[number : number + 2])
        low, high = seen.offsets[number : number + 2].tolist()
        trie, base = piece.job.forest.documents, piece.job.base
        # Ancestors with one end are one stretch of depths: first the preamble, seen by all.
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
        extents = self._grove.extents(piece.node)
        for begin, end, stop in groups:
            for _, slot, length in clip(extents, begin, end):
                self._prefix.append((first, stop, slot, slot + length))
        low, high = seen.suffix_offsets[number : number + 2].tolist()
        if piece.open is not None and low < high:
            stops = seen.suffix_subtree_ends[low:high] + self._rows
            slots = piece.open.reading(high - low)
            edges = np.flatnonzero((np.diff(slots) != 1) | (np.diff(stops) != 0)) + 1
            bounds = [0, *edges.tolist(), high - low]
            for left, right in pairwise(bounds):
                slot = int(slots[left])
                self._prefix.append((first, int(stops[left]), slot, slot + right - left))

    def keep(self, rows: Int64, slots: Int64) -> None:
        """Keys and values of some rows go to some slots."""
        self._kept.append((rows, slots))

    def open_rows(self, first: int, prefix_length: int) -> Int64:
        """Rows from `first` on whose subtree goes on after the chunk, below that many tokens."""
        rows = self._open[-1]
        rows = rows[rows >= first]
        return rows[self.positions(rows) >= prefix_length]

    def positions(self, rows: Int64) -> Int64:
        """Positions of rows of the job that was added last."""
        offset = self._rows - len(self._positions[-1])
        return self._positions[-1][rows - offset].astype(np.int64)

    def chunk(self) -> BuiltChunk:
        prefix = np.array(self._prefix, dtype=np.int64).reshape(-1, 4)
        slot_mapping = np.full(self._rows, -1, dtype=np.int32)
        for rows, slots in self._kept:
            slot_mapping[rows] = slots
        chunk = ForwardBatch(
            tokens=np.concatenate(self._tokens),
            positions=np.concatenate(self._positions),
            subtree_ends=np.concatenate(self._subtree_ends),
            logits_indices=np.concatenate(self._answers),
            prefix_rows=prefix[:, :2],
            prefix_slots=prefix[:, 2:],
            slot_mapping=slot_mapping,
        )
        return BuiltChunk(chunk, tuple(self._parts))


def clip(extents: list[Stretch], first: int, stop: int) -> list[Stretch]:
    """The parts of some stretches between two depths."""
    found: list[Stretch] = []
    for depth, slot, length in extents:
        low, high = max(depth, first), min(depth + length, stop)
        if low < high:
            found.append((low, slot + low - depth, high - low))
    return found

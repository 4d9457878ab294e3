"""The rows of a batch as pairs of an anchor and its partners."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey.arrays import Bool, Int64, distinct_rows
from covey.engine.questions import QuestionTokens


@dataclass(frozen=True, slots=True)
class Pairs:
    """The rows of a batch as pairs of a distinct anchor and a distinct tuple of partners.

    A question without documents has no anchors, and one partner tuple without ids.

    Where the rows come in blocks, anchor by anchor and every one with all partners in the
    same order, as a join without conditions gives them, nothing is stored a row but the row:
    millions of them are handled block by block.

    Attributes:
        rows: (n,) int64, rows of the batch.
        anchors: (a,) int64 document ids.
        owners: into `anchors`: (n,) int64, or (n / block,) where the rows come in blocks.
        partners: (p, partners of the question) int64 document ids; once rows have their
            probes a last column, the probe.
        pattern: into `partners`: (n,) int64, or (block,) where the rows come in blocks.
        block: rows of a block; 0 where the rows come in none.
    """

    rows: Int64
    anchors: Int64
    owners: Int64
    partners: Int64
    pattern: Int64
    block: int = 0

    @property
    def anchor_of(self) -> Int64:
        """(n,) int64 into `anchors`."""
        return np.repeat(self.owners, self.block) if self.block else self.owners

    @property
    def partner_of(self) -> Int64:
        """(n,) int64 into `partners`."""
        return np.tile(self.pattern, len(self.owners)) if self.block else self.pattern

    @property
    def all(self) -> bool:
        """Whether every anchor has all partners; no two rows are equal."""
        return len(self.rows) == len(self.anchors) * len(self.partners)

    def of_anchors(self, chosen: Bool) -> Pairs:
        """The rows of some anchors; all partners stay."""
        if chosen.all():
            return self
        kept = np.flatnonzero(chosen[self.owners])
        owners = (np.cumsum(chosen) - 1)[self.owners[kept]]
        if self.block:
            rows, pattern = self.rows.reshape(-1, self.block)[kept].reshape(-1), self.pattern
        else:
            rows, pattern = self.rows[kept], self.pattern[kept]
        return Pairs(rows, self.anchors[chosen], owners, self.partners, pattern, self.block)

    def without(self, rows: Int64) -> Pairs:
        """All rows but some, and the anchors and partners that these leave."""
        kept = ~np.isin(self.rows, rows)
        anchors, anchor_of = distinct_ids(self.anchor_of[kept])
        partners, partner_of = distinct_ids(self.partner_of[kept])
        return Pairs(
            self.rows[kept], self.anchors[anchors], anchor_of, self.partners[partners], partner_of
        )


def pairs_of(ids: Int64, rows: Int64, asked: QuestionTokens) -> Pairs:
    """Name the distinct anchors and partners of some rows, (n, arity) document ids."""
    if asked.anchor is not None and asked.partners:
        blocks = _blocks(ids, rows, asked.anchor, list(asked.partners))
        if blocks is not None:
            return blocks
    none = np.empty(0, dtype=np.int64)
    anchors, anchor_of = (
        (none, none) if asked.anchor is None else distinct_ids(ids[:, asked.anchor])
    )
    partners, partner_of = _distinct_tuples(ids[:, list(asked.partners)])
    return Pairs(rows, anchors, anchor_of, partners, partner_of)


def _blocks(ids: Int64, rows: Int64, anchor: int, places: list[int]) -> Pairs | None:
    """The pairs where they come in blocks (see `Pairs.block`), None where they do not."""
    column = ids[:, anchor]
    others = np.flatnonzero(column != column[:1])
    size = int(others[0]) if len(others) else 0
    if size < 2 or len(ids) % size:
        return None
    owners, partners = column[::size], ids[:, places].reshape(-1, size, len(places))
    if (column.reshape(-1, size) != owners[:, None]).any() or (partners != partners[0]).any():
        return None
    anchors, number = distinct_ids(owners)
    tuples, pattern = _distinct_tuples(partners[0])
    if len(anchors) < len(owners) or len(tuples) < size:
        return None
    return Pairs(rows, anchors, number, tuples, pattern, size)


def _distinct_tuples(ids: Int64) -> tuple[Int64, Int64]:
    """The distinct rows of (n, k) ids, ascending, and (n,) which of them each is."""
    if not ids.shape[1]:
        return np.empty((1, 0), dtype=np.int64), np.zeros(len(ids), dtype=np.int64)
    if ids.shape[1] == 1:
        column, number = distinct_ids(ids[:, 0])
        return column[:, None], number
    return distinct_rows(ids)


def distinct_ids(ids: Int64) -> tuple[Int64, Int64]:
    """The distinct ids, ascending, and (n,) which of them each is."""
    if not len(ids):
        return ids, ids
    top = int(ids.max()) + 1
    if top > 16 * len(ids):
        found, inverse = np.unique(ids, return_inverse=True)
        return found, inverse.reshape(-1)
    present = np.zeros(top, dtype=np.bool_)
    present[ids] = True
    found = np.flatnonzero(present)
    number = np.cumsum(present) - 1
    return found, number[ids]

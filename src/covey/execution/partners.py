"""Pairs that are asked in rounds, until the first document of a pair needs no more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from covey.arrays import Int64
from covey.plan.join_graph import Target, tied
from covey.plan.nodes import Ask, Operator, Pipeline, Stop


class Partners:
    """The pairs of an EXISTS that have not been asked, grouped by outer row.

    Args:
        columns: row ids, one array of length n a source; those of the outer row first.
        keys: number of columns that name the outer row.
    """

    def __init__(self, columns: list[Int64], keys: int) -> None:
        order = np.lexsort(columns[::-1])
        self._columns = [column[order] for column in columns]
        self._keys = keys

    @property
    def count(self) -> int:
        return len(self._columns[0])

    def take(self, size: int) -> list[Int64]:
        """Remove and return the next `size` pairs of every outer row, in scan order."""
        groups = self._groups(self._columns)
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        place = np.arange(len(groups)) - starts[groups]
        taken = place < size
        out = [column[taken] for column in self._columns]
        self._columns = [column[~taken] for column in self._columns]
        return out

    def drop(self, decided: list[Int64]) -> None:
        """Remove all pairs of the outer rows that are decided.

        Args:
            decided: their row ids, `keys` arrays.
        """
        if not self.count or not len(decided[0]):
            return
        both = [
            np.concatenate([mine, theirs])
            for mine, theirs in zip(self._columns[: self._keys], decided, strict=True)
        ]
        order = np.lexsort(both[::-1])
        groups = np.empty(len(order), np.int64)
        groups[order] = self._groups([column[order] for column in both])
        gone = np.isin(groups[: self.count], groups[self.count :])
        self._columns = [column[~gone] for column in self._columns]

    def _groups(self, columns: list[Int64]) -> Int64:
        """A number for each outer row, 0, 1, 2 …; the columns are sorted."""
        new = np.zeros(len(columns[0]), np.bool_)
        new[:1] = True
        for column in columns[: self._keys]:
            new[1:] |= column[1:] != column[:-1]
        return np.cumsum(new) - 1


def first_match(pipeline: Pipeline, ask: Ask, left: Sequence[Operator]) -> Stop | None:
    """When a row that a DISTINCT shows needs no more partners: behind all other conditions.

    Args:
        pipeline: the rows on their way.
        ask: about to be asked.
        left: the operators that are not decided, its own among them.
    """
    shown, target = pipeline.shown, ask.target
    if shown is None or target is None or len(left) != 1 or left[0].passes is None:
        return None
    if left[0].asks[-1].call != ask.call:
        return None
    keys = [source for source in target.sources if source in shown]
    if not 0 < len(keys) < len(target.sources) or target.sources[: len(keys)] != tuple(keys):
        return None
    passes = [operator.passes for operator in pipeline.operators if operator.passes is not None]
    # What the other sources are tied to must all be in the keys, or a match for one row
    # would decide another.
    conditions = [*pipeline.rows.conditions, *passes]
    if not tied(frozenset(target.sources) - shown, shown, conditions) <= set(keys):
        return None
    return Stop(len(keys), "", Target(tuple(keys), (left[0].passes,)))

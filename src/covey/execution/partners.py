"""Pairs that are asked in rounds, until the first document of a pair needs no more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from covey.arrays import Int64, distinct_rows
from covey.plan.join_graph import Condition, Target
from covey.plan.nodes import Ask, Operator, Pipeline, Stop


class Partners:
    """The pairs of an EXISTS that have not been asked, grouped by outer row.

    Args:
        columns: row ids, one array of length n a source; those of the outer row first.
        keys: number of columns that name the outer row.
    """

    def __init__(self, columns: list[Int64], keys: int) -> None:
        self._rows = np.stack(columns, axis=1)[np.lexsort(columns[::-1])]
        self._keys = keys

    @property
    def count(self) -> int:
        return len(self._rows)

    def take(self, size: int) -> list[Int64]:
        """Remove and return the next `size` pairs of every outer row, in scan order."""
        outer, at = self._rows[:, : self._keys], np.arange(len(self._rows))
        begins = np.ones(len(at), np.bool_)
        begins[1:] = (outer[1:] != outer[:-1]).any(axis=1)
        taken = at - np.maximum.accumulate(np.where(begins, at, 0)) < size
        out = self._rows[taken]
        self._rows = self._rows[~taken]
        return list(out.T)

    def drop(self, decided: list[Int64]) -> None:
        """Remove all pairs of the outer rows that are decided.

        Args:
            decided: their row ids, `keys` arrays.
        """
        outer = np.concatenate([self._rows[:, : self._keys], np.stack(decided, axis=1)])
        _, number = distinct_rows(outer)
        self._rows = self._rows[~np.isin(number[: self.count], number[self.count :])]


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
    # What the other sources are tied to must all be in the keys, or a match for one row
    # would decide another.
    conditions = [*pipeline.graph.conditions, *pipeline.conditions]
    if not _tied(frozenset(target.sources) - shown, shown, conditions) <= set(keys):
        return None
    return Stop(len(keys), "", Target(tuple(keys), (left[0].passes,)))


def _tied(
    sources: frozenset[int], shown: frozenset[int], conditions: Sequence[Condition]
) -> frozenset[int]:
    """The sources among `shown` that conditions tie to some others, through others too."""
    group, found = sources, frozenset[int]()
    while True:
        near = frozenset[int]().union(*(c.sources for c in conditions if c.sources & group))
        found |= near & shown
        if near - shown <= group:
            return found
        group |= near - shown

"""The sources of a block whose joins are all inner, and queries for rows that conditions leave.

Conditions commute: which rows a call is asked for depends only on which conditions are
decided by then. A query enumerates the rows of the sources that it is about; whether they
join the others is tested by EXISTS (a semi-join reduction), so that no query makes the pairs of
sources that it does not name.

The other sources fall into components that no condition connects, and each component is one
EXISTS. What stands in its FROM depends on how many of its sources a condition ties to the
sources in sight; the rest of the component is tested inside it in the same way:

    none       the first source         FROM a … EXISTS (FROM b …)               a cross join
    one        that source              FROM a … EXISTS (FROM b … EXISTS (FROM c …))   a-b-c
    several    the whole component      FROM a … EXISTS (FROM b, c …)     a-b, a-c and b-c
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Some rows of a source, to which a query is confined.

    Attributes:
        source: the position in `JoinGraph.relations`.
        table: holds their row ids in its one column of the same name. A list in the text
            would be bound anew, number by number, with every query that names it.
        first, last: bounds of the row ids.
    """

    source: int
    table: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition as SQL.

    Attributes:
        text: may name the aliases of `sources`.
        sources: positions in `JoinGraph.relations`.
    """

    text: str
    sources: frozenset[int]


@dataclass(frozen=True, slots=True)
class Relation:
    """A loaded source: its temporary table and the quoted name its columns go by."""

    table: str
    alias: str

    @property
    def row_id(self) -> str:
        return f"{self.alias}.rowid"


@dataclass(frozen=True, slots=True)
class Target:
    """Which rows a query is for.

    Attributes:
        sources: whose row ids it gives, in this order.
        conditions: what must hold beside the conditions decided by then.
        inner: sources of a subquery that belong to it.
    """

    sources: tuple[int, ...]
    conditions: tuple[Condition, ...] = ()
    inner: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class JoinGraph:
    """Sources, and the conditions between them that need no model.

    Attributes:
        prefix: the WITH clause that conditions may need, or "".
        relations: the sources of FROM, then those of its subqueries.
        outer: how many of them are in FROM.
        conditions: that need no model, or no more.
    """

    prefix: str
    relations: tuple[Relation, ...]
    outer: int
    conditions: tuple[Condition, ...]

    def query(
        self, target: Target, decided: Iterable[Condition], batch: RowBatch | None = None
    ) -> str:
        """The distinct row ids of the target's sources in rows that pass some conditions.

        Args:
            target: what is asked for.
            decided: conditions whose answers are there.
            batch: confines one source to some rows.
        """
        conditions = [*self.conditions, *decided, *target.conditions]
        seen = frozenset(target.sources)
        rest = (frozenset(range(self.outer)) | target.inner) - seen
        where = self._where(seen, rest, conditions, batch)
        columns = ", ".join(self.relations[i].row_id for i in target.sources) or "0"
        query = f"{self.prefix}SELECT {columns}"
        if seen:
            query += f" FROM {self._from(target.sources, batch)}"
        return query + (f" WHERE {' AND '.join(where)}" if where else "")

    def _where(
        self,
        seen: frozenset[int],
        rest: frozenset[int],
        conditions: Sequence[Condition],
        batch: RowBatch | None,
    ) -> list[str]:
        """What must hold of rows of the sources in sight, given those that are not."""
        texts = [f"({c.text})" for c in conditions if c.sources <= seen]
        open_ones = [c for c in conditions if not c.sources <= seen]
        for part in _components(rest, open_ones):
            own = [c for c in open_ones if c.sources & part]
            tied = frozenset(i for c in own if c.sources & seen for i in c.sources & part)
            first = tied if len(tied) == 1 else part if tied else frozenset([min(part)])
            inner = self._where(seen | first, part - first, own, batch)
            query = f"SELECT 1 FROM {self._from(sorted(first), batch)}"
            texts.append(f"EXISTS ({query}{' WHERE ' if inner else ''}{' AND '.join(inner)})")
        return texts

    def _from(self, sources: Sequence[int], batch: RowBatch | None) -> str:
        parts = []
        for i in sources:
            relation = self.relations[i]
            text = relation.table
            if batch is not None and i == batch.source:
                # Bounds let DuckDB skip the rest of a large source. As a subquery of its
                # own the batch is cut before anything is joined to it.
                text = (
                    f"(SELECT *, rowid FROM {text} "
                    f"WHERE rowid BETWEEN {batch.first} AND {batch.last} "
                    f"AND rowid IN (SELECT {batch.table} FROM {batch.table}))"
                )
            parts.append(f"{text} AS {relation.alias}")
        return ", ".join(parts)


def _components(sources: frozenset[int], conditions: Sequence[Condition]) -> list[frozenset[int]]:
    """The sources in groups that no condition connects."""
    left, found = set(sources), []
    while left:
        group = {min(left)}
        while True:
            near = [c.sources & sources for c in conditions if c.sources & group]
            grown = group.union(*near)
            if grown == group:
                break
            group = grown
        found.append(frozenset(group))
        left -= group
    return found

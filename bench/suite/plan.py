"""A query as data: relations, the steps over them in plan order, and what follows.

The forms are those that the benchmark's plans have: each join adds one relation, the steps
of a single relation stand before its joins, and the tail is group, having, sort, fetch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from suite.predicates import PREDICATES, Predicate


@dataclass(frozen=True, slots=True)
class Test:
    """`column op value` of one relation, no model needed; op as in SQL."""

    column: str
    op: str
    value: int


@dataclass(frozen=True, slots=True)
class Scan:
    """A relation: its alias, its table, and the tests right above it."""

    alias: str
    table: str
    tests: tuple[Test, ...] = ()


@dataclass(frozen=True, slots=True)
class Filter:
    """Keep rows for which a judgement about one document is TRUE."""

    predicate: Predicate
    alias: str


@dataclass(frozen=True, slots=True)
class Join:
    """Keep pairs for which a judgement is TRUE.

    Attributes:
        aliases: of the predicate's documents, in template order.
        equal: two columns, written alias.column, that must be equal as well.
    """

    predicate: Predicate
    aliases: tuple[str, str]
    equal: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Classify:
    """Give each row a label under a column name."""

    predicate: Predicate
    aliases: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True)
class InList:
    """Keep rows whose label is one of some."""

    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """Give each row P(TRUE) under a column name."""

    predicate: Predicate
    alias: str
    name: str


Step = Filter | Join | Classify | InList | Score


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate: a function ("count", "avg", "min", "max"), its column, a name.

    A column of None counts rows.
    """

    function: str
    column: str | None
    name: str
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class Tail:
    """What follows the steps.

    Attributes:
        group: columns grouped by; with `aggregates` empty and `group` not, rows are distinct.
        having: (aggregate's name, op, value) or None.
        order: (column, descending).
        offset, limit: of the sorted rows.
    """

    group: tuple[str, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    having: tuple[str, str, int] | None = None
    order: tuple[tuple[str, bool], ...] = ()
    offset: int = 0
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A query.

    Attributes:
        id: as the benchmark names it.
        scans: relations, in the order in which joins add them.
        steps: in plan order.
        outputs: columns of the result: an alias (its id), a name that a step or aggregate
            gives, or alias.column.
        tail: what follows the steps.
    """

    id: str
    scans: tuple[Scan, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    tail: Tail = field(default_factory=Tail)

    def scan(self, alias: str) -> Scan:
        """The relation of an alias."""
        return next(scan for scan in self.scans if scan.alias == alias)

    def classification(self, name: str) -> Classify:
        """The classification that gives a column."""
        return next(s for s in self.steps if isinstance(s, Classify) and s.name == name)

    @property
    def dataset(self) -> str:
        """The family, such as IMDB; REL-AGENT for REL-AGENT-1."""
        return self.id.rpartition("-")[0]


def judged(name: str, alias: str) -> Filter:
    """A filter by its predicate's name."""
    return Filter(PREDICATES[name], alias)


def joined(name: str, *aliases: str, equal: tuple[str, str] | None = None) -> Join:
    """A join by its predicate's name."""
    first, second = aliases
    return Join(PREDICATES[name], (first, second), equal)


def classified(name: str, aliases: str, column: str) -> Classify:
    """A classification by its predicate's name; `aliases` are separated by spaces."""
    return Classify(PREDICATES[name], tuple(aliases.split()), column)

"""Which queries a command runs, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

from covey.errors import InputError
from suite.plan import Plan
from suite.published import FRESH_MILLIONS
from suite.queries import QUERIES

# Queries by name of a group.
GROUPS = {
    "PUBLISHED": tuple(FRESH_MILLIONS),
    "LABELS": ("IMDB-11", "IMDB-12", "BIO-5", "FEV-11", "AGENT-5"),
}
# What tells most for its time goes first: the benchmark's own checkpoints of each shape, whose
# work is small. Five queries are as much work as the rest together.
_FIRST = ("IMDB-1", "IMDB-2", "IMDB-4", "IMDB-8", "FEV-5", "FEV-8", "FEV-10", "FEV-11", "BIO-4")
_LAST = ("LEP-3", "LEP-2", "AGENT-1", "AGENT-2", "AGENT-5")


def chosen(names: Sequence[str]) -> list[Plan]:
    """The queries of some names, families or groups, all where none is named.

    Raises:
        InputError: a name fits none.
    """
    if not names:
        return list(QUERIES.values())
    found: dict[str, Plan] = {}
    for name in map(str.upper, names):
        group = GROUPS.get(name, ())
        fitting = {q.id: q for q in QUERIES.values() if name in (q.id, q.dataset) or q.id in group}
        if not fitting:
            families = ", ".join(dict.fromkeys(q.dataset for q in QUERIES.values()))
            raise InputError(
                f"There is no query {name!r}. Name one, a family: {families}; or a group:"
                f" {', '.join(GROUPS)}."
            )
        found |= fitting
    return list(found.values())


def by_interest(plans: Sequence[Plan]) -> list[Plan]:
    """The same queries, those first that tell most for their time."""
    return sorted(plans, key=lambda plan: _place(plan.id))


def _place(query: str) -> tuple[int, int]:
    if query in _FIRST:
        return 0, _FIRST.index(query)
    return (2, _LAST.index(query)) if query in _LAST else (1, 0)

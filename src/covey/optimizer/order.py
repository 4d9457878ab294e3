"""The order of conditions: by what the whole order costs, and how a text reads before that.

The first condition on a document pays for its prefill, later ones for their question only:
its keys and values are there. A condition that rejects many rows early saves the work of
those behind it. For conditions over one source and independent rates the best order is by
rank, cost / (1 - pass rate); with joins the rank of a condition depends on what stands
before it, so that orders are built up by dynamic programming over sets of conditions.

    WHERE A(t) AND B(t) AND J(t, p):  {} → {A}, {B}, {J} → {A, B}, {A, J}, {B, J} → {A, B, J}

For each set the Pareto frontier on (fresh tokens, attention pairs, KV written, KV read,
peak KV) is kept. Filters thus come to stand below or above joins, and joins in any
left-deep order. Which side of a join is the anchor is the prompt's, and not chosen here
(docs/decisions/0004).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from covey.estimate.cost import Lengths, Work, frontier, prefixes, suffixes
from covey.logical.calls import AICall
from covey.logical.query_blocks import Expr

# Conditions whose sets are all built upon, and orders kept of each set.
EXACT = 7
MAX_KEPT = 4
# Of more conditions a set grows by one of the next by rank only, and so many sets of one size
# are built upon that all sizes together stay within bounds: 8 for ten conditions.
WINDOW = 6
ALL_SETS = 80


def ask_order(expr: Expr, calls: list[AICall]) -> tuple[float, ...]:
    """Sort key of a condition before anything is known of its rows.

    A condition over one document touches each row once, one over a pair touches
    every pair, so arity comes first; then what the user says; then as written.
    """
    inside = [calls[i] for i in expr.calls]
    arity = max((call.question.arity for call in inside), default=0)
    given = [call.options.selectivity for call in inside]
    pass_rate = given[0] if len(given) == 1 and given[0] is not None else 1.0
    return (float(arity), pass_rate, float(expr.span[0]))


@dataclass(frozen=True, slots=True)
class AskCost:
    """What one ask costs a prompt.

    Attributes:
        prompt: what is asked of which texts; equal for asks that may share answers.
        anchor: what is computed once an anchor; equal for asks that share it, None for a
            constant prompt.
        source: of the anchor.
        sources: of all documents.
        distinct: share of the anchors' rows that differ.
        document: lengths of the anchor.
        instruction: tokens behind it, once an anchor and question.
        suffix: lengths of the rest.
        needed: share of the rows that the calls before it in its condition leave open.
    """

    prompt: object
    anchor: object
    source: int | None
    sources: frozenset[int]
    distinct: float
    document: Lengths
    instruction: float
    suffix: Lengths
    needed: float = 1.0


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """A condition: the sources it needs and what it asks."""

    sources: frozenset[int]
    asks: tuple[AskCost, ...]


class Orders:
    """Prices orders of conditions over given rows.

    Args:
        operators: the conditions.
        rows: of each source.
        matches: see `PipelineFacts.matches`.
        share: the share of one source's rows that pass some operators.
        rates: the pass rate of each operator.
        seconds: time of some work.
        budget: fresh tokens of a pass.
    """

    def __init__(
        self,
        operators: Sequence[OperatorCost],
        rows: Sequence[float],
        matches: dict[frozenset[int], float],
        share: Callable[[frozenset[int]], float],
        rates: Sequence[float],
        seconds: Callable[[Work], float],
        budget: float,
    ) -> None:
        self._operators = operators
        self._rows = [max(float(count), 1e-9) for count in rows]
        self._matches = matches
        self._share = share
        self._rates = rates
        self._seconds = seconds
        self._budget = budget
        self._shares: dict[frozenset[int], float] = {}
        self._steps: dict[tuple[int, frozenset[int]], Work] = {}
        self._anchors = [frozenset(ask.anchor for ask in operator.asks) for operator in operators]
        self._joins = frozenset(i for i, s in enumerate(operators) if len(s.sources) > 1)
        self._alone: dict[int, frozenset[int]] = {}
        for source in range(len(self._rows)):
            own = (i for i, operator in enumerate(operators) if operator.sources == {source})
            self._alone[source] = frozenset(own)
        self._asking: defaultdict[object, list[tuple[int, AskCost]]] = defaultdict(list)
        for i, operator in enumerate(operators):
            for ask in operator.asks:
                self._asking[ask.prompt].append((i, ask))
        near = [self._sources_near(operator) for operator in operators]
        known = {each: self._neighbours(*each) for each in set(near)}
        self._near = [known[each] for each in near]

    def cost(self, order: Sequence[int]) -> Work:
        """The work of some conditions in an order."""
        done, total = frozenset[int](), Work()
        for operator in order:
            total += self._step(operator, done)
            done |= {operator}
        return total

    def best(self, left: Sequence[int]) -> tuple[int, ...]:
        """The cheapest order of some conditions; of equals, as given.

        Of more than `EXACT` conditions it is the best of a bounded search.
        """
        # What asks the same as another costs nothing behind it.
        alike: dict[object, list[int]] = {}
        for operator in left:
            asks = frozenset(ask.prompt for ask in self._operators[operator].asks)
            key = (self._operators[operator].sources, asks) if None not in asks else operator
            alike.setdefault(key, []).append(operator)
        groups = {group[0]: group for group in alike.values()}
        return tuple(operator for first in self._search(list(groups)) for operator in groups[first])

    def _search(self, left: list[int]) -> tuple[int, ...]:
        window = sets = len(left) if len(left) <= EXACT else WINDOW
        if len(left) > EXACT:
            left = sorted(left, key=self._rank)
            sets = max(ALL_SETS // len(left), 1)
        level: dict[frozenset[int], list[_Path]] = {frozenset(): [_Path((), Work())]}
        for size in range(len(left)):
            near = left[: size + window]
            grown: dict[frozenset[int], list[_Path]] = {}
            for done, paths in level.items():
                for operator in near:
                    if operator in done:
                        continue
                    step = self._step(operator, done)
                    grown.setdefault(done | {operator}, []).extend(
                        _Path((*path.order, operator), path.work + step) for path in paths
                    )
            level = self._pruned(grown, near, sets if len(left) > EXACT else len(grown))
        (paths,) = level.values()
        found = min(paths, key=lambda path: self._seconds(path.work)).order
        if len(left) <= EXACT:
            return found
        # A search that leaves out most sets may miss what rank alone finds.
        return min(found, tuple(left), key=lambda order: self._seconds(self.cost(order)))

    def _rank(self, operator: int) -> float:
        """What a condition costs for each row that it rejects, the document being there."""
        work = Work()
        for ask in self._operators[operator].asks:
            work += self._ask(ask, frozenset(), resident=True)
        return self._seconds(work) / max(1.0 - self._rates[operator], 1e-9)

    def _pruned(
        self, grown: dict[frozenset[int], list[_Path]], near: Sequence[int], most: int
    ) -> dict[frozenset[int], list[_Path]]:
        """The frontier of each set, and of the sets the most promising."""
        kept: dict[frozenset[int], list[_Path]] = {}
        for done, paths in grown.items():
            if len(paths) > 1:
                paths.sort(key=lambda path: self._seconds(path.work))
                paths = frontier(paths[: 2 * MAX_KEPT], lambda path: path.work)[:MAX_KEPT]
            kept[done] = paths
        if len(kept) <= most:
            return kept

        def promise(done: frozenset[int]) -> float:
            # What the rest would cost if all of it were asked now.
            rest = [self._seconds(self._step(s, done)) for s in near if s not in done]
            return self._seconds(kept[done][0].work) + sum(rest)

        return {done: kept[done] for done in sorted(kept, key=promise)[:most]}

    def _step(self, operator: int, done: frozenset[int]) -> Work:
        """The work of one condition behind others."""
        done &= self._near[operator]
        known = self._steps.get((operator, done))
        if known is None:
            computed = set[object]().union(*(self._anchors[s] for s in done))
            known = Work()
            for ask in self._operators[operator].asks:
                known += self._ask(ask, done, ask.anchor in computed)
                computed.add(ask.anchor)
            self._steps[operator, done] = known
        return known

    def _sources_near(self, operator: OperatorCost) -> tuple[frozenset[int], frozenset[object]]:
        """The sources of a condition and of those that ask alike, and its anchors."""
        alike = {i for ask in operator.asks for i, _ in self._asking[ask.prompt]}
        own = operator.sources.union(*(self._operators[i].sources for i in alike))
        return own, frozenset(ask.anchor for ask in operator.asks)

    def _neighbours(self, own: frozenset[int], anchors: frozenset[object]) -> frozenset[int]:
        """The conditions that change what one costs: on its sources or one join off."""
        joined = {*(s.sources for s in self._operators), *self._matches}
        around = own.union(*(sources for sources in joined if sources & own))
        return frozenset(
            number
            for number, other in enumerate(self._operators)
            if other.sources & own
            or (len(other.sources) == 1 and other.sources <= around)
            or self._anchors[number] & anchors
        )

    def _ask(self, ask: AskCost, done: frozenset[int], resident: bool) -> Work:
        if ask.source is None:
            return suffixes(1.0, ask.suffix, Lengths.fixed(0.0), self._budget, resident=False)
        count = self._combinations(ask.sources, done) * ask.distinct * ask.needed
        count *= 1.0 - self._answered(ask, done)
        anchors = min(count, self._rows_left(ask.source, done) * ask.distinct)
        paired = len(ask.sources) > 1
        if resident:
            instructed = Lengths.fixed(ask.instruction if paired else 0.0)
            above = suffixes(anchors, instructed, ask.document, self._budget)
        else:
            above = prefixes(anchors, ask.document, ask.instruction, self._budget, kept=True)
        prefix = ask.document + Lengths.fixed(ask.instruction)
        below = suffixes(
            count, ask.suffix, prefix, self._budget, anchors=anchors, resident=resident or paired
        )
        return above + below

    def _answered(self, ask: AskCost, done: frozenset[int]) -> float:
        """The share of all prompts of an ask that others over the same texts have asked."""
        asked = 0.0
        for operator, other in self._asking[ask.prompt]:
            if operator in done and other.source is not None:
                every = math.prod(self._rows[i] for i in other.sources)
                every *= self._matches.get(other.sources, 1.0)
                some = self._combinations(other.sources, done - {operator})
                asked = max(asked, min(some / max(every, 1e-9), 1.0))
        return asked

    def _combinations(self, sources: frozenset[int], done: frozenset[int]) -> float:
        """Expected combinations of rows of some sources that are left."""
        if len(sources) == 1:
            return self._rows_left(min(sources), done)
        count = self._matches.get(sources, 1.0)
        for source in sources:
            count *= self._rows_left(source, done, sources)
        for operator in done & self._joins:
            if self._operators[operator].sources <= sources:
                count *= self._rates[operator]
        return count

    def _rows_left(
        self, source: int, done: frozenset[int], but: frozenset[int] = frozenset()
    ) -> float:
        """Expected rows of a source that pass, and have a partner in each join that is decided.

        A row with k partners, of which each is TRUE and left with probability q, has one
        with probability 1 - (1 - q)^k.

        Args:
            but: joins within these sources do not count.
        """
        left = self._rows[source] * self._passing(source, done)
        pairs: dict[frozenset[int], float] = {s: 1.0 for s in self._matches if source in s}
        for operator in done & self._joins:
            sources = self._operators[operator].sources
            if source in sources and len(sources) == 2:
                pairs[sources] = pairs.get(sources, 1.0) * self._rates[operator]
        for sources, rate in pairs.items():
            if sources <= but or len(sources) != 2:
                continue
            other = min(sources - {source})
            partners = self._rows[other] * self._matches.get(sources, 1.0)
            q = min(rate * self._passing(other, done), 1.0)
            # A single partner on average or less: few rows have more than one.
            left *= min(partners, 1.0) * (1.0 - (1.0 - q) ** max(partners, 1.0))
        return left

    def _passing(self, source: int, done: frozenset[int]) -> float:
        own = done & self._alone[source]
        known = self._shares.get(own)
        if known is None:
            known = self._shares[own] = self._share(own)
        return known


@dataclass(frozen=True, slots=True)
class _Path:
    """An order of some conditions, and its work."""

    order: tuple[int, ...]
    work: Work

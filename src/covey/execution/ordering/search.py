"""The cheapest order of the conditions of a pipeline: what orders cost, and a search among them.

The first condition on a document pays for its prefill, later ones for their question only:
its keys and values are there. A condition that rejects many rows early saves the work of
those behind it. For conditions over one source and independent selectivities the best order is by
rank, cost / (1 - selectivity); with joins the rank of a condition depends on what stands
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
from collections.abc import Callable, Mapping, Sequence

from covey.estimate.cost import Lengths, Work, frontier, prefixes, suffixes
from covey.execution.ordering.facts import AskCost, ConditionCost

# Conditions whose sets are all built upon, and orders kept of each set.
EXACT = 7
MAX_KEPT = 4
# Of more conditions a set grows by one of the next by rank only, and so many sets of one size
# are built upon that all sizes together stay within bounds: 8 for ten conditions.
WINDOW = 6
ALL_SETS = 80


# An order of some conditions, and its work.
_Path = tuple[tuple[int, ...], Work]


class Orders:
    """Prices orders of conditions over given rows.

    Args:
        conditions: the conditions.
        rows: of each source.
        join_selectivity: see `PipelineFacts`.
        share: the share of one source's rows that pass some conditions.
        selectivities: of the conditions.
        seconds: time of some work.
        budget: fresh tokens of a pass.
    """

    def __init__(
        self,
        conditions: Sequence[ConditionCost],
        rows: Sequence[float],
        join_selectivity: Mapping[frozenset[int], float],
        share: Callable[[frozenset[int]], float],
        selectivities: Sequence[float],
        seconds: Callable[[Work], float],
        budget: float,
    ) -> None:
        self._conditions = conditions
        self._rows = [max(float(count), 1e-9) for count in rows]
        self._join_selectivity = join_selectivity
        self._share = share
        self._selectivities = selectivities
        self._seconds = seconds
        self._budget = budget
        self._shares: dict[frozenset[int], float] = {}
        self._steps: dict[tuple[int, frozenset[int]], Work] = {}
        self._anchors = [frozenset(ask.anchor for ask in each.asks) for each in conditions]
        self._joins = frozenset(i for i, s in enumerate(conditions) if len(s.sources) > 1)
        self._alone = [
            frozenset(i for i, condition in enumerate(conditions) if condition.sources == {source})
            for source in range(len(self._rows))
        ]
        self._asking: defaultdict[object, list[tuple[int, AskCost]]] = defaultdict(list)
        for i, condition in enumerate(conditions):
            for ask in condition.asks:
                self._asking[ask.prompt].append((i, ask))
        near = [self._sources_near(condition) for condition in conditions]
        known = {each: self._neighbours(*each) for each in set(near)}
        self._near = [known[each] for each in near]

    def cost(self, order: Sequence[int]) -> Work:
        """The work of some conditions in an order."""
        done, total = frozenset[int](), Work()
        for condition in order:
            total += self._step(condition, done)
            done |= {condition}
        return total

    def best(self, left: Sequence[int]) -> tuple[int, ...]:
        """The cheapest order of some conditions; of equals, as given.

        Of more than `EXACT` conditions it is the best of a bounded search.
        """
        # What asks the same as another costs nothing behind it.
        by_prompts: dict[object, list[int]] = {}
        for condition in left:
            asks = frozenset(ask.prompt for ask in self._conditions[condition].asks)
            key = (self._conditions[condition].sources, asks) if None not in asks else condition
            by_prompts.setdefault(key, []).append(condition)
        groups = {group[0]: group for group in by_prompts.values()}
        return tuple(alike for first in self._search(list(groups)) for alike in groups[first])

    def _search(self, left: list[int]) -> tuple[int, ...]:
        exact = len(left) <= EXACT
        if not exact:
            left = sorted(left, key=self._rank)
        window = len(left) if exact else WINDOW
        most = None if exact else max(ALL_SETS // len(left), 1)
        level: dict[frozenset[int], list[_Path]] = {frozenset(): [((), Work())]}
        for size in range(len(left)):
            near = left[: size + window]
            grown: dict[frozenset[int], list[_Path]] = {}
            for done, paths in level.items():
                for condition in near:
                    if condition in done:
                        continue
                    step = self._step(condition, done)
                    grown.setdefault(done | {condition}, []).extend(
                        ((*order, condition), work + step) for order, work in paths
                    )
            level = self._pruned(grown, near, most)
        (paths,) = level.values()
        found, _ = min(paths, key=lambda path: self._seconds(path[1]))
        if exact:
            return found
        # A search that leaves out most sets may miss what rank alone finds.
        return min(found, tuple(left), key=lambda order: self._seconds(self.cost(order)))

    def _rank(self, condition: int) -> float:
        """What a condition costs for each row that it rejects, the document being there."""
        work = Work()
        for ask in self._conditions[condition].asks:
            work += self._ask(ask, frozenset(), resident=True)
        return self._seconds(work) / max(1.0 - self._selectivities[condition], 1e-9)

    def _pruned(
        self, grown: dict[frozenset[int], list[_Path]], near: Sequence[int], most: int | None
    ) -> dict[frozenset[int], list[_Path]]:
        """The frontier of each set, and of the sets the most promising."""
        kept: dict[frozenset[int], list[_Path]] = {}
        for done, paths in grown.items():
            if len(paths) > 1:
                paths.sort(key=lambda path: self._seconds(path[1]))
                paths = frontier(paths[: 2 * MAX_KEPT], lambda path: path[1])[:MAX_KEPT]
            kept[done] = paths
        if most is None or len(kept) <= most:
            return kept

        def promise(done: frozenset[int]) -> float:
            # What the rest would cost if all of it were asked now.
            rest = [self._seconds(self._step(s, done)) for s in near if s not in done]
            return self._seconds(kept[done][0][1]) + sum(rest)

        return {done: kept[done] for done in sorted(kept, key=promise)[:most]}

    def _step(self, condition: int, done: frozenset[int]) -> Work:
        """The work of one condition behind others."""
        done &= self._near[condition]
        known = self._steps.get((condition, done))
        if known is None:
            computed = set[object]().union(*(self._anchors[s] for s in done))
            known = Work()
            for ask in self._conditions[condition].asks:
                known += self._ask(ask, done, ask.anchor in computed)
                computed.add(ask.anchor)
            self._steps[condition, done] = known
        return known

    def _sources_near(self, condition: ConditionCost) -> tuple[frozenset[int], frozenset[object]]:
        """The sources of a condition and of those that ask alike, and its anchors."""
        alike = {i for ask in condition.asks for i, _ in self._asking[ask.prompt]}
        own = condition.sources.union(*(self._conditions[i].sources for i in alike))
        return own, frozenset(ask.anchor for ask in condition.asks)

    def _neighbours(self, own: frozenset[int], anchors: frozenset[object]) -> frozenset[int]:
        """The conditions that change what one costs: on its sources or one join off."""
        joined = {*(s.sources for s in self._conditions), *self._join_selectivity}
        around = own.union(*(sources for sources in joined if sources & own))
        return frozenset(
            number
            for number, other in enumerate(self._conditions)
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
        for condition, other in self._asking[ask.prompt]:
            if condition in done and other.source is not None:
                every = math.prod(self._rows[i] for i in other.sources)
                every *= self._join_selectivity.get(other.sources, 1.0)
                some = self._combinations(other.sources, done - {condition})
                asked = max(asked, min(some / max(every, 1e-9), 1.0))
        return asked

    def _combinations(self, sources: frozenset[int], done: frozenset[int]) -> float:
        """Expected combinations of rows of some sources that are left."""
        if len(sources) == 1:
            return self._rows_left(min(sources), done)
        count = self._join_selectivity.get(sources, 1.0)
        for source in sources:
            count *= self._rows_left(source, done, sources)
        for condition in done & self._joins:
            if self._conditions[condition].sources <= sources:
                count *= self._selectivities[condition]
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
        pairs: dict[frozenset[int], float] = {s: 1.0 for s in self._join_selectivity if source in s}
        for condition in done & self._joins:
            sources = self._conditions[condition].sources
            if source in sources and len(sources) == 2:
                pairs[sources] = pairs.get(sources, 1.0) * self._selectivities[condition]
        for sources, rate in pairs.items():
            if sources <= but or len(sources) != 2:
                continue
            other = min(sources - {source})
            partners = self._rows[other] * self._join_selectivity.get(sources, 1.0)
            q = min(rate * self._passing(other, done), 1.0)
            # A single partner on average or less: few rows have more than one.
            left *= min(partners, 1.0) * (1.0 - (1.0 - q) ** max(partners, 1.0))
        return left

    def _passing(self, source: int, done: frozenset[int]) -> float:
        own = done & self._alone[source]
        if own not in self._shares:
            self._shares[own] = self._share(own)
        return self._shares[own]

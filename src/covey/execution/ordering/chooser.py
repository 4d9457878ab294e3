"""Decide orders from facts: at the start, after a sample, and again while rows go through."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from covey.estimate.profile import ModelProfile
from covey.estimate.rates import Rates
from covey.execution.ordering.facts import PipelineFacts, condition_costs
from covey.execution.ordering.search import Orders
from covey.execution.ordering.selectivity import SelectivityEstimates
from covey.logical.calls import AICall
from covey.plan.decisions import Decision, KnownSelectivity
from covey.plan.nodes import Pipeline
from covey.sql.text import one_line

# A sample is at most this share of the whole work, and at most this share is of prompts
# that the order would not ask anyway. It has so many rows at least, or it tells too
# little, and so many at most, since more would hardly change a decision.
SAMPLE_SHARE = 0.1
WASTED_SHARE = 0.03
MIN_SAMPLE = 12
MAX_SAMPLE = 200
# An order is changed where that saves this share of what is left: while rows are under way,
# whose keys and values were kept for the old one, and between two lots of rows.
WORTH_CHANGING = 0.03
WORTH_CHANGING_BETWEEN = 0.003
# Sets of selectivities drawn to find what knowing them is worth, conditions up to which all are
# drawn, and conditions up to which any are.
_DRAWS = 16
_FULLY_DRAWN = 5
_DRAWN_CONDITIONS = 8
# Selectivities among which the worst case for an order is looked for.
_EXTREMES = (0.01, 0.1, 0.5, 0.9, 0.99)
# Some rows go through in a trial first where the order could lose this share of the work to
# the best one, at whatever selectivities: this share of all rows, within bounds. A trial asks
# nothing that would not be asked, and only delays the rest.
WORTH_TRYING = 0.03
TRIAL_SHARE = 0.08
MIN_TRIAL = 8
MAX_TRIAL = 400
# Where a model says nothing of its rates: a token counts one, and a pair of attention what
# it does beside a token of Qwen3-4B, 0.59 to 7,260 MFLOP.
NOMINAL_RATES = Rates(0.0, 1.0, 0.59 / 7260.0, 1.0)


class OrderChooser:
    """Chooses orders for the pipelines of one statement.

    Args:
        calls: of the statement.
        profile: tells of the model; called when there is something to decide.
    """

    def __init__(self, calls: Sequence[AICall], profile: Callable[[], ModelProfile]) -> None:
        self._calls = calls
        self._profile = profile
        # A dry run opens a pipeline once for each set of selectivities, with the same facts.
        self._opened: dict[int, tuple[Pipeline, PipelineFacts, tuple[int, ...]]] = {}

    def open(self, pipeline: Pipeline, facts: PipelineFacts) -> OrderChoice:
        """Begin with one pipeline."""
        known, first = self._opened.get(id(pipeline)), None
        if known is not None and known[0] is pipeline and known[1] == facts:
            first = known[2]
        choice = OrderChoice(pipeline, facts, self._calls, self._profile(), first)
        self._opened[id(pipeline)] = pipeline, facts, choice.first
        return choice


class OrderChoice:
    """The order of the conditions of one pipeline, which is changed as more becomes known.

    Methods take and give positions in `Pipeline.operators`; inside, conditions are counted by
    themselves, since outputs stand behind them and have no order.

    Args:
        calls: of the statement.
        first: the order to begin with where it is known already.

    Attributes:
        first: the order it began with, as positions among the conditions.
        decisions: all so far, in the order in which they were made.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        facts: PipelineFacts,
        calls: Sequence[AICall],
        profile: ModelProfile,
        first: tuple[int, ...] | None,
    ) -> None:
        self._places = [i for i, o in enumerate(pipeline.operators) if o.passes is not None]
        self._operators = [pipeline.operators[i] for i in self._places]
        self._facts = facts
        self._source_rows = max(facts.rows[pipeline.source], 1)
        self._budget = profile.budget
        self._seconds = (profile.expected_rates or NOMINAL_RATES).seconds
        self._costs = condition_costs(pipeline, self._operators, facts, calls, profile.measure)
        self._estimates = SelectivityEstimates([o.selectivity for o in self._operators])
        self._reviewed_at = 0
        self._told = 0
        self.decisions: list[Decision] = []
        self.first = first or self._best(self._orders())
        self._order = self.first
        reason = "cheapest by the selectivities that the query gives"
        if "unknown" in self._estimates.sources:
            reason = "cheapest where no selectivity is known and each is as likely as any other"
        self._decide("order", reason, self._seconds(self._orders().cost(self._order)))

    def order(self) -> tuple[int, ...]:
        """The conditions in the order that is best by what is known."""
        return tuple(self._places[i] for i in self._order)

    def samples(self) -> Mapping[int, int]:
        """Prompts worth asking about random rows before the order is chosen, by condition.

        Worth it is what the order by present knowledge loses, on average over what the
        selectivities may be, against the order that knowledge would choose.
        """
        asked = [i for i in range(len(self._costs)) if self._can_sample(i)]
        if len(self._costs) < 2 or not asked:
            return {}
        seconds = self._seconds(self._orders().cost(self._order))
        row = self._sample_seconds(asked)
        # The first condition is asked about most of the sample in any case.
        wasted = max(row - self._sample_seconds([i for i in self._order if i in asked][:1]), 1e-12)
        count = int(min(MAX_SAMPLE, SAMPLE_SHARE * seconds / row, WASTED_SHARE * seconds / wasted))
        if count >= MIN_SAMPLE:  # what is lost takes long to find
            count = int(min(count, self._value_of_information() / wasted))
        return {self._places[i]: count for i in asked} if count >= MIN_SAMPLE else {}

    def trial(self, rows: int) -> int:
        """How many random rows of the pipeline's source, of so many, go through alone first."""
        count = min(max(int(rows * TRIAL_SHARE), MIN_TRIAL), MAX_TRIAL)
        if len(self._costs) < 2 or count >= rows / 5:
            return 0
        if len(self._costs) > _DRAWN_CONDITIONS:
            return count
        rng = np.random.default_rng(0)
        draws = [rng.choice(_EXTREMES, len(self._costs)).tolist() for _ in range(2 * _DRAWS)]
        return count if any(self._loss(drawn)[1] > WORTH_TRYING for drawn in draws) else 0

    def sampled(
        self,
        operator: int,
        rows: Sequence[int],
        passed: Sequence[bool],
        needed: Sequence[float],
    ) -> None:
        """Learn of the rows that a random sample had.

        Args:
            operator: which was asked.
            rows: of the sample, by row id or number of pair.
            passed: whether each passes.
            needed: for each ask of the operator, the share of the rows that it was needed for.
        """
        condition = self._places.index(operator)
        self._estimates.sampled(condition, rows, passed)
        cost = self._costs[condition]
        asks = zip(cost.asks, needed, strict=True)
        asked = tuple(replace(ask, needed=share) for ask, share in asks)
        self._costs[condition] = replace(cost, asks=asked)

    def observed(self, operator: int, decided: tuple[int, ...], rows: int, passed: int) -> None:
        """Learn of rows that had passed some operators, and how many of them pass one more."""
        condition = self._places.index(operator)
        sources = self._costs[condition].sources
        # Of joins that were decided before, each row has some partner: they tell no selectivity.
        behind = frozenset(
            i for i, place in enumerate(self._places)
            if place in decided and self._costs[i].sources == sources
        )  # fmt: skip
        self._estimates.observed(condition, behind, rows, passed)
        self._told += rows

    def review(self, rows: int, at_once: bool = False) -> bool:
        """Change the order if that is worth it; say whether it changed.

        Args:
            rows: of the pipeline's source that are through.
            at_once: look even if little was observed since the last time.
        """
        if not at_once and self._told < max(2 * self._reviewed_at, MIN_SAMPLE):
            return False
        self._reviewed_at = self._told
        orders = self._orders()
        before, best = self._order, self._best(orders)
        old, new = (self._seconds(orders.cost(order)) for order in (before, best))
        worth = WORTH_CHANGING_BETWEEN if at_once else WORTH_CHANGING
        if new >= (1.0 - worth) * old:
            return False
        left = 1.0 - min(rows / self._source_rows, 1.0)
        self._order = best
        kind, reason = "change", f"what was observed saves {1.0 - new / old:.0%} of what is left"
        if not self._told:
            kind, reason = "sample", f"what was sampled saves {1.0 - new / old:.0%}"
        self._decide(kind, reason, new * left, before, old * left, rows)
        return True

    def _value_of_information(self) -> float:
        """Seconds that knowing all selectivities would save: the expected regret of the order.

        That is the expected value of perfect information, over selectivities that are drawn.
        """
        if len(self._costs) > _DRAWN_CONDITIONS:
            return 0.0
        # Each condition more doubles the time that an order takes to find.
        count = _DRAWS >> max(len(self._costs) - _FULLY_DRAWN, 0)
        draws = self._estimates.draws(count, seed=0)
        return sum(self._loss(drawn)[0] for drawn in draws) / count

    def _loss(self, selectivities: Sequence[float]) -> tuple[float, float]:
        """The regret of the order at given selectivities: seconds, and their share."""
        orders = self._orders(selectivities)
        here = self._seconds(orders.cost(self._order))
        lost = here - self._seconds(orders.cost(self._best(orders)))
        return lost, lost / here if here else 0.0

    def _decide(
        self,
        kind: str,
        reason: str,
        seconds: float,
        before: tuple[int, ...] = (),
        seconds_before: float | None = None,
        rows: int = 0,
    ) -> None:
        """Record that `self._order` was chosen; see `Decision`."""
        written = [
            " with ".join(one_line(ask.condition) for ask in operator.asks)
            for operator in self._operators
        ]
        known = []
        for i, source in enumerate(self._estimates.sources):
            found = self._estimates.of(i)
            seen = self._estimates.seen[i]
            known.append(KnownSelectivity(written[i], found.mean, *found.interval(), source, seen))
        order, earlier = (tuple(written[i] for i in each) for each in (self._order, before))
        self.decisions.append(
            Decision(kind, reason, order, earlier, seconds, seconds_before, tuple(known), rows)
        )

    def _orders(self, selectivities: Sequence[float] | None = None) -> Orders:
        """Prices by the expected selectivities, or by given ones."""
        means = [self._estimates.mean(i) for i in range(len(self._costs))]
        return Orders(
            self._costs,
            self._facts.rows,
            self._facts.join_selectivity,
            lambda conditions: self._estimates.share(conditions, selectivities),
            means if selectivities is None else selectivities,
            self._seconds,
            self._budget,
        )

    def _best(self, orders: Orders) -> tuple[int, ...]:
        return orders.best(range(len(self._costs)))

    def _can_sample(self, condition: int) -> bool:
        asks = self._operators[condition].asks
        if any(ask.stop is not None or not ask.documents for ask in asks):
            return False
        # Several calls are sampled together where all are about rows of one source.
        return len(asks) == 1 or len(self._costs[condition].sources) == 1

    def _sample_seconds(self, conditions: Sequence[int]) -> float:
        """Time of one row of a sample, whose document all conditions over it share."""
        alone = Orders(
            [self._costs[i] for i in conditions],
            [1.0] * len(self._facts.rows), {}, lambda _: 1.0, [1.0] * len(conditions),
            self._seconds, self._budget,
        )  # fmt: skip
        return max(self._seconds(alone.cost(range(len(conditions)))), 1e-12)

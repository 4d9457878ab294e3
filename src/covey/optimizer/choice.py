"""Decide orders from facts: at the start, after a sample, and again while rows go through."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from covey.estimate.cost import Lengths
from covey.estimate.profile import ModelProfile
from covey.estimate.rates import Rates
from covey.logical.calls import AICall
from covey.optimizer.order import AskCost, OperatorCost, Orders
from covey.optimizer.selectivity import SelectivityEstimates
from covey.plan.choice import (
    Decision,
    KnownSelectivity,
    OrderChoice,
    PipelineFacts,
)
from covey.plan.nodes import Ask, DocumentColumn, Pipeline
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
# Sets of rates drawn to find what knowing them is worth, conditions up to which all are
# drawn, and conditions up to which any are.
_DRAWS = 16
_FULLY_DRAWN = 5
_DRAWN_CONDITIONS = 8
# Pass rates among which the worst case for an order is looked for.
_EXTREMES = (0.01, 0.1, 0.5, 0.9, 0.99)
# Some rows go through in a trial first where the order could lose this share of the work to
# the best one, whatever is believed: this share of all rows, within bounds. A trial asks
# nothing that would not be asked, and only delays the rest.
WORTH_TRYING = 0.03
TRIAL_SHARE = 0.08
MIN_TRIAL = 8
MAX_TRIAL = 400
# Where a model says nothing of its rates: a token counts one, and a pair of attention what
# it does beside a token of Qwen3-4B, 0.59 to 7,260 MFLOP.
NOMINAL_RATES = Rates(0.0, 1.0, 0.59 / 7260.0, 1.0)


class OrderChooser:
    """See `covey.plan.choice.Chooser`.

    Args:
        calls: of the statement.
        profile: tells of the model; called when there is something to decide.
    """

    def __init__(self, calls: Sequence[AICall], profile: Callable[[], ModelProfile]) -> None:
        self._calls = calls
        self._profile = profile
        # A dry run opens a pipeline once for each set of pass rates, with the same facts.
        self._opened: dict[int, tuple[Pipeline, PipelineFacts, tuple[int, ...]]] = {}

    def open(self, pipeline: Pipeline, facts: PipelineFacts) -> OrderChoice:
        """See `Chooser.open`."""
        known, first = self._opened.get(id(pipeline)), None
        if known is not None and known[0] is pipeline and known[1] == facts:
            first = known[2]
        choice = _Choice(pipeline, facts, self._calls, self._profile(), first)
        self._opened[id(pipeline)] = pipeline, facts, choice.first
        return choice


class _Choice:
    """See `covey.plan.choice.OrderChoice`."""

    def __init__(
        self,
        pipeline: Pipeline,
        facts: PipelineFacts,
        calls: Sequence[AICall],
        profile: ModelProfile,
        first: tuple[int, ...] | None,
    ) -> None:
        self._pipeline = pipeline
        self._facts = facts
        self._calls = calls
        self._measure = profile.measure
        self._budget = profile.budget
        self._seconds = (profile.expected_rates or NOMINAL_RATES).seconds
        self._lengths: dict[DocumentColumn, Lengths] = {}
        # Numbers for what is compared often: prompts and anchors.
        self._numbers: dict[object, int] = {}
        # Outputs stand behind the conditions and have no order.
        self._conditions = [i for i, s in enumerate(pipeline.operators) if s.passes is not None]
        self._operators = [self._operator(i) for i in self._conditions]
        self._estimates = SelectivityEstimates(
            [pipeline.operators[i].given for i in self._conditions]
        )
        self._reviewed_at = 0
        self._told = 0
        self.decisions: list[Decision] = []
        self.first = first or self._orders().best(range(len(self._operators)))
        self._order = self.first
        self._decide("order", self._reason_of_first(), (), self._order, None, 0)

    def order(self) -> tuple[int, ...]:
        """See `OrderChoice.order`."""
        return tuple(self._conditions[i] for i in self._order)

    def samples(self) -> Mapping[int, int]:
        """See `OrderChoice.samples`.

        Worth it is what the order by present knowledge loses, on average over what is
        believed, against the order that knowledge would choose.
        """
        asked = [i for i in range(len(self._operators)) if self._can_sample(i)]
        if len(self._operators) < 2 or not asked:
            return {}
        seconds = self._seconds(self._orders().cost(self._order))
        row = self._sample_seconds(asked)
        # The first condition is asked about most of the sample in any case.
        wasted = max(row - self._sample_seconds([i for i in self._order if i in asked][:1]), 1e-12)
        count = int(min(MAX_SAMPLE, SAMPLE_SHARE * seconds / row, WASTED_SHARE * seconds / wasted))
        if count >= MIN_SAMPLE:  # what is lost takes long to find
            count = int(min(count, self._lost_in_ignorance() / wasted))
        if count < MIN_SAMPLE:
            return {}
        return {self._conditions[i]: count for i in asked}

    def trial(self, rows: int) -> int:
        """See `OrderChoice.trial`."""
        count = min(max(int(rows * TRIAL_SHARE), MIN_TRIAL), MAX_TRIAL)
        if len(self._operators) < 2 or count >= rows / 5:
            return 0
        if len(self._operators) > _DRAWN_CONDITIONS:
            return count
        rng = np.random.default_rng(0)
        draws = [rng.choice(_EXTREMES, len(self._operators)).tolist() for _ in range(2 * _DRAWS)]
        return count if any(self._loss(drawn)[1] > WORTH_TRYING for drawn in draws) else 0

    def _lost_in_ignorance(self) -> float:
        """Seconds that the present order loses to the best one, over what is believed."""
        if len(self._operators) > _DRAWN_CONDITIONS:
            return 0.0
        # Each condition more doubles the time that an order takes to find.
        count = _DRAWS >> max(len(self._operators) - _FULLY_DRAWN, 0)
        draws = self._estimates.draws(count, seed=0)
        return sum(self._loss(drawn)[0] for drawn in draws) / count

    def _loss(self, rates: Sequence[float]) -> tuple[float, float]:
        """What the present order loses to the best at given rates: seconds, and their share."""
        orders = self._orders(rates)
        here = self._seconds(orders.cost(self._order))
        lost = here - self._seconds(orders.cost(orders.best(range(len(self._operators)))))
        return lost, lost / here if here else 0.0

    def sampled(
        self,
        operator: int,
        rows: Sequence[int],
        passed: Sequence[bool],
        needed: Sequence[float] = (),
    ) -> None:
        """See `OrderChoice.sampled`."""
        number = self._conditions.index(operator)
        self._estimates.sampled(number, rows, passed)
        if needed:
            known = self._operators[number]
            asks = zip(known.asks, needed, strict=True)
            self._operators[number] = replace(
                known, asks=tuple(replace(ask, needed=share) for ask, share in asks)
            )

    def observed(self, operator: int, decided: tuple[int, ...], rows: int, passed: int) -> None:
        """See `OrderChoice.observed`."""
        own = self._conditions.index(operator)
        sources = self._operators[own].sources
        # Of joins that were decided before, each row has some partner: they tell no rate.
        behind = frozenset(
            i for i, c in enumerate(self._conditions)
            if c in decided and self._operators[i].sources == sources
        )  # fmt: skip
        self._estimates.observed(own, behind, rows, passed)
        self._told += rows

    def review(self, rows: int, at_once: bool = False) -> bool:
        """See `OrderChoice.review`."""
        if not at_once and self._told < max(2 * self._reviewed_at, MIN_SAMPLE):
            return False
        self._reviewed_at = self._told
        orders = self._orders()
        before, best = self._order, orders.best(range(len(self._operators)))
        old, new = (self._seconds(orders.cost(order)) for order in (before, best))
        worth = WORTH_CHANGING_BETWEEN if at_once else WORTH_CHANGING
        if new >= (1.0 - worth) * old:
            return False
        through = min(rows / max(self._facts.rows[self._pipeline.source], 1), 1.0)
        left = 1.0 - through
        self._order = best
        kind, reason = "change", f"what was observed saves {1.0 - new / old:.0%} of what is left"
        if not self._told:
            kind, reason = "sample", f"what was sampled saves {1.0 - new / old:.0%}"
        self._decide(kind, reason, before, best, old * left, rows, new * left)
        return True

    def _reason_of_first(self) -> str:
        if any(source == "unknown" for source in self._estimates.sources):
            return "cheapest where no selectivity is known and each is as likely as any other"
        return "cheapest by the selectivities that the query gives"

    def _decide(
        self,
        kind: str,
        reason: str,
        before: tuple[int, ...],
        order: tuple[int, ...],
        seconds_before: float | None,
        rows: int,
        seconds: float | None = None,
    ) -> None:
        if seconds is None:
            seconds = self._seconds(self._orders().cost(order))
        rates = []
        for i, source in enumerate(self._estimates.sources):
            rate = self._estimates.rate(i)
            low, high = rate.interval()
            seen = self._estimates.seen[i]
            rates.append(KnownSelectivity(self._written(i), rate.mean, low, high, source, seen))
        self.decisions.append(
            Decision(
                kind, reason, self._names(order), self._names(before), seconds, seconds_before,
                tuple(rates), rows,
            )
        )  # fmt: skip

    def _names(self, order: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(self._written(i) for i in order)

    def _written(self, condition: int) -> str:
        asks = self._pipeline.operators[self._conditions[condition]].asks
        return " with ".join(one_line(ask.condition) for ask in asks)

    def _orders(self, rates: Sequence[float] | None = None) -> Orders:
        """Prices by what is believed, or by given pass rates."""
        means = [self._estimates.mean(i) for i in range(len(self._operators))]
        return Orders(
            self._operators,
            self._facts.rows,
            dict(self._facts.matches),
            lambda operators: self._estimates.share(operators, rates),
            means if rates is None else rates,
            self._seconds,
            self._budget,
        )

    def _can_sample(self, condition: int) -> bool:
        asks = self._pipeline.operators[self._conditions[condition]].asks
        if any(ask.stop is not None or not ask.documents for ask in asks):
            return False
        # Several calls are sampled together where all are about rows of one source.
        return len(asks) == 1 or len(self._operators[condition].sources) == 1

    def _sample_seconds(self, conditions: Sequence[int]) -> float:
        """Time of one row of a sample, whose document all conditions over it share."""
        alone = Orders(
            [self._operators[i] for i in conditions],
            [1.0] * len(self._facts.rows), {}, lambda _: 1.0, [1.0] * len(conditions),
            self._seconds, self._budget,
        )  # fmt: skip
        return max(self._seconds(alone.cost(range(len(conditions)))), 1e-12)

    def _operator(self, number: int) -> OperatorCost:
        operator = self._pipeline.operators[number]
        asks = tuple(self._ask(ask) for ask in operator.asks)
        passes = operator.passes.sources if operator.passes is not None else frozenset[int]()
        return OperatorCost(passes.union(*(ask.sources for ask in asks)), asks)

    def _ask(self, ask: Ask) -> AskCost:
        call = self._calls[ask.call]
        asked = self._measure.question(call.question)
        suffix = Lengths.fixed(float(asked.suffix))
        for place, column in enumerate(ask.documents):
            if place != ask.anchor:
                suffix = suffix + self._length(column)
        anchor = ask.anchor_documents
        if anchor is None:
            return AskCost(None, None, None, frozenset(), 1.0, suffix, 0.0, suffix)
        sources = frozenset(self._source(column) for column in ask.documents)
        texts = self._facts.texts[anchor]
        distinct = texts.distinct / texts.rows if texts.rows else 1.0
        anchor_length, instruction = self._length(anchor), float(asked.instruction)
        source = self._source(anchor)
        # Columns that read alike are one: a table that is joined with itself.
        content = tuple(self._facts.texts[column] for column in ask.documents)
        prompt, read = (self._number(each) for each in ((call.question, content), texts))
        return AskCost(prompt, read, source, sources, distinct, anchor_length, instruction, suffix)

    def _number(self, each: object) -> int:
        return self._numbers.setdefault(each, len(self._numbers))

    def _source(self, column: DocumentColumn) -> int:
        tables = [relation.table for relation in self._pipeline.rows.relations]
        return tables.index(column.table)

    def _length(self, column: DocumentColumn) -> Lengths:
        known = self._lengths.get(column)
        if known is None:
            measured = self._measure.documents(self._facts.texts[column].some)
            known = self._lengths[column] = Lengths.of(measured)
        return known

"""Answers about random rows, asked before an order is chosen."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import partial

import numpy as np

from covey.arrays import Int64
from covey.execution.asking import Asking, Tickets
from covey.execution.ordering.chooser import OrderChoice
from covey.execution.ordering.facts import SEED
from covey.execution.steps import StepRunner
from covey.plan.join_graph import Target
from covey.plan.nodes import Ask, Pipeline


class Sampler:
    """Asks the conditions of a pipeline about random rows; the answers are kept.

    All conditions over a source are asked about the same rows: their documents are
    computed once, and it shows which conditions go together. `choice` is told what came out.
    """

    def __init__(
        self, pipeline: Pipeline, runner: StepRunner, asker: Asking, choice: OrderChoice
    ) -> None:
        self._pipeline = pipeline
        self._runner = runner
        self._asker = asker
        self._choice = choice
        self._rng = np.random.default_rng(SEED)
        self._chosen: dict[int, Int64] = {}
        # By operator, the share of its sample that each of its asks was needed for.
        self._needed: defaultdict[int, list[float]] = defaultdict(list)

    def run(self) -> bool:
        """Ask what is worth knowing, as much as possible at once; say whether anything was."""
        operators, wanted = self._pipeline.operators, self._choice.samples()
        if wanted:
            share = max(wanted.values()) / max(self._runner.rows_of(self._pipeline.table), 1)
            self._asker.reached(min(share, 0.5))
        asked: list[tuple[int, list[Int64]]] = []
        # Of joins the anchors are rows that filters are asked about, where there are some.
        for number in sorted(wanted, key=lambda i: len(operators[i].asks[0].documents)):
            columns = self._rows(operators[number].asks[0], wanted[number])
            if len(columns[0]):
                asked.append((number, columns))
        # Later calls of a condition are asked about the rows that the earlier ones leave open.
        for place in range(max((len(operators[n].asks) for n, _ in asked), default=0)):
            tickets: Tickets = frozenset()
            for number, columns in asked:
                for ask in operators[number].asks[place : place + 1]:
                    left = self._open(ask, columns)
                    self._needed[number].append(len(left[0]) / len(columns[0]))
                    if len(left[0]):
                        tickets |= self._runner.ask_about(ask, left, reads=1.0)
            while not self._asker.done(tickets):
                self._asker.wait()
        for number, columns in asked:
            self._tell(number, columns)
        return bool(asked)

    def _open(self, ask: Ask, columns: list[Int64]) -> list[Int64]:
        """The rows of a sample that an ask is needed for."""
        target = ask.target
        if target is None or len(columns) > 1 or not target.conditions:
            return columns
        batch = self._runner.relations.batch(target.sources[0], np.sort(columns[0]))
        return self._runner.columns(self._pipeline.graph.query(target, (), batch))

    def _rows(self, ask: Ask, count: int) -> list[Int64]:
        """Random rows of an ask: one column of row ids for each source of its target."""
        target = ask.target
        if target is None:
            return [np.empty(0, np.int64)]
        anchor = target.sources[ask.keys[ask.anchor]]
        if len(target.sources) == 1:
            return [self._of_source(anchor, count)[:count]]
        anchors = self._of_source(anchor, math.isqrt(count))[:count]
        if not len(anchors):
            return [anchors]
        batch = self._runner.relations.batch(anchor, np.sort(anchors))
        pairs = self._runner.columns(self._pipeline.graph.query(target, (), batch))
        order = self._rng.permutation(len(pairs[0]))[:count]
        return [column[order] for column in pairs]

    def _of_source(self, source: int, count: int) -> Int64:
        """Random rows of a source, the same ones each time."""
        if source not in self._chosen:
            rows = self._runner.columns(self._pipeline.graph.query(Target((source,)), ()))[0]
            self._chosen[source] = self._rng.permutation(np.sort(rows))[:count]
        return self._chosen[source]

    def _tell(self, number: int, columns: list[Int64]) -> None:
        operator = self._pipeline.operators[number]
        target = operator.asks[0].target
        if target is None or operator.passes is None:
            return
        graph, find = self._pipeline.graph, self._runner.relations.passing
        work = partial(find, graph, target.sources, columns, operator.passes)
        passed = self._runner.complete(work)
        names = columns[0] if len(columns) == 1 else np.arange(len(columns[0]))
        self._choice.sampled(number, names.tolist(), passed.tolist(), self._needed[number])

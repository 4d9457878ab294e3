"""What a query asks of the model once its answers are known: the prompts of every operator.

    for stage in stages(plan, corpus, truth):
        stage.rows      # which documents, one row a prompt

Operators go as an engine with a query planner orders them: the steps of each relation first,
filters by cost over what they reject, then the joins as written. A join is asked of the rows
that are left on both sides; a row is left while a partner for it was found.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suite.plan import Classify, Filter, InList, Join, Plan, Scan, Score, Step
from suite.predicates import Predicate
from suite.shapes import Int64
from suite.tables import Corpus
from suite.truth import Truth

Bools = npt.NDArray[np.bool_]
_COMPARE = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}


@dataclass(frozen=True)
class Stage:
    """The prompts of one operator.

    Attributes:
        predicate: what is asked.
        aliases: of its documents, in template order.
        rows: for each document (prompts,) int64 rows of its table.
    """

    predicate: Predicate
    aliases: tuple[str, ...]
    rows: tuple[Int64, ...]

    @property
    def prompts(self) -> int:
        """How many there are."""
        return len(self.rows[0])

    @property
    def anchor(self) -> str:
        """The alias whose document comes first."""
        return self.aliases[self.predicate.anchor]

    @property
    def anchors(self) -> Int64:
        """(prompts,) rows of the document that comes first."""
        return self.rows[self.predicate.anchor]

    @property
    def partners(self) -> Int64 | None:
        """(prompts,) rows of the other document, None where there is one."""
        return self.rows[1 - self.predicate.anchor] if len(self.rows) > 1 else None


def stages(plan: Plan, corpus: Corpus, truth: Truth) -> list[Stage]:
    """The operators of a query in the order they run, with the prompts of each."""
    flow = _Flow(plan, corpus, truth)
    for step in ordered(plan):
        flow.take(step)
    return flow.stages


def ordered(plan: Plan) -> list[Step]:
    """The steps in the order they run.

    Filters of one relation stand by asking cost over the share they reject, lowest first,
    which is the least expected cost where they are independent.
    """
    found: list[Step] = []
    for scan in plan.scans:
        own = [s for s in plan.steps if _relation(s, plan) == scan.alias]
        filters = [s for s in own if isinstance(s, Filter)]
        found += sorted(filters, key=lambda step: _rank(step.predicate))
        found += [s for s in own if not isinstance(s, Filter)]
    return found + [s for s in plan.steps if _relation(s, plan) is None]


def _rank(predicate: Predicate) -> float:
    share = predicate.selectivity if predicate.selectivity is not None else 0.5
    return len(predicate.template) / (1.0 - share)


def _relation(step: Step, plan: Plan) -> str | None:
    """The one relation that a step is about, None for a join and what follows it."""
    match step:
        case Filter() | Score():
            return step.alias
        case Classify():
            return step.aliases[0] if len(step.aliases) == 1 else None
        case InList():
            return plan.classification(step.name).aliases[0]
    return None


class _Flow:
    """Which rows are left while the steps run."""

    def __init__(self, plan: Plan, corpus: Corpus, truth: Truth) -> None:
        self._plan = plan
        self._corpus = corpus
        self._truth = truth
        self._left = {scan.alias: _tested(scan, corpus) for scan in plan.scans}
        self._pairs: dict[tuple[str, ...], Bools] = {}
        self.stages: list[Stage] = []

    def take(self, step: Step) -> None:
        match step:
            case Filter():
                self._ask(step.predicate, step.alias)
                self._left[step.alias] &= self._truth.judged[step.predicate.name]
            case Score():
                self._ask(step.predicate, step.alias)
            case Classify() if len(step.aliases) == 1:
                self._ask(step.predicate, step.aliases[0])
            case Classify():
                rows = np.nonzero(self._pairs[step.aliases])
                self.stages.append(Stage(step.predicate, step.aliases, rows))
            case InList():
                source = self._plan.classification(step.name)
                texts = [label.text for label in source.predicate.labels]
                wanted = [texts.index(label) for label in step.labels]
                labels = self._truth.labelled[source.predicate.name]
                self._left[source.aliases[0]] &= np.isin(labels, wanted)
            case Join():
                self._join(step)

    def _ask(self, predicate: Predicate, alias: str) -> None:
        rows = np.flatnonzero(self._left[alias])
        self.stages.append(Stage(predicate, (alias,), (rows,)))

    def _join(self, step: Join) -> None:
        first, second = step.aliases
        asked = self._left[first][:, None] & self._left[second][None, :]
        if step.equal is not None:
            asked &= self._equal(step)
        self.stages.append(Stage(step.predicate, step.aliases, np.nonzero(asked)))
        found = asked & self._truth.judged[step.predicate.name]
        self._left[first] = found.any(1)
        self._left[second] = found.any(0)
        self._pairs[step.aliases] = found

    def _equal(self, step: Join) -> Bools:
        """(n, m) where two columns are equal."""
        by_alias = {}
        for each in step.equal or ():
            alias, _, column = each.partition(".")
            table = self._corpus.tables[self._plan.scan(alias).table]
            by_alias[alias] = np.array(table[column].to_pylist(), dtype=object)
        left, right = (by_alias[alias] for alias in step.aliases)
        return np.asarray(left[:, None] == right[None, :], dtype=bool)


def _tested(scan: Scan, corpus: Corpus) -> Bools:
    table = corpus.tables[scan.table]
    left = np.ones(len(table), dtype=bool)
    for test in scan.tests:
        left &= _COMPARE[test.op](table[test.column].to_numpy(), test.value)
    return left

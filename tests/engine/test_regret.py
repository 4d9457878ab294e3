"""With a short KV cache the engine computes hardly more than the best eviction could."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Self

import numpy as np
import pyarrow as pa
import pytest

import covey
from covey.engine.base import Answers
from covey.engine.limits import Limits
from covey.engine.questions import TokenMeasure
from covey.engine.session import LocalSession
from covey.estimate.profile import ModelProfile
from covey.prompts.documents import DocumentStore
from covey.prompts.question import QuestionKind
from engine.plans import QUESTIONS, SPEC, Plan, Run, Ticket, expected_margin
from engine.symbolic import LAYOUT, CharEncoder, SymbolicRunner, margin
from forest.belady import fresh_token_bound


def texts_of(seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list("abcdefgh"), rng.integers(40, 100))) for _ in range(96)]


def flow(seed: int, share: float, batch: int) -> Plan:
    """Row batches through filter, filter and join; the KV cache holds a share of the texts."""
    texts = texts_of(seed)
    partners = [len(texts) + i for i in range(3)]
    tickets: list[Ticket] = []
    for number, start in enumerate(range(0, len(texts), batch)):
        rows = np.arange(start, start + batch)
        for step, question in enumerate((QUESTIONS[0], QUESTIONS[1], QUESTIONS[3])):
            if question.arity == 2:
                asked = [(int(row), partner) for row in rows for partner in partners]
            else:
                asked = [(int(row),) for row in rows]
            # A batch asks on when its last question is answered; others are in between.
            tickets.append(Ticket(question, asked, 2.0 - step, 40 * (3 * number + step)))
    slots = int(share * sum(map(len, texts)))
    return Plan([*texts, "x", "yy", "yz"], tickets, Limits(10_000, 128, slots))


def bound(texts: list[str], slots: int, visits: list[list[int]], runner: SymbolicRunner) -> int:
    """Belady's bound for the visits that a run made, batch by batch."""
    loose, seen = 0, set()
    documents = set()
    for text in texts:
        documents |= {tuple(map(ord, "P:" + text[:n])) for n in range(1, len(text) + 1)}
    for prefix in runner.computed:
        if prefix not in documents and prefix not in seen:
            seen.add(prefix)
            loose += 1
    lengths = [len(text) for text in texts]
    return loose + fresh_token_bound([-1] * len(texts), lengths, visits, slots)


def visits_of(run: Run) -> list[list[int]]:
    """The documents that each batch read, by the margins of its answers."""
    owner = {}
    for ticket in run.tickets:
        for row in ticket.rows:
            texts = tuple(run.plan.texts[i] for i in row)
            owner[expected_margin(ticket.question, texts)] = row[0]
    answered = run.runner.answered
    return [sorted({owner[margin(prompt)] for prompt in prompts}) for prompts in answered]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("share, batch", [(0.2, 96), (0.5, 96), (0.8, 96), (0.4, 48)])
def test_fresh_tokens_are_within_a_twentieth_of_beladys_bound(
    seed: int, share: float, batch: int
) -> None:
    run = Run(flow(seed, share, batch))
    with run.session:
        for _ in run.deliveries():
            pass
        run.check_answers()
    assert run.session.counters.evictions > 0
    least = bound(run.plan.texts, run.plan.limits.slots, visits_of(run), run.runner)
    assert run.session.counters.fresh_tokens <= 1.05 * least


class ChanceSession(LocalSession):
    """A session whose margins decide by chance which prompts are TRUE."""

    passing = 1.0

    def run(self) -> Iterator[Answers]:
        for answers in super().run():
            chance = answers.scores % 1009 / 1009
            yield replace(answers, scores=np.where(chance < self.passing, 1.0, -1.0))


class ChanceEngine:
    """A model source and engine over symbols."""

    name = fingerprint = "chance"
    kinds = frozenset(QuestionKind)

    def __init__(self, slots: int, passing: float) -> None:
        self.passing = passing
        self.limits = Limits(10_000, 128, slots)
        self.runner = SymbolicRunner(slots)

    def open(self) -> Self:
        return self

    def profile(self) -> ModelProfile:
        return ModelProfile(TokenMeasure(LAYOUT, CharEncoder(), None))

    def session(self, documents: DocumentStore) -> LocalSession:
        session = ChanceSession(
            documents, self.runner, SPEC, CharEncoder(), LAYOUT, self.limits, lambda: None
        )
        session.passing = self.passing
        return session


QUERY = (
    "SELECT t.id, p.id FROM t JOIN p ON AI_JOIN(PROMPT('J {0} {1}', t.s, p.s)) "
    "WHERE AI.IF(PROMPT('A {0}', t.s)) AND AI.IF(PROMPT('B {0}', t.s))"
)


def regret(seed: int, share: float, passing: float) -> float:
    """Fresh tokens of a query over the bound for its visits."""
    # No two texts begin alike, since the bound knows of no sharing between them.
    texts = [chr(0x100 + i) + text for i, text in enumerate(texts_of(seed))]
    slots = int(share * sum(map(len, texts)))
    engine = ChanceEngine(slots, passing)
    with covey.connect(model=engine) as con:
        con.register("t", pa.table({"id": range(len(texts)), "s": texts}))
        con.register("p", pa.table({"id": range(3), "s": ["x", "yy", "yz"]}))
        query = con.run(QUERY)
    visits = []
    for prompts in engine.runner.answered:
        words = ["".join(map(chr, prompt)) for prompt in prompts]
        visits.append(sorted({ord(word[2]) - 0x100 for word in words}))
    least = bound(texts, slots, visits, engine.runner)
    return float(query.report.counters.fresh_tokens / least)


@pytest.mark.parametrize("share, passing", [(0.05, 0.5), (0.05, 0.75), (0.4, 0.5), (0.4, 0.75)])
def test_not_knowing_which_rows_pass_costs_less_than_a_twentieth(
    share: float, passing: float
) -> None:
    """The bound knows the survivors of a filter before it has run; nobody does."""
    assert 1.0 <= regret(0, share, passing) <= 1.05

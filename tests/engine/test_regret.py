"""With a short arena the engine computes hardly more than the best eviction could."""

from __future__ import annotations

import numpy as np
import pytest

from covey.engine.limits import Limits
from engine.plans import QUESTIONS, Plan, Run, Ticket, expected_margin
from engine.symbolic import margin
from forest.belady import fresh_token_bound


def flow(seed: int, share: float, batch: int, passing: float) -> Plan:
    """Row batches through filter, filter and join; the arena holds a share of the texts."""
    rng = np.random.default_rng(seed)
    texts = ["".join(rng.choice(list("abcdefgh"), rng.integers(40, 100))) for _ in range(96)]
    partners = [len(texts) + i for i in range(3)]
    tickets: list[Ticket] = []
    for number, start in enumerate(range(0, len(texts), batch)):
        rows, gone = np.arange(start, start + batch), np.empty(0, dtype=np.int64)
        for step, question in enumerate((QUESTIONS[0], QUESTIONS[1], QUESTIONS[3])):
            if question.arity == 2:
                asked = [(int(row), partner) for row in rows for partner in partners]
            else:
                asked = [(int(row),) for row in rows]
            # A batch asks on when its last question is answered; others are in between.
            tickets.append(
                Ticket(question, asked, 2.0 - step, 40 * (3 * number + step), gone.tolist())
            )
            passed = rng.random(len(rows)) < passing
            rows, gone = rows[passed], rows[~passed]
    slots = int(share * sum(map(len, texts)))
    return Plan([*texts, "x", "yy", "yz"], tickets, Limits(10_000, 128, slots))


def bound(run: Run) -> int:
    """Belady's bound for the visits that the run made, chunk by chunk."""
    texts = run.plan.texts
    owner = {}
    for number, ticket in enumerate(run.tickets):
        for row in ticket.rows:
            owner[run_margin(run, number, row)] = row[0]
    visits, loose, seen = [], 0, set()
    for prompts in run.runner.answered:
        visits.append(sorted({owner[margin(prompt)] for prompt in prompts}))
    documents = set()
    for text in texts:
        documents |= {tuple(map(ord, "P:" + text[:n])) for n in range(1, len(text) + 1)}
    for prefix in run.runner.computed:
        if prefix not in documents and prefix not in seen:
            seen.add(prefix)
            loose += 1
    lengths = [len(text) for text in texts]
    capacity = run.plan.limits.slots
    return loose + fresh_token_bound([-1] * len(texts), lengths, visits, capacity)


def run_margin(run: Run, number: int, row: tuple[int, ...]) -> float:
    texts = tuple(run.plan.texts[i] for i in row)
    return expected_margin(run.tickets[number].question, texts)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("share, batch", [(0.2, 96), (0.5, 96), (0.8, 96), (0.4, 48)])
def test_fresh_tokens_are_within_a_twentieth_of_beladys_bound(
    seed: int, share: float, batch: int
) -> None:
    run = Run(flow(seed, share, batch, passing=1.0))
    with run.session:
        for _ in run.deliveries():
            pass
        run.check_answers()
    assert run.session.counters.evictions > 0
    assert run.session.counters.fresh_tokens <= 1.05 * bound(run)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("share, batch", [(0.2, 96), (0.5, 96), (0.8, 96), (0.4, 48)])
def test_not_knowing_which_rows_pass_costs_less_than_a_fifth(
    seed: int, share: float, batch: int
) -> None:
    """The bound knows the survivors of a filter before it has run; nobody does."""
    run = Run(flow(seed, share, batch, passing=0.75))
    with run.session:
        for _ in run.deliveries():
            pass
        run.check_answers()
    assert run.session.counters.fresh_tokens <= 1.2 * bound(run)
